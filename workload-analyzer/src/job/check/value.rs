//! Checks single values: numbers in a range, quantities with a unit, shares, paths, speeds.

use std::{ops::RangeInclusive, path::PathBuf, str::FromStr};

use tierfeed_core::{
    tier::Speed,
    units::{self, Bytes, BytesPerSecond, Nanoseconds},
};

use super::Check;
use crate::{
    job::{
        JobError, KeyConflict, Percent, Reason,
        keys::{mistake, parse_size},
    },
    job_file::{SpeedFile, Text, Whole},
};

/// The allowed shares of a tier in percent: at least 10 % is left to other processes.
const SHARES: RangeInclusive<u8> = 1..=90;

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

    /// The value of `known` with the name `typed`; `allowed` lists these names.
    pub(super) fn one_of<T: Copy>(
        &self,
        keys: &[&str],
        typed: &Text,
        known: &[T],
        name: impl Fn(T) -> &'static str,
        allowed: &'static str,
    ) -> Result<T, JobError> {
        let found = known.iter().copied().find(|it| name(*it) == typed.0);
        found.ok_or_else(|| self.invalid(keys, &typed.0, Reason::NotOneOf { allowed }))
    }

    /// A size, time or rate above zero.
    pub(super) fn quantity<Q>(
        &self,
        keys: &[&str],
        typed: &Text,
        example: &'static str,
    ) -> Result<Q, JobError>
    where
        Q: FromStr<Err = units::ParseError> + Default + PartialEq,
    {
        let quantity: Q = typed.0.parse().map_err(|problem| {
            self.invalid(keys, &typed.0, Reason::NotAQuantity { problem, example })
        })?;
        if quantity == Q::default() {
            return Err(self.invalid(keys, &typed.0, Reason::Zero { example }));
        }
        Ok(quantity)
    }

    /// A size with or without a unit, at least 1 B: the name of the key says bytes.
    pub(super) fn positive_bytes(&self, keys: &[&str], typed: &Text) -> Result<Bytes, JobError> {
        let bytes = parse_size(&typed.0).filter(|bytes| bytes.0 > 0);
        bytes.ok_or_else(|| self.invalid(keys, &typed.0, Reason::NotARecordSize))
    }

    pub(super) fn share(&self, keys: &[&str], typed: &Text) -> Result<Percent, JobError> {
        let number = typed.0.strip_suffix('%').map(str::trim_end);
        let percent = number.and_then(|number| number.parse().ok());
        percent
            .filter(|percent| SHARES.contains(percent))
            .map(Percent)
            .ok_or_else(|| self.invalid(keys, &typed.0, Reason::NotAShare))
    }

    pub(super) fn path(&self, keys: &[&str], typed: &Text) -> Result<PathBuf, JobError> {
        if let Some(path) = typed.0.strip_prefix("file://").filter(|path| path.starts_with('/')) {
            return Ok(PathBuf::from(path));
        }
        let url = typed.0.contains("://").then_some(Reason::UrlForPath);
        if let Some(reason) = url.or_else(|| mistake(&typed.0)) {
            return Err(self.invalid(keys, &typed.0, reason));
        }
        Ok(self.directory.join(&typed.0))
    }

    /// An emulated speed. A missing latency is zero, and a missing rate is unlimited.
    pub(super) fn speed(
        &self,
        keys: &[&str],
        typed: Option<&SpeedFile>,
    ) -> Result<Option<Speed>, JobError> {
        let Some(typed) = typed else { return Ok(None) };
        let latency = match &typed.latency {
            None => None,
            Some(latency) => {
                let keys = [keys, &["latency"]].concat();
                Some(self.quantity::<Nanoseconds>(&keys, latency, "350 ns")?)
            }
        };
        let bandwidth = match &typed.bandwidth {
            None => None,
            Some(bandwidth) => {
                let keys = [keys, &["bandwidth"]].concat();
                Some(self.quantity::<BytesPerSecond>(&keys, bandwidth, "20 GB/s")?)
            }
        };
        if latency.is_none() && bandwidth.is_none() {
            return Err(self.conflict(keys, KeyConflict::EmulatesNothing));
        }
        Ok(Some(Speed {
            latency: latency.unwrap_or_default(),
            bandwidth: bandwidth.unwrap_or_default(),
        }))
    }
}
