//! Errors in a job file, with messages that say what would be right.

use std::{io, path::PathBuf};

use tierfeed_core::{
    order::FURTHER_MAX,
    units::{self, Bytes},
};

use crate::nearest;

/// Why a job file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The file cannot be opened or is not UTF-8.
    #[error("{}: cannot be read: {source}", .file.display())]
    Unreadable {
        /// The path of the file.
        file: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is far too large for a job file.
    #[error("{}: longer than {}; no job file is", .file.display(), Bytes(super::FILE_BYTES_MAX))]
    TooLarge {
        /// The path of the file.
        file: PathBuf,
    },
    /// Not YAML, an unknown, missing or repeated key, or a value of the wrong type.
    #[error("{}:{line}: {}", .file.display(), phrase(.key, .said))]
    Malformed {
        /// The path of the file.
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The path of the key, or `.` for the whole file.
        key: String,
        /// The error of the parser. Not a source of this error: the message contains it.
        said: serde_yaml::Error,
    },
    /// A value that is not allowed.
    #[error("{}:{line}: {key} is `{value}`; {reason}{}", .file.display(), .reason.meant(.value))]
    Invalid {
        /// The path of the file.
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The path of the key.
        key: String,
        /// The value as typed.
        value: String,
        /// What would be right.
        reason: Reason,
    },
    /// Keys that conflict, or a missing key.
    #[error("{}:{line}: {key} {conflict}", .file.display())]
    Conflict {
        /// The path of the file.
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The path of the key.
        key: String,
        /// The conflict, and what would be right.
        conflict: KeyConflict,
    },
}

/// Why a value is not allowed, and what would be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The text is not one of the allowed words.
    #[error("expected one of {allowed}")]
    NotOneOf {
        /// The words that may stand here.
        allowed: &'static str,
    },
    /// The number is outside of its range.
    #[error("it must be between {min} and {max}")]
    OutOfRange {
        /// The smallest that is allowed.
        min: u64,
        /// The largest that is allowed.
        max: u64,
    },
    /// The text is not a size, time or rate.
    #[error("{problem}, for example `{example}`")]
    NotAQuantity {
        /// The error of the parser.
        problem: units::ParseError,
        /// A value that would be right.
        example: &'static str,
    },
    /// The size, time or rate is zero.
    #[error("it must be above 0, for example `{example}`")]
    Zero {
        /// A value that would be right.
        example: &'static str,
    },
    /// The text is not a share of samples.
    #[error("expected a percentage above 0 % up to 100 %, for example `1 %`")]
    NotASkipShare,
    /// The text is not a share.
    #[error("expected a whole percentage from 1 % to 90 %, for example `20 %`")]
    NotAShare,
    /// The text is not a size.
    #[error("expected a whole number of bytes, or a size such as `4 KiB`")]
    NotASize,
    /// The text is not a size of at least 1 B.
    #[error("expected a whole number of bytes of at least 1, or a size such as `4 KiB`")]
    NotARecordSize,
    /// The chunk size is not possible.
    #[error(
        "a chunk is a multiple of 4 KiB, at least 64 KiB and at most 1 TiB, for example `512 MiB`"
    )]
    NotAChunk,
    /// The size is less than one chunk, and a tier has only whole chunks.
    #[error("a tier has at least one chunk, which is {chunk} in this job")]
    BelowChunk {
        /// The chunk size of the job.
        chunk: Bytes,
    },
    /// The size is less than a page.
    #[error("it must be at least {least}, the largest page of any machine")]
    BelowPage {
        /// The largest page of any machine.
        least: Bytes,
    },
    /// The name cannot be that of a directory.
    #[error("expected 1 to 64 letters, digits, `-`, `_` or `.`, and no `.` in front")]
    NotAName,
    /// The path is empty.
    #[error("expected a path, absolute or from the directory of the job file")]
    EmptyPath,
    /// A URL is given in place of a path.
    #[error("expected a path on the node, absolute or from the directory of the job file")]
    UrlForPath,
    /// The path contains shell syntax, which is not expanded.
    #[error(
        "`~` and `$NAME` are for shells, and no shell reads this; write the whole path, as a URL such as \
         file:///data if there is a `$` in it"
    )]
    ForShells,
    /// The URL lacks a slash.
    #[error("that is a path; a URL has two slashes, as in `{right}`")]
    OneSlash {
        /// The scheme that is meant, as in `s3://`.
        right: &'static str,
    },
    /// The scheme of the URL is unknown.
    #[error(
        "expected a path, or a URL that starts with file://, s3://, gs://, az://, https:// or http://"
    )]
    UnknownScheme,
    /// The URL has no bucket.
    #[error("expected a bucket or a host behind {scheme}, for example `{scheme}name/train`")]
    NoBucket {
        /// The scheme, as in `s3://`.
        scheme: &'static str,
    },
    /// The URL contains a user or a signature.
    #[error(
        "a URL holds no credentials and no query; give them to the environment, for example as \
         AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )]
    CredentialsInUrl,
    /// The text is not the URL of a server.
    #[error("expected the URL of a server, for example `http://127.0.0.1:9000`")]
    NotAnEndpoint,
    /// No path below the source can match the pattern.
    #[error("expected a pattern for paths below the source, for example `**/*.npz`")]
    NotAPattern,
    /// The name is empty.
    #[error("expected a name, for example `{example}`")]
    EmptyName {
        /// A value that would be right.
        example: &'static str,
    },
    /// The name is listed twice.
    #[error("each name may be listed once")]
    NamedTwice,
    /// The file URL has a host or a relative path.
    #[error("a file URL has three slashes and an absolute path, for example `file:///data/train`")]
    NotAFileUrl,
    /// The standard deviation is too large for the mean.
    #[error("sizes that spread by more than nine tenths of their mean, {mean}, are not supported")]
    TooMuchSpread {
        /// The mean size of a sample.
        mean: Bytes,
    },
    /// The dataset has more samples than fit in 32 bits.
    #[error("{samples} samples; at most {} can be numbered", u32::MAX)]
    TooManySamples {
        /// Number of samples in all objects.
        samples: u64,
    },
    /// The dataset has more bytes than the sums of a plan can hold.
    #[error(
        "{samples} samples of this size; a sample has at most 64 GiB, all together at most 1 EiB"
    )]
    TooMuchData {
        /// Number of samples in all objects.
        samples: u64,
    },
    /// The text is neither a number of samples nor a share of the cache.
    #[error(
        "expected a number of samples from {min} to {max}, or a share of the cache such as `50 %`"
    )]
    NotASampleCount {
        /// The smallest number.
        min: u32,
        /// The largest number.
        max: u32,
    },
    /// The text is not an interval of epochs or steps.
    #[error("expected a number of epochs or steps, for example `1 epoch` or `500 steps`")]
    NotAnInterval,
    /// The interval is in steps where only epochs are allowed.
    #[error("expected a number of epochs, for example `1 epoch`")]
    NotEpochs,
    /// The text is not a version of PyTorch.
    #[error("expected a version as `torch.__version__` prints it, for example `2.6.0`")]
    NotATorchVersion,
    /// The text is no number of threads.
    #[error("expected `auto`, or a number of threads from 1 to {max}")]
    NotAThreadCount {
        /// The largest number.
        max: u32,
    },
    /// A step of a transform is wrong.
    #[error("{0}")]
    WrongStep(tierfeed_transform::Reason),
    /// The elements of samples are of another type.
    #[error("the `dtype` of the dataset is `{stated}`; both say what its files hold")]
    OtherElements {
        /// The type that the dataset states.
        stated: &'static str,
    },
    /// The NUMA node is listed twice.
    #[error("each NUMA node may be listed once")]
    Repeated,
}

impl Reason {
    /// A suggestion of the allowed word that `value` is most like, as the end of a sentence.
    fn meant(self, value: &str) -> String {
        match self {
            Self::NotOneOf { allowed } => did_you_mean(value, allowed.split(", ")),
            _ => String::new(),
        }
    }
}

/// The end of a sentence about an unknown word; empty if no known word is similar.
fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |known| format!("; did you mean `{known}`?"))
}

/// A suggestion for an unknown key, from the list of keys in the message of the parser.
fn meant_key(said: &str) -> String {
    let Some((_, rest)) = said.split_once("unknown field `") else { return String::new() };
    let mut quoted = rest.split('`').step_by(2);
    let key = quoted.next().unwrap_or_default();
    did_you_mean(key, quoted)
}

/// Which keys conflict or are missing, and what would be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyConflict {
    /// The tier has neither size nor reserve.
    #[error("has no budget; give `size: 16 GiB` or `reserve: 20 %`")]
    NoBudget,
    /// The tier has both size and reserve.
    #[error("has both `size` and `reserve`; keep one of them")]
    TwoBudgets,
    /// Scratch for the job is requested without a scratch tier.
    #[error("is a part of `tiers.scratch`, which the job does not have; add it")]
    NoScratchTier,
    /// Files are to be kept on a RAM disk that is removed after the run.
    #[error(
        "keeps files, and the RAM disk of the agent is removed after the run; name a directory as \
         `tiers.scratch.path`"
    )]
    NothingKept,
    /// A key that the format needs is missing.
    #[error("has `format: {format}`, which needs `{key}`, {what}")]
    NeededByFormat {
        /// The name of the format.
        format: &'static str,
        /// The key that is missing.
        key: &'static str,
        /// The meaning of the key.
        what: &'static str,
    },
    /// The key belongs to another format.
    #[error("is for `format: {formats}` only; remove it")]
    OfOtherFormat {
        /// The formats that have the key.
        formats: &'static str,
    },
    /// The files of the format are listed by its own index.
    #[error("is for other formats: the index.json of this one lists its files; remove it")]
    ListedByIndex,
    /// The order of the format is that of its classes.
    #[error("is for other formats: classes say the order of this one; use `glob`")]
    OrderedByClass,
    /// The key belongs to buckets, or to buckets of another provider.
    #[error("is for sources that start with {schemes} only; remove it")]
    OfOtherSource {
        /// The schemes that have the key.
        schemes: &'static str,
    },
    /// Two keys have the same meaning.
    #[error("stands beside `{other}`, which says the same; keep one of them")]
    Beside {
        /// The key that has the same meaning.
        other: &'static str,
    },
    /// The list of names is empty.
    #[error("is empty; list a name, or remove it to take all")]
    EmptyList,
    /// The key is a credential, and a job file is read by others.
    #[error(
        "is a credential, and a job file holds none; give it to the environment, for example as \
         AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )]
    Credential,
    /// The decoded sample has no array.
    #[error("has no array; give `width`, `height` and `channels`, or 1 to 256 `elements`")]
    NoElement,
    /// The size of a checkpoint is unknown.
    #[error(
        "has no `bytes`, and there is no `model` from which they would follow; give one of them"
    )]
    NoCheckpointBytes,
    /// A key that the shuffle needs is missing.
    #[error("has `shuffle: {shuffle}`, which needs `{key}`, {what}")]
    NeededByShuffle {
        /// The name of the shuffle.
        shuffle: &'static str,
        /// The key that is missing.
        key: &'static str,
        /// The meaning of the key.
        what: &'static str,
    },
    /// The key belongs to another shuffle.
    #[error("is for `shuffle: {shuffles}` only; remove it")]
    OfOtherShuffle {
        /// The shuffles that have the key.
        shuffles: &'static str,
    },
    /// The keys adjust another policy than the job has.
    #[error("is for `policy: {policies}` only, and the job has `policy: {policy}`; remove it")]
    OfOtherPolicy {
        /// The policies that have the key.
        policies: &'static str,
        /// The policy of the job.
        policy: tierfeed_core::retention::policy::Kind,
    },
    /// The lazy variant of Lobster evicts by distance in any case.
    #[error(
        "is for `policy: lobster` only: `lobster-lazy` evicts the sample with the farthest next use \
         and has no limit; remove it"
    )]
    LazyDistance,
    /// The room for look-ahead follows from the fetches of DELI.
    #[error(
        "stands beside `deli`, whose fetch_size and threshold say how much is fetched ahead; keep one of them"
    )]
    FetchesOfDeli,
    /// The fetches of DELI do not fit into the cache.
    #[error(
        "has fetch_size: {size} % and threshold: {threshold} %, more than the cache together; \
         the 50/50 rule is {{ fetch_size: 50 %, threshold: 50 % }}"
    )]
    FetchesBeyondCache {
        /// The fetch size, in percent of the cache.
        size: u8,
        /// The threshold, in percent of the cache.
        threshold: u8,
    },
    /// The key `emulate` is empty.
    #[error("has neither `latency` nor `bandwidth`; give one of them, or remove it")]
    EmulatesNothing,
    /// A dataset beside an order that only the trainer knows.
    #[error(
        "stands beside `shuffle: published`, where only the trainer knows when an epoch ends; use another \
         `order.shuffle`, or a job of its own for each dataset"
    )]
    BesidePublished,
    /// A dataset beside one that does not exist.
    #[error("stands beside `dataset.described`, which has no samples to read; remove one of them")]
    BesideDescribed,
    /// More datasets than a job may have.
    #[error("names more than {max} datasets; keep {max} beside `dataset`", max = FURTHER_MAX)]
    TooManyDatasets,
    /// Samples are always read in place, but also always compared with their checksum, which needs a copy.
    #[error(
        "is `always` in a job with `verify: always`: a sample is compared when it is copied, and one that \
         is read in place is not; use `auto` or `never` here, or `verify: shared`"
    )]
    DirectUnverified,
    /// Nodes cannot compute who holds what of an order that only trainers know.
    #[error(
        "is `partitioned`, which needs an order that every node can compute; use another `order.shuffle` than \
         `published`, or `policy: gap`"
    )]
    NothingToPartition,
    /// Samples are always read in place, but the policy may evict them at any time.
    #[error(
        "is `always`, but with `policy: {policy}` and this order a sample may be evicted at any time; \
         use `auto` or `never` here, or `policy: gap` with an order that is computed, or \
         `policy: pinned`"
    )]
    DirectUnsettled {
        /// The policy of the job.
        policy: tierfeed_core::retention::policy::Kind,
    },
    /// Each dataset would have a form of its own.
    #[error(
        "is `prepared` in a job with `datasets`, whose samples would have other sizes; use `stored` or `auto`"
    )]
    PreparedOfSeveral,
    /// Only a dataset beside the first has a transform.
    #[error(
        "stands in a job without `transform`, which is that of the first dataset; add it, or transform in the \
         trainer (`decode=`)"
    )]
    FirstUntransformed,
    /// The samples of the format are not what the steps are for.
    #[error(
        "has steps for {steps}, which are samples of `format: {formats}`; remove it, and decode in the trainer"
    )]
    OfOtherSamples {
        /// What the steps are for.
        steps: &'static str,
        /// The formats with such samples.
        formats: &'static str,
    },
    /// A sample is many rows, and a transform makes one row of it.
    #[error(
        "makes one row of a sample, and one of `format: {format}` is a {sample}, many rows; write each row as a sample \
         of webdataset, mds or tfrecord (docs/transforms.md, \"Rows of tables\", has the script), or decode in the \
         trainer (`decode=`)"
    )]
    ManyRows {
        /// The format of the dataset.
        format: &'static str,
        /// What a sample is.
        sample: &'static str,
    },
    /// HDF5 holds arrays.
    #[error(
        "has steps for images, and a sample of `format: hdf5` is a row of one array; begin with `array` if it holds \
         pixels, else write the images as samples of webdataset, mds or tfrecord (docs/transforms.md, \"Rows of \
         tables\", has the script)"
    )]
    ImagesInHdf5,
    /// A job reads one array of HDF5.
    #[error(
        "is for samples of several fields, and `format: hdf5` reads one array, which `dataset.dataset` names; remove \
         it, or write what belongs together as samples of webdataset, mds or tfrecord (docs/transforms.md, \"Rows of \
         tables\", has the script)"
    )]
    FieldOfHdf5,
    /// The samples have no fields.
    #[error(
        "is for samples of several fields, which are those of `format: webdataset, tfrecord, mds, litdata`; remove it"
    )]
    NoFields,
    /// Arrays and tokens are not found by the names of fields.
    #[error(
        "has steps for {steps}, and samples of `format: {format}` have several fields; name the one that holds \
         them, for example `field: npy`"
    )]
    UnnamedField {
        /// What the steps are for.
        steps: &'static str,
        /// The format of the dataset.
        format: &'static str,
    },
    /// The other fields are in the stored form only.
    #[error(
        "is `prepared`, but samples of `format: {format}` have other fields, which trainers get from their \
         stored bytes; use `stored` or `auto`"
    )]
    PreparedField {
        /// The format of the dataset.
        format: &'static str,
    },
    /// Samples are read in place, but a transform needs a place for what it yields.
    #[error(
        "stands beside a tier with `direct: always`, which hands samples out as they are stored; use `auto` or \
         `never` there"
    )]
    TransformedInPlace,
    /// What comes before the first random step depends on what that draws.
    #[error(
        "is `prepared`, but with `scaled: true` an image is decoded at the scale of each crop; begin with a resize, \
         leave `scaled` out, or use `stored` or `auto`"
    )]
    NothingPrepared,
    /// The list of NUMA nodes is empty.
    #[error("is empty; list a NUMA node, or remove it to use what was measured")]
    NoNumaNodes,
}

/// The message of the parser without the position, which is printed in front, and with the key only once.
///
/// The parser names the mapping of an unknown key, and `key` ends in the unknown key itself.
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
