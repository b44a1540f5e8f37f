//! The bucket of a chaos run: an S3 server in a process of its own, which makes trouble when it is told.

use std::{
    ffi::OsStr,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};
use tierfeed_harness::s3_server::S3Server;

/// Below which the objects are.
pub(crate) const PREFIX: &str = "data";

/// Something that a store does to its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It refuses every request for now.
    Refuse,
    /// Some objects are not there.
    Hide,
    /// Some objects come only in part.
    Cut,
    /// Some objects begin to come, and then do not.
    Stall,
}

impl Trouble {
    const fn word(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Hide => "hide",
            Self::Cut => "cut",
            Self::Stall => "stall",
        }
    }
}

/// The bucket of a run.
#[derive(Debug)]
pub(crate) struct Store {
    server: S3Server,
    begun: AtomicU64,
}

impl Store {
    /// A server of the files below `folder`.
    pub(crate) fn serve(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let arguments = ["--folder".as_ref(), folder.as_os_str(), OsStr::new(PREFIX)];
        Ok(Self { server: S3Server::start(program, arguments)?, begun: AtomicU64::new(0) })
    }

    /// Where it listens.
    pub(crate) fn endpoint(&self) -> &str {
        &self.server.endpoint
    }

    /// The server itself.
    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Makes trouble, for every request or for some keys below [`PREFIX`]. Returns its number.
    pub(crate) fn begin(&self, trouble: Trouble, keys: &[String]) -> anyhow::Result<u64> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let mut order = format!("begin {number} {}", trouble.word());
        keys.iter().for_each(|key| order.extend([" ", PREFIX, "/", key]));
        order.push('\n');
        self.server.send(&order)?;
        Ok(number)
    }

    /// Ends the trouble of this number.
    pub(crate) fn end(&self, number: u64) -> anyhow::Result<()> {
        self.server.send(&format!("end {number}\n"))
    }
}
