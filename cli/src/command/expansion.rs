//! `--expand-memory`: what the host offers for it.

use std::path::Path;

use tierfeed_resource_gatherer::{Inventory, Sysroot};
use tierfeed_runtime::expansion::{Expansion, Wish};

use crate::{arguments::ExpandMemory, failure::Failure};

/// Plans the policy, tries it once so that a refusal comes before anything starts, and says what it is.
pub(super) fn plan(wish: ExpandMemory) -> Result<Expansion, Failure> {
    let wish = match wish {
        ExpandMemory::Auto => Wish::Auto,
        ExpandMemory::PreferredMany => Wish::PreferredMany,
        ExpandMemory::Weighted => Wish::Weighted,
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
