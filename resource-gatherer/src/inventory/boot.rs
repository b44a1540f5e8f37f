//! Reads how the kernel was started: the figures of memory depend on it.

use serde::{Deserialize, Serialize};

use crate::sysroot::{Sysroot, optional};

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Boot {
    pub kernel: String,
    /// Parameters that bear on memory, CPUs, their frequency and mitigations, in the order of the
    /// command line. The others are not noted: some of them are secrets or change with every boot.
    pub parameters: Vec<String>,
}

/// Parameters that bear on speed. An entry that ends with a dot or an underscore is a prefix.
///
/// # Source
///
/// `Documentation/admin-guide/kernel-parameters.txt` of Linux 6.12.
const PARAMETERS: [&str; 33] = [
    "amd_iommu",
    "amd_pstate",
    "cpufreq.",
    "cpuidle.",
    "cxl_",
    "default_hugepagesz",
    "efi",
    "efi_fake_mem",
    "hugepages",
    "hugepagesz",
    "idle",
    "intel_idle.",
    "intel_iommu",
    "intel_pstate",
    "iommu",
    "isolcpus",
    "kernelcore",
    "maxcpus",
    "mem",
    "memhp_default_state",
    "memmap",
    "memory_hotplug.",
    "mitigations",
    "movable_node",
    "movablecore",
    "nosmt",
    "nr_cpus",
    "numa",
    "numa_balancing",
    "page_alloc.",
    "processor.",
    "transparent_hugepage",
    "zswap.",
];

/// `None` where the kernel does not tell its release.
pub(crate) fn read(sysroot: Sysroot<'_>) -> Option<Boot> {
    let text = |path: &str| optional(&sysroot.join(path));
    let line = text("proc/cmdline").unwrap_or_default();
    let noted = line.split_whitespace().filter(|it| bears_on_speed(it)).map(str::to_owned);
    Some(Boot { kernel: text("proc/sys/kernel/osrelease")?, parameters: noted.collect() })
}

fn bears_on_speed(parameter: &str) -> bool {
    let name = parameter.split_once('=').map_or(parameter, |(name, _)| name);
    PARAMETERS.iter().any(|known| {
        let is_family = known.ends_with(['.', '_']);
        if is_family { name.starts_with(known) } else { name == *known }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_support::FakeSysroot;

    #[test]
    fn parameters_that_bear_on_speed_are_noted_and_no_others() {
        let machine = FakeSysroot::bare();
        assert_eq!(read(Sysroot(machine.path())), None, "the kernel is not known");
        machine.write("proc/sys/kernel/osrelease", "6.12.1\n");
        let line =
            "root=/dev/vda1 mem=8G token=secret numa=off numatic=1 intel_idle.max_cstate=1 quiet";
        machine.write("proc/cmdline", &format!("{line}\n"));
        let boot = read(Sysroot(machine.path())).unwrap();
        assert_eq!(boot.kernel, "6.12.1");
        assert_eq!(boot.parameters, ["mem=8G", "numa=off", "intel_idle.max_cstate=1"]);
    }
}
