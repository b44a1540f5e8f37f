//! Checks the location of a dataset: a path, or a bucket without credentials.

use std::path::{Path, PathBuf};

use super::{
    DatasetKeys, KeyConflict, KeyError, Reason,
    error::{conflict, invalid},
    mistake,
};
use crate::source::{Access, Address, Identity, Location};

const SCHEMES: [&str; 5] = ["s3://", "gs://", "az://", "https://", "http://"];

/// The keys of buckets, and the sources that each is for. An `endpoint` replaces the server of a service.
const OF_BUCKETS: [(&str, &str); 3] = [
    ("endpoint", "s3://, gs://, az://"),
    ("region", "s3://"),
    ("anonymous", "s3://, gs://, az://, https://"),
];

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
        let source = self.source();
        if let Some(scheme) = SCHEMES.into_iter().find(|scheme| source.starts_with(scheme)) {
            return self.bucket(scheme).map(Location::Bucket);
        }
        self.refuse_foreign_keys("")?;
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

    fn bucket(&self, scheme: &'static str) -> Result<Address, KeyError> {
        let url = self.source();
        refuse_secrets("source", url)?;
        if url[scheme.len()..].split('/').next().is_none_or(str::is_empty) {
            return Err(invalid("source", url, Reason::NoBucket { scheme }));
        }
        self.refuse_foreign_keys(scheme)?;
        let [endpoint, region] = ["endpoint", "region"].map(|key| self.get(key).map(str::to_owned));
        endpoint.as_deref().map_or(Ok(()), check_endpoint)?;
        if region.as_deref() == Some("") {
            return Err(invalid("region", "", Reason::EmptyName { example: "eu-central-1" }));
        }
        let identity = match self.get("anonymous") {
            None | Some("false") => Identity::Configured,
            Some("true") => Identity::Anonymous,
            Some(other) => {
                let reason = Reason::NotOneOf("true, false".to_owned());
                return Err(invalid("anonymous", other, reason));
            }
        };
        Ok(Address { url: url.to_owned(), access: Access { endpoint, region, identity } })
    }

    /// `scheme` is that of the source, or empty for a path.
    fn refuse_foreign_keys(&self, scheme: &str) -> Result<(), KeyError> {
        let scheme = if scheme == "http://" { "https://" } else { scheme };
        let is_foreign = |(key, schemes): &(&str, &str)| {
            self.has(key) && schemes.split(", ").all(|it| it != scheme)
        };
        match OF_BUCKETS.into_iter().find(is_foreign) {
            Some((key, schemes)) => Err(conflict(key, KeyConflict::OfOtherSource { schemes })),
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
