//! A client of the agent's HTTP socket for metrics and traces.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use anyhow::{Context, anyhow};
use tierfeed_core::units::Bytes;

const PATIENCE: Duration = Duration::from_secs(30);

/// Sends a request of HTTP 1.0, whose answer ends with the connection. An answer longer than `bytes_max` is an
/// error.
pub(crate) fn get(socket: &Path, page: &str, bytes_max: u64) -> anyhow::Result<String> {
    let mut stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {page} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(bytes_max + 1).read_to_string(&mut answer)?;
    if answer.len() as u64 > bytes_max {
        return Err(anyhow!("its answer is longer than {}", Bytes(bytes_max)));
    }
    let (head, body) = answer.split_once("\r\n\r\n").context("no end of the headers")?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(anyhow!("it answered {status:?}"));
    }
    Ok(body.to_owned())
}
