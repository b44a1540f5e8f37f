//! The address of an object store or of a prefix in it.

use serde::{Deserialize, Serialize};

/// A place in an object store, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, or a URL of a web
    /// server. Without credentials.
    pub url: String,
    /// The settings beside the URL.
    pub access: Access,
}

/// How a bucket is reached, beside its URL and credentials, which are in the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// The server, such as `http://127.0.0.1:9000`; takes precedence over the environment.
    pub endpoint: Option<String>,
    /// The region; takes precedence over the environment. Only AWS has regions.
    pub region: Option<String>,
    /// The identity that requests are signed with.
    pub identity: Identity,
}

/// The identity that reads a bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Identity {
    /// The identity that the options name, else that of the machine, from its metadata service.
    #[default]
    Configured,
    /// No identity: requests are not signed.
    Anonymous,
}

impl From<String> for Address {
    /// The place at `url`, reached as the environment says.
    fn from(url: String) -> Self {
        Self { url, access: Access::default() }
    }
}
