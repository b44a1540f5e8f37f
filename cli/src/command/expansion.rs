//! `--expand-memory`: plans the memory policy of a command.

use std::path::Path;

use tierfeed_resource_gatherer::{Inventory, Sysroot};
use tierfeed_runtime::expansion::{Expansion, RequestedPolicy};

use crate::{arguments::ExpandMemory, failure::Failure};

/// Plans the policy, applies it once so that a refusal comes before the command starts, and logs it.
pub(super) fn plan(wish: ExpandMemory) -> Result<Expansion, Failure> {
    let wish = match wish {
        ExpandMemory::Auto => RequestedPolicy::Auto,
        ExpandMemory::PreferredMany => RequestedPolicy::PreferredMany,
        ExpandMemory::Weighted => RequestedPolicy::Weighted,
    };
    let inventory = Inventory::read(Sysroot(Path::new("/"))).map_err(Failure::work)?;
    let expansion = Expansion::plan(wish, &inventory).map_err(Failure::input)?;
    drop(expansion.apply().map_err(Failure::input)?);
    let Expansion { policy, main_memory, cxl_memory, .. } = &expansion;
    tracing::info!(policy, ?main_memory, ?cxl_memory, "memory of the trainers is expanded");
    if let Some(advice) = expansion.advice() {
        tracing::warn!("{advice}");
    }
    Ok(expansion)
}
