//! Reads pressure stall information: how long tasks waited for memory.

use crate::{
    inventory::{cgroup, mount::Mount},
    sysroot::{Sysroot, optional},
};

/// `some avg10` of memory in per cent: of the process's own control group where that is known (version
/// 2 only), else of the host.
pub(crate) fn memory(sysroot: Sysroot<'_>, mounts: &[Mount]) -> Option<f64> {
    let of_group = cgroup::own_v2_directory(sysroot, mounts)
        .and_then(|group| optional(&group.join("memory.pressure")));
    let text = of_group.or_else(|| optional(&sysroot.join("proc/pressure/memory")))?;
    parse_some_avg10(&text)
}

/// The value of `avg10` in the line `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
#[must_use]
pub fn parse_some_avg10(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let value = line.split_whitespace().find_map(|field| field.strip_prefix("avg10="))?;
    value.parse().ok().filter(|percent: &f64| (0.0..=100.0).contains(percent))
}
