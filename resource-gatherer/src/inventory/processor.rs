//! Reads which processor a host has, how many CPUs are online, and whether a hypervisor is below them.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::number_list;
use crate::sysroot::{ReadError, Sysroot, numbered_entries, optional, parsed};

/// The processors of a host, which all are of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Processor {
    /// A name, or a number such as `0xd40` on Arm.
    pub model: Option<String>,
    /// Hardware threads.
    pub cpus_online: usize,
    /// Whether a hypervisor is below; then caches and frequencies are as the hypervisor states them. `None`
    /// on processors that do not tell.
    pub is_virtual: Option<bool>,
}

pub(crate) fn read(sysroot: Sysroot<'_>) -> Result<Processor, ReadError> {
    let text = optional(&sysroot.join("proc/cpuinfo")).unwrap_or_default();
    let flags = value(&text, &["flags"]);
    let has_flag = flags.map(|it| it.split_whitespace().any(|flag| flag == "hypervisor"));
    let is_named = optional(&sysroot.join("sys/hypervisor/type")).is_some();
    Ok(Processor {
        model: value(&text, &["model name", "cpu", "uarch", "CPU part"]).map(str::to_owned),
        cpus_online: online(&sysroot.join("sys/devices/system/cpu"))?.len(),
        is_virtual: if is_named { Some(true) } else { has_flag },
    })
}

/// Online CPUs as the kernel lists them, or else as it numbers them.
pub(crate) fn online(root: &Path) -> Result<Vec<u32>, ReadError> {
    let listed = parsed(&root.join("online"), "a list of CPUs such as 0-3,8", number_list::parse)?;
    Ok(listed.unwrap_or_else(|| numbered_entries(root, "cpu")))
}

/// The value of the first of `keys` that the first processor has, as in `model name : Xeon`.
fn value<'text>(text: &'text str, keys: &[&str]) -> Option<&'text str> {
    let first = text.split("\n\n").next()?;
    let pairs = || first.lines().filter_map(|line| line.split_once(':'));
    keys.iter().find_map(|key| {
        let found = pairs().find(|(name, _)| name.trim() == *key)?;
        Some(found.1.trim()).filter(|value| !value.is_empty())
    })
}
