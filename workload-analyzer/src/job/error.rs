//! What can be wrong with a job file, told so that the user can correct it without a manual.

use std::{io, path::PathBuf};

use tierfeed_core::units::{self, Bytes};

use crate::nearest;

/// Why a job file describes no job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The file cannot be opened or is not UTF-8.
    #[error("{}: cannot be read: {source}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is far too large for a job file.
    #[error("{}: longer than {}; no job file is", .file.display(), Bytes(super::FILE_BYTES_MAX))]
    TooLarge {
        /// The file.
        file: PathBuf,
    },
    /// No YAML, an unknown, missing or repeated key, or a value of another type.
    #[error("{}:{line}: {}", .file.display(), phrase(.key, .said))]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The keys that lead to the place, or `.` for the whole file.
        key: String,
        /// What the parser said. Not a source of this error: the message holds all of it.
        said: serde_yaml::Error,
    },
    /// A value that cannot be.
    #[error("{}:{line}: {key} is `{value}`; {reason}{}", .file.display(), .reason.meant(.value))]
    Invalid {
        /// The file.
        file: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The keys that lead to the value.
        key: String,
        /// The value as typed.
        value: String,
        /// What would be right.
        reason: Reason,
    },
    /// Keys that do not go together.
    #[error("{}:{line}: {key} {misfit}", .file.display())]
    Misfit {
        /// The file.
        file: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The keys that lead to the place.
        key: String,
        /// What does not go together.
        misfit: Misfit,
    },
}

/// Why a value cannot be, and what would be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// Not one of a fixed set of words.
    #[error("expected one of {allowed}")]
    NotOneOf {
        /// The words that may stand here.
        allowed: &'static str,
    },
    /// A rule that a job file cannot give what it needs.
    #[error(
        "it divides by rates that were measured with several numbers of threads, which a job does not \
         have; expected one of shared, proportional"
    )]
    NeedsMeasuredRates,
    /// A number outside its range.
    #[error("it must be between {min} and {max}")]
    OutOfRange {
        /// The smallest that is allowed.
        min: u64,
        /// The largest that is allowed.
        max: u64,
    },
    /// A size, time or rate that does not read as one.
    #[error("{problem}, for example `{example}`")]
    NotAQuantity {
        /// What the parser said.
        problem: units::ParseError,
        /// One that would be right.
        example: &'static str,
    },
    /// A size, time or rate of zero.
    #[error("it must be above 0, for example `{example}`")]
    Zero {
        /// One that would be right.
        example: &'static str,
    },
    /// A share that is none.
    #[error("expected a whole percentage from 1 % to 90 %, for example `20 %`")]
    NotAShare,
    /// A size that is none.
    #[error("expected a whole number of bytes, or a size such as `4 KiB`")]
    NotASize,
    /// A record size that is none.
    #[error("expected a whole number of bytes of at least 1, or a size such as `4 KiB`")]
    NotARecordSize,
    /// A chunk that memory cannot be cut into.
    #[error(
        "a chunk is a multiple of 4 KiB, at least 64 KiB and at most 1 TiB, for example `512 MiB`"
    )]
    NotAChunk,
    /// Less than one chunk of a tier that only has whole chunks.
    #[error("a tier has at least one chunk, which is {chunk} in this job")]
    BelowChunk {
        /// The chunk of the job.
        chunk: Bytes,
    },
    /// A name that cannot name a directory.
    #[error("expected 1 to 64 letters, digits, `-`, `_` or `.`, and no `.` in front")]
    NotAName,
    /// An empty path.
    #[error("expected a path, absolute or from the directory of the job file")]
    EmptyPath,
    /// A URL where only a path goes.
    #[error("expected a path on the node, absolute or from the directory of the job file")]
    UrlForPath,
    /// A path that a shell would have changed.
    #[error(
        "`~` and `$NAME` are for shells, and no shell reads this; write the whole path, as a URL such as \
         file:///data if there is a `$` in it"
    )]
    ForShells,
    /// A URL that lacks a slash.
    #[error("that is a path; a URL has two slashes, as in `{right}`")]
    OneSlash {
        /// The start of what is meant, as in `s3://`.
        right: &'static str,
    },
    /// A scheme that nobody knows.
    #[error(
        "expected a path, or a URL that starts with file://, s3://, gs://, az://, https:// or http://"
    )]
    UnknownScheme,
    /// A URL without a bucket.
    #[error("expected a bucket or a host behind {scheme}, for example `{scheme}name/train`")]
    NoBucket {
        /// The scheme, as in `s3://`.
        scheme: &'static str,
    },
    /// A URL with a user or a signature.
    #[error(
        "a URL holds no credentials and no query; give them to the environment, for example as \
         AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )]
    CredentialsInUrl,
    /// A server that is none.
    #[error("expected the URL of a server, for example `http://127.0.0.1:9000`")]
    NotAnEndpoint,
    /// A pattern that no path below the source can match.
    #[error("expected a pattern for paths below the source, for example `**/*.npz`")]
    NotAPattern,
    /// A name without a letter.
    #[error("expected a name, for example `{example}`")]
    EmptyName {
        /// One that would be right.
        example: &'static str,
    },
    /// A name that is listed twice.
    #[error("each name may be listed once")]
    NamedTwice,
    /// A file URL with a host or a relative path.
    #[error("a file URL has three slashes and an absolute path, for example `file:///data/train`")]
    NotAFileUrl,
    /// A spread that a size cannot have.
    #[error("sizes that spread by more than nine tenths of their mean, {mean}, are not supported")]
    TooMuchSpread {
        /// The mean.
        mean: Bytes,
    },
    /// More samples than 32 bits can number.
    #[error("{samples} samples; at most {} can be numbered", u32::MAX)]
    TooManySamples {
        /// In all objects.
        samples: u64,
    },
    /// More bytes than can be counted on all paths through a plan.
    #[error(
        "{samples} samples of this size; a sample has at most 64 GiB, all together at most 1 EiB"
    )]
    TooMuchData {
        /// In all objects.
        samples: u64,
    },
    /// A distance that is none.
    #[error("expected a number of epochs or steps, for example `1 epoch` or `500 steps`")]
    NotADistance,
    /// A distance in steps where only epochs go.
    #[error("expected a number of epochs, for example `1 epoch`")]
    NotEpochs,
    /// No release of PyTorch.
    #[error("expected a version as `torch.__version__` prints it, for example `2.6.0`")]
    NotATorchVersion,
    /// A NUMA node that is listed twice.
    #[error("each NUMA node may be listed once")]
    Repeated,
}

impl Reason {
    /// The allowed word that `value` is like, as the end of a sentence.
    fn meant(self, value: &str) -> String {
        match self {
            Self::NotOneOf { allowed } => did_you_mean(value, allowed.split(", ")),
            _ => String::new(),
        }
    }
}

/// The end of a sentence about a word that is not known; empty if no known word is like it.
fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |known| format!("; did you mean `{known}`?"))
}

/// What an unknown key may have meant, by the list of keys in the sentence of the parser.
fn meant_key(said: &str) -> String {
    let Some((_, rest)) = said.split_once("unknown field `") else { return String::new() };
    let mut quoted = rest.split('`').step_by(2);
    let key = quoted.next().unwrap_or_default();
    did_you_mean(key, quoted)
}

/// Which keys do not go together, and what would be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misfit {
    /// Neither size nor reserve.
    #[error("has no budget; give `size: 16 GiB` or `reserve: 20 %`")]
    NoBudget,
    /// Both size and reserve.
    #[error("has both `size` and `reserve`; keep one of them")]
    TwoBudgets,
    /// Tiers without the one that batches are staged in.
    #[error("has no `main-memory`, where batches are staged; give it a size or a reserve")]
    NoMainMemory,
    /// Scratch for the job without a tier that it could come from.
    #[error("is a part of `tiers.scratch`, which the job does not have; add it")]
    NoScratchTier,
    /// A format without a key that it cannot do without.
    #[error("has `format: {format}`, which needs `{key}`, {what}")]
    NeededByFormat {
        /// The name of the format.
        format: &'static str,
        /// The key that is missing.
        key: &'static str,
        /// What it says.
        what: &'static str,
    },
    /// A key of another format.
    #[error("is for `format: {formats}` only; remove it")]
    OfOtherFormat {
        /// The formats that have the key.
        formats: &'static str,
    },
    /// A key of buckets, or of other buckets.
    #[error("is for sources that start with {schemes} only; remove it")]
    OfOtherSource {
        /// The schemes that have the key.
        schemes: &'static str,
    },
    /// Two keys that say the same.
    #[error("stands beside `{other}`, which says the same; keep one of them")]
    Beside {
        /// The other key.
        other: &'static str,
    },
    /// A list of names without any.
    #[error("is empty; list a name, or remove it to take all")]
    EmptyList,
    /// A key with a secret in a file that others read.
    #[error(
        "is a credential, and a job file holds none; give it to the environment, for example as \
         AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )]
    Credential,
    /// A decoded sample without an array.
    #[error("has no array; give `width`, `height` and `channels`, or 1 to 256 `elements`")]
    NoElement,
    /// A checkpoint of unknown size.
    #[error(
        "has no `bytes`, and there is no `model` from which they would follow; give one of them"
    )]
    NoCheckpointBytes,
    /// A shuffle without a key that it cannot do without.
    #[error("has `shuffle: {shuffle}`, which needs `{key}`, {what}")]
    NeededByShuffle {
        /// The name of the shuffle.
        shuffle: &'static str,
        /// The key that is missing.
        key: &'static str,
        /// What it says.
        what: &'static str,
    },
    /// A key of another shuffle.
    #[error("is for `shuffle: {shuffles}` only; remove it")]
    OfOtherShuffle {
        /// The shuffles that have the key.
        shuffles: &'static str,
    },
    /// `emulate` without anything in it.
    #[error("has neither `latency` nor `bandwidth`; give one of them, or remove it")]
    EmulatesNothing,
    /// Samples that are to be read in place always, and compared always.
    #[error(
        "is `always` in a job with `verify: always`: what nobody copies is compared by nobody; \
         use `auto` or `never` here, or `verify: shared`"
    )]
    DirectUnverified,
    /// Samples that are to be read in place always, and may have to make room at any time.
    #[error(
        "is `always`, but with `policy: {policy}` and this order a sample may have to make room at any \
         time; use `auto` or `never` here, or `policy: gap` with an order that is computed, or \
         `policy: pinned`"
    )]
    DirectUnsettled {
        /// The policy of the job.
        policy: tierfeed_core::retention::policy::Kind,
    },
    /// A list of NUMA nodes without any.
    #[error("is empty; list a NUMA node, or remove it to use what was measured")]
    NoNumaNodes,
}

/// The parser's sentence without the position, which stands in front, and with the key once.
///
/// The parser names the mapping that an unknown key is in, and `key` ends in the unknown key itself.
pub(crate) fn phrase(key: &str, said: &serde_yaml::Error) -> String {
    let position = said.location().map_or_else(String::new, |location| {
        format!(" at line {} column {}", location.line(), location.column())
    });
    let said = said.to_string().replacen(&position, "", 1);
    let said = format!("{said}{}", meant_key(&said));
    if key == "." {
        return said;
    }
    let parent = key.rsplit_once('.').map_or(key, |(parent, _)| parent);
    let named = |keys: &str| said.strip_prefix(&format!("{keys}: "));
    let said = named(key).or_else(|| named(parent)).unwrap_or(&said);
    format!("{key}: {said}")
}
