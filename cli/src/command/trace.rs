//! `tierfeed trace`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use tierfeed_runtime::observe::chrome_trace::{self, TRACE_BYTES_MAX};

use super::agent_socket;
use crate::{environment, failure::Failure, output};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Trace {
    #[command(subcommand)]
    pub(crate) command: Option<TraceCommand>,
    /// The run directory of the agent [default: the newest live one below .tierfeed].
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    /// Where the trace goes [default: standard output].
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Puts traces into one, such as one of torch.profiler and one of an agent, on the clock of the first.
    Merge(Merge),
}

#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// The traces, as JSON.
    #[arg(required = true, num_args = 2.., value_name = "FILE")]
    pub(crate) traces: Vec<PathBuf>,
    /// Where the merged trace goes [default: standard output].
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

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
    let text = agent_socket::get(&socket, "/trace", TRACE_BYTES_MAX)
        .context("the agent did not send a trace")?;
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
