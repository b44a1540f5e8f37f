//! Finds the nodes whose memory is that of a GPU or another accelerator.
//!
//! A coherent GPU (GH200, GB200) shows its memory as nodes without CPUs, and the kernel counts it with the
//! memory of the host. A program that takes it takes it from the model. Three sources tell, each enough:
//!
//! 1. The driver names the node of a GPU (`/proc/driver/nvidia/gpus/*/numa_status`).
//! 2. The node is that of a device which reads and writes memory by itself (`has_generic_initiator`), and no
//!    CXL or persistent device made it.
//! 3. The driver of a GPU added memory (`System RAM (NVIDIA)` in `/proc/iomem`, which tells no node): then
//!    the nodes that no DAX device made are taken for it.
//!
//! Ratings of the firmware say nothing: it rates such nodes as well.
//!
//! Source: `add_memory_driver_managed` in NVIDIA's open driver; the GPU nodes of hwloc's
//! `topology-linux.c`; Linux `drivers/acpi/numa/srat.c` and `drivers/base/node.c`.

use std::{collections::BTreeMap, fs};

use super::{
    dax::{self, DaxDevice, MemoryKind},
    number_list,
};
use crate::sysroot::{Sysroot, entries, numbered_entries, optional};

/// The nodes without CPUs whose memory is a GPU's, in ascending order.
pub(crate) fn nodes(sysroot: Sysroot<'_>) -> Vec<u32> {
    of_devices(sysroot, &dax::read_all(sysroot).unwrap_or_default())
}

/// As [`nodes`], beside these DAX devices.
pub(crate) fn of_devices(sysroot: Sysroot<'_>, devices: &[DaxDevice]) -> Vec<u32> {
    let named = named_by_drivers(sysroot);
    let (initiators, is_added) = (generic_initiators(sysroot), is_added_by_driver(sysroot));
    if named.is_empty() && initiators.is_empty() && !is_added {
        return Vec::new();
    }
    let dax: BTreeMap<u32, MemoryKind> = dax::kinds(devices);
    let is_gpu = |id: &u32| {
        let is_of_device = match dax.get(id) {
            Some(MemoryKind::Cxl | MemoryKind::Persistent) => false,
            Some(_) => initiators.contains(id),
            None => initiators.contains(id) || is_added,
        };
        named.contains(id) || is_of_device
    };
    let root = sysroot.join("sys/devices/system/node");
    let has_no_cpus =
        |id: &u32| optional(&root.join(format!("node{id}/cpulist"))).is_none_or(|it| it.is_empty());
    numbered_entries(&root, "node").into_iter().filter(has_no_cpus).filter(is_gpu).collect()
}

fn named_by_drivers(sysroot: Sysroot<'_>) -> Vec<u32> {
    let gpus = sysroot.join("proc/driver/nvidia/gpus");
    let node = |gpu: String| {
        let text = optional(&gpus.join(gpu).join("numa_status"))?;
        text.lines().find_map(|line| line.trim().strip_prefix("Node:")?.trim().parse().ok())
    };
    entries(&gpus).into_iter().filter_map(node).collect()
}

fn generic_initiators(sysroot: Sysroot<'_>) -> Vec<u32> {
    let text = optional(&sysroot.join("sys/devices/system/node/has_generic_initiator"));
    text.and_then(|text| number_list::parse(&text)).unwrap_or_default()
}

fn is_added_by_driver(sysroot: Sysroot<'_>) -> bool {
    let text = fs::read_to_string(sysroot.join("proc/iomem")).unwrap_or_default();
    text.lines().any(|line| line.trim_end().ends_with("System RAM (NVIDIA)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_support::FakeSysroot;

    const STATUS: &str = "proc/driver/nvidia/gpus/0009:01:00.0/numa_status";
    const INITIATORS: &str = "sys/devices/system/node/has_generic_initiator";

    fn found(machine: &FakeSysroot) -> Vec<u32> {
        nodes(Sysroot(machine.path()))
    }

    #[test]
    fn each_of_three_sources_is_enough() {
        let machine = FakeSysroot::cxl_node();
        assert_eq!(found(&machine), [0_u32; 0], "rated, and nothing says that it is a GPU's");
        for (path, text) in [
            (STATUS, "Node: 2\nStatus: online\n"),
            (INITIATORS, "2\n"),
            (
                "proc/iomem",
                "00000000-00000000 : System RAM\n00000000-00000000 : System RAM (NVIDIA)\n",
            ),
        ] {
            machine.write(path, text);
            assert_eq!(found(&machine), [2], "{path}");
            machine.remove(path);
        }
    }

    #[test]
    fn a_node_with_cpus_is_main_memory_whatever_a_driver_says() {
        let machine = FakeSysroot::cxl_node();
        for status in ["Node: 0\n", "Node: 4294967295\n", "Node: -1\nStatus: disabled\n", "odd"] {
            machine.write(STATUS, status);
            assert_eq!(found(&machine), [0_u32; 0], "{status}");
        }
        machine.write(INITIATORS, "0-1\n");
        assert_eq!(found(&machine), [0_u32; 0]);
    }

    #[test]
    fn a_cxl_device_beside_gpus_stays_one() {
        let machine = FakeSysroot::machine("qemu-cxl");
        machine.write(INITIATORS, "0-2\n");
        machine.write("proc/iomem", "0-0 : System RAM (NVIDIA)\n");
        assert_eq!(found(&machine), [0_u32; 0]);
        machine.write(STATUS, "Node: 2\n");
        assert_eq!(found(&machine), [2], "its driver knows best");
    }
}
