//! Reads the CXL devices, and how the kernel puts them together: windows of the host's address space,
//! regions in them, and the memory devices that a region is spread over.
//!
//! A region of `ram` becomes a DAX device, and that a NUMA node; each step can be missing, and then the
//! memory is there but not usable.
//!
//! Source: Linux `Documentation/ABI/testing/sysfs-bus-cxl`, `driver-api/cxl/linux/cxl-driver.rst`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::dax::DaxDevice;
use crate::sysroot::{
    ReadError, Sysroot, entries, link_name, numbered_entries, optional, optional_number,
    strict_number,
};

/// All that the CXL bus has; empty without the drivers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cxl {
    pub memories: Vec<CxlMemory>,
    pub regions: Vec<CxlRegion>,
    /// The parts of the host's address space that regions can be made in.
    pub windows: Vec<CxlWindow>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CxlMemory {
    /// For instance `mem0`.
    pub name: String,
    /// Its volatile capacity.
    pub ram_bytes: Option<u64>,
}

/// A region: memory of one or several devices under consecutive addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CxlRegion {
    /// For instance `region0`.
    pub name: String,
    pub size_bytes: Option<u64>,
    /// The memory devices, in the order of interleaving.
    pub memories: Vec<String>,
    /// The node that it became, `None` if it is not ordinary memory.
    pub numa_node: Option<u32>,
}

/// A part of the host's address space that the firmware gives to CXL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CxlWindow {
    /// The decoder behind it, for instance `decoder0.0`.
    pub name: String,
    /// Whether volatile regions may be made in it.
    pub takes_ram: bool,
}

impl Cxl {
    pub fn regions_of(&self, memory: &str) -> impl Iterator<Item = &CxlRegion> {
        self.regions.iter().filter(move |region| region.memories.iter().any(|it| it == memory))
    }
}

/// The CXL bus; `dax` tells which region became which node.
pub(crate) fn read(sysroot: Sysroot<'_>, dax: &[DaxDevice]) -> Result<Cxl, ReadError> {
    let root = sysroot.join("sys/bus/cxl/devices");
    let memories = numbered_entries(&root, "mem").into_iter();
    let regions = numbered_entries(&root, "region").into_iter();
    let decoders = entries(&root).into_iter().filter(|name| name.starts_with("decoder"));
    Ok(Cxl {
        memories: memories.map(|it| memory(&root, it)).collect::<Result<_, _>>()?,
        regions: regions.map(|it| region(sysroot, &root, it, dax)).collect::<Result<_, _>>()?,
        windows: decoders
            .filter(|name| is_window(sysroot, &root.join(name)))
            .map(|name| CxlWindow {
                takes_ram: optional_number(&root.join(&name).join("cap_ram")) == Some(1),
                name,
            })
            .collect(),
    })
}

fn memory(root: &Path, number: u32) -> Result<CxlMemory, ReadError> {
    let name = format!("mem{number}");
    let device = root.join(&name);
    Ok(CxlMemory { name, ram_bytes: strict_number(&device.join("ram/size"))? })
}

fn region(
    sysroot: Sysroot<'_>,
    root: &Path,
    number: u32,
    dax: &[DaxDevice],
) -> Result<CxlRegion, ReadError> {
    let name = format!("region{number}");
    let device = root.join(&name);
    let targets = numbered_entries(&device, "target").into_iter();
    let memory = |target| memory_behind(sysroot, root, &device.join(format!("target{target}")));
    let node = dax.iter().find(|dax| dax.region.as_deref() == Some(&name));
    Ok(CxlRegion {
        size_bytes: strict_number(&device.join("size"))?,
        memories: targets.filter_map(memory).collect(),
        numa_node: node.filter(|dax| dax.is_system_memory()).and_then(|dax| dax.target_node),
        name,
    })
}

/// A target names the decoder of an endpoint port, and the port's `uport` is the memory device.
fn memory_behind(sysroot: Sysroot<'_>, root: &Path, target: &Path) -> Option<String> {
    let decoder = sysroot.resolve(&root.join(optional(target)?))?;
    link_name(&decoder.parent()?.join("uport"))
}

/// The decoders of the root port are the windows; those of other ports only pass on.
fn is_window(sysroot: Sysroot<'_>, decoder: &Path) -> bool {
    let port = sysroot
        .resolve(decoder)
        .and_then(|place| Some(place.parent()?.file_name()?.to_string_lossy().starts_with("root")));
    port.unwrap_or(false)
}
