//! `--expand-memory`: plans the memory policy of a command.

use std::path::Path;

use clap::ValueEnum;
use tierfeed_core::tier::Kind;
use tierfeed_resource_gatherer::{Inventory, Sysroot};
use tierfeed_runtime::expansion::{Expansion, Mode};
use tierfeed_workload_analyzer::Job;

use crate::failure::Failure;

/// How memory is spread over main memory and memory behind CXL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExpandMemory {
    /// The default, which is preferred-many.
    Auto,
    /// Main memory as long as there is room, then memory behind CXL.
    PreferredMany,
    /// Both in turn, by the weights of the kernel: for programs that need more bandwidth than main
    /// memory has.
    Weighted,
}

/// Plans the policy for a command of `job`, applies it once so that a refusal comes before the command
/// starts, and logs it.
pub(super) fn plan(wish: ExpandMemory, job: &Job) -> Result<Expansion, Failure> {
    let expansion = of(wish, job)?;
    drop(expansion.apply().map_err(Failure::input)?);
    let Expansion { policy, main_memory, cxl_memory, .. } = &expansion;
    tracing::info!(policy, ?main_memory, ?cxl_memory, "memory of the trainers is expanded");
    if let Some(advice) = expansion.advice() {
        tracing::warn!("{advice}");
    }
    Ok(expansion)
}

pub(super) fn of(wish: ExpandMemory, job: &Job) -> Result<Expansion, Failure> {
    let mode = match wish {
        ExpandMemory::Auto | ExpandMemory::PreferredMany => Mode::PreferredMany,
        ExpandMemory::Weighted => Mode::WeightedInterleave,
    };
    let inventory = Inventory::read(Sysroot(Path::new("/")))?;
    let named = job.tiers.iter().filter(|tier| tier.kind == Kind::CxlMemory);
    let named: Vec<_> = named.flat_map(|tier| tier.numa_nodes.iter().copied()).collect();
    Expansion::plan(mode, &inventory, &named).map_err(Failure::input)
}
