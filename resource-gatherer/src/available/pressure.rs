//! Reads pressure stall information: how long tasks waited for memory.
//!
//! Source: Linux `Documentation/accounting/psi.rst`.

use serde::{Deserialize, Serialize};

use tierfeed_core::units::Nanoseconds;

use crate::{
    inventory::{cgroup, mount::Mount},
    sysroot::{Sysroot, field, optional},
};

/// How long tasks waited for memory: some task, or all while nothing was done. Shares are of the last ten seconds,
/// times since the system started or the control group was made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    pub some_percent: f64,
    #[serde(rename = "some_ns")]
    pub some: Nanoseconds,
    pub full_percent: f64,
    #[serde(rename = "full_ns")]
    pub full: Nanoseconds,
}

/// Memory pressure of the process's own control group where that is known (version 2 only), else of the host.
pub(crate) fn memory(sysroot: Sysroot<'_>, mounts: &[Mount]) -> Option<Pressure> {
    let of_group = cgroup::own_v2_directory(sysroot, mounts)
        .and_then(|group| optional(&group.join("memory.pressure")));
    parse(&of_group.or_else(|| optional(&sysroot.join("proc/pressure/memory")))?)
}

/// Lines such as `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`; total counts microseconds.
#[must_use]
pub fn parse(text: &str) -> Option<Pressure> {
    let (some_percent, some) = waiting(text, "some ")?;
    let (full_percent, full) = waiting(text, "full ")?;
    Some(Pressure { some_percent, some, full_percent, full })
}

/// The share of the last ten seconds, and all time.
pub(crate) fn waiting(text: &str, which: &str) -> Option<(f64, Nanoseconds)> {
    let line = field(text, which)?;
    let value = |key| line.split_whitespace().find_map(|field| field.strip_prefix(key));
    let percent = value("avg10=")?.parse().ok().filter(|it: &f64| (0.0..=100.0).contains(it))?;
    let microseconds: u64 = value("total=")?.parse().ok()?;
    Some((percent, Nanoseconds(microseconds.checked_mul(1000)?)))
}
