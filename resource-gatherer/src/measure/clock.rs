//! The clocks of a measurement, as an argument, so that statistics are tested without time.
//!
//! Beside the two clocks it tells what took the CPU from the thread: the kernel, which gave it to
//! another program, and the hypervisor, which gave it to another guest.

use std::path::PathBuf;

use nix::time::{ClockId, clock_gettime};
use tierfeed_core::units::Nanoseconds;

use crate::{
    inventory::Processor,
    sysroot::{Sysroot, optional},
};

pub trait Clock {
    /// A steady clock that is not slewed.
    fn wall(&mut self) -> Nanoseconds;

    fn thread_cpu(&mut self) -> Nanoseconds;

    /// The time for which the hypervisor kept the CPUs of the measurement from running, on average over them,
    /// since they started; zero where there is no hypervisor.
    fn stolen(&mut self) -> Nanoseconds {
        Nanoseconds(0)
    }
}

/// The clocks of the kernel, without regard to time that a hypervisor steals.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn wall(&mut self) -> Nanoseconds {
        read(ClockId::CLOCK_MONOTONIC_RAW)
    }

    fn thread_cpu(&mut self) -> Nanoseconds {
        read(ClockId::CLOCK_THREAD_CPUTIME_ID)
    }
}

/// The clocks of the kernel, and the time that a hypervisor steals from some CPUs: those of the thread that
/// reads them. What it steals from others shows as their share, because the kernel does not count stolen time
/// as theirs.
///
/// The kernel counts stolen time in ticks of 10 ms, so one tick spoils any sample that is shorter than a
/// second. That is as it should be: the CPU was gone for an unknown part of it.
#[derive(Debug)]
pub(crate) struct GuestClock {
    stat: Option<PathBuf>,
    cpus: Vec<usize>,
}

/// Ticks per second in `/proc/stat` on every architecture that Linux runs on today.
const TICK_NS: u64 = 10_000_000;

impl GuestClock {
    /// Looks at `cpus` of a guest. Elsewhere nothing is stolen, and the file, which is long on a large
    /// machine, is not read.
    pub(crate) fn of(cpus: &[usize], processor: &Processor, sysroot: Sysroot<'_>) -> Self {
        let is_guest = processor.is_virtual == Some(true);
        let stat = is_guest.then(|| sysroot.join("proc/stat"));
        Self { stat, cpus: cpus.to_vec() }
    }
}

impl Clock for GuestClock {
    fn wall(&mut self) -> Nanoseconds {
        SystemClock.wall()
    }

    fn thread_cpu(&mut self) -> Nanoseconds {
        SystemClock.thread_cpu()
    }

    fn stolen(&mut self) -> Nanoseconds {
        let Some(text) = self.stat.as_deref().and_then(optional) else { return Nanoseconds(0) };
        let total: u64 = self.cpus.iter().filter_map(|cpu| stolen_ticks(&text, *cpu)).sum();
        Nanoseconds(total * TICK_NS / u64::try_from(self.cpus.len()).unwrap_or(1).max(1))
    }
}

/// The eighth number of a line of `/proc/stat`.
fn stolen_ticks(stat: &str, cpu: usize) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix(&format!("cpu{cpu} ")))?;
    line.split_whitespace().nth(7)?.parse().ok()
}

fn read(clock: ClockId) -> Nanoseconds {
    let time = clock_gettime(clock).expect("every kernel since 2.6.28 has both clocks");
    let seconds = u64::try_from(time.tv_sec()).expect("both clocks start at zero");
    let nanoseconds = u64::try_from(time.tv_nsec()).expect("a fraction of a second is positive");
    Nanoseconds(seconds * 1_000_000_000 + nanoseconds)
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

    fn stolen(cpus: &[usize], is_virtual: bool) -> u64 {
        let machine = FakeSysroot::bare();
        machine.write("proc/stat", STAT);
        let processor = Processor { is_virtual: Some(is_virtual), ..Processor::default() };
        GuestClock::of(cpus, &processor, Sysroot(machine.path())).stolen().0
    }

    #[test]
    fn stolen_time_is_the_average_of_the_cpus_that_are_used() {
        assert_eq!(stolen(&[0], true), 100_000_000);
        assert_eq!(stolen(&[0, 1], true), 150_000_000);
        assert_eq!(stolen(&[1], true), 200_000_000, "cpu10 is another one");
        assert_eq!(stolen(&[], true), 0);
    }

    #[test]
    fn without_a_hypervisor_nothing_is_stolen() {
        assert_eq!(stolen(&[0], false), 0);
    }

    #[test]
    fn a_line_without_stolen_time_says_nothing() {
        assert_eq!(stolen_ticks("cpu0 1 2 3 4 5 6 7 8 1 2\n", 0), Some(8));
        assert_eq!(stolen_ticks("cpu0 1 2 3\n", 0), None);
    }
}
