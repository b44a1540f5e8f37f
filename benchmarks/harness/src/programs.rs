//! The programs that an experiment starts.

use std::{
    env,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, anyhow, ensure};
use serde::de::DeserializeOwned;

use crate::failure::Failure;

#[derive(Debug, Clone, Default)]
pub struct Programs {
    pub tierfeed: PathBuf,
    /// This program: its hidden commands are trainers and clients.
    pub own: PathBuf,
}

impl Programs {
    /// This program, and the `tierfeed` binary beside it.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] if `tierfeed` was not built.
    pub fn find() -> Result<Self, Failure> {
        Ok(Self { tierfeed: beside("tierfeed")?, own: own()? })
    }

    /// The prediction of `tierfeed plan --simulate` for a job.
    ///
    /// # Errors
    ///
    /// If it fails, or prints another document.
    pub fn predict<P: DeserializeOwned>(&self, job: &Path) -> anyhow::Result<P> {
        let mut plan = Command::new(&self.tierfeed);
        plan.arg("plan").arg(job).args(["--simulate", "--json"]).stderr(Stdio::inherit());
        let output = plan.output().with_context(|| self.tierfeed.display().to_string())?;
        ensure!(output.status.success(), "`tierfeed plan` failed ({})", output.status);
        serde_json::from_slice(&output.stdout)
            .context("`tierfeed plan` printed another document than expected")
    }

    /// Runs a job whose ranks are one `tierfeed-bench reader` with these options, and returns the report of
    /// the run. `tierfeed` is the command that starts the product, as in a control group.
    ///
    /// # Errors
    ///
    /// If the run fails, or leaves no report.
    pub fn run_reader<R: DeserializeOwned>(
        &self,
        mut tierfeed: Command,
        run_dir: &Path,
        job: &Path,
        options: &[&OsStr],
    ) -> anyhow::Result<R> {
        tierfeed.args(["run", "--launch", "once", "--run-dir"]).arg(run_dir).arg(job);
        tierfeed.arg("--").arg(&self.own).arg("reader").args(options);
        let program = tierfeed.get_program().display().to_string();
        let status = tierfeed.stdout(io::stderr()).status().context(program)?;
        let place = run_dir.display();
        ensure!(status.success(), "the run in {place} failed ({status}); its messages are above");
        let path = run_dir.join("report.json");
        let report = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&report).context("report.json has another form than expected")
    }
}

/// The program `name` beside this one.
///
/// # Errors
///
/// [`Failure::Input`] if it was not built.
pub fn beside(name: &str) -> Result<PathBuf, Failure> {
    let path = own()?.with_file_name(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(Failure::Input(anyhow!(
        "{}: there is no such file; build it with `make build-benchmarks`",
        path.display()
    )))
}

/// The S3 server that was named, or the one that is built beside this program.
///
/// # Errors
///
/// [`Failure::Work`] if this program is not found.
pub fn s3_server(named: Option<PathBuf>) -> Result<PathBuf, Failure> {
    named.map_or_else(|| Ok(own()?.with_file_name("examples").join("s3_server")), Ok)
}

fn own() -> Result<PathBuf, Failure> {
    env::current_exe().context("cannot find this program").map_err(Failure::Work)
}
