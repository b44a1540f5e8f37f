//! `tierfeed embed`: what `tierfeed run` starts beside a training, for a training that started by itself.
//!
//! Each rank of a job starts one. As with `run`, the first of a node holds the agent, the one of node 0 also the
//! manager, and all last as long as the processes that started them ([`crate::embedder`]). The end of one rank ends
//! no other: its launcher may do that.

use std::path::PathBuf;

use super::run::{self, Place};
use crate::{
    arguments::{Embed, Run},
    embedder::Caller,
    failure::Failure,
};

pub(crate) fn run(arguments: Embed) -> Result<(), Failure> {
    let caller = Caller::hear()?;
    let Embed { run_dir, loader, again, place, observe, brief } = arguments;
    let below = Place::Below { runs: run_dir, number: loader };
    let works_in = again.map_or(below, Place::Again);
    let run = Run {
        job: PathBuf::new(),
        launch: None,
        run_dir: None,
        place,
        observe,
        json: false,
        expand_memory: None,
        grace: None,
        supervised: false,
        brief,
        command: Vec::new(),
    };
    run::embedded(&run, works_in, &caller).map_err(|failure| caller.refuse(failure))
}
