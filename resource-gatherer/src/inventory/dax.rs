//! Reads the DAX devices: memory that is not ordinary memory, or not yet.
//!
//! The path of the device in sysfs tells the kind; its `target_node` is the node that it became (or
//! will become) when the `kmem` driver takes it as ordinary memory.
//!
//! Source: `annotate_dax_parent` in hwloc's `topology-linux.c`.

use std::{collections::BTreeMap, fs, path::Path};

use serde::{Deserialize, Serialize};

use crate::sysroot::{ReadError, Sysroot, entries, link_name, optional_node, strict_number};

/// The make of a node's memory, as far as the kernel tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryKind {
    /// The node has CPUs: ordinary main memory.
    #[default]
    Dram,
    /// A CXL device that the kernel took as memory.
    Cxl,
    /// Memory that the firmware set apart (`hmem`): often high-bandwidth or CXL memory.
    SpecificPurpose,
    Persistent,
    /// Memory of a GPU or another accelerator that the host sees as a node: never a tier.
    Gpu,
    /// No CPUs, and no device that would tell more.
    CpuLess,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaxDevice {
    /// For instance `dax0.0`.
    pub name: String,
    /// [`MemoryKind::CpuLess`] where the path of the device does not tell.
    pub kind: MemoryKind,
    pub size_bytes: Option<u64>,
    /// The node that it makes as ordinary memory.
    pub target_node: Option<u32>,
    /// For instance `kmem` or `device_dax`.
    pub driver: Option<String>,
    /// The CXL region that it is made of.
    pub region: Option<String>,
}

impl DaxDevice {
    /// Whether the kernel uses it as ordinary memory. Otherwise programs may map it, and
    /// `daxctl reconfigure-device --mode=system-ram` makes a node of it.
    #[must_use]
    pub fn is_system_memory(&self) -> bool {
        self.driver.as_deref() == Some("kmem")
    }
}

pub(crate) fn read_all(sysroot: Sysroot<'_>) -> Result<Vec<DaxDevice>, ReadError> {
    let root = sysroot.join("sys/bus/dax/devices");
    entries(&root).into_iter().map(|name| read_one(&root.join(&name), name)).collect()
}

/// The kind of memory by the node that it is bound to.
pub(crate) fn kinds(devices: &[DaxDevice]) -> BTreeMap<u32, MemoryKind> {
    devices.iter().filter_map(|device| Some((device.target_node?, device.kind))).collect()
}

fn read_one(device: &Path, name: String) -> Result<DaxDevice, ReadError> {
    let place = fs::read_link(device).unwrap_or_default();
    let region = |part: std::path::Component<'_>| {
        let name = part.as_os_str().to_str()?;
        let number = name.strip_prefix("region")?;
        number.parse::<u32>().is_ok().then(|| name.to_owned())
    };
    Ok(DaxDevice {
        name,
        kind: kind_of_place(&place.to_string_lossy()),
        size_bytes: strict_number(&device.join("size"))?,
        target_node: optional_node(&device.join("target_node")),
        driver: link_name(&device.join("driver")),
        region: place.components().rev().find_map(region),
    })
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
