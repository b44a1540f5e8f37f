//! Reads pressure stall information: how long tasks waited for memory.
//!
//! Source: Linux `Documentation/accounting/psi.rst`.

use tierfeed_core::units::Nanoseconds;

use crate::{
    inventory::{cgroup, mount::Mount},
    sysroot::{Sysroot, optional},
};

/// How long tasks waited for memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pressure {
    /// Time in which some task waited.
    pub some: Waiting,
    /// Time in which all tasks waited and nothing was done.
    pub full: Waiting,
}

/// A share of the time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waiting {
    /// Of the last ten seconds, in per cent.
    pub percent: f64,
    /// Since the system started, or since the control group was made.
    pub total: Nanoseconds,
}

/// The pressure on memory: of the process's own control group where that is known (version 2 only), else
/// of the host.
pub(crate) fn memory(sysroot: Sysroot<'_>, mounts: &[Mount]) -> Option<Pressure> {
    let of_group = cgroup::own_v2_directory(sysroot, mounts)
        .and_then(|group| optional(&group.join("memory.pressure")));
    parse(&of_group.or_else(|| optional(&sysroot.join("proc/pressure/memory")))?)
}

/// Lines such as `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`; total counts microseconds.
#[must_use]
pub fn parse(text: &str) -> Option<Pressure> {
    Some(Pressure { some: waiting(text, "some ")?, full: waiting(text, "full ")? })
}

pub(crate) fn waiting(text: &str, which: &str) -> Option<Waiting> {
    let line = text.lines().find_map(|line| line.strip_prefix(which))?;
    let value = |key| line.split_whitespace().find_map(|field| field.strip_prefix(key));
    let percent = value("avg10=")?.parse().ok().filter(|it: &f64| (0.0..=100.0).contains(it))?;
    let microseconds: u64 = value("total=")?.parse().ok()?;
    Some(Waiting { percent, total: Nanoseconds(microseconds.checked_mul(1000)?) })
}
