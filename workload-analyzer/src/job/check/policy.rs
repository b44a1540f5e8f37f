//! Checks the policy and the keys that adjust it.

use tierfeed_core::{
    retention::policy::{Buffers, Distance, Fetches, Kind, Reuse, SampleCount, Source, Tuning},
    session::LookAhead,
};

use super::Check;
use crate::{
    job::{JobError, KeyConflict, Reason, trainer::Interval},
    job_file::{DeepMemoryFile, DeliFile, JobFile, LobsterFile, NoPfsFile, Text, Whole},
};

/// The most uses that a sample can have left and still be evicted.
const REUSE_COUNT_MAX: u32 = 1_000_000;

/// Epochs that a policy looks ahead at most: each takes four bytes a sample.
const REUSE_EPOCHS_MAX: u32 = 32;

const ITERATIONS_MAX: u32 = 1_000_000_000;

const FETCH_SIZE_MAX: u32 = u32::MAX;

impl Check<'_> {
    pub(super) fn policy(&self, typed: Option<&Text>) -> Result<Kind, JobError> {
        let Some(typed) = typed else { return Ok(Kind::Gap) };
        let reason = Reason::NotOneOf { allowed: Kind::NAMES };
        typed.0.parse().map_err(|_| self.invalid(&["policy"], &typed.0, reason))
    }

    /// The mapping of each policy that has one; only that of the job's policy has an effect.
    pub(super) fn tuning(
        &self,
        typed: &JobFile,
        policy: Kind,
        look_ahead: LookAhead,
    ) -> Result<Tuning, JobError> {
        let mappings: [(bool, &'static str, &[Kind], &'static str); 4] = [
            (typed.deepmemory.is_some(), "deepmemory", &[Kind::DeepMemory], "deepmemory"),
            (
                typed.lobster.is_some(),
                "lobster",
                &[Kind::Lobster, Kind::LobsterLazy],
                "lobster, lobster-lazy",
            ),
            (typed.deli.is_some(), "deli", &[Kind::Deli], "deli"),
            (typed.nopfs.is_some(), "nopfs", &[Kind::NoPfs], "nopfs"),
        ];
        for (is_typed, key, of, policies) in mappings {
            if is_typed && !of.contains(&policy) {
                let conflict = KeyConflict::OfOtherPolicy { policies, policy };
                return Err(self.conflict(&[key], conflict));
            }
        }
        let deepmemory = typed.deepmemory.as_ref();
        let deli = typed.deli.as_ref();
        Ok(Tuning {
            deepmemory: deepmemory.map_or(Ok(Buffers::default()), |it| self.deepmemory(it))?,
            lobster: match &typed.lobster {
                None => Reuse::default(),
                Some(it) => self.lobster(it, policy)?,
            },
            deli: deli.map(|it| self.deli(it, look_ahead)).transpose()?,
            nopfs: typed.nopfs.as_ref().map_or(Ok(Source::default()), |it| self.nopfs(it))?,
        })
    }

    fn deepmemory(&self, typed: &DeepMemoryFile) -> Result<Buffers, JobError> {
        let keys = ["deepmemory", "iterations"];
        let iterations = typed.iterations.map(|count| self.whole(&keys, count, 1..=ITERATIONS_MAX));
        let threshold = match &typed.threshold {
            None => Buffers::default().threshold,
            Some(share) => self.share(&["deepmemory", "threshold"], share)?.0,
        };
        Ok(Buffers { threshold, iterations: iterations.transpose()? })
    }

    fn lobster(&self, typed: &LobsterFile, policy: Kind) -> Result<Reuse, JobError> {
        let count = typed.reuse_count.unwrap_or(Whole(0));
        let count = self.whole(&["lobster", "reuse_count"], count, 0..=REUSE_COUNT_MAX)?;
        let keys = ["lobster", "reuse_distance"];
        let distance = match &typed.reuse_distance {
            None => Distance::default(),
            Some(_) if policy == Kind::LobsterLazy => {
                return Err(self.conflict(&keys, KeyConflict::LazyDistance));
            }
            Some(text) => match self.interval(&keys, text)? {
                Interval::Epochs(epochs) if epochs > REUSE_EPOCHS_MAX => {
                    let reason = Reason::OutOfRange { min: 1, max: REUSE_EPOCHS_MAX.into() };
                    return Err(self.invalid(&keys, &text.0, reason));
                }
                Interval::Epochs(epochs) => Distance::Epochs(epochs),
                Interval::Steps(steps) => Distance::Steps(steps),
            },
        };
        Ok(Reuse { count, distance })
    }

    fn deli(&self, typed: &DeliFile, look_ahead: LookAhead) -> Result<Fetches, JobError> {
        if look_ahead != LookAhead::Auto {
            return Err(self.conflict(&["prefetch", "look_ahead"], KeyConflict::FetchesOfDeli));
        }
        let half = Fetches::default();
        let size = typed.fetch_size.as_ref();
        let size = size.map(|typed| self.sample_count(&["deli", "fetch_size"], typed, 1));
        let threshold = typed.threshold.as_ref();
        let threshold = threshold.map(|typed| self.sample_count(&["deli", "threshold"], typed, 0));
        let fetches = Fetches {
            size: size.transpose()?.unwrap_or(half.size),
            threshold: threshold.transpose()?.unwrap_or(half.threshold),
        };
        match (fetches.size, fetches.threshold) {
            (SampleCount::Share(size), SampleCount::Share(threshold)) if size + threshold > 100 => {
                Err(self.conflict(&["deli"], KeyConflict::FetchesBeyondCache { size, threshold }))
            }
            _ => Ok(fetches),
        }
    }

    fn sample_count(&self, keys: &[&str], typed: &Text, min: u32) -> Result<SampleCount, JobError> {
        if typed.0.ends_with('%') {
            return self.share(keys, typed).map(|share| SampleCount::Share(share.0));
        }
        let count = typed.0.parse().ok().filter(|count| *count >= min).map(SampleCount::Samples);
        let reason = Reason::NotASampleCount { min, max: FETCH_SIZE_MAX };
        count.ok_or_else(|| self.invalid(keys, &typed.0, reason))
    }

    fn nopfs(&self, typed: &NoPfsFile) -> Result<Source, JobError> {
        let Some(typed) = &typed.source else { return Ok(Source::default()) };
        let known = [Source::Fastest, Source::Tier];
        self.one_of(&["nopfs", "source"], typed, &known, Source::name, "fastest, tier")
    }
}
