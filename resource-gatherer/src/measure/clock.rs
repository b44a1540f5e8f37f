//! The clocks of a measurement, as an argument, so that statistics are tested without time.
//!
//! Beside the two clocks it tells what took the CPU from the thread: the kernel, which gave it to
//! another program, and the hypervisor, which gave it to another guest.

mod steal;

use nix::time::{ClockId, clock_gettime};
use tierfeed_core::units::Nanoseconds;

pub(crate) use self::steal::{Steal, is_guest, ticks};

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
#[derive(Debug)]
pub(crate) struct GuestClock(pub(crate) Steal);

impl Clock for GuestClock {
    fn wall(&mut self) -> Nanoseconds {
        SystemClock.wall()
    }

    fn thread_cpu(&mut self) -> Nanoseconds {
        SystemClock.thread_cpu()
    }

    fn stolen(&mut self) -> Nanoseconds {
        self.0.read()
    }
}

fn read(clock: ClockId) -> Nanoseconds {
    let time = clock_gettime(clock).expect("every kernel since 2.6.28 has both clocks");
    let seconds = u64::try_from(time.tv_sec()).expect("both clocks start at zero");
    let nanoseconds = u64::try_from(time.tv_nsec()).expect("a fraction of a second is positive");
    Nanoseconds(seconds * 1_000_000_000 + nanoseconds)
}
