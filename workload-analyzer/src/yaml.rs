//! Reads the YAML files of users: job files and files of prices.
//!
//! Every error names file, line, key and value, and says what would be right.

pub(crate) mod location;
pub(crate) mod scalar;

use std::{
    fmt,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;
use tierfeed_core::units::Bytes;

use crate::nearest;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum YamlError {
    /// The file cannot be opened or is not UTF-8.
    #[error("{}: cannot be read: {source}", .file.display())]
    Unreadable { file: PathBuf, source: io::Error },
    #[error("{}: longer than {most}; no {kind} is", .file.display())]
    TooLarge { file: PathBuf, most: Bytes, kind: &'static str },
    /// Not YAML, an unknown, missing or repeated key, or an invalid value.
    #[error("{}:{line}: {}", .file.display(), phrase(.key, .said))]
    Malformed {
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The path of the key, or `.` for the whole file.
        key: String,
        /// Not a source of this error: the message contains it.
        said: serde_yaml::Error,
    },
}

/// The text of `file`, a `kind` of at most `most` bytes.
///
/// The read itself is bounded, not the file length: a pipe or a device has none.
pub(crate) fn text_of(file: &Path, most: Bytes, kind: &'static str) -> Result<String, YamlError> {
    let mut text = String::new();
    let read =
        File::open(file).and_then(|opened| opened.take(most.0 + 1).read_to_string(&mut text));
    match read {
        Err(source) => Err(YamlError::Unreadable { file: file.to_owned(), source }),
        Ok(_) if text.len() as u64 > most.0 => {
            Err(YamlError::TooLarge { file: file.to_owned(), most, kind })
        }
        Ok(_) => Ok(text),
    }
}

/// The value in `text`, which is that of `file`.
pub(crate) fn parse<T: DeserializeOwned>(text: &str, file: &Path) -> Result<T, YamlError> {
    let malformed = |key, said: serde_yaml::Error| {
        let line = said.location().map_or(1, |location| location.line());
        YamlError::Malformed { file: file.to_owned(), line, key, said }
    };
    location::refuse_repeated_keys(text).map_err(|said| malformed(".".to_owned(), said))?;
    let yaml = serde_yaml::Deserializer::from_str(text);
    serde_path_to_error::deserialize(yaml)
        .map_err(|error| malformed(error.path().to_string(), error.into_inner()))
}

/// A value with the reason why it is invalid, behind its key. A reason that lists words is followed by the
/// one that was probably meant.
pub(crate) fn invalid(value: &str, reason: impl fmt::Display) -> String {
    let reason = reason.to_string();
    let known = reason.strip_prefix("expected one of ").filter(|it| !it.starts_with("the units"));
    let meant = known.map_or_else(String::new, |known| did_you_mean(value, known.split(", ")));
    format!("is `{value}`; {reason}{meant}")
}

/// The message of the parser without the position, which is printed in front, and with the key only once.
///
/// The parser names the mapping of an unknown key, and `key` ends in the unknown key itself.
fn phrase(key: &str, said: &serde_yaml::Error) -> String {
    let position = said.location().map_or_else(String::new, |location| {
        format!(" at line {} column {}", location.line(), location.column())
    });
    let said = said.to_string().replacen(&position, "", 1);
    let parent = key.rsplit_once('.').map_or(key, |(parent, _)| parent);
    let named = |keys: &str| said.strip_prefix(&format!("{keys}: "));
    let said = with_known_words(named(key).or_else(|| named(parent)).unwrap_or(&said));
    match key {
        "." => said,
        _ if said.starts_with("is `") => format!("{key} {said}"),
        _ => format!("{key}: {said}"),
    }
}

/// The message about an unknown key or word, from that of the parser, which quotes it and those that it knows.
fn with_known_words(said: &str) -> String {
    let words = |kind: &str| {
        let (word, known) = said.strip_prefix(kind)?.rsplit_once("`, expected ")?;
        Some((word, known.split('`').skip(1).step_by(2)))
    };
    if let Some((word, known)) = words("unknown variant `") {
        let known: Vec<_> = known.collect();
        return invalid(word, format_args!("expected one of {}", known.join(", ")));
    }
    if let Some((word, known)) = words("unknown field `") {
        return format!("{said}{}", did_you_mean(word, known));
    }
    // Where a word stands, the parser would take a tag too.
    said.replace("a YAML tag starting with '!'", "a single value")
}

/// The end of a sentence about an unknown word; empty if no known word is similar.
fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |known| format!("; did you mean `{known}`?"))
}
