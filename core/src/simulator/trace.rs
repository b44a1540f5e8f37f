//! Tells, while a simulation runs, what every read and every step of it did.
//!
//! A read belongs to the batch in whose place it ends: commands name places in staging, and the lease
//! of a batch names its own. A sample that is shown is read nowhere else; it is told with its batch. Whether a read was in time is known when its step starts, so it is told
//! then.
//!
//! 1. Every read of a batch that is handed over is told once: by step, by rank, in reading order.
//! 2. The sums of the steps of an epoch are those of its [`crate::session::EpochProgress`].
//! 3. Nothing is held but what is staged.

use alloc::{collections::BTreeMap, vec, vec::Vec};
use core::{convert::Infallible, ops::ControlFlow};

use crate::{
    batch::{Batch, Entry},
    id::{BatchId, Epoch, OpId, Rank, SampleId, Step, TierId},
    session::{Command, READY_WITHIN, Settings},
    units::{Bytes, Nanoseconds},
};

/// Is told what a simulated run does, and may end it.
pub trait Observer {
    /// Why it ends a run; [`Infallible`] if it never does.
    type Stop;

    /// Whether anything has to be told at all.
    const LISTENS: bool = true;

    /// Takes note of a read whose step starts.
    fn read(&mut self, _: &Read) {}

    /// Takes note of a step that starts, after its reads. The run ends with what breaks here.
    fn step(&mut self, step: &StepOutcome) -> ControlFlow<Self::Stop>;
}

/// Nobody listens.
impl Observer for () {
    type Stop = Infallible;

    const LISTENS: bool = false;

    fn step(&mut self, _: &StepOutcome) -> ControlFlow<Infallible> {
        ControlFlow::Continue(())
    }
}

/// Keeps all steps: for runs that are not too long.
impl Observer for Vec<StepOutcome> {
    type Stop = Infallible;

    fn step(&mut self, step: &StepOutcome) -> ControlFlow<Infallible> {
        self.push(step.clone());
        ControlFlow::Continue(())
    }
}

/// One sample on its way into staging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// The batch that it is for.
    pub batch: BatchId,
    /// Which sample.
    pub sample: SampleId,
    /// How long it is.
    pub len: Bytes,
    /// The tier that it came from, or `None` for the cold store.
    pub tier: Option<TierId>,
    /// When the read was given out.
    pub issued: Nanoseconds,
    /// When its last byte was there.
    pub arrived: Nanoseconds,
    /// When the trainer was done with the step before.
    pub needed: Nanoseconds,
}

impl Read {
    /// How long after it was needed it arrived.
    #[must_use]
    pub const fn late(&self) -> Nanoseconds {
        Nanoseconds(self.arrived.0.saturating_sub(self.needed.0))
    }

    /// Whether it was there when it was needed, as [`READY_WITHIN`] has it.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.late().0 <= READY_WITHIN.0
    }
}

/// What the reads of one step came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepOutcome {
    /// In which pass.
    pub epoch: Epoch,
    /// Which step of it.
    pub step: Step,
    /// When the step before had ended.
    pub needed: Nanoseconds,
    /// How long the ranks waited for the last of their batches.
    pub stall: Nanoseconds,
    /// Rank by rank of the node.
    pub ranks: Vec<RankStep>,
}

impl StepOutcome {
    /// Bytes read from the cold store.
    #[must_use]
    pub fn cold(&self) -> Bytes {
        Bytes(self.ranks.iter().map(|rank| rank.cold.0).sum())
    }

    /// Bytes read, wherever from.
    #[must_use]
    pub fn demand(&self) -> Bytes {
        Bytes(self.ranks.iter().map(|rank| rank.demand().0).sum())
    }
}

/// What one rank read for one step. A batch that was refused counts nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankStep {
    /// Whose batch.
    pub rank: Rank,
    /// Samples in it.
    pub samples: u32,
    /// Bytes from the cold store.
    pub cold: Bytes,
    /// Bytes from each tier, by [`TierId`].
    pub from_tier: Vec<Bytes>,
}

impl RankStep {
    /// Bytes of the batch.
    #[must_use]
    pub fn demand(&self) -> Bytes {
        Bytes(self.cold.0 + self.from_tier.iter().map(|bytes| bytes.0).sum::<u64>())
    }
}

/// A step that starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Started {
    pub(super) epoch: Epoch,
    pub(super) step: Step,
    pub(super) needed: Nanoseconds,
    pub(super) stall: Nanoseconds,
}

/// Where in staging a sample ends: empty samples may share an offset.
type Spot = (Rank, Bytes, SampleId);

#[derive(Debug, Clone, Copy)]
struct Arrival {
    tier: Option<TierId>,
    issued: Nanoseconds,
    arrived: Nanoseconds,
}

/// What is staged, read by read.
#[derive(Debug)]
pub(super) struct Trace<'a, O> {
    observer: &'a mut O,
    ranks: Vec<Rank>,
    tiers: usize,
    flying: BTreeMap<OpId, (Spot, Arrival)>,
    arrived: BTreeMap<Spot, Arrival>,
    leased: BTreeMap<BatchId, Vec<Read>>,
}

impl<'a, O: Observer> Trace<'a, O> {
    pub(super) fn new(settings: &Settings, observer: &'a mut O) -> Self {
        Self {
            observer,
            ranks: settings.order.world.ranks_of(settings.node).collect(),
            tiers: settings.tiers.len(),
            flying: BTreeMap::new(),
            arrived: BTreeMap::new(),
            leased: BTreeMap::new(),
        }
    }

    pub(super) fn command(&mut self, command: &Command, now: Nanoseconds) {
        if !O::LISTENS {
            return;
        }
        let (op, sample, tier, to) = match command {
            Command::Fetch { op, sample, to, .. } => (op, sample, None, to),
            Command::Promote { op, sample, from, to } => (op, sample, Some(from.tier), to),
            Command::Lease { offset, batch, .. } => return self.lease(*offset, batch, now),
            _ => return,
        };
        let arrival = Arrival { tier, issued: now, arrived: now };
        self.flying.insert(*op, ((to.rank, to.offset, *sample), arrival));
    }

    pub(super) fn completed(&mut self, op: OpId, now: Nanoseconds) {
        if let Some((spot, arrival)) = self.flying.remove(&op) {
            self.arrived.insert(spot, Arrival { arrived: now, ..arrival });
        }
    }

    /// Tells the reads of a step, and their sums.
    pub(super) fn start(&mut self, started: Started) -> ControlFlow<O::Stop> {
        if !O::LISTENS {
            return ControlFlow::Continue(());
        }
        let Started { epoch, step, needed, stall } = started;
        let mut outcome = StepOutcome { epoch, step, needed, stall, ranks: Vec::new() };
        for rank in self.ranks.clone() {
            let from_tier = vec![Bytes(0); self.tiers];
            let mut sums = RankStep { rank, samples: 0, cold: Bytes(0), from_tier };
            for read in self.leased.remove(&BatchId { epoch, step, rank }).unwrap_or_default() {
                sums.add(&read);
                self.observer.read(&Read { needed, ..read });
            }
            outcome.ranks.push(sums);
        }
        self.observer.step(&outcome)
    }

    fn lease(&mut self, offset: Bytes, batch: &Batch, now: Nanoseconds) {
        let spot = |sample, at: Bytes| (batch.id.rank, Bytes(offset.0 + at.0), sample);
        let arrivals =
            || batch.entries.iter().filter_map(|it| self.arrived.get(&spot(it.sample, it.offset)));
        // What is shown was there when the rest was asked for.
        let placed = arrivals().map(|arrival| arrival.issued).min().unwrap_or(now);
        let read = |entry: &Entry| {
            let Entry { sample, offset, len, shown } = *entry;
            let Arrival { tier, issued, arrived } = match shown {
                Some(shown) => Arrival { tier: Some(shown.tier), issued: placed, arrived: placed },
                None => *self.arrived.get(&spot(sample, offset))?,
            };
            let (batch, len) = (batch.id, len?);
            Some(Read { batch, sample, len, tier, issued, arrived, needed: arrived })
        };
        let reads = batch.entries.iter().filter_map(read);
        let reads = reads.collect();
        for entry in &batch.entries {
            self.arrived.remove(&spot(entry.sample, entry.offset));
        }
        self.leased.insert(batch.id, reads);
    }
}

impl RankStep {
    fn add(&mut self, read: &Read) {
        self.samples += 1;
        match read.tier.and_then(|tier| self.from_tier.get_mut(usize::from(tier.0))) {
            Some(bytes) => bytes.0 += read.len.0,
            None => self.cold.0 += read.len.0,
        }
    }
}

#[cfg(test)]
mod tests;
