//! Looks for the program of a command before anything is started for it, and says what may be meant if
//! there is none.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, anyhow};
use tierfeed_workload_analyzer::nearest;

use crate::{environment, failure::Failure};

pub(crate) fn require(command: &[String]) -> Result<(), Failure> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::Input(anyhow!("no command; write it after --")));
    };
    let folders = environment::program_folders();
    if is_there(program, &folders) {
        return Ok(());
    }
    let meant = meant(program, &folders).map(|meant| {
        let words: Vec<&str> =
            std::iter::once(meant.as_str()).chain(arguments.iter().map(String::as_str)).collect();
        format!("; did you mean `{}`?", words.join(" "))
    });
    let why = match Path::new(program).is_file() {
        true if program.contains('/') => "it is not executable",
        true => "it is a file here, and programs are looked for in PATH",
        false => "no such program",
    };
    Err(Failure::Input(anyhow!("cannot start {program}: {why}{}", meant.unwrap_or_default())))
}

/// The command with its arguments.
pub(crate) fn command(words: &[String]) -> anyhow::Result<Command> {
    let (program, arguments) = words.split_first().context("no command; write it after --")?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

/// A name with a slash is a path; one without is looked for in the folders of programs.
fn is_there(program: &str, folders: &[PathBuf]) -> bool {
    if program.contains('/') {
        return is_executable(Path::new(program));
    }
    folders.iter().any(|folder| is_executable(&folder.join(program)))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// A suggestion for a program that is not there.
fn meant(program: &str, folders: &[PathBuf]) -> Option<String> {
    let path = Path::new(program);
    if path.is_file() {
        let is_script = path.extension().is_some_and(|extension| extension == "py");
        let is_hidden = is_executable(path) && !program.contains('/');
        return match (is_script, is_hidden) {
            (true, _) => Some(format!("{} {program}", python(folders))),
            (false, true) => Some(format!("./{program}")),
            (false, false) => None,
        };
    }
    if program.contains('/') {
        return None;
    }
    let entries = folders.iter().flat_map(fs::read_dir).flatten().flatten();
    let names =
        entries.map(|entry| entry.file_name()).filter_map(|name| OsString::into_string(name).ok());
    let names: Vec<String> = names.collect();
    nearest(program, names.iter().map(String::as_str)).map(str::to_owned)
}

fn python(folders: &[PathBuf]) -> &'static str {
    if is_there("python", folders) { "python" } else { "python3" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            fs::write(&path, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        folder
    }

    #[test]
    fn a_name_that_is_mistyped_is_put_right_from_the_folders_of_programs() {
        let folder = folder_with(&["python", "pytest", "torchrun"]);
        let folders = [folder.path().to_owned()];
        assert!(is_there("python", &folders));
        for (typed, right) in [("pyhton", "python"), ("torchrn", "torchrun")] {
            assert_eq!(meant(typed, &folders).as_deref(), Some(right));
        }
        assert_eq!(meant("nvidia-smi", &folders), None);
        assert_eq!(meant("/no/such/python", &folders), None);
    }

    #[test]
    fn a_script_that_is_given_as_a_program_gets_its_interpreter() {
        let folder = folder_with(&["python3", "tool"]);
        let folders = [folder.path().to_owned()];
        let script = folder.path().join("train.py");
        fs::write(&script, "").unwrap();
        let script = script.to_str().unwrap();
        assert!(!is_there(script, &folders));
        assert_eq!(meant(script, &folders), Some(format!("python3 {script}")));
    }
}
