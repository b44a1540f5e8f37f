//! `tierfeed plan --peers`: what nodes with a shared cache would read from each other.

use std::io::{self, BufWriter};

use tierfeed_core::id::NodeId;
use tierfeed_runtime::{
    layout::Layout,
    predict::peers::{self, DumpError, SharedCachePlan},
};

use crate::{arguments::Plan, failure::Failure, jobs::SizedJob, output};

pub(super) fn run(arguments: &Plan, sized: &SizedJob, layout: &Layout) -> Result<(), Failure> {
    super::require_computed(sized)?;
    let settings = layout.session(sized.job(), sized.lengths(), sized.order, NodeId(0));
    if arguments.dump {
        return match peers::dump(&settings, &mut BufWriter::new(io::stdout().lock())) {
            Ok(()) => Ok(()),
            Err(DumpError::Write(error)) => output::written(Err(error)),
            Err(error) => Err(Failure::input(error)),
        };
    }
    let shared = SharedCachePlan::of(&settings).map_err(Failure::input)?;
    if arguments.json { output::json(&shared) } else { output::lines(&shared.to_string()) }
}
