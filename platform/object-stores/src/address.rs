//! Names a place in an object store.

/// A place in an object store, and who reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, or a place on a web server.
    /// Without credentials.
    pub url: String,
    /// The server, if it is not the usual one; more than what the options say.
    pub endpoint: Option<String>,
    /// The region; more than what the options say. Only AWS has some.
    pub region: Option<String>,
    /// Who reads.
    pub identity: Identity,
}

/// Who reads a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// Whoever the options name, else the machine, as its metadata service says.
    Configured,
    /// Nobody: requests are not signed.
    Anonymous,
}
