//! `tierfeed plan --peers`: what nodes that share their caches would read from one another.

use std::io::{self, BufWriter};

use tierfeed_core::id::NodeId;
use tierfeed_runtime::{
    layout::Layout,
    predict::peers::{self, DumpError, Shared},
};

use crate::{arguments::Plan, failure::Failure, jobs::Known, output};

pub(super) fn run(arguments: &Plan, known: &Known, layout: &Layout) -> Result<(), Failure> {
    super::require_computed(known)?;
    let settings = layout.session(known.job(), known.sizes(), known.order, NodeId(0));
    if arguments.dump {
        return match peers::dump(&settings, &mut BufWriter::new(io::stdout().lock())) {
            Ok(()) => Ok(()),
            Err(DumpError::Write(error)) => output::written(Err(error)),
            Err(error) => Err(Failure::input(error)),
        };
    }
    let shared = Shared::of(&settings).map_err(Failure::input)?;
    if arguments.json { output::json(&shared) } else { output::lines(&shared.to_string()) }
}
