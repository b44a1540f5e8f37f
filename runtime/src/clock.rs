//! The only module of this crate that reads a clock.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use tierfeed_core::units::Nanoseconds;
use tierfeed_handoff::monotonic_now;

/// Time since the process began its work, for the core and for reports.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
    /// The same instant on the host's monotonic clock, which trainers read.
    host_origin: Nanoseconds,
}

impl Clock {
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the shell's only clock")]
    pub fn start() -> Self {
        Self { origin: Instant::now(), host_origin: monotonic_now() }
    }

    #[must_use]
    pub fn origin(&self) -> Instant {
        self.origin
    }

    /// Converts a time of the host's monotonic clock ([`monotonic_now`]), which trainers read; 0 if it was
    /// before the start.
    #[must_use]
    pub fn of_host(&self, time: Nanoseconds) -> Nanoseconds {
        Nanoseconds(time.0.saturating_sub(self.host_origin.0))
    }

    #[must_use]
    pub fn stopwatch(&self) -> Stopwatch {
        Stopwatch { clock: *self, begun: self.now(), cpu: cpu_now() }
    }

    #[must_use]
    pub fn now(&self) -> Nanoseconds {
        // No process runs for the 584 years that fit.
        Nanoseconds(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Elapsed {
    pub wall: Nanoseconds,
    /// CPU time of the thread meanwhile.
    pub cpu: Nanoseconds,
}

/// Measures wall-clock and CPU time of one thread.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch {
    clock: Clock,
    begun: Nanoseconds,
    cpu: Nanoseconds,
}

impl Stopwatch {
    #[must_use]
    pub fn begun(&self) -> Nanoseconds {
        self.begun
    }

    /// Must be called on the thread that started the stop-watch.
    #[must_use]
    pub fn elapsed(&self) -> Elapsed {
        let since =
            |begun: Nanoseconds, now: Nanoseconds| Nanoseconds(now.0.saturating_sub(begun.0));
        Elapsed { wall: since(self.begun, self.clock.now()), cpu: since(self.cpu, cpu_now()) }
    }
}

/// CPU time of all threads of this process since it started.
#[must_use]
pub fn process_cpu_time() -> Nanoseconds {
    cpu_time(ClockId::ProcessCPUTime)
}

fn cpu_now() -> Nanoseconds {
    cpu_time(ClockId::ThreadCPUTime)
}

fn cpu_time(of: ClockId) -> Nanoseconds {
    let time = clock_gettime(of);
    let whole = u64::try_from(time.tv_sec).unwrap_or_default().saturating_mul(1_000_000_000);
    Nanoseconds(whole.saturating_add(u64::try_from(time.tv_nsec).unwrap_or_default()))
}
