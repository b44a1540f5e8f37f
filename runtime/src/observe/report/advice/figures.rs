//! The figures of a run on which advice is based and checked.

use tierfeed_core::{
    session::{Busy, Cycle, EpochProgress, LookAhead, Progress, StallCause},
    tier::Kind,
    units::{Bytes, BytesPerSecond, seconds},
};

use crate::observe::report::{transform::TransformEntry, verdict::StallSummary};

#[derive(Debug)]
pub(in crate::observe::report) struct RunFigures<'a> {
    pub(in crate::observe::report) waiting: &'a StallSummary,
    pub(in crate::observe::report) progress: &'a Progress,
    pub(in crate::observe::report) kinds: &'a [Kind],
    /// The names of tiers whose size adapts.
    pub(in crate::observe::report) adapting: Vec<&'static str>,
    pub(in crate::observe::report) ranks: u32,
    pub(in crate::observe::report) policy: &'static str,
    pub(in crate::observe::report) staged_batches: u32,
    pub(in crate::observe::report) look_ahead: LookAhead,
    /// The mean cycle of a training with idle phases.
    pub(in crate::observe::report) cycle: Option<Cycle>,
    pub(in crate::observe::report) chunk: Bytes,
    /// The sum of all caches.
    pub(in crate::observe::report) cached: Bytes,
    /// `minimal_cold_bytes` of the last epoch with batches.
    pub(in crate::observe::report) minimal_cold: Bytes,
    /// Processors of this node, which trainers and agent share.
    pub(in crate::observe::report) processors: u64,
    /// The memory tier that lost most of its room while the job ran, if one did.
    pub(in crate::observe::report) shrunk: Option<Shrunk>,
    /// The share of the training in which the loop of the agent did not wait for events.
    pub(in crate::observe::report) loop_busy_share: f64,
    /// The share of the training in which it ran on a processor.
    pub(in crate::observe::report) loop_ran_share: f64,
    pub(in crate::observe::report) transform: Option<TransformEntry>,
}

/// A memory tier that had less room than it was to have.
#[derive(Debug, Clone, Copy)]
pub(in crate::observe::report) struct Shrunk {
    pub(in crate::observe::report) tier: &'static str,
    /// The bytes that it was to cache.
    pub(in crate::observe::report) cache: Bytes,
    /// The least that it had room for.
    pub(in crate::observe::report) least: Bytes,
}

impl RunFigures<'_> {
    /// The time in which a reader did not wait, in seconds.
    pub(super) fn computing(&self) -> f64 {
        (self.waiting.wall_s - self.waiting.stall_s).max(0.0)
    }

    /// Batches that each rank used.
    pub(super) fn steps(&self) -> u64 {
        let batches: u64 = self.progress.epochs.iter().map(used).sum();
        batches / u64::from(self.ranks.max(1))
    }

    /// The time in which a rank computes between two batches, in seconds.
    pub(super) fn step(&self) -> f64 {
        self.computing() / number(self.steps().max(1))
    }

    /// The epoch that waited longest for `cause`, of those of which at least half was read, and how long each
    /// rank computed in it.
    pub(super) fn worst_epoch(&self, cause: StallCause) -> Option<(&EpochProgress, f64)> {
        let epochs = || self.progress.epochs_of_job();
        let most = epochs().map(used).max().filter(|most| *most > 0)?;
        let waited = |epoch: &&EpochProgress| {
            let part = epoch.causes.parts().find(|(other, _)| *other == cause);
            part.map(|(_, time)| time)
        };
        let whole = epochs().filter(|epoch| used(epoch) * 2 > most);
        // The last of equals: what it shows is steady.
        let epoch = whole.max_by_key(waited)?;
        let all: u64 = self.progress.epochs.iter().map(used).sum();
        Some((epoch, self.computing() * number(used(epoch)) / number(all)))
    }

    /// Bytes that all ranks of the node take in a step.
    pub(super) fn bytes_per_step(&self) -> u64 {
        self.demand() / self.steps().max(1)
    }

    pub(super) fn demand(&self) -> u64 {
        self.progress.epochs.iter().map(|epoch| epoch.demand.0).sum()
    }

    /// What a reader waited for the cold store, without the first batches, which no agent can have ready.
    pub(super) fn waited_for_cold(&self) -> f64 {
        (self.waiting.seconds_for(StallCause::Cold) - self.waiting.first_s).max(0.0)
    }

    /// The part of the waits after the first epoch.
    pub(super) fn later_share(&self) -> f64 {
        let stall = |epoch: &EpochProgress| number(epoch.causes.total().0);
        let all: f64 = self.progress.epochs.iter().map(stall).sum();
        let later: f64 = self.progress.epochs.iter().skip(1).map(stall).sum();
        if all > 0.0 { later / all } else { 0.0 }
    }

    pub(super) fn is_first_epoch_only(&self) -> bool {
        self.progress.epochs.iter().filter(|epoch| epoch.batches > 0).count() < 2
    }

    pub(super) fn busy_share(&self, link: &Busy) -> f64 {
        if self.waiting.wall_s > 0.0 { seconds(link.time()) / self.waiting.wall_s } else { 0.0 }
    }
}

fn used(epoch: &EpochProgress) -> u64 {
    epoch.batches + epoch.self_read_batches
}

pub(super) fn rate(bytes: Bytes, busy: &Busy) -> Option<BytesPerSecond> {
    let seconds = seconds(busy.time());
    (bytes.0 > 0 && seconds > 0.0).then(|| per_second(bytes, seconds))
}

/// A rate with three significant digits; without time it is as good as unlimited.
pub(super) fn per_second(bytes: Bytes, seconds: f64) -> BytesPerSecond {
    let rate = number(bytes.0) / seconds.max(1e-9);
    let grain = 10_f64.powf(rate.max(1.0).log10().floor() - 2.0).max(1.0);
    BytesPerSecond(whole((rate / grain).round() * grain))
}

#[expect(clippy::cast_precision_loss, reason = "advice needs no more than 53 bits")]
pub(super) fn number(value: u64) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast of a float saturates, which is near enough for advice"
)]
pub(super) fn whole(value: f64) -> u64 {
    value as u64
}
