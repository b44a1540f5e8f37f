//! Lists the PCI devices that matter for placement: GPUs, other accelerators, CXL memory.
//!
//! A CXL memory device is here even if the kernel has no driver for it, and then nowhere else.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::sysroot::{Sysroot, entries, link_name, optional, optional_node, whole_number};

/// What a device is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PciRole {
    /// A display controller; GPUs without outputs are in this class too.
    Display,
    /// A processing accelerator.
    Accelerator,
    /// A CXL memory device.
    CxlMemory,
}

/// A PCI device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciDevice {
    /// Its address, for instance `0000:0d:00.0`.
    pub address: String,
    /// What it is for.
    pub role: PciRole,
    /// The number of its maker, as in `0x10de`.
    pub vendor: Option<String>,
    /// Its number with its maker.
    pub device: Option<String>,
    /// The node that it hangs at, where the firmware tells.
    pub numa_node: Option<u32>,
    /// Its driver, `None` if no driver took it.
    pub driver: Option<String>,
}

/// The devices with a [`PciRole`], by address.
pub(crate) fn read_all(sysroot: Sysroot<'_>) -> Vec<PciDevice> {
    let root = sysroot.join("sys/bus/pci/devices");
    let devices = entries(&root).into_iter();
    devices.filter_map(|address| read_one(&root.join(&address), address)).collect()
}

fn read_one(device: &Path, address: String) -> Option<PciDevice> {
    Some(PciDevice {
        address,
        role: role(whole_number(&optional(&device.join("class"))?)?)?,
        vendor: optional(&device.join("vendor")),
        device: optional(&device.join("device")),
        numa_node: optional_node(&device.join("numa_node")),
        driver: link_name(&device.join("driver")),
    })
}

/// Class codes are `0xBBSSPP`: base class, sub-class, programming interface.
///
/// Source: PCI Code and ID Assignment Specification.
fn role(class: u64) -> Option<PciRole> {
    match (class >> 16, class >> 8) {
        (0x03, _) => Some(PciRole::Display),
        (0x12, _) => Some(PciRole::Accelerator),
        (_, 0x0502) => Some(PciRole::CxlMemory),
        _ => None,
    }
}
