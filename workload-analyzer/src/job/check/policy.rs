//! Checks the keys that adjust a policy.

use tierfeed_core::{
    retention::policy::{Buffers, Distance, Fetches, Kind, Reuse, SampleCount, Tuning},
    session::LookAhead,
};
use tierfeed_dataset::keys;

use super::Check;
use crate::job::{
    JobError, KeyConflict,
    file::{DeliFile, JobFile, LobsterFile},
    trainer::Interval,
};

/// Epochs that a policy looks ahead at most: each takes four bytes a sample.
const REUSE_EPOCHS_MAX: u32 = 32;

impl Check<'_> {
    /// The mapping of each policy that has one; only that of the job's policy has an effect.
    pub(super) fn tuning(
        &self,
        typed: &JobFile,
        policy: Kind,
        look_ahead: LookAhead,
    ) -> Result<Tuning, JobError> {
        let mappings = [
            (typed.deepmemory.is_some(), "deepmemory", "deepmemory"),
            (typed.lobster.is_some(), "lobster", "lobster, lobster-lazy"),
            (typed.deli.is_some(), "deli", "deli"),
            (typed.nopfs.is_some(), "nopfs", "nopfs"),
        ];
        for (is_typed, key, policies) in mappings {
            if is_typed && policies.split(", ").all(|it| it != policy.name()) {
                let conflict = KeyConflict::OfOtherPolicy { policies, policy };
                return Err(self.conflict(&[key], conflict));
            }
        }
        let lobster = typed.lobster.as_ref();
        let deli = typed.deli.as_ref();
        let source = typed.nopfs.as_ref().and_then(|it| it.source);
        Ok(Tuning {
            deepmemory: typed.deepmemory.as_ref().map_or_else(Buffers::default, |it| Buffers {
                threshold: it.threshold.map_or(Buffers::default().threshold, |it| it.0.get()),
                iterations: it.iterations.map(|it| it.0),
            }),
            lobster: lobster.map_or(Ok(Reuse::default()), |it| self.lobster(it, policy))?,
            deli: deli.map(|it| self.deli(it, look_ahead)).transpose()?,
            nopfs: source.map(|it| it.0).unwrap_or_default(),
        })
    }

    fn lobster(&self, typed: &LobsterFile, policy: Kind) -> Result<Reuse, JobError> {
        let keys = ["lobster", "reuse_distance"];
        let distance = match typed.reuse_distance.map(|it| it.0) {
            None => Distance::default(),
            Some(_) if policy == Kind::LobsterLazy => {
                return Err(self.conflict(&keys, KeyConflict::LazyDistance));
            }
            Some(Interval::Epochs(epochs)) if epochs > REUSE_EPOCHS_MAX => {
                let reason = keys::Reason::OutOfRange { min: 1, max: REUSE_EPOCHS_MAX.into() };
                return Err(self.invalid(&keys, &format!("{epochs} epochs"), reason));
            }
            Some(Interval::Epochs(epochs)) => Distance::Epochs(epochs),
            Some(Interval::Steps(steps)) => Distance::Steps(steps),
        };
        Ok(Reuse { count: typed.reuse_count.map_or(0, |it| it.0), distance })
    }

    fn deli(&self, typed: &DeliFile, look_ahead: LookAhead) -> Result<Fetches, JobError> {
        if look_ahead != LookAhead::Auto {
            return Err(self.conflict(&["prefetch", "look_ahead"], KeyConflict::FetchesOfDeli));
        }
        let half = Fetches::default();
        let fetches = Fetches {
            size: typed.fetch_size.map_or(half.size, |it| it.0.0),
            threshold: typed.threshold.map_or(half.threshold, |it| it.0.0),
        };
        match (fetches.size, fetches.threshold) {
            (SampleCount::Share(size), SampleCount::Share(threshold)) if size + threshold > 100 => {
                Err(self.conflict(&["deli"], KeyConflict::FetchesBeyondCache { size, threshold }))
            }
            _ => Ok(fetches),
        }
    }
}
