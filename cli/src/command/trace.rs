//! `tierfeed trace`.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use anyhow::{Context, anyhow};
use tierfeed_runtime::chrome_trace::{self, TRACE_BYTES_MAX};

use crate::{
    arguments::{Trace, TraceCommand},
    environment,
    failure::Failure,
    output,
};

/// An agent that says nothing for this long hangs.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn run(arguments: &Trace) -> Result<(), Failure> {
    if let Some(TraceCommand::Merge(merge)) = &arguments.command {
        let merged = chrome_trace::merge(&merge.traces).map_err(Failure::input)?;
        return put(&merged.to_string(), merge.output.as_deref());
    }
    let run_dir = environment::running_run_dir(arguments.run_dir.as_deref())?;
    let socket = run_dir.observe_socket();
    let missing = || format!("{}: no agent runs here; use --run-dir", socket.display());
    let stream = UnixStream::connect(&socket).with_context(missing).map_err(Failure::Input)?;
    let text = ask(stream).context("the agent did not send a trace").map_err(Failure::Work)?;
    put(&text, arguments.output.as_deref())
}

/// One question of HTTP 1.0, whose answer ends with the connection.
fn ask(mut stream: UnixStream) -> anyhow::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /trace HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(TRACE_BYTES_MAX).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no end of the headers")?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(anyhow!("it answered {status:?}"));
    }
    Ok(body.to_owned())
}

fn put(text: &str, path: Option<&Path>) -> Result<(), Failure> {
    match path {
        Some(path) => {
            fs::write(path, text).with_context(|| path.display().to_string()).map_err(Failure::Work)
        }
        None => output::lines(text),
    }
}
