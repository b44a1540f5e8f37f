//! Finds out what stands behind a memory node that came from a DAX device.
//!
//! The path of the device in sysfs tells the kind; its `target_node` is the node that it became (or
//! will become) when the `kmem` driver takes it as ordinary memory.
//!
//! Source: `annotate_dax_parent` in hwloc's `topology-linux.c`.

use std::{collections::BTreeMap, fs};

use super::node::MemoryKind;
use crate::sysroot::{Sysroot, optional_number};

/// The kind of memory by the node that it is bound to.
pub(crate) fn kinds(sysroot: Sysroot<'_>) -> BTreeMap<u32, MemoryKind> {
    let mut kinds = BTreeMap::new();
    let Ok(devices) = fs::read_dir(sysroot.join("sys/bus/dax/devices")) else { return kinds };
    for device in devices.filter_map(Result::ok) {
        let target = optional_number(&device.path().join("target_node"));
        let Some(target) = target.and_then(|node| u32::try_from(node).ok()) else { continue };
        let Ok(place) = fs::read_link(device.path()) else { continue };
        kinds.insert(target, kind_of_place(&place.to_string_lossy()));
    }
    kinds
}

/// Persistent CXL memory hangs below an `nvdimm-bridge`, so that is asked before `ndbus`.
fn kind_of_place(place: &str) -> MemoryKind {
    if place.contains("nvdimm-bridge") || place.contains("ACPI0017") || place.contains("dax_region")
    {
        MemoryKind::Cxl
    } else if place.contains("ndbus") {
        MemoryKind::Persistent
    } else if place.contains("hmem") {
        MemoryKind::SpecificPurpose
    } else {
        MemoryKind::CpuLess
    }
}
