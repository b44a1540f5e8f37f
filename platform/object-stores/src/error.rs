//! Errors of requests, with messages that name the fix and contain no secret.

use std::error::Error;

use object_store::client::{HttpError, HttpErrorKind};

use crate::{options::Options, range::RangeError};

/// A request that failed.
///
/// The library's own error is not kept, because printing its sources may print a signed URL.
#[derive(Debug, thiserror::Error)]
#[error("{place} {fault} ({detail})")]
pub struct RequestError {
    /// The bucket or object: its URL without query and credentials.
    pub place: String,
    /// Why it failed.
    pub fault: RequestFault,
    /// The message of the client library, without secrets.
    pub detail: String,
}

/// Why a request failed, behind the place in a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestFault {
    /// The identity has no permission.
    #[error(
        "refuses access: the identity needs the rights to list it and to read objects, and to make and remove \
         them if it may write; a public bucket is read anonymously"
    )]
    Denied,
    /// The keys or the token of the request ended.
    #[error(
        "says that the keys expired: renew them, with `aws sso login` or as you got them. Those of ~/.aws are \
         read again, those of variables only by a new process"
    )]
    Expired,
    /// The clocks of this machine and of the store differ.
    #[error("says that the clock of this machine is off by 15 minutes or more: set it")]
    Clock,
    /// The store does not know the keys.
    #[error(
        "does not accept these keys: see AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile that \
         AWS_PROFILE names, and the endpoint"
    )]
    WrongKeys,
    /// The settings contain no identity.
    #[error(
        "needs credentials, and there are none: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile \
         that has keys by AWS_PROFILE (GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_KEY), or read it anonymously"
    )]
    NoCredentials,
    /// There is no such bucket or object.
    #[error("does not exist; check its name, the endpoint and the region")]
    NotFound,
    /// The object is another version than the requested one.
    #[error("was written or replaced since it was listed")]
    Changed,
    /// The server is overloaded, for longer than the retries last.
    #[error("refuses more requests for now; try again later, or with fewer readers")]
    Throttled,
    /// The bucket is in another region.
    #[error("is in another region; set AWS_REGION, or the region of the dataset")]
    Region,
    /// No server could be reached.
    #[error("cannot be reached; check the endpoint and the network")]
    Unreachable,
    /// The server does not answer.
    #[error("does not answer; check the endpoint, or try again later")]
    Silent,
    /// The client cannot represent a key.
    #[error(
        "has an object that cannot be read; rename it: no part of a key between two `/` may be empty, `.` or `..`, \
         or have control characters"
    )]
    Key,
    /// The request failed for another reason.
    #[error("failed")]
    Failed,
}

/// The addresses at which a cloud machine requests its identity.
const METADATA_SERVICES: [&str; 3] =
    ["169.254.169.254", "169.254.170.2", "metadata.google.internal"];

impl RequestError {
    /// Whether other input would help, rather than another attempt.
    #[must_use]
    pub fn is_input(&self) -> bool {
        use RequestFault::{Failed, Silent, Throttled};
        !matches!(self.fault, Throttled | Silent | Failed)
    }

    /// Whether the store refuses these keys or this identity, or there are none.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        use RequestFault::{Clock, Denied, Expired, NoCredentials, WrongKeys};
        matches!(self.fault, Denied | Expired | Clock | WrongKeys | NoCredentials)
    }

    pub(crate) fn new(error: &object_store::Error, place: String, options: &Options) -> Self {
        let whole = whole(error, options);
        let detail = shortened(&whole);
        Self { fault: RequestFault::of(error, &whole, &detail), place, detail }
    }
}

impl RequestFault {
    fn of(error: &object_store::Error, whole: &str, detail: &str) -> Self {
        match code(whole) {
            // By the names of S3, which other stores with its interface use too.
            Some("ExpiredToken" | "TokenRefreshRequired" | "ExpiredTokenException") => {
                return Self::Expired;
            }
            Some("RequestTimeTooSkewed" | "RequestExpired") => return Self::Clock,
            Some("InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken") => {
                return Self::WrongKeys;
            }
            _ => {}
        }
        if METADATA_SERVICES.iter().any(|service| detail.contains(service)) {
            return Self::NoCredentials;
        }
        if is_about_region(detail) {
            return Self::Region;
        }
        match (status(error, detail), kind(error)) {
            (Some(401 | 403), _) => Self::Denied,
            (Some(404), _) => Self::NotFound,
            (Some(412), _) => Self::Changed,
            (Some(429 | 503), _) => Self::Throttled,
            (_, Some(HttpErrorKind::Connect)) => Self::Unreachable,
            (_, Some(HttpErrorKind::Timeout)) => Self::Silent,
            _ if is_about_key(error) => Self::Key,
            _ => Self::Failed,
        }
    }
}

impl RangeError {
    /// Whether the same request may succeed later: the store was busy or unreachable, or the answer
    /// broke off.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Gone | Self::Changed => false,
            Self::Length { expected, found } => found < expected,
            Self::Silent { .. } => true,
            Self::Client(error) => match status(error, &error.to_string()) {
                Some(status) => matches!(status, 408 | 429 | 500..=599),
                None => kind(error).is_some(),
            },
        }
    }
}

/// The code in the body of an answer of S3.
fn code(detail: &str) -> Option<&str> {
    let (_, rest) = detail.split_once("<Code>")?;
    rest.split_once("</Code>").map(|(code, _)| code.trim())
}

/// `PermanentRedirect` and `AuthorizationHeaderMalformed` of S3, and the client's error for a
/// redirect without a target.
fn is_about_region(detail: &str) -> bool {
    let words = ["incorrectly configured region", "PermanentRedirect", "the region '"];
    words.iter().any(|word| detail.contains(word))
}

/// The status of the server's answer, if it decides. For a listing the client keeps it in a private
/// type, so it is taken from the text.
fn status(error: &object_store::Error, detail: &str) -> Option<u16> {
    match error {
        object_store::Error::PermissionDenied { .. } => Some(403),
        object_store::Error::Unauthenticated { .. } => Some(401),
        object_store::Error::NotFound { .. } => Some(404),
        object_store::Error::Precondition { .. } => Some(412),
        _ => {
            let (_, behind) = detail.split_once("status code: ")?;
            behind.get(..3)?.parse().ok()
        }
    }
}

type Cause<'a> = &'a (dyn Error + 'static);

fn causes(error: Cause<'_>) -> impl Iterator<Item = Cause<'_>> {
    std::iter::successors(Some(error), |it: &Cause<'_>| (*it).source())
}

fn kind(error: &object_store::Error) -> Option<HttpErrorKind> {
    causes(error).find_map(|it| it.downcast_ref::<HttpError>()).map(HttpError::kind)
}

fn is_about_key(error: &object_store::Error) -> bool {
    causes(error).any(<dyn Error + 'static>::is::<object_store::path::Error>)
}

/// The text of an error with the innermost causes, because the client library puts the reason
/// there, without secrets (invariant 1 of the crate), and not much longer than a line.
pub fn scrubbed(error: &dyn Error, options: &Options) -> String {
    shortened(&whole(error, options))
}

/// As [`scrubbed`], of any length.
fn whole(error: &dyn Error, options: &Options) -> String {
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
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["KEY", "SECRET", "TOKEN", "SAS", "PASSWORD", "CREDENTIAL", "ACCOUNT"]
        .iter()
        .any(|word| name.contains(word))
}

/// Removes queries: a signed URL has its signature behind a question mark. `<?xml` is no query.
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

/// Shortens a message, as servers answer with pages of XML.
fn shortened(text: &str) -> String {
    const LEN_MAX: usize = 400;
    match text.char_indices().nth(LEN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

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
    fn the_code_of_an_answer_decides_what_is_said() {
        let said = |code: &str| {
            let body = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
            let error = object_store::Error::Generic { store: "S3", source: body.into() };
            RequestError::new(&error, "s3://bucket".to_owned(), &Options::default())
        };
        assert!(said("ExpiredToken").to_string().contains("the keys expired: renew them"));
        assert!(said("RequestTimeTooSkewed").to_string().contains("the clock of this machine"));
        for code in ["InvalidAccessKeyId", "SignatureDoesNotMatch"] {
            assert!(said(code).to_string().contains("does not accept these keys"), "{code}");
        }
        let codes = ["ExpiredToken", "RequestTimeTooSkewed", "InvalidAccessKeyId", "SlowDown"];
        assert_eq!(codes.map(|code| said(code).is_refusal()), [true, true, true, false]);
    }

    #[test]
    fn long_answers_are_cut_at_a_character() {
        let text = shortened(&"ä".repeat(1000));
        assert_eq!(text.chars().count(), 401);
        assert_eq!(shortened("short"), "short");
    }
}
