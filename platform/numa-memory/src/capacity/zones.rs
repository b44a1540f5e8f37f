//! Counts the free pages of a node that lie above the watermarks of their zones.

use std::{fs, path::Path};

use tierfeed_units::{Bytes, NumaNode};

use crate::placement::page_bytes;

/// Free memory of `node` above the high watermark and the lowmem protection of each zone, or `None`
/// if `/proc/zoneinfo` does not show it.
///
/// Below the high watermark the kernel wakes its reclaim daemon; below the protection a zone serves
/// only allocations that cannot lie elsewhere.
pub(crate) fn free_above_watermarks(sysroot: &Path, node: NumaNode) -> Option<Bytes> {
    let text = fs::read_to_string(sysroot.join("proc/zoneinfo")).ok()?;
    let pages = pages_above_watermarks(&text, node)?;
    Some(Bytes(pages * page_bytes() as u64))
}

#[derive(Default)]
struct Zone {
    free: u64,
    high: u64,
    protection: u64,
}

fn pages_above_watermarks(zoneinfo: &str, node: NumaNode) -> Option<u64> {
    let wanted = format!("Node {},", node.0);
    let mut zones: Vec<Zone> = Vec::new();
    let mut is_wanted = false;
    for line in zoneinfo.lines() {
        if line.starts_with("Node ") {
            is_wanted = line.starts_with(&wanted);
            if is_wanted {
                zones.push(Zone::default());
            }
            continue;
        }
        let Some(zone) = zones.last_mut().filter(|_| is_wanted) else { continue };
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("pages"), Some("free")) => zone.free = number(words.next())?,
            (Some("high"), value @ Some(_)) if zone.high == 0 => zone.high = number(value)?,
            (Some("protection:"), Some(_)) => zone.protection = largest(line),
            _ => (),
        }
    }
    if zones.is_empty() {
        return None;
    }
    Some(zones.iter().map(|it| it.free.saturating_sub(it.high + it.protection)).sum())
}

fn number(word: Option<&str>) -> Option<u64> {
    word?.parse().ok()
}

/// The entries of `protection: (0, 0, 2048)` rise towards the zones that user memory comes from.
fn largest(line: &str) -> u64 {
    let numbers = line.split(|c: char| !c.is_ascii_digit());
    numbers.filter_map(|it| it.parse().ok()).max().unwrap_or(0)
}
