//! The bucket of a campaign: an S3 server in a process of its own, which injects faults on command.

use std::{
    ffi::OsStr,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use tierfeed_harness::s3_server::S3Server;

pub(crate) const PREFIX: &str = "data";

#[derive(Debug)]
pub(crate) struct Bucket {
    server: S3Server,
    faults_begun: AtomicU64,
}

impl Bucket {
    pub(crate) fn serve(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let arguments = ["--folder".as_ref(), folder.as_os_str(), OsStr::new(PREFIX)];
        Ok(Self { server: S3Server::start(program, arguments)?, faults_begun: AtomicU64::new(0) })
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.server.endpoint
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Begins a fault of the server, `refuse`, `hide`, `cut` or `stall`, for some keys below [`PREFIX`], or for
    /// every request if there are none. Returns its number.
    pub(crate) fn begin(&self, fault: &str, keys: &[String]) -> anyhow::Result<u64> {
        let number = self.faults_begun.fetch_add(1, Ordering::Relaxed);
        let mut command = format!("begin {number} {fault}");
        keys.iter().for_each(|key| command.extend([" ", PREFIX, "/", key]));
        command.push('\n');
        self.server.send(&command)?;
        Ok(number)
    }

    pub(crate) fn end(&self, number: u64) -> anyhow::Result<()> {
        self.server.send(&format!("end {number}\n"))
    }
}
