//! Checks values whose key or range depends on their place: numbers, paths, speeds.

use std::{ops::RangeInclusive, path::PathBuf};

use tierfeed_core::{tier::Speed, units::Bytes};

use super::Check;
use crate::{
    job::{
        JobError, KeyConflict, Reason,
        file::{SpeedFile, Text, Whole},
        keys::NodePath,
    },
    yaml::scalar::Scalar,
};

impl Check<'_> {
    pub(super) fn whole(
        &self,
        keys: &[&str],
        typed: Whole,
        allowed: RangeInclusive<u32>,
    ) -> Result<u32, JobError> {
        let value = u32::try_from(typed.0).ok().filter(|value| allowed.contains(value));
        let reason =
            Reason::OutOfRange { min: u64::from(*allowed.start()), max: u64::from(*allowed.end()) };
        value.ok_or_else(|| self.invalid(keys, &typed.0.to_string(), reason))
    }

    /// A size with or without a unit, at least 1 B: the name of the key says bytes.
    pub(super) fn positive_bytes(&self, keys: &[&str], typed: &Text) -> Result<Bytes, JobError> {
        Bytes::parse(&typed.0).map_err(|reason| self.invalid(keys, &typed.0, reason))
    }

    pub(super) fn path(&self, keys: &[&str], typed: &Text) -> Result<PathBuf, JobError> {
        let path = NodePath::parse(&typed.0);
        let path = path.map_err(|reason| self.invalid(keys, &typed.0, reason))?;
        Ok(path.below(self.directory))
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
