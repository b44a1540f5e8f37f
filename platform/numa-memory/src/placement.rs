//! Reads back on which node the kernel put memory. A placement that cannot be read back counts as
//! unverified.

use std::{ffi::c_void, fs};

use memmap2::MmapRaw;
use tierfeed_units::{Locality, NumaNode};

use crate::{
    error::AllocateError,
    policy::{self, Policy},
};

/// One sample per huge page, as the pages of one huge page lie together.
const SAMPLE_STRIDE_BYTES: usize = 2 << 20;

/// Small mappings are sampled more densely, down to every page.
const SAMPLES_MIN: usize = 16;

/// The share of sampled pages, in percent, that must lie on the requested node.
const SHARE_MIN_PERCENT: usize = 99;

/// The node of memory, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// No node was requested.
    Anywhere,
    /// Read back from the kernel: at least 99 % of the sampled pages lie on the node.
    Verified {
        /// Node that the caller requested.
        node: NumaNode,
        /// Pages whose placement was read back.
        pages_sampled: usize,
        /// Sampled pages that lie on the node.
        pages_on_node: usize,
    },
    /// Read back from the kernel, of memory that may lie on other nodes where this one is full.
    Preferred {
        /// Node that the caller prefers.
        node: NumaNode,
        /// Pages whose placement was read back.
        pages_sampled: usize,
        /// Sampled pages that lie on the node.
        pages_on_node: usize,
        /// Whether the kernel accepted the policy.
        policy: Policy,
    },
    /// The kernel denied the query. Treat the memory as if it could be on any node.
    Unverified {
        /// What the caller requested.
        locality: Locality,
        /// Whether the kernel at least accepted the policy.
        policy: Policy,
    },
}

impl Placement {
    /// The placement of memory that no page was allocated for.
    pub(crate) fn before_touch(locality: Locality, policy: Policy) -> Self {
        match locality {
            Locality::Anywhere => Self::Anywhere,
            locality => Self::Unverified { locality, policy },
        }
    }

    /// What the caller requested.
    #[must_use]
    pub fn locality(self) -> Locality {
        match self {
            Self::Anywhere => Locality::Anywhere,
            Self::Verified { node, .. } => Locality::Numa(node),
            Self::Preferred { node, .. } => Locality::Near(node),
            Self::Unverified { locality, .. } => locality,
        }
    }

    pub(crate) fn policy(self) -> Policy {
        match self {
            Self::Anywhere | Self::Verified { .. } => Policy::Applied,
            Self::Preferred { policy, .. } | Self::Unverified { policy, .. } => policy,
        }
    }
}

/// The result of a query of sampled pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) pages_sampled: usize,
    pub(crate) pages_on_node: usize,
}

/// Queries where the touched pages of `mapping` lie, by `move_pages` and otherwise by `numa_maps`;
/// `None` if both are denied.
pub(crate) fn find(mapping: &MmapRaw, node: NumaNode) -> Option<Found> {
    find_at(mapping.as_ptr() as usize, mapping.len(), node)
}

/// As [`find`], of `len` bytes at an address of this process.
pub(crate) fn find_at(start: usize, len: usize, node: NumaNode) -> Option<Found> {
    if let Some(found) = find_by_pages(start, len, node) {
        return Some(found);
    }
    let maps = fs::read_to_string("/proc/self/numa_maps").ok()?;
    let found = find_in_numa_maps(&maps, start, node)?;
    // The kernel may show adjacent private mappings as one: then nothing is known about this one.
    (found.pages_sampled == len.div_ceil(page_bytes())).then_some(found)
}

/// As [`find`], of a range of `mapping`, and by `move_pages` alone: `numa_maps` covers whole
/// mappings.
pub(crate) fn find_within(
    mapping: &MmapRaw,
    offset: usize,
    len: usize,
    node: NumaNode,
) -> Option<Found> {
    let first = offset - offset % page_bytes();
    find_by_pages(mapping.as_ptr() as usize + first, offset + len - first, node)
}

fn find_by_pages(start: usize, len: usize, node: NumaNode) -> Option<Found> {
    let nodes = policy::nodes_of(&sampled_pages(start, len)).ok()?;
    let wanted = i64::from(node.0);
    let pages_on_node = nodes.iter().filter(|it| i64::from(**it) == wanted).count();
    Some(Found { pages_sampled: nodes.len(), pages_on_node })
}

/// The placement that the caller gets. `find` queries the pages on a node.
///
/// # Errors
///
/// [`AllocateError::Misplaced`] if fewer than 99 % of the pages lie on the only node that may have them.
pub(crate) fn judge(
    locality: Locality,
    policy: Policy,
    find: impl FnOnce(NumaNode) -> Option<Found>,
) -> Result<Placement, AllocateError> {
    let Some(node) = locality.node() else { return Ok(Placement::Anywhere) };
    match find(node) {
        None => Ok(Placement::Unverified { locality, policy }),
        Some(Found { pages_sampled, pages_on_node }) if locality == Locality::Near(node) => {
            Ok(Placement::Preferred { node, pages_sampled, pages_on_node, policy })
        }
        Some(Found { pages_sampled, pages_on_node })
            if pages_on_node * 100 >= pages_sampled * SHARE_MIN_PERCENT =>
        {
            Ok(Placement::Verified { node, pages_sampled, pages_on_node })
        }
        Some(Found { pages_sampled, pages_on_node }) => {
            Err(AllocateError::Misplaced { node, pages_sampled, pages_on_node, policy })
        }
    }
}

fn sampled_pages(start: usize, len: usize) -> Vec<*const c_void> {
    let page = page_bytes();
    let stride = (len / SAMPLES_MIN).clamp(1, SAMPLE_STRIDE_BYTES).next_multiple_of(page);
    (0..len).step_by(stride).map(|offset| (start + offset) as *const c_void).collect()
}

/// Reads the line of the mapping that starts at `start`:
/// `7f5c38000000 prefer:0 file=/memfd:chunk dirty=256 N0=256 kernelpagesize_kB=4`.
fn find_in_numa_maps(maps: &str, start: usize, node: NumaNode) -> Option<Found> {
    let line = maps.lines().find_map(|line| {
        let (address, rest) = line.split_once(' ')?;
        (usize::from_str_radix(address, 16).ok()? == start).then_some(rest)
    })?;
    let mut found = Found { pages_sampled: 0, pages_on_node: 0 };
    for word in line.split_whitespace() {
        let Some((on, pages)) = word.strip_prefix('N').and_then(|it| it.split_once('=')) else {
            continue;
        };
        let (Ok(on), Ok(pages)) = (on.parse::<u32>(), pages.parse::<usize>()) else { continue };
        found.pages_sampled += pages;
        if on == node.0 {
            found.pages_on_node += pages;
        }
    }
    (found.pages_sampled > 0).then_some(found)
}

/// Size of a small page of this machine, in bytes.
pub(crate) fn page_bytes() -> usize {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    size.ok().flatten().and_then(|it| usize::try_from(it).ok()).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55c4c0a00000 default file=/usr/bin/tierfeed mapped=30 N0=30 kernelpagesize_kB=4
7f5c38000000 prefer=relative:2 file=/memfd:chunk\\040(deleted) dirty=256 N0=3 N2=253 kernelpagesize_kB=4
7f5c39000000 default file=/memfd:other\\040(deleted)
";

    #[test]
    fn numa_maps_tell_how_many_pages_lie_on_each_node() {
        let found = |start, node| find_in_numa_maps(MAPS, start, NumaNode(node));
        let on_two = Found { pages_sampled: 256, pages_on_node: 253 };
        assert_eq!(found(0x7f5c_3800_0000, 2), Some(on_two));
        assert_eq!(found(0x7f5c_3800_0000, 1), Some(Found { pages_on_node: 0, ..on_two }));
        assert_eq!(found(0x7f5c_3900_0000, 0), None, "it was never touched");
        assert_eq!(found(0x7f5c_3a00_0000, 0), None, "no such mapping");
    }

    #[test]
    fn a_mapping_is_sampled_every_huge_page_and_at_least_sixteen_times() {
        let page = page_bytes();
        assert_eq!(sampled_pages(0, 512 << 20).len(), 256);
        assert_eq!(sampled_pages(0, 1 << 20).len(), 16);
        assert_eq!(sampled_pages(0, 5 * page).len(), 5);
        assert_eq!(sampled_pages(0, 1).len(), 1);
        assert_eq!(sampled_pages(0, page + 1).len(), 2, "the last page is sampled too");
        assert!(sampled_pages(page, 1 << 20).iter().all(|it| (*it as usize).is_multiple_of(page)));
    }

    #[test]
    fn one_page_in_a_hundred_may_lie_elsewhere() {
        let judge = |pages_sampled, pages_on_node| {
            let found = Found { pages_sampled, pages_on_node };
            judge(Locality::Numa(NumaNode(2)), Policy::Applied, |_| Some(found))
        };
        assert!(matches!(judge(100, 99), Ok(Placement::Verified { .. })));
        assert!(matches!(judge(100, 98), Err(AllocateError::Misplaced { .. })));
        assert!(matches!(judge(16, 15), Err(AllocateError::Misplaced { .. })));
    }

    #[test]
    fn memory_that_may_lie_elsewhere_is_told_where_it_lies() {
        let (node, policy) = (NumaNode(2), Policy::Applied);
        let found = Found { pages_sampled: 16, pages_on_node: 3 };
        let placement = judge(Locality::Near(node), policy, |_| Some(found)).unwrap();
        let Found { pages_sampled, pages_on_node } = found;
        assert_eq!(placement, Placement::Preferred { node, pages_sampled, pages_on_node, policy });
        assert_eq!(placement.locality(), Locality::Near(node));
    }

    #[test]
    fn a_placement_that_cannot_be_read_is_not_pretended() {
        let locality = Locality::Numa(NumaNode(2));
        let placement = judge(locality, Policy::Denied, |_| None).unwrap();
        assert_eq!(placement, Placement::Unverified { locality, policy: Policy::Denied });
    }
}
