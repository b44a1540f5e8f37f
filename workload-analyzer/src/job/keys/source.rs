//! Checks the location of a dataset: a path, or a bucket without credentials.

use std::path::{Path, PathBuf};

use super::{DatasetKeys, KeyError, conflict, invalid, mistake};
use crate::job::{KeyConflict, Reason};
use tierfeed_dataset::source::{Bucket, Identity, Location};

const SCHEMES: [&str; 5] = ["s3://", "gs://", "az://", "https://", "http://"];
/// Schemes that name a service, whose server can be replaced by `endpoint`.
const NAMED_STORES: &str = "s3://, gs://, az://";
const ALL_STORES: &str = "s3://, gs://, az://, https://";

impl DatasetKeys {
    /// The location of the dataset. Relative paths start at `directory`.
    ///
    /// A URL is not decoded: `%20` names a file with a percent sign.
    ///
    /// # Errors
    ///
    /// If `source` is neither a path nor a supported URL, if it contains credentials, or if a key of buckets
    /// is given with a path.
    pub fn location(&self, directory: &Path) -> Result<Location, KeyError> {
        let source = self.source.as_str();
        if let Some(scheme) = SCHEMES.into_iter().find(|scheme| source.starts_with(scheme)) {
            return self.bucket(scheme).map(Location::Bucket);
        }
        self.refuse_keys_of_buckets()?;
        if let Some(path) = source.strip_prefix("file://") {
            let is_absolute = path.starts_with('/');
            let path = is_absolute.then(|| Location::Path(PathBuf::from(path)));
            return path.ok_or_else(|| invalid("source", source, Reason::NotAFileUrl));
        }
        if source.contains("://") {
            return Err(invalid("source", &without_secrets(source), Reason::UnknownScheme));
        }
        if let Some(reason) = mistake(source) {
            let shown =
                if source.contains('@') { without_secrets(source) } else { source.to_owned() };
            return Err(invalid("source", &shown, reason));
        }
        Ok(Location::Path(directory.join(source)))
    }

    fn bucket(&self, scheme: &'static str) -> Result<Bucket, KeyError> {
        refuse_secrets("source", &self.source)?;
        let rest = &self.source[scheme.len()..];
        if rest.split('/').next().is_none_or(str::is_empty) {
            return Err(invalid("source", &self.source, Reason::NoBucket { scheme }));
        }
        let is_web = scheme.starts_with("http");
        if is_web && self.endpoint.is_some() {
            return Err(conflict("endpoint", KeyConflict::OfOtherSource { schemes: NAMED_STORES }));
        }
        if scheme != "s3://" && self.region.is_some() {
            return Err(conflict("region", KeyConflict::OfOtherSource { schemes: "s3://" }));
        }
        if let Some(endpoint) = &self.endpoint {
            check_endpoint(endpoint)?;
        }
        if let Some("") = self.region.as_deref() {
            return Err(invalid("region", "", Reason::EmptyName { example: "eu-central-1" }));
        }
        Ok(Bucket {
            url: self.source.clone(),
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            identity: match self.anonymous {
                Some(true) => Identity::Anonymous,
                _ => Identity::Configured,
            },
        })
    }

    fn refuse_keys_of_buckets(&self) -> Result<(), KeyError> {
        let keys = [
            ("endpoint", self.endpoint.is_some(), NAMED_STORES),
            ("region", self.region.is_some(), "s3://"),
            ("anonymous", self.anonymous.is_some(), ALL_STORES),
        ];
        match keys.into_iter().find(|(_, is_there, _)| *is_there) {
            Some((key, _, schemes)) => Err(conflict(key, KeyConflict::OfOtherSource { schemes })),
            None => Ok(()),
        }
    }
}

fn check_endpoint(endpoint: &str) -> Result<(), KeyError> {
    refuse_secrets("endpoint", endpoint)?;
    let host = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
    match host {
        Some(host) if !host.is_empty() && !host.starts_with('/') => Ok(()),
        _ => Err(invalid("endpoint", endpoint, Reason::NotAnEndpoint)),
    }
}

/// Refuses a user in front of an `@`, and a signature behind a `?`: both would appear in logs and reports.
fn refuse_secrets(key: &'static str, url: &str) -> Result<(), KeyError> {
    let shown = without_secrets(url);
    if shown == url { Ok(()) } else { Err(invalid(key, &shown, Reason::CredentialsInUrl)) }
}

/// The URL without user, query and anything that may be a secret. A secret may contain a slash, so text
/// behind a colon that is not a port is removed.
fn without_secrets(url: &str) -> String {
    let plain = url.find(['?', '#']).map_or(url, |end| &url[..end]);
    let (scheme, rest) = plain.split_at(plain.find("://").map_or(0, |end| end + 3));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    // The colons of an IPv6 address in brackets do not start a port.
    let behind_address = host.rfind(']').map_or(host, |end| &host[end..]);
    let port = behind_address.split_once(':').map_or("0", |(_, port)| port);
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let user = if user.is_empty() { "" } else { "***@" };
    let query = if plain.len() < url.len() { "?***" } else { "" };
    if is_port {
        format!("{scheme}{user}{host}{path}{query}")
    } else {
        format!("{scheme}***{query}")
    }
}
