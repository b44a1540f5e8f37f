//! `tierfeed trace`.

use std::{fs, path::Path};

use anyhow::{Context, anyhow};
use tierfeed_runtime::observe::chrome_trace::{self, TRACE_BYTES_MAX};

use crate::{
    arguments::{Trace, TraceCommand},
    environment,
    failure::Failure,
    observed, output,
};

pub(crate) fn run(arguments: &Trace) -> Result<(), Failure> {
    if let Some(TraceCommand::Merge(merge)) = &arguments.command {
        let merged = chrome_trace::merge(&merge.traces).map_err(Failure::input)?;
        return put(&merged.to_string(), merge.output.as_deref());
    }
    let run_dir = environment::running_run_dir(arguments.run_dir.as_deref())?;
    let socket = run_dir.agent_metrics_socket();
    if !socket.exists() {
        let missing = anyhow!("{}: no agent runs here; use --run-dir", socket.display());
        return Err(Failure::Input(missing));
    }
    let text = observed::get(&socket, "/trace", TRACE_BYTES_MAX);
    let text = text.context("the agent did not send a trace").map_err(Failure::Work)?;
    put(&text, arguments.output.as_deref())
}

fn put(text: &str, path: Option<&Path>) -> Result<(), Failure> {
    match path {
        Some(path) => {
            fs::write(path, text).with_context(|| path.display().to_string()).map_err(Failure::Work)
        }
        None => output::lines(text),
    }
}
