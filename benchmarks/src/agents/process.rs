//! The manager under test.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use tierfeed_harness::clock::pause;

const LISTENS_WITHIN: Duration = Duration::from_secs(30);

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running `tierfeed manager`; killed when it is dropped.
pub(super) struct ManagerProcess {
    child: Child,
    pub(super) address: String,
    pub(super) token_file: PathBuf,
}

impl ManagerProcess {
    pub(super) fn start(tierfeed: &Path, job: &Path, folder: &Path) -> anyhow::Result<Self> {
        let run_dir = folder.join("run");
        let log = fs::File::create(folder.join("manager.log")).context("no log")?;
        let mut command = Command::new(tierfeed);
        command.arg("manager").arg(job).args(["--listen", "127.0.0.1:0", "--run-dir"]);
        command.arg(&run_dir).env("RUST_LOG", "warn").stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(log);
        let mut child = command.spawn().with_context(|| tierfeed.display().to_string())?;
        for _ in 0..LISTENS_WITHIN.as_millis() / LOOK_EVERY.as_millis() {
            let address = fs::read_to_string(run_dir.join("manager.address")).unwrap_or_default();
            if address.ends_with('\n') {
                let address = address.trim_end().to_owned();
                return Ok(Self { child, address, token_file: run_dir.join("token") });
            }
            if let Some(status) = child.try_wait().context("the manager")? {
                let log = fs::read_to_string(folder.join("manager.log")).unwrap_or_default();
                bail!("the manager ended ({status}): {log}");
            }
            pause(LOOK_EVERY);
        }
        let _ = child.kill();
        bail!("the manager does not listen")
    }

    pub(super) fn cpu_s(&self) -> anyhow::Result<f64> {
        let tasks =
            fs::read_dir(format!("/proc/{}/task", self.child.id())).context("its threads")?;
        let mut nanoseconds = 0_u64;
        for task in tasks {
            let path = task.context("its threads")?.path().join("schedstat");
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let on_cpu = text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
            nanoseconds += on_cpu.context("no CPU time")?;
        }
        Ok(Duration::from_nanos(nanoseconds).as_secs_f64())
    }

    pub(super) fn memory_mib(&self) -> anyhow::Result<f64> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = fs::read_to_string(&path).context(path)?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.context("no VmRSS")? / 1024.0)
    }
}

impl Drop for ManagerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
