//! The two clocks of a measurement, as an argument, so that statistics are tested without time.

use nix::time::{ClockId, clock_gettime};
use tierfeed_core::units::Nanoseconds;

/// Tells how much time passed, and how much of it the calling thread ran.
pub trait Clock {
    /// A steady clock that is not slewed.
    fn wall(&mut self) -> Nanoseconds;
    /// The CPU time that the calling thread has used.
    fn thread_cpu(&mut self) -> Nanoseconds;
}

/// The clocks of the kernel.
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

fn read(clock: ClockId) -> Nanoseconds {
    let time = clock_gettime(clock).expect("every kernel since 2.6.28 has both clocks");
    let seconds = u64::try_from(time.tv_sec()).expect("both clocks start at zero");
    let nanoseconds = u64::try_from(time.tv_nsec()).expect("a fraction of a second is positive");
    Nanoseconds(seconds * 1_000_000_000 + nanoseconds)
}
