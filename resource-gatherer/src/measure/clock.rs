//! The clocks of a measurement, as an argument, so that statistics are tested without time.
//!
//! Beside the two clocks it tells what took the CPU from the thread: the kernel, which gave it to
//! another program, and the hypervisor, which gave it to another guest.

mod steal;

use nix::{
    sys::resource::{UsageWho, getrusage},
    time::{ClockId, clock_gettime},
};
use tierfeed_core::units::Nanoseconds;

pub(crate) use self::steal::{Steal, is_guest, ticks};

/// Tells how much time passed, and how much of it the calling thread ran.
pub trait Clock {
    /// A steady clock that is not slewed.
    fn wall(&mut self) -> Nanoseconds;

    /// The CPU time that the calling thread has used.
    fn thread_cpu(&mut self) -> Nanoseconds;

    /// How often the kernel took the CPU from the calling thread, since it started.
    fn preemptions(&mut self) -> u64 {
        0
    }

    /// How long the hypervisor kept the CPUs of the measurement from running, on average over them,
    /// since they started; zero where there is no hypervisor.
    fn stolen(&mut self) -> Nanoseconds {
        Nanoseconds(0)
    }
}

/// The clocks of the kernel. Time that a hypervisor steals is not looked at.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn wall(&mut self) -> Nanoseconds {
        read(ClockId::CLOCK_MONOTONIC_RAW)
    }

    fn thread_cpu(&mut self) -> Nanoseconds {
        read(ClockId::CLOCK_THREAD_CPUTIME_ID)
    }

    fn preemptions(&mut self) -> u64 {
        let usage = getrusage(UsageWho::RUSAGE_THREAD);
        let switches = usage.map_or(0, |usage| usage.involuntary_context_switches());
        u64::try_from(switches).unwrap_or(0)
    }
}

/// The clocks of the kernel and what a hypervisor steals from some CPUs: those of the thread that reads
/// them. What it steals from others shows as their share, because the kernel does not count stolen time
/// as theirs.
#[derive(Debug)]
pub(crate) struct GuestClock {
    system: SystemClock,
    steal: Steal,
}

impl GuestClock {
    /// A clock for a measurement that runs where `steal` looks.
    pub(crate) fn new(steal: Steal) -> Self {
        Self { system: SystemClock, steal }
    }
}

impl Clock for GuestClock {
    fn wall(&mut self) -> Nanoseconds {
        self.system.wall()
    }

    fn thread_cpu(&mut self) -> Nanoseconds {
        self.system.thread_cpu()
    }

    fn preemptions(&mut self) -> u64 {
        self.system.preemptions()
    }

    fn stolen(&mut self) -> Nanoseconds {
        self.steal.read()
    }
}

fn read(clock: ClockId) -> Nanoseconds {
    let time = clock_gettime(clock).expect("every kernel since 2.6.28 has both clocks");
    let seconds = u64::try_from(time.tv_sec()).expect("both clocks start at zero");
    let nanoseconds = u64::try_from(time.tv_nsec()).expect("a fraction of a second is positive");
    Nanoseconds(seconds * 1_000_000_000 + nanoseconds)
}
