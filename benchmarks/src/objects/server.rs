//! The objects that are read, and the server that has them.

use std::path::Path;
use tierfeed_harness::s3_server::S3Server;

#[derive(Debug)]
pub(super) struct Kind {
    pub(super) prefix: &'static str,
    pub(super) objects: usize,
    pub(super) bytes: u64,
    /// Requests of every client in flight.
    pub(super) requests: usize,
}

/// Objects as large as photographs, and as large as shards.
pub(super) const KINDS: [Kind; 2] = [
    Kind { prefix: "small", objects: 1_500, bytes: 100 << 10, requests: 32 },
    Kind { prefix: "large", objects: 6, bytes: 64 << 20, requests: 4 },
];

impl Kind {
    pub(super) fn total(&self) -> u64 {
        self.objects as u64 * self.bytes
    }

    pub(super) fn key(&self, number: usize) -> String {
        format!("{}/{number:06}", self.prefix)
    }
}

#[derive(Debug)]
pub(super) struct Server(S3Server);

impl Server {
    pub(super) fn start(program: &Path) -> anyhow::Result<Self> {
        let of_kind = |kind: &Kind| {
            [kind.prefix.to_owned(), kind.objects.to_string(), kind.bytes.to_string()]
        };
        S3Server::start(program, KINDS.iter().flat_map(of_kind)).map(Self)
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.0.endpoint
    }

    pub(super) fn url(&self, kind: &Kind, number: usize) -> String {
        format!("{}/bucket/{}", self.endpoint(), kind.key(number))
    }
}
