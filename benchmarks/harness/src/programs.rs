//! The programs that an experiment starts.

use std::{
    env,
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, anyhow, ensure};
use serde::de::DeserializeOwned;

use crate::{failure::Failure, files};

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
        document(plan.arg("plan").arg(job).args(["--simulate", "--json"]))
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
        files::read_json(&run_dir.join("report.json"))
    }
}

/// The document that a command prints as JSON.
///
/// # Errors
///
/// If it fails, with what it said, or prints another document.
pub fn document<D: DeserializeOwned>(command: &mut Command) -> anyhow::Result<D> {
    let said = output(command)?;
    serde_json::from_slice(&said)
        .with_context(|| format!("{} printed another document than expected", words(command)))
}

/// What a command prints.
///
/// # Errors
///
/// If it fails, with what it said.
pub fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output().with_context(|| words(command))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} failed ({}): {said}", words(command), output.status);
    Ok(output.stdout)
}

fn words(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
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
