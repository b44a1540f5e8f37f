//! Reads how the machine is set while it is measured, so that figures of two days can be compared.

use crate::{
    figures::Conditions,
    measure::clock::{is_guest, ticks},
    sysroot::{Sysroot, optional, optional_number},
};

#[derive(Debug)]
pub(crate) struct Begun {
    conditions: Conditions,
    stat: String,
}

/// Must be called before the first measurement.
pub(crate) fn begin(sysroot: Sysroot<'_>) -> Begun {
    let text = |path: &str| optional(&sysroot.join(path));
    let cpuinfo = text("proc/cpuinfo").unwrap_or_default();
    let conditions = Conditions {
        kernel: text("proc/sys/kernel/osrelease").unwrap_or_default(),
        is_virtual: is_guest(sysroot),
        governor: text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        boost: boost(sysroot),
        smt: flag(sysroot, "sys/devices/system/cpu/smt/active"),
        microcode: field(&cpuinfo, "microcode"),
        transparent_huge_pages: text("sys/kernel/mm/transparent_hugepage/enabled")
            .and_then(|modes| chosen(&modes)),
        numa_balancing: optional_number(&sysroot.join("proc/sys/kernel/numa_balancing"))
            .map(|mode| mode != 0),
        load_1min: text("proc/loadavg").and_then(|loads| loads.split(' ').next()?.parse().ok()),
        steal_share: None,
    };
    Begun { conditions, stat: stat(sysroot) }
}

impl Begun {
    /// Must be called after the last measurement.
    pub(crate) fn end(self, sysroot: Sysroot<'_>) -> Conditions {
        let steal_share = steal_share(&self.stat, &stat(sysroot));
        Conditions { steal_share, ..self.conditions }
    }
}

fn stat(sysroot: Sysroot<'_>) -> String {
    optional(&sysroot.join("proc/stat")).unwrap_or_default()
}

/// The share of the time of all CPUs, between two readings of `/proc/stat`, that the hypervisor gave to
/// others.
fn steal_share(before: &str, after: &str) -> Option<f64> {
    let (before, after) = (ticks(before, "cpu ")?, ticks(after, "cpu ")?);
    let all = after.all.checked_sub(before.all).filter(|all| *all > 0)?;
    let stolen = after.stolen.saturating_sub(before.stolen);
    let thousandths = u32::try_from(stolen.min(all) * 1000 / all).ok()?;
    Some(f64::from(thousandths) / 1000.0)
}

fn flag(sysroot: Sysroot<'_>, path: &str) -> Option<bool> {
    optional_number(&sysroot.join(path)).map(|value| value != 0)
}

/// One driver states `boost`, another its negation `no_turbo`.
fn boost(sysroot: Sysroot<'_>) -> Option<bool> {
    flag(sysroot, "sys/devices/system/cpu/cpufreq/boost").or_else(|| {
        flag(sysroot, "sys/devices/system/cpu/intel_pstate/no_turbo").map(|is_off| !is_off)
    })
}

/// The value in the first line `name : value`.
fn field(cpuinfo: &str, name: &str) -> Option<String> {
    cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// The word in brackets: `always [madvise] never`.
fn chosen(modes: &str) -> Option<String> {
    let (_, rest) = modes.split_once('[')?;
    rest.split_once(']').map(|(mode, _)| mode.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_support::FakeSysroot;

    #[test]
    fn conditions_are_what_the_kernel_states() {
        let machine = FakeSysroot::bare();
        for (path, text) in [
            ("proc/sys/kernel/osrelease", "6.12.1\n"),
            ("proc/cpuinfo", "flags : fpu hypervisor\nmicrocode\t: 0x2b\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
            ("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n"),
            ("sys/devices/system/cpu/smt/active", "0\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("proc/sys/kernel/numa_balancing", "1\n"),
            ("proc/loadavg", "3.25 2.00 1.00 2/345 6789\n"),
            ("proc/stat", "cpu  100 0 0 100 0 0 0 10 0 0\n"),
        ] {
            machine.write(path, text);
        }
        let begun = begin(Sysroot(machine.path()));
        machine.write("proc/stat", "cpu  150 0 0 130 0 0 0 30 0 0\n");
        let expected = Conditions {
            kernel: "6.12.1".to_owned(),
            is_virtual: true,
            governor: Some("performance".to_owned()),
            boost: Some(false),
            smt: Some(false),
            microcode: Some("0x2b".to_owned()),
            transparent_huge_pages: Some("madvise".to_owned()),
            numa_balancing: Some(true),
            load_1min: Some(3.25),
            steal_share: Some(0.2),
        };
        assert_eq!(begun.end(Sysroot(machine.path())), expected);
    }

    #[test]
    fn what_the_kernel_does_not_state_is_unknown() {
        let machine = FakeSysroot::bare();
        let conditions = begin(Sysroot(machine.path())).end(Sysroot(machine.path()));
        assert_eq!(conditions, Conditions::default());
    }
}
