//! What can go wrong with a bucket, in words that say what would be right and give no secret away.

use std::{error::Error, io};

use tierfeed_core::units::Nanoseconds;

use super::Options;

/// Why there are no figures of a bucket.
///
/// `place` is the URL without query and credentials; `detail` is what the client library said, scrubbed.
/// The library's own error is not kept, because whoever prints its sources may print a signed URL.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectStoreError {
    /// The text is no URL.
    #[error("an object store is named by a URL such as s3://bucket/prefix: {0}")]
    NoUrl(url::ParseError),
    /// The URL holds a user, a password or a query.
    #[error(
        "the URL of an object store holds credentials or a query; leave them out, and set the \
         variables of the provider (AWS_ACCESS_KEY_ID, AZURE_STORAGE_SAS_KEY, …) instead"
    )]
    Credentials,
    /// The URL names a directory.
    #[error("file:// is no object store; measure the directory as a storage tier instead")]
    Local,
    /// There is no client for such a URL.
    #[error("{scheme}:// is no object store; write s3://, gs://, az://, http:// or https://")]
    Scheme {
        /// What stands before `://`.
        scheme: String,
    },
    /// A web server cannot be asked what it has.
    #[error("{place} names no object; a web server cannot list any, so name one")]
    NoObject {
        /// The URL.
        place: String,
    },
    /// The options contradict each other or lack something.
    #[error("cannot set up a client for {place}: {detail}")]
    Settings {
        /// The bucket.
        place: String,
        /// What the client said.
        detail: String,
    },
    /// No runtime could be started.
    #[error("cannot start a runtime: {0}")]
    Runtime(#[source] io::Error),
    /// The identity may not do it.
    #[error(
        "{place} refuses access: the identity needs the rights to list it and to read objects, and \
         to make and remove them if it may write ({detail})"
    )]
    Denied {
        /// The bucket.
        place: String,
        /// What the client said.
        detail: String,
    },
    /// Nobody said who reads.
    #[error(
        "no credentials for {place}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY \
         (GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_KEY), or read it anonymously; profiles in \
         ~/.aws are not read ({detail})"
    )]
    NoCredentials {
        /// The bucket.
        place: String,
        /// What the client said.
        detail: String,
    },
    /// There is no such bucket or object.
    #[error("{place} does not exist ({detail}); check its name, the endpoint and the region")]
    NotFound {
        /// The bucket.
        place: String,
        /// What the client said.
        detail: String,
    },
    /// There is nothing to read.
    #[error(
        "no object that holds a byte lies under {place}; name a prefix with some, or allow writes"
    )]
    Empty {
        /// The bucket and the prefix.
        place: String,
    },
    /// It takes too long.
    #[error("{place} did not answer within {patience}")]
    NoAnswer {
        /// The bucket.
        place: String,
        /// How long it was waited for.
        patience: Nanoseconds,
    },
    /// Anything else.
    #[error("{place} failed: {detail}")]
    Failed {
        /// The bucket.
        place: String,
        /// What the client said.
        detail: String,
    },
}

/// What went wrong, before the place is known.
#[derive(Debug)]
pub(super) enum Failure {
    Empty,
    Client(object_store::Error),
    /// A request of a measurement ended without an answer of its own.
    Task(tokio::task::JoinError),
}

impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Self {
        Self::Client(error)
    }
}

impl From<tokio::task::JoinError> for Failure {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::Task(error)
    }
}

/// Where a machine in a cloud is asked who it is.
const METADATA_SERVICES: [&str; 3] =
    ["169.254.169.254", "169.254.170.2", "metadata.google.internal"];

impl Failure {
    pub(super) fn explain(self, place: String, options: &Options) -> ObjectStoreError {
        let error = match self {
            Self::Empty => return ObjectStoreError::Empty { place },
            Self::Task(error) => {
                return ObjectStoreError::Failed { place, detail: scrubbed(&error, options) };
            }
            Self::Client(error) => error,
        };
        let detail = scrubbed(&error, options);
        if METADATA_SERVICES.iter().any(|service| detail.contains(service)) {
            return ObjectStoreError::NoCredentials { place, detail };
        }
        match status(&error, &detail) {
            Some(401 | 403) => ObjectStoreError::Denied { place, detail },
            Some(404) => ObjectStoreError::NotFound { place, detail },
            _ => ObjectStoreError::Failed { place, detail },
        }
    }
}

/// The answer of the server, where it decides. For a listing the client keeps it in a type that is not
/// public, so that only the text tells.
fn status(error: &object_store::Error, detail: &str) -> Option<u16> {
    match error {
        object_store::Error::PermissionDenied { .. } => Some(403),
        object_store::Error::Unauthenticated { .. } => Some(401),
        object_store::Error::NotFound { .. } => Some(404),
        _ => {
            let (_, behind) = detail.split_once("status code: ")?;
            behind.get(..3)?.parse().ok()
        }
    }
}

/// The text of the innermost errors too, because the client library says the cause there, without
/// anything secret (invariant 2 of the parent), and not much longer than a line.
pub(super) fn scrubbed(error: &dyn Error, options: &Options) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    let text = without_queries(&text);
    let secrets = options.0.iter().filter(|(name, value)| is_secret(name) && value.len() >= 4);
    let text = secrets.fold(text, |text, (_, value)| text.replace(value.as_str(), "***"));
    shortened(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["KEY", "SECRET", "TOKEN", "SAS", "PASSWORD", "CREDENTIAL", "ACCOUNT"]
        .iter()
        .any(|word| name.contains(word))
}

/// A signed URL has its signature behind a question mark; `<?xml` has none.
fn without_queries(text: &str) -> String {
    let mut parts = text.split('?');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_query = !plain.ends_with('<');
        plain.push('?');
        if !is_query {
            plain.push_str(part);
            continue;
        }
        let is_end = |c: char| c.is_whitespace() || matches!(c, ')' | '"' | '\'' | '>' | '<');
        plain.push_str(part.find(is_end).map_or("", |end| &part[end..]));
    }
    plain
}

/// Servers answer with pages of XML.
fn shortened(text: &str) -> String {
    const LEN_MAX: usize = 400;
    match text.char_indices().nth(LEN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_and_no_query_survives() {
        let options = [("AWS_SECRET_ACCESS_KEY", "wJalr/XUtn"), ("AWS_REGION", "eu-west-1")];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let error = io::Error::other(
            "GET https://h/b?sig=abc&se=1 (url https://h/b?X-Amz-Signature=def) of wJalr/XUtn \
             in eu-west-1: <?xml version=\"1.0\"?><Error/>",
        );
        assert_eq!(
            scrubbed(&error, &Options(options.into())),
            "GET https://h/b? (url https://h/b?) of *** in eu-west-1: <?xml version=\"1.0\"?><Error/>"
        );
    }

    #[test]
    fn long_answers_are_cut_at_a_character() {
        let text = shortened(&"ä".repeat(1000));
        assert_eq!(text.chars().count(), 401);
        assert_eq!(shortened("short"), "short");
    }

    #[test]
    fn options_print_their_names_only() {
        let options = Options([("AWS_TOKEN".to_owned(), "secret".to_owned())].into());
        assert_eq!(format!("{options:?}"), r#"{"AWS_TOKEN"}"#);
    }
}
