//! Reads from `/proc/stat` how long a hypervisor kept CPUs from running.
//!
//! The kernel counts it in ticks of 10 ms, so one tick spoils any sample that is shorter than a second.
//! That is as it should be: the CPU was gone for an unknown part of it.

use std::path::PathBuf;

use tierfeed_core::units::Nanoseconds;

use crate::sysroot::{Sysroot, optional};

/// Ticks per second in `/proc/stat` on every architecture that Linux runs on today.
const TICK_NS: u64 = 10_000_000;

#[derive(Debug, Clone)]
pub(crate) struct Steal {
    stat: Option<PathBuf>,
    cpus: Vec<usize>,
}

impl Steal {
    /// Looks at `cpus` if this is a guest. Elsewhere nothing is stolen, and the file, which is long on a
    /// large machine, is not read.
    pub(crate) fn from(cpus: &[usize], sysroot: Sysroot<'_>) -> Self {
        let stat = is_guest(sysroot).then(|| sysroot.join("proc/stat"));
        Self { stat, cpus: cpus.to_vec() }
    }

    /// Stolen time since the CPUs started, on average over them.
    pub(crate) fn read(&self) -> Nanoseconds {
        let Some(text) = self.stat.as_deref().and_then(optional) else { return Nanoseconds(0) };
        let of = |cpu: &usize| ticks(&text, &format!("cpu{cpu} ")).map_or(0, |ticks| ticks.stolen);
        let total: u64 = self.cpus.iter().map(of).sum();
        Nanoseconds(total * TICK_NS / u64::try_from(self.cpus.len()).unwrap_or(1).max(1))
    }
}

/// Whether a hypervisor is below the kernel, as the processor or the kernel says.
pub(crate) fn is_guest(sysroot: Sysroot<'_>) -> bool {
    let cpuinfo = optional(&sysroot.join("proc/cpuinfo")).unwrap_or_default();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
        || optional(&sysroot.join("sys/hypervisor/type")).is_some()
}

/// Ticks of all CPUs or of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticks {
    pub(crate) stolen: u64,
    pub(crate) all: u64,
}

/// The ticks in the line of `/proc/stat` that begins with `name`, or `None` if there is none.
///
/// Guests are counted in `user` already, so the sum ends with the stolen ones.
pub(crate) fn ticks(stat: &str, name: &str) -> Option<Ticks> {
    const STOLEN: usize = 7;
    let line = stat.lines().find_map(|line| line.strip_prefix(name))?;
    let fields: Option<Vec<u64>> =
        line.split_whitespace().take(STOLEN + 1).map(|field| field.parse().ok()).collect();
    let fields = fields.filter(|fields| fields.len() == STOLEN + 1)?;
    Some(Ticks { stolen: fields[STOLEN], all: fields.iter().sum() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_support::FakeSysroot;

    const STAT: &str = "\
cpu  10 1 2 100 3 0 4 30 0 0
cpu0 5 1 1 50 3 0 2 10 0 0
cpu1 5 0 1 50 0 0 2 20 0 0
cpu10 5 0 1 50 0 0 2 70 0 0
intr 5 0 0
";

    fn machine(flags: &str) -> FakeSysroot {
        let machine = FakeSysroot::bare();
        machine.write("proc/stat", STAT);
        machine.write("proc/cpuinfo", &format!("processor: 0\nflags\t\t: fpu {flags}\n"));
        machine
    }

    #[test]
    fn stolen_time_is_the_average_of_the_cpus_that_are_used() {
        let guest = machine("hypervisor");
        let stolen = |cpus: &[usize]| Steal::from(cpus, Sysroot(guest.path())).read().0;
        assert_eq!(stolen(&[0]), 100_000_000);
        assert_eq!(stolen(&[0, 1]), 150_000_000);
        assert_eq!(stolen(&[1]), 200_000_000, "cpu10 is another one");
        assert_eq!(stolen(&[]), 0);
    }

    #[test]
    fn without_a_hypervisor_nothing_is_stolen() {
        let host = machine("sse2");
        assert_eq!(Steal::from(&[0], Sysroot(host.path())).read(), Nanoseconds(0));
    }

    #[test]
    fn ticks_of_guests_are_not_counted_twice() {
        assert_eq!(ticks("cpu  1 2 3 4 5 6 7 8 1 2\n", "cpu "), Some(Ticks { stolen: 8, all: 36 }));
        assert_eq!(ticks("cpu  1 2 3\n", "cpu "), None);
    }
}
