//! `tierfeed embed`: what `tierfeed run` starts beside a training, for a training that started by itself.
//!
//! Each rank of a job starts one. As with `run`, the first of a node holds the agent, the one of node 0 also the
//! manager, and all last as long as the processes that started them ([`run::embedder`]). The end of one rank ends
//! no other: its launcher may do that.

use std::path::PathBuf;

use clap::Args;

use super::{
    agent::Observe,
    run::{self, NodePlace, Place, Run, embedder::Caller},
};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct Embed {
    /// Ends with one line, as a notebook needs it.
    #[arg(long)]
    pub(crate) brief: bool,
    /// The directory in which the run has one of its own, named after the job.
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    /// The how manieth loader of the caller with the same job this is for.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) loader: u32,
    /// The run directory of an agent of the caller that has died: this one takes its place.
    #[arg(long, value_name = "DIR")]
    pub(crate) again: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: NodePlace,
    #[command(flatten)]
    pub(crate) observe: Observe,
}

pub(crate) fn run(arguments: Embed) -> Result<(), Failure> {
    let caller = Caller::hear()?;
    let Embed { run_dir, loader, again, place, observe, brief } = arguments;
    let below = Place::Below { runs: run_dir, number: loader };
    let works_in = again.map_or(below, Place::Again);
    let run = Run { place, observe, brief, ..Run::default() };
    run::embedded(&run, works_in, &caller).map_err(|failure| caller.refuse(failure))
}
