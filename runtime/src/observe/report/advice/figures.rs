//! The figures of a run on which advice is based and checked.

use tierfeed_core::{
    session::{Busy, EpochProgress, StallCause},
    units::{Bytes, BytesPerSecond, float, seconds},
};

use crate::observe::report::{EpochEntry, RunFigures, verdict::StallSummary};

#[derive(Debug)]
pub(super) struct Figures<'a> {
    pub(super) run: &'a RunFigures<'a>,
    pub(super) total: &'a EpochProgress,
    pub(super) waiting: &'a StallSummary,
    /// `minimal_cold_bytes` of the last epoch with batches.
    pub(super) minimal_cold: Bytes,
}

impl<'a> Figures<'a> {
    pub(super) fn of(
        run: &'a RunFigures<'a>,
        total: &'a EpochProgress,
        waiting: &'a StallSummary,
        epochs: &[EpochEntry],
    ) -> Self {
        let last = epochs.iter().rev().find(|epoch| epoch.batches > 0);
        let minimal_cold = Bytes(last.map_or(0, |epoch| epoch.minimal_cold_bytes));
        Self { run, total, waiting, minimal_cold }
    }

    /// The time in which a reader did not wait, in seconds.
    pub(super) fn computing(&self) -> f64 {
        (self.waiting.wall_s - self.waiting.stall_s).max(0.0)
    }

    /// Batches that each rank used.
    pub(super) fn steps(&self) -> u64 {
        used(self.total) / u64::from(self.run.ranks.max(1))
    }

    /// The time in which a rank computes between two batches, in seconds.
    pub(super) fn step(&self) -> f64 {
        self.computing() / float(self.steps().max(1))
    }

    /// The epoch that waited longest for `cause`, of those of which at least half was read, and how long each
    /// rank computed in it.
    pub(super) fn worst_epoch(&self, cause: StallCause) -> Option<(&EpochProgress, f64)> {
        let epochs = || self.run.progress.epochs_of_job();
        let most = epochs().map(used).max().filter(|most| *most > 0)?;
        let waited = |epoch: &&EpochProgress| {
            let part = epoch.causes.parts().find(|(other, _)| *other == cause);
            part.map(|(_, time)| time)
        };
        let whole = epochs().filter(|epoch| used(epoch) * 2 > most);
        // The last of equals: what it shows is steady.
        let epoch = whole.max_by_key(waited)?;
        Some((epoch, self.computing() * float(used(epoch)) / float(used(self.total))))
    }

    /// Bytes that all ranks of the node take in a step.
    pub(super) fn bytes_per_step(&self) -> u64 {
        self.total.demand.0 / self.steps().max(1)
    }

    /// What a reader waited for the cold store, without the first batches, which no agent can have ready.
    pub(super) fn waited_for_cold(&self) -> f64 {
        (self.waiting.seconds_for(StallCause::Cold) - self.waiting.first_s).max(0.0)
    }

    /// The part of the waits after the first epoch.
    pub(super) fn later_share(&self) -> f64 {
        let stall = |epoch: &EpochProgress| float(epoch.causes.total().0);
        let all = stall(self.total);
        let later: f64 = self.run.progress.epochs.iter().skip(1).map(stall).sum();
        if all > 0.0 { later / all } else { 0.0 }
    }

    pub(super) fn is_first_epoch_only(&self) -> bool {
        self.run.progress.epochs.iter().filter(|epoch| epoch.batches > 0).count() < 2
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
    let rate = float(bytes.0) / seconds.max(1e-9);
    let grain = 10_f64.powf(rate.max(1.0).log10().floor() - 2.0).max(1.0);
    BytesPerSecond(whole((rate / grain).round() * grain))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast of a float saturates, which is near enough for advice"
)]
pub(super) fn whole(value: f64) -> u64 {
    value as u64
}
