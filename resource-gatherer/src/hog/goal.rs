//! What a hog shall hold, and for how long: one amount, or a profile over time.
//!
//! A profile is written `30s:4GiB,60s:leave:8GiB`: hold 4 GiB for 30 s, then all but 8 GiB for 60 s.
//! The clock of a profile starts when the first amount is held and never stands still afterwards, so
//! that the hogs of several nodes stay in step. With a time limit of its own a profile starts again
//! until the limit; without one it ends after its last step.

use std::{fmt, str::FromStr};

use tierfeed_core::units::{Bytes, Nanoseconds, ParseError};

/// An amount to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// This much.
    Take(Bytes),
    /// All but this much.
    Leave(Bytes),
}

/// One step of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// What it holds.
    pub goal: Goal,
    /// How long; `None` has no end.
    pub lasts: Option<Nanoseconds>,
}

/// Steps one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile(Vec<Step>);

/// What a hog does from the moment that it holds its first amount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    profile: Profile,
    limit: Option<Nanoseconds>,
}

/// Why a text is no profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// A step without a colon.
    #[error("{step:?} is no step; write TIME:SIZE or TIME:leave:SIZE, such as 30s:4GiB")]
    NoStep {
        /// The step.
        step: String,
    },
    /// A step whose time is none.
    #[error("step {step:?}: its time: {source}")]
    Time {
        /// The step.
        step: String,
        /// What is wrong with the time.
        #[source]
        source: ParseError,
    },
    /// A step whose size is none.
    #[error("step {step:?}: its size: {source}")]
    Size {
        /// The step.
        step: String,
        /// What is wrong with the size.
        #[source]
        source: ParseError,
    },
    /// A step that lasts no time.
    #[error("step {step:?} lasts {lasts}; a step lasts at least {STEP_MIN}")]
    TooShort {
        /// The step.
        step: String,
        /// How long it lasts.
        lasts: Nanoseconds,
    },
    /// More steps than [`STEPS_MAX`].
    #[error("a profile of {steps} steps; at most {STEPS_MAX} are followed")]
    TooLong {
        /// How many there are.
        steps: usize,
    },
}

/// The most steps of a profile.
pub const STEPS_MAX: usize = 1_000;

/// The shortest step: a few looks of the hog.
pub const STEP_MIN: Nanoseconds = Nanoseconds(500_000_000);

impl Profile {
    /// One amount without end.
    #[must_use]
    pub fn constant(goal: Goal) -> Self {
        Self(vec![Step { goal, lasts: None }])
    }

    /// Its steps in order; at least one.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// How long all steps last together; `None` has no end.
    fn duration(&self) -> Option<u64> {
        self.0.iter().try_fold(0_u64, |sum, step| sum.checked_add(step.lasts?.0))
    }
}

impl Schedule {
    /// Follows `profile` once, or again and again until `limit`.
    #[must_use]
    pub fn new(profile: Profile, limit: Option<Nanoseconds>) -> Self {
        Self { profile, limit }
    }

    /// What it follows.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The index of the step at `elapsed` since the start and what it holds; `None` when all is over.
    #[must_use]
    pub fn at(&self, elapsed: Nanoseconds) -> Option<(usize, Goal)> {
        let duration = self.profile.duration();
        let into = match (self.limit, duration) {
            (Some(limit), _) if elapsed >= limit => return None,
            (None, Some(duration)) if elapsed.0 >= duration => return None,
            (Some(_), Some(duration)) => elapsed.0 % duration,
            (_, _) => elapsed.0,
        };
        let mut end = 0_u64;
        let mut steps = self.profile.0.iter().enumerate();
        steps.find_map(|(index, step)| {
            end = step.lasts.map_or(u64::MAX, |lasts| end.saturating_add(lasts.0));
            (into < end).then_some((index, step.goal))
        })
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Take(bytes) => write!(f, "{bytes}"),
            Self::Leave(bytes) => write!(f, "all but {bytes}"),
        }
    }
}

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        let steps: Vec<Step> = text.split(',').map(parse_step).collect::<Result<_, _>>()?;
        if steps.len() > STEPS_MAX {
            return Err(ProfileError::TooLong { steps: steps.len() });
        }
        Ok(Self(steps))
    }
}

fn parse_step(text: &str) -> Result<Step, ProfileError> {
    let step = || text.trim().to_owned();
    let (time, size) = text.split_once(':').ok_or_else(|| ProfileError::NoStep { step: step() })?;
    let lasts: Nanoseconds =
        time.parse().map_err(|source| ProfileError::Time { step: step(), source })?;
    if lasts < STEP_MIN {
        return Err(ProfileError::TooShort { step: step(), lasts });
    }
    let (of, size): (fn(Bytes) -> Goal, _) = match size.split_once(':') {
        Some((word, size)) if word.trim() == "leave" => (Goal::Leave, size),
        Some((word, size)) if word.trim() == "take" => (Goal::Take, size),
        Some(_) => return Err(ProfileError::NoStep { step: step() }),
        None => (Goal::Take, size),
    };
    let size = size.parse().map_err(|source| ProfileError::Size { step: step(), source })?;
    Ok(Step { goal: of(size), lasts: Some(lasts) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(schedule: &Schedule, second: u64) -> Option<(usize, Goal)> {
        schedule.at(Nanoseconds(second * SECOND))
    }

    fn take(gib: u64) -> Goal {
        Goal::Take(Bytes::mib(gib * 1024))
    }

    #[test]
    fn a_profile_reads_as_people_write_it() {
        let profile: Profile = "30s:4GiB, 1 min : leave : 8 GiB,0.5s:take:0B".parse().unwrap();
        let step = |goal, ms: u64| Step { goal, lasts: Some(Nanoseconds(ms * 1_000_000)) };
        let leave = Goal::Leave(Bytes::mib(8192));
        let steps = [step(take(4), 30_000), step(leave, 60_000), step(take(0), 500)];
        assert_eq!(profile.steps(), steps);
    }

    #[test]
    fn what_is_no_profile_is_refused_by_name() {
        for (text, said) in [
            ("", "\"\" is no step"),
            ("4GiB", "\"4GiB\" is no step"),
            ("30s:4GiB,", "\"\" is no step"),
            ("30:4GiB", "step \"30:4GiB\": its time"),
            ("30s:4", "step \"30s:4\": its size"),
            ("30s:keep:4GiB", "\"30s:keep:4GiB\" is no step"),
            ("0s:4GiB", "step \"0s:4GiB\" lasts 0 ns"),
        ] {
            let error = text.parse::<Profile>().unwrap_err().to_string();
            assert!(error.contains(said), "{text:?}: {error}");
        }
        let long = vec!["1s:1GiB"; STEPS_MAX + 1].join(",");
        assert_eq!(long.parse::<Profile>(), Err(ProfileError::TooLong { steps: STEPS_MAX + 1 }));
    }

    #[test]
    fn steps_follow_each_other_and_end() {
        let schedule = Schedule::new("30s:4GiB,60s:8GiB".parse().unwrap(), None);
        assert_eq!(at(&schedule, 0), Some((0, take(4))));
        assert_eq!(at(&schedule, 29), Some((0, take(4))));
        assert_eq!(at(&schedule, 30), Some((1, take(8))));
        assert_eq!(at(&schedule, 89), Some((1, take(8))));
        assert_eq!(at(&schedule, 90), None);
    }

    #[test]
    fn a_limit_repeats_a_profile_and_cuts_it() {
        let limit = Some(Nanoseconds(130 * SECOND));
        let schedule = Schedule::new("30s:4GiB,60s:8GiB".parse().unwrap(), limit);
        assert_eq!(at(&schedule, 95), Some((0, take(4))));
        assert_eq!(at(&schedule, 129), Some((1, take(8))));
        assert_eq!(at(&schedule, 130), None);
    }

    #[test]
    fn one_amount_is_held_to_the_limit_or_for_ever() {
        let constant = || Profile::constant(take(1));
        assert_eq!(at(&Schedule::new(constant(), None), 1 << 33), Some((0, take(1))));
        let limited = Schedule::new(constant(), Some(Nanoseconds(10 * SECOND)));
        assert_eq!(at(&limited, 9), Some((0, take(1))));
        assert_eq!(at(&limited, 10), None);
    }
}
