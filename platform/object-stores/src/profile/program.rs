//! `credential_process`: a program of the user that prints keys.
//!
//! # Source
//!
//! The AWS SDKs and Tools Reference Guide, "Process credential provider": what is printed. The command is given to
//! a shell, as the SDKs for Go and Rust do.

use std::{
    io::Read as _,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use super::{Keys, time_of};

/// A program that takes longer is ended.
const TIME_MAX: Duration = Duration::from_secs(60);

/// More than keys take.
const BYTES_MAX: u64 = 64 * 1024;

/// Runs the program and reads its keys.
///
/// # Errors
///
/// A part of a sentence about the program, without what it printed to its output.
pub(super) fn keys(command: &str) -> Result<Keys, String> {
    let printed = run(command)?;
    let document: serde_json::Value =
        serde_json::from_slice(&printed).map_err(|_| "printed no JSON".to_owned())?;
    let text = |name: &str| Some(document.get(name)?.as_str()?.to_owned());
    let needed = |name: &str| text(name).ok_or_else(|| format!("printed no `{name}`"));
    Ok(Keys {
        secret: needed("SecretAccessKey")?,
        id: needed("AccessKeyId")?,
        token: text("SessionToken"),
        expires: text("Expiration").and_then(|it| time_of(&it)),
        is_of_program: true,
    })
}

fn run(command: &str) -> Result<Vec<u8>, String> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).stdin(Stdio::null());
    let child = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("does not start: {error}"))?;
    let read = read(&mut child);
    if read.is_none() {
        // One that has ended cannot be ended.
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| format!("cannot be waited for: {error}"))?;
    let (printed, said) = read.ok_or_else(|| format!("took longer than {TIME_MAX:?}"))?;
    if status.success() {
        return Ok(printed);
    }
    let said = String::from_utf8_lossy(&said);
    Err(format!("ended with {status}: {}", said.lines().next_back().unwrap_or_default()))
}

/// What a program prints to its output and its errors; `None` if it takes too long.
fn read(child: &mut Child) -> Option<(Vec<u8>, Vec<u8>)> {
    let (output, errors) = (child.stdout.take()?, child.stderr.take()?);
    let (send, received) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let (mut printed, mut said) = (Vec::new(), Vec::new());
        // Keys fit in a pipe, so that a program which prints them before errors does not wait for this.
        let read = output.take(BYTES_MAX).read_to_end(&mut printed);
        let read = read.and(errors.take(BYTES_MAX).read_to_end(&mut said));
        // Nobody listens after the time.
        let _ = send.send(read.is_ok().then_some((printed, said)));
    });
    received.recv_timeout(TIME_MAX).ok().flatten()
}
