//! Runs the analysis of training scripts, which is written in Python.
//!
//! Its sources are embedded in this program, so that it works without the Python package. They need Python
//! 3.9 and its standard library.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use anyhow::{Context, anyhow};
use serde_json::json;
use tempfile::TempDir;
use tierfeed_workload_analyzer::Job;

use crate::failure::Failure;

/// The name of the package, and of the directory that it is run from.
const PACKAGE: &str = "script_analysis";

const INPUT_ERROR: i32 = 2;

macro_rules! sources {
    ($($name:literal),+ $(,)?) => {
        &[$((
            $name,
            include_str!(concat!("../../../python/python/tierfeed/script_analysis/", $name)),
        )),+]
    };
}

const SOURCES: &[(&str, &str)] = sources![
    "__init__.py",
    "__main__.py",
    "analysis.py",
    "carry.py",
    "data.py",
    "find.py",
    "finding.py",
    "interpreter.py",
    "job.py",
    "load.py",
    "loader.py",
    "members.py",
    "operators.py",
    "recover.py",
    "start.py",
    "tables.py",
    "values.py",
];

/// The analysis of scripts as a table or as JSON, with its differences from a job.
///
/// The dataset is not read: a script can be compared with a job before its data is there.
pub(super) fn analyze(
    scripts: &[PathBuf],
    job: Option<&Path>,
    as_json: bool,
) -> Result<String, Failure> {
    let job = job.map(Job::load).transpose().map_err(Failure::input)?;
    let mut options = Vec::new();
    if as_json {
        options.push("--json".to_owned());
    }
    if let Some(job) = &job {
        options.extend(["--job".to_owned(), facts(job).to_string()]);
    }
    asked(&options, scripts)
}

/// What each script trains on, and what a job does not carry over, as JSON.
pub(super) fn starts(scripts: &[PathBuf]) -> Result<String, Failure> {
    asked(&["--start".to_owned()], scripts)
}

fn asked(options: &[String], scripts: &[PathBuf]) -> Result<String, Failure> {
    let folder = unpacked().context("cannot unpack the analysis of scripts")?;
    let mut python = Command::new("python3");
    // Isolated mode, no byte-code files, UTF-8 in any locale.
    python.args(["-I", "-B", "-X", "utf8"]).arg(folder.path().join(PACKAGE));
    let output = python.args(options).arg("--").args(scripts).stdin(Stdio::null()).output();
    said(output.map_err(|error| not_started(&error))?)
}

fn unpacked() -> io::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("tierfeed-").tempdir()?;
    let package = folder.path().join(PACKAGE);
    fs::create_dir(&package)?;
    for (name, source) in SOURCES {
        fs::write(package.join(name), source)?;
    }
    Ok(folder)
}

/// The settings of a job that a script can contradict.
fn facts(job: &Job) -> serde_json::Value {
    json!({
        "batch_size": job.batch_size,
        "epochs": job.epochs,
        "shuffle": job.shuffle.name(),
        "seed": job.seed,
        "drop_last": job.drop_last,
        "format": job.dataset.format.name(),
        "nodes": job.world.nodes,
        "ranks_per_node": job.world.ranks_per_node,
    })
}

fn not_started(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => Failure::Input(anyhow!(
            "scripts are analysed by Python 3.9 or later, `python3` in PATH; install it, for example with \
             `apt install python3`"
        )),
        _ => Failure::Work(anyhow!("cannot start python3: {error}")),
    }
}

fn said(output: Output) -> Result<String, Failure> {
    let errors = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.code() {
        Some(0) => String::from_utf8(output.stdout)
            .context("the analysis of scripts wrote what is no UTF-8")
            .map_err(Failure::Work),
        Some(INPUT_ERROR) => Err(Failure::Input(anyhow!(errors))),
        _ => Err(Failure::Work(anyhow!(
            "the analysis of scripts failed ({}): {errors}",
            output.status
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

    use super::*;

    #[test]
    fn every_source_is_embedded() {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/python/tierfeed/script_analysis");
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.filter_map(|name| name.into_string().ok());
        let is_source = |name: &String| Path::new(name).extension().is_some_and(|it| it == "py");
        let mut names: Vec<_> = names.filter(is_source).collect();
        names.sort();
        assert_eq!(names, SOURCES.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    }

    #[test]
    fn a_missing_python_is_an_error_of_the_input_that_says_what_to_install() {
        let failure = not_started(&io::Error::from(io::ErrorKind::NotFound));
        assert!(
            matches!(&failure, Failure::Input(error) if error.to_string().contains("apt install"))
        );
        let failure = not_started(&io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(matches!(failure, Failure::Work(_)));
    }

    #[test]
    fn the_exit_code_says_whether_the_input_was_wrong() {
        let ended = |code: i32| Output {
            status: ExitStatus::from_raw(code << 8),
            stdout: b"found\n".to_vec(),
            stderr: b"a.py: is no regular file\n".to_vec(),
        };
        assert_eq!(said(ended(0)).unwrap(), "found\n");
        assert!(matches!(
            said(ended(2)),
            Err(Failure::Input(error)) if error.to_string() == "a.py: is no regular file"
        ));
        assert!(matches!(said(ended(1)), Err(Failure::Work(_))));
    }
}
