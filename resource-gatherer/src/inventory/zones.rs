//! Reads which part of a node's memory takes movable pages only.
//!
//! Distributions bring CXL memory up this way: a kernel without policy then never allocates there, and
//! pages that a network card or a GPU pins are moved away or refused.

use std::collections::BTreeMap;

use crate::sysroot::{Sysroot, optional};

#[derive(Debug, Clone, Copy, Default)]
struct Pages {
    movable: u64,
    all: u64,
}

/// The share of movable memory in per cent, by node; empty where the kernel does not tell.
pub(crate) fn movable_percent(sysroot: Sysroot<'_>) -> BTreeMap<u32, u8> {
    let text = optional(&sysroot.join("proc/zoneinfo")).unwrap_or_default();
    let mut nodes: BTreeMap<u32, Pages> = BTreeMap::new();
    let mut zone = None;
    for line in text.lines() {
        if let Some(header) = line.strip_prefix("Node ") {
            zone = header_of(header);
        } else if let (Some((node, name)), Some(pages)) = (zone, managed(line)) {
            let node = nodes.entry(node).or_default();
            node.all = node.all.saturating_add(pages);
            if name == "Movable" {
                node.movable = node.movable.saturating_add(pages);
            }
        }
    }
    nodes.into_iter().filter_map(|(node, pages)| Some((node, percent(pages)?))).collect()
}

/// `0, zone   Movable`.
fn header_of(text: &str) -> Option<(u32, &str)> {
    let (node, zone) = text.split_once(", zone")?;
    Some((node.parse().ok()?, zone.trim()))
}

/// `        managed  5394266`, in pages; their size cancels out.
fn managed(line: &str) -> Option<u64> {
    line.trim().strip_prefix("managed ")?.trim().parse().ok()
}

fn percent(pages: Pages) -> Option<u8> {
    let share = (u128::from(pages.movable) * 100).checked_div(u128::from(pages.all))?;
    u8::try_from(share).ok().filter(|percent| *percent <= 100)
}
