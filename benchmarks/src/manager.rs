//! A manager with its job, for benches whose agents are on this host.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{bail, ensure};
use tierfeed_harness::clock::{now, pause};

use crate::processes::Killed;

/// A manager and its agents listen within this time.
const PATIENCE: Duration = Duration::from_secs(30);

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A running `tierfeed manager`.
pub(crate) struct Manager {
    pub(crate) process: Killed,
    pub(crate) address: String,
    pub(crate) run_dir: PathBuf,
}

impl Manager {
    pub(crate) fn start(tierfeed: &Path, job: &Path, folder: &Path) -> anyhow::Result<Self> {
        let run_dir = folder.join("manager");
        let mut command = Command::new(tierfeed);
        command.arg("manager").arg(job).args(["--listen", "127.0.0.1:0", "--run-dir"]);
        command.arg(&run_dir).env("TIERFEED_LOG", "warn").stdin(Stdio::null());
        let mut process = Killed::start(command.stdout(Stdio::null()))?;
        let mut address = String::new();
        wait_until("the manager listens", || {
            if let Some(status) = process.0.try_wait()? {
                bail!("the manager ended ({status}); its messages are above");
            }
            address = fs::read_to_string(run_dir.join("manager.address")).unwrap_or_default();
            Ok(address.ends_with('\n'))
        })?;
        Ok(Self { process, address: address.trim_end().to_owned(), run_dir })
    }

    pub(crate) fn token_file(&self) -> PathBuf {
        self.run_dir.join("token")
    }
}

pub(crate) fn wait_until(
    what: &str,
    mut is_so: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let until = now() + PATIENCE;
    while !is_so()? {
        ensure!(now() < until, "not within {PATIENCE:?}: {what}");
        pause(LOOK_EVERY);
    }
    Ok(())
}
