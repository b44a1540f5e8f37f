//! JSON documents, in files and as programs print them.

use std::{
    ffi::OsStr,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use serde::de::DeserializeOwned;

/// # Errors
///
/// If there is no such file, or it is another document.
pub(crate) fn read<D: DeserializeOwned>(path: &Path) -> anyhow::Result<D> {
    let text = fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text)
        .with_context(|| format!("{} is another document than expected", path.display()))
}

/// The document that a command prints as JSON.
///
/// # Errors
///
/// If it fails, with what it said, or prints another document.
pub(crate) fn printed<D: DeserializeOwned>(command: &mut Command) -> anyhow::Result<D> {
    let said = output(command)?;
    serde_json::from_slice(&said)
        .with_context(|| format!("{} printed another document than expected", words(command)))
}

/// What a command prints.
///
/// # Errors
///
/// If it fails, with what it said.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output().with_context(|| words(command))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} failed ({}): {said}", words(command), output.status);
    Ok(output.stdout)
}

fn words(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
