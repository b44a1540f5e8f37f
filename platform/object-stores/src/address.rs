//! The address of an object store or of a prefix in it.

/// A place in an object store, and the identity for reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, or a URL of a web
    /// server. Without credentials.
    pub url: String,
    /// The server, if it is not the default one; takes precedence over the options.
    pub endpoint: Option<String>,
    /// The region; takes precedence over the options. Only AWS has regions.
    pub region: Option<String>,
    /// The identity that requests are signed with.
    pub identity: Identity,
}

/// The identity that reads a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// The identity that the options name, else that of the machine, from its metadata service.
    Configured,
    /// No identity: requests are not signed.
    Anonymous,
}
