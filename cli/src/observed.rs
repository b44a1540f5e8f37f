//! Asks the socket of an agent that tells what it does.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use anyhow::{Context, anyhow};

/// An agent that says nothing for this long hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// One question of HTTP 1.0, whose answer ends with the connection; no more of it is read than
/// `bytes_max`.
pub(crate) fn get(socket: &Path, page: &str, bytes_max: u64) -> anyhow::Result<String> {
    let mut stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {page} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(bytes_max).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no end of the headers")?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(anyhow!("it answered {status:?}"));
    }
    Ok(body.to_owned())
}
