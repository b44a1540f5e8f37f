//! The times at which an agent that is gone or silent is tried again.
//!
//! An agent that is gone refuses at once, which costs nothing. One that accepts and is silent costs the time
//! of an attempt: so attempts are short then, and the time between them doubles.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, TryLockError},
    time::Duration,
};

use tierfeed_core::units::Nanoseconds;

/// An agent that lives answers at once, unless it has staging memory to map first.
const FIRST_WITHIN: Duration = Duration::from_secs(30);

/// For an agent that was silent before.
const AGAIN_WITHIN: Duration = Duration::from_secs(1);

/// The pause between two attempts that met silence; it doubles each time.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// By the socket of the agent.
static OF_PROCESS: Mutex<BTreeMap<PathBuf, Attempts>> = Mutex::new(BTreeMap::new());

/// Calls `change` with the attempts of this process to reach an agent, which all its feeds share. Does not wait: in a
/// forked child, the thread that held the lock may not exist. `None` then.
pub(crate) fn of_process<T>(socket: &Path, change: impl FnOnce(&mut Attempts) -> T) -> Option<T> {
    let mut all = match OF_PROCESS.try_lock() {
        Ok(all) => all,
        Err(TryLockError::Poisoned(all)) => all.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    Some(change(all.entry(socket.to_owned()).or_insert(Attempts::NONE)))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attempts {
    within: Duration,
    pause: Duration,
    not_before: Nanoseconds,
}

impl Attempts {
    /// Before the first failure.
    pub(crate) const NONE: Self =
        Self { within: FIRST_WITHIN, pause: PAUSE, not_before: Nanoseconds(0) };

    /// How long the next attempt may take; `None` if it is not due.
    pub(crate) fn due(&self, now: Nanoseconds) -> Option<Duration> {
        (now >= self.not_before).then_some(self.within)
    }

    /// Notes a failed attempt. One that took long met silence.
    pub(crate) fn failed(&mut self, began: Nanoseconds, now: Nanoseconds) {
        let took = Duration::from_nanos(now.0.saturating_sub(began.0));
        if took >= AGAIN_WITHIN {
            self.silent();
            let pause = u64::try_from(self.pause.as_nanos()).unwrap_or(u64::MAX);
            self.not_before = Nanoseconds(now.0.saturating_add(pause));
            self.pause = (2 * self.pause).min(PAUSE_MAX);
        }
    }

    /// Notes that the agent does not answer.
    pub(crate) fn silent(&mut self) {
        self.within = AGAIN_WITHIN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn the_time_between_attempts_that_meet_silence_doubles_and_each_is_short_after_the_first() {
        let mut attempts = Attempts::NONE;
        assert_eq!(attempts.due(Nanoseconds(0)), Some(FIRST_WITHIN));
        let (mut now, mut pauses) = (Nanoseconds(0), Vec::new());
        for _ in 0..12 {
            let within = attempts.due(now).expect("it is due");
            let end = Nanoseconds(now.0 + u64::try_from(within.as_nanos()).unwrap());
            attempts.failed(now, end);
            let pause =
                (0..10_000).find(|s| attempts.due(Nanoseconds(end.0 + s * S)).is_some()).unwrap();
            pauses.push(pause);
            now = Nanoseconds(end.0 + pause * S);
            assert_eq!(attempts.due(now), Some(AGAIN_WITHIN));
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600]);
    }

    #[test]
    fn an_agent_that_refuses_at_once_is_tried_at_any_time() {
        let mut attempts = Attempts::NONE;
        attempts.failed(Nanoseconds(S), Nanoseconds(S + 1));
        assert_eq!(attempts.due(Nanoseconds(S + 1)), Some(FIRST_WITHIN));
    }
}
