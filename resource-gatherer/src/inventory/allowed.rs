//! Reads which nodes and CPUs this process may use: its cpuset, as a container or a batch system sets it.
//!
//! Binding memory to a node outside fails, or is silently reduced to the nodes inside.

use serde::{Deserialize, Serialize};

use super::{cgroup, mount::Mount, number_list};
use crate::sysroot::{ReadError, Sysroot, field, malformed, optional, parsed};

/// Each is `None` where the kernel has no cpusets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Allowed {
    pub nodes: Option<Vec<u32>>,
    pub cpus: Option<Vec<u32>>,
}

impl Allowed {
    #[must_use]
    pub fn has_node(&self, node: u32) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.contains(&node))
    }

    #[must_use]
    pub fn has_cpu(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
    }
}

/// Reads what the kernel says of the process itself, or else of its control group.
pub(crate) fn read(sysroot: Sysroot<'_>, mounts: &[Mount]) -> Result<Allowed, ReadError> {
    let path = sysroot.join("proc/self/status");
    let status = optional(&path).unwrap_or_default();
    let group = cgroup::own_v2_directory(sysroot, mounts);
    let list = |key: &str, file: &str, expected| {
        if let Some(list) = field(&status, key) {
            let numbers = number_list::parse(list);
            return numbers.map(Some).ok_or_else(|| malformed(path.clone(), list, expected));
        }
        let effective = group.as_ref().map(|group| group.join(file));
        let effective = effective.map(|file| parsed(&file, expected, number_list::parse));
        Ok(effective.transpose()?.flatten())
    };
    Ok(Allowed {
        nodes: list(
            "Mems_allowed_list:",
            "cpuset.mems.effective",
            "a list of nodes such as 0-1,3",
        )?,
        cpus: list("Cpus_allowed_list:", "cpuset.cpus.effective", "a list of CPUs such as 0-3,8")?,
    })
}
