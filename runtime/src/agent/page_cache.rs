//! Lets free memory beyond the budgets serve as page cache for the files of the dataset.

use tierfeed_core::{
    budget::{Free, Percent, page_cache_limit},
    order::Spec,
    units::Bytes,
};
use tierfeed_dataset::read::page_cache::{PageCacheFigures, PageCacheRoom};
use tierfeed_resource_gatherer::Available;

use super::Agent;
use crate::layout::{self, Layout, Node};

/// The bytes of main memory that a layout is going to take beyond those that it `holds`.
fn to_come(layout: &Layout, ranks: u32, holds: Bytes) -> Bytes {
    let tiers = layout.tiers.iter().filter(|tier| tier.pool == layout::MEMORY);
    let caches = tiers.fold(0_u64, |sum, tier| sum.saturating_add(tier.cache.0));
    let staging = layout.staged.arena.0.saturating_mul(ranks.into());
    Bytes(caches.saturating_add(staging).saturating_sub(holds.0))
}

/// Sets the limit at the start, from the free memory that the budgets were taken from.
pub(super) fn set_first_limit(
    room: Option<&PageCacheRoom>,
    node: &Node,
    layout: &Layout,
    order: Spec,
) {
    if let Some((room, free)) = room.zip(node.pools().get(&layout::MEMORY)) {
        let to_come = to_come(layout, order.world.ranks_per_node, Bytes(0));
        room.set_limit(page_cache_limit(*free, to_come, None));
    }
}

impl Agent {
    pub(super) fn adapt_page_cache(&self, available: &Available, waiting: Option<Percent>) {
        let Some(room) = &self.cold.page_cache else { return };
        let Some(free) = self.node.memory_free(available).remove(&layout::MEMORY) else { return };
        let usage = self.plane.usage();
        let held = self.layout.tiers.iter().zip(&usage.tiers);
        let held = held.filter(|(tier, _)| tier.pool == layout::MEMORY);
        let holds = held.fold(usage.arenas.0, |sum, (_, held)| sum.saturating_add(held.bytes.0));
        let ranks = self.order.world.ranks_per_node;
        let limit = page_cache_limit(free, to_come(&self.layout, ranks, Bytes(holds)), waiting);
        room.set_limit(limit.min(self.beside_numa_tiers(available, room.figures(), free)));
    }

    /// The limit where tiers lie on NUMA nodes: what is free on the others now. When these are full, the
    /// kernel puts page cache on the nodes of tiers before it reclaims any.
    fn beside_numa_tiers(&self, available: &Available, now: PageCacheFigures, free: Free) -> Bytes {
        let numa = |pool| pool != layout::MEMORY && self.node.is_memory(pool);
        let tiers: Vec<_> = self.layout.tiers.iter().map(|tier| tier.pool).collect();
        if !tiers.iter().any(|pool| numa(*pool)) {
            return Bytes(u64::MAX);
        }
        let others = available.nodes_free.iter();
        let others = others.filter(|it| !tiers.contains(&layout::pool_of_numa(it.numa_node)));
        let unused = others.fold(0_u64, |sum, it| sum.saturating_add(it.free.0));
        Bytes(now.left.0.saturating_add(unused.saturating_sub(free.kept.0)))
    }
}
