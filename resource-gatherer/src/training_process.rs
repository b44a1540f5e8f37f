//! Finds the CPUs on which a training process runs, and the node of its GPU.

use std::fs;

use crate::{
    inventory::number_list,
    sysroot::{Sysroot, field, optional},
};

/// The PCI vendors whose GPUs train, as in sysfs: NVIDIA and AMD. A server's own display is none of them.
const VENDORS: [&str; 2] = ["0x10de", "0x1002"];

/// The PCI classes of GPUs, as in sysfs: displays, 3D controllers and accelerators.
const CLASSES: [&str; 3] = ["0x0300", "0x0302", "0x1200"];

/// The variables that choose among the GPUs of a host, the first that is set.
const VISIBLE: [&str; 3] = ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"];

/// The CPUs that a process may run on; `None` if it is gone or not visible.
#[must_use]
pub fn cpus_of(sysroot: Sysroot<'_>, process: u32) -> Option<Vec<u32>> {
    let status = optional(&sysroot.join(format!("proc/{process}/status")))?;
    number_list::parse(field(&status, "Cpus_allowed_list:")?)
}

/// The NUMA node of the GPU that a process uses, by its environment; `None` if that does not tell.
#[must_use]
pub fn gpu_node_of(sysroot: Sysroot<'_>, process: u32) -> Option<u32> {
    let environment = fs::read(sysroot.join(format!("proc/{process}/environ"))).ok()?;
    let environment = String::from_utf8_lossy(&environment);
    let value = |name: &str| {
        let mut variables = environment.split('\0').filter_map(|it| it.split_once('='));
        variables.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let gpus = gpu_nodes(sysroot);
    let visible: Vec<usize> = match VISIBLE.iter().find_map(|name| value(name)) {
        // A GPU may be named by its UUID, which sysfs does not have.
        Some(list) => list.split(',').map(|it| it.trim().parse().ok()).collect::<Option<_>>()?,
        None => (0..gpus.len()).collect(),
    };
    let own = match visible.as_slice() {
        [only] => *only,
        several => *several.get(value("LOCAL_RANK")?.parse::<usize>().ok()?)?,
    };
    *gpus.get(own)?
}

/// The NUMA node of each GPU of the host, in the order of the PCI addresses, which is the order of GPU
/// numbers; `None` where the firmware does not tell.
#[must_use]
pub fn gpu_nodes(sysroot: Sysroot<'_>) -> Vec<Option<u32>> {
    let directory = sysroot.join("sys/bus/pci/devices");
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut devices: Vec<_> = entries.map(|entry| entry.path()).collect();
    devices.sort_unstable();
    let is_gpu = |path: &std::path::PathBuf| {
        let is_one_of = |file: &str, starts: &[&str]| {
            let text = optional(&path.join(file)).unwrap_or_default();
            starts.iter().any(|start| text.starts_with(start))
        };
        is_one_of("class", &CLASSES) && is_one_of("vendor", &VENDORS)
    };
    // Without a node the file says -1.
    let node = |path: std::path::PathBuf| optional(&path.join("numa_node"))?.parse().ok();
    devices.into_iter().filter(is_gpu).map(node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_support::FakeSysroot;

    fn gpu(machine: &FakeSysroot, address: &str, (class, vendor, node): (&str, &str, &str)) {
        for (file, text) in [("class", class), ("vendor", vendor), ("numa_node", node)] {
            machine.write(&format!("sys/bus/pci/devices/{address}/{file}"), &format!("{text}\n"));
        }
    }

    /// Two GPUs on each of two nodes, one without, and the display of the server.
    fn machine() -> FakeSysroot {
        let machine = FakeSysroot::bare();
        gpu(&machine, "0000:03:00.0", ("0x030000", "0x1a03", "0"));
        for (address, node) in [("0000:1a:00.0", "0"), ("0000:9b:00.0", "1"), ("0000:1b:00.0", "0")]
        {
            gpu(&machine, address, ("0x030200", "0x10de", node));
        }
        gpu(&machine, "0000:9c:00.0", ("0x120000", "0x1002", "-1"));
        machine
    }

    fn node_with(environment: &str) -> Option<u32> {
        let machine = machine();
        machine.write("proc/7/environ", environment);
        gpu_node_of(Sysroot(machine.path()), 7)
    }

    #[test]
    fn gpus_are_numbered_by_their_address_and_displays_are_none() {
        let machine = machine();
        let found = gpu_nodes(Sysroot(machine.path()));
        assert_eq!(found, [Some(0), Some(0), Some(1), None]);
        assert_eq!(gpu_nodes(Sysroot(FakeSysroot::bare().path())), []);
    }

    #[test]
    fn the_environment_tells_which_gpu_a_rank_uses() {
        assert_eq!(node_with("LOCAL_RANK=2\0HOME=/root\0"), Some(1));
        assert_eq!(node_with("CUDA_VISIBLE_DEVICES=2\0"), Some(1));
        assert_eq!(
            node_with("CUDA_VISIBLE_DEVICES=2\0LOCAL_RANK=3\0"),
            Some(1),
            "it sees one only"
        );
        assert_eq!(node_with("CUDA_VISIBLE_DEVICES=2,0\0LOCAL_RANK=1\0"), Some(0));
    }

    #[test]
    fn what_does_not_tell_is_not_guessed() {
        for environment in [
            "",
            "LOCAL_RANK=9\0",
            "LOCAL_RANK=3\0",
            "CUDA_VISIBLE_DEVICES=GPU-8a5c\0",
            "CUDA_VISIBLE_DEVICES=0,1\0",
            "CUDA_VISIBLE_DEVICES=\0LOCAL_RANK=0\0",
        ] {
            assert_eq!(node_with(environment), None, "{environment:?}");
        }
        assert_eq!(gpu_node_of(Sysroot(machine().path()), 8), None, "no such process");
    }

    #[test]
    fn the_cpus_of_a_process_are_those_that_it_may_run_on() {
        let machine = FakeSysroot::bare();
        machine.write(
            "proc/7/status",
            "Name:\tpython\nCpus_allowed:\tf0\nCpus_allowed_list:\t4-6,8\n",
        );
        assert_eq!(cpus_of(Sysroot(machine.path()), 7), Some(vec![4, 5, 6, 8]));
        assert_eq!(cpus_of(Sysroot(machine.path()), 8), None);
    }
}
