//! Invalid keys of a dataset. A caller whose user knows them by other names, or in a file, says so.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("{key} is `{value}`; {reason}")]
    Invalid {
        /// The key, as in job files.
        key: &'static str,
        /// The value, without credentials.
        value: String,
        reason: Reason,
    },
    #[error("{} {conflict}", .key.unwrap_or("the dataset"))]
    Conflict {
        /// The key, as in job files; `None` if a key is missing.
        key: Option<&'static str>,
        conflict: KeyConflict,
    },
}

/// Why a value is wrong, as the end of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    #[error("expected one of {0}")]
    NotOneOf(String),
    #[error("it must be between {min} and {max}")]
    OutOfRange { min: u64, max: u64 },
    #[error("expected a whole number of bytes, or a size such as `4 KiB`")]
    NotASize,
    #[error("expected a whole number of bytes of at least 1, or a size such as `4 KiB`")]
    NotARecordSize,
    #[error("expected a path, absolute or from the directory of the job file")]
    EmptyPath,
    #[error("expected a path on the node, absolute or from the directory of the job file")]
    UrlForPath,
    #[error(
        "`~` and `$NAME` are for shells, and no shell reads this; write the whole path, as a URL such as \
         file:///data if there is a `$` in it"
    )]
    ForShells,
    #[error("that is a path; a URL has two slashes, as in `{right}`")]
    OneSlash { right: &'static str },
    #[error(
        "expected a path, or a URL that starts with file://, s3://, gs://, az://, https:// or http://"
    )]
    UnknownScheme,
    #[error("expected a bucket or a host behind {scheme}, for example `{scheme}name/train`")]
    NoBucket { scheme: &'static str },
    #[error(
        "a URL holds no credentials and no query; give them to the environment, for example as \
         AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )]
    CredentialsInUrl,
    #[error("expected the URL of a server, for example `http://127.0.0.1:9000`")]
    NotAnEndpoint,
    #[error("expected a pattern for paths below the source, for example `**/*.npz`")]
    NotAPattern,
    #[error("expected a name, for example `{example}`")]
    EmptyName { example: &'static str },
    #[error("each name may be listed once")]
    NamedTwice,
    #[error("a file URL has three slashes and an absolute path, for example `file:///data/train`")]
    NotAFileUrl,
}

/// How a key does not fit others, behind its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyConflict {
    #[error("has `format: {format}`, which needs `{key}`, {what}")]
    NeededByFormat { format: &'static str, key: &'static str, what: &'static str },
    #[error("is for `format: {formats}` only; remove it")]
    OfOtherFormat { formats: String },
    #[error("is for other formats: the index.json of this one lists its files; remove it")]
    ListedByIndex,
    #[error("is for other formats: classes say the order of this one; use `glob`")]
    OrderedByClass,
    #[error("is for sources that start with {schemes} only; remove it")]
    OfOtherSource { schemes: &'static str },
    #[error("stands beside `{other}`, which says the same; keep one of them")]
    Beside { other: &'static str },
    #[error("is empty; list a name, or remove it to take all")]
    EmptyList,
}

pub(in crate::format) fn invalid(key: &'static str, value: &str, reason: Reason) -> KeyError {
    KeyError::Invalid { key, value: value.to_owned(), reason }
}

pub(in crate::format) fn conflict(key: &'static str, conflict: KeyConflict) -> KeyError {
    KeyError::Conflict { key: Some(key), conflict }
}
