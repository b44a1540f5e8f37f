//! Decides how long buffers must be for the caches in front of the memory.

use tierfeed_core::units::Bytes;

use super::{arrays::BLOCK, caches::Knee};
use crate::inventory::{Inventory, node::Node};

/// Chains and arrays are multiples of this: whole huge pages, whole groups, whole blocks.
const BUFFER_UNIT: Bytes = Bytes(2 << 20);

#[derive(Debug, Clone, Copy)]
pub(super) struct Caches {
    /// One of them, which one core sees.
    pub(super) one: Bytes,
    /// All of the node together, which all cores see.
    pub(super) all: Bytes,
}

/// Sizes as the kernel, or the hypervisor below it, states them.
pub(super) fn stated(inventory: &Inventory, node: &Node) -> Caches {
    let one = inventory.last_level_caches(node).max().unwrap_or(0);
    Caches { one: Bytes(one), all: Bytes(inventory.last_level_cache_bytes(node)) }
}

/// A hypervisor's statement counts for nothing beside the knee.
pub(super) fn effective(stated: Caches, knee: Knee, is_guest: bool) -> Caches {
    let one = if is_guest { knee.cache } else { knee.cache.max(stated.one) };
    let count = stated.all.0.checked_div(stated.one.0).unwrap_or(1).max(1);
    Caches { one, all: Bytes(one.0 * count) }
}

/// `Some` reason if the caches hold too much of the buffer.
pub(super) fn bound(buffer: Bytes, cache: Bytes) -> Option<String> {
    (buffer.0 < 2 * cache.0).then(|| {
        format!("cache bound: buffers of {buffer} are less than twice the caches of {cache}")
    })
}

pub(super) fn whole_units(bytes: Bytes) -> Bytes {
    const { assert!(BUFFER_UNIT.0.is_multiple_of(BLOCK.0)) };
    Bytes((bytes.0 / BUFFER_UNIT.0).max(1) * BUFFER_UNIT.0)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is positive, and the cast saturates"
)]
pub(super) fn to_bytes(value: f64) -> Bytes {
    Bytes(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sysroot::Sysroot, tests_support::FakeSysroot};

    #[test]
    fn caches_are_stated_by_the_last_level() {
        let machine = FakeSysroot::single_node();
        let inventory = Inventory::read(Sysroot(machine.path())).unwrap();
        let caches = stated(&inventory, &inventory.nodes[0]);
        assert_eq!((caches.one, caches.all), (Bytes::mib(32), Bytes::mib(32)));
    }

    #[test]
    fn in_a_guest_the_knee_counts_and_elsewhere_the_larger() {
        let caches = Caches { one: Bytes::mib(32), all: Bytes::mib(128) };
        let knee = |mib| Knee { cache: Bytes::mib(mib), is_open: false };
        let effective = |mib, is_guest| {
            let found = effective(caches, knee(mib), is_guest);
            (found.one, found.all)
        };
        assert_eq!(effective(4, true), (Bytes::mib(4), Bytes::mib(16)));
        assert_eq!(effective(4, false), (Bytes::mib(32), Bytes::mib(128)));
        assert_eq!(effective(64, false), (Bytes::mib(64), Bytes::mib(256)));
    }

    #[test]
    fn buffers_must_be_twice_the_caches() {
        assert_eq!(bound(Bytes::mib(64), Bytes::mib(32)), None);
        assert!(bound(Bytes::mib(62), Bytes::mib(32)).is_some());
    }

    #[test]
    fn lengths_are_whole_huge_pages_and_at_least_one() {
        assert_eq!(whole_units(Bytes::mib(5)), Bytes::mib(4));
        assert_eq!(whole_units(Bytes(1)), Bytes::mib(2));
    }
}
