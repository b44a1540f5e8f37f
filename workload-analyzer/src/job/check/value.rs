//! Checks values whose key or range depends on their place: numbers and speeds.

use std::ops::RangeInclusive;

use tierfeed_core::tier::Speed;
use tierfeed_dataset::keys;

use super::Check;
use crate::job::{
    JobError, KeyConflict,
    file::{SpeedFile, Whole},
};

impl Check<'_> {
    pub(super) fn whole(
        &self,
        keys: &[&str],
        typed: Whole,
        allowed: RangeInclusive<u32>,
    ) -> Result<u32, JobError> {
        let value = u32::try_from(typed.0).ok().filter(|value| allowed.contains(value));
        let (min, max) = (u64::from(*allowed.start()), u64::from(*allowed.end()));
        let reason = keys::Reason::OutOfRange { min, max };
        value.ok_or_else(|| self.invalid(keys, &typed.0.to_string(), reason))
    }

    /// An emulated speed. A missing latency is zero, and a missing rate is unlimited.
    pub(super) fn speed(
        &self,
        keys: &[&str],
        typed: Option<&SpeedFile>,
    ) -> Result<Option<Speed>, JobError> {
        match typed {
            None => Ok(None),
            Some(SpeedFile { latency: None, bandwidth: None }) => {
                Err(self.conflict(keys, KeyConflict::EmulatesNothing))
            }
            Some(SpeedFile { latency, bandwidth }) => Ok(Some(Speed {
                latency: latency.map(|it| it.0.0).unwrap_or_default(),
                bandwidth: bandwidth.map(|it| it.0).unwrap_or_default(),
            })),
        }
    }
}
