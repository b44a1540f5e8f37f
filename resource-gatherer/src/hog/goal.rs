//! The amount that a hog shall hold, and the time for it: one amount, or a profile over time.
//!
//! A profile is written `30s:4GiB,60s:leave:8GiB`: hold 4 GiB for 30 s, then all but 8 GiB for 60 s.
//! Its clock starts when the first amount is held and never stands still afterwards, so that the hogs of
//! several nodes stay in step. With a time limit a profile starts again until the limit; without one it
//! ends after its last step.

use std::{fmt, str::FromStr};

use serde::Serialize;
use tierfeed_core::units::{Bytes, Nanoseconds, ParseError};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Goal {
    #[serde(rename = "take_bytes")]
    Take(Bytes),
    /// Hold all but this much.
    #[serde(rename = "leave_bytes")]
    Leave(Bytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub goal: Goal,
    /// `None` has no end.
    pub lasts: Option<Nanoseconds>,
}

/// One or more steps that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile(Vec<Step>);

/// The reason why a text is no profile; the text in each variant is the step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    #[error("{0:?} is no step; write TIME:SIZE or TIME:leave:SIZE, such as 30s:4GiB")]
    NoStep(String),
    #[error("step {0:?}: its time: {1}")]
    Time(String, #[source] ParseError),
    #[error("step {0:?}: its size: {1}")]
    Size(String, #[source] ParseError),
    #[error("step {0:?} lasts {1}; a step lasts at least {STEP_MIN}")]
    TooShort(String, Nanoseconds),
    #[error("a profile of {0} steps; at most {STEPS_MAX} are followed")]
    TooLong(usize),
}

pub const STEPS_MAX: usize = 1_000;

/// The shortest step: five observations.
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

    /// The index and the goal of the step at `elapsed` since the start, if the profile is followed until
    /// `limit`, or once without one; `None` when it is over.
    pub(super) fn at(
        &self,
        elapsed: Nanoseconds,
        limit: Option<Nanoseconds>,
    ) -> Option<(usize, Goal)> {
        let duration = self.0.iter().try_fold(0_u64, |sum, step| sum.checked_add(step.lasts?.0));
        let into = match (limit, duration) {
            (Some(limit), _) if elapsed >= limit => return None,
            (None, Some(duration)) if elapsed.0 >= duration => return None,
            (Some(_), Some(duration)) => elapsed.0 % duration,
            (_, _) => elapsed.0,
        };
        let mut end = 0_u64;
        self.0.iter().enumerate().find_map(|(index, step)| {
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
            return Err(ProfileError::TooLong(steps.len()));
        }
        Ok(Self(steps))
    }
}

fn parse_step(text: &str) -> Result<Step, ProfileError> {
    let step = || text.trim().to_owned();
    let (time, size) = text.split_once(':').ok_or_else(|| ProfileError::NoStep(step()))?;
    let lasts: Nanoseconds = time.parse().map_err(|error| ProfileError::Time(step(), error))?;
    if lasts < STEP_MIN {
        return Err(ProfileError::TooShort(step(), lasts));
    }
    let (goal, size): (fn(Bytes) -> Goal, _) = match size.split_once(':') {
        Some((word, size)) if word.trim() == "leave" => (Goal::Leave, size),
        Some((word, size)) if word.trim() == "take" => (Goal::Take, size),
        Some(_) => return Err(ProfileError::NoStep(step())),
        None => (Goal::Take, size),
    };
    let size = size.parse().map_err(|error| ProfileError::Size(step(), error))?;
    Ok(Step { goal: goal(size), lasts: Some(lasts) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(profile: &Profile, limit_s: Option<u64>, second: u64) -> Option<(usize, Goal)> {
        let limit = limit_s.map(|limit| Nanoseconds(limit * SECOND));
        profile.at(Nanoseconds(second * SECOND), limit)
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
        assert_eq!(long.parse::<Profile>(), Err(ProfileError::TooLong(STEPS_MAX + 1)));
    }

    #[test]
    fn steps_follow_each_other_and_end() {
        let profile = "30s:4GiB,60s:8GiB".parse().unwrap();
        assert_eq!(at(&profile, None, 0), Some((0, take(4))));
        assert_eq!(at(&profile, None, 29), Some((0, take(4))));
        assert_eq!(at(&profile, None, 30), Some((1, take(8))));
        assert_eq!(at(&profile, None, 89), Some((1, take(8))));
        assert_eq!(at(&profile, None, 90), None);
    }

    #[test]
    fn a_limit_repeats_a_profile_and_cuts_it() {
        let profile = "30s:4GiB,60s:8GiB".parse().unwrap();
        assert_eq!(at(&profile, Some(130), 95), Some((0, take(4))));
        assert_eq!(at(&profile, Some(130), 129), Some((1, take(8))));
        assert_eq!(at(&profile, Some(130), 130), None);
    }

    #[test]
    fn one_amount_is_held_to_the_limit_or_for_ever() {
        let constant = Profile::constant(take(1));
        assert_eq!(at(&constant, None, 1 << 33), Some((0, take(1))));
        assert_eq!(at(&constant, Some(10), 9), Some((0, take(1))));
        assert_eq!(at(&constant, Some(10), 10), None);
    }
}
