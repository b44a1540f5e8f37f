//! A bucket that is far away: the S3 server of the tests, paced, in a process of its own.
//!
//! It ends with the value that stands for it, and with this process.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use tierfeed_core::units::{BytesPerSecond, Nanoseconds};
use tierfeed_harness::s3_server::S3Server;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    /// From a request to the first byte of its answer.
    pub(crate) latency: Nanoseconds,
    /// Of each connection; unlimited if `None`.
    pub(crate) connection: Option<BytesPerSecond>,
    /// Of all connections together; unlimited if `None`.
    pub(crate) together: Option<BytesPerSecond>,
}

#[derive(Debug)]
pub(crate) struct Bucket {
    server: S3Server,
}

const PREFIX: &str = "data";

impl Bucket {
    /// # Errors
    ///
    /// If the server is not built or does not start.
    pub(crate) fn start(server: &Path, folder: &Path, pace: Pace) -> anyhow::Result<Self> {
        let mut arguments: Vec<OsString> =
            vec!["--latency".into(), format!("{} ns", pace.latency.0).into()];
        let rates = [("--connection-rate", pace.connection), ("--rate", pace.together)];
        for (option, rate) in rates {
            if let Some(rate) = rate {
                arguments.extend([option.into(), format!("{} B/s", rate.0).into()]);
            }
        }
        arguments.extend(["--folder".into(), folder.into(), PREFIX.into()]);
        Ok(Self { server: S3Server::start(server, arguments)? })
    }

    pub(crate) fn all(&self) -> PathBuf {
        format!("{}/bucket/{PREFIX}", self.server.endpoint).into()
    }

    /// The place of what was below `folder` in the served folder.
    pub(crate) fn at(&self, folder: &str) -> PathBuf {
        self.all().join(folder)
    }
}
