//! Tells an observer, while a simulation runs, what every read and every step of it did.
//!
//! A read belongs to the batch in whose range of staging it ends: operations name slots there, and the
//! lease of a batch names its range. A sample that is read in place is told with its batch. Whether a read
//! was in time is known when its step starts, so it is told then.
//!
//! 1. Every read of a batch that is handed over is told once: by step, by rank, in reading order.
//! 2. The sums of the steps of an epoch are those of its [`crate::session::EpochProgress`].
//! 3. Nothing is held but what is staged.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec,
    vec::Vec,
};
use core::{convert::Infallible, ops::ControlFlow};

use crate::{
    batch::{Batch, Entry},
    id::{BatchId, Epoch, OpId, Rank, SampleId, Step, TierId},
    session::{Answer, Held, Operation, READY_WITHIN, Settings},
    units::{Bytes, Nanoseconds},
};

/// An observer of a simulated run, which may end it.
pub trait Observer {
    /// The reason to end a run; [`Infallible`] if it never ends one.
    type Stop;

    /// Whether the observer is told anything at all.
    const LISTENS: bool = true;

    /// Takes note of a read whose step starts.
    fn read(&mut self, _: &Read) {}

    /// Takes note of a step that starts, after its reads. The run ends if this breaks.
    fn step(&mut self, step: &StepOutcome) -> ControlFlow<Self::Stop>;
}

/// An observer that is told nothing.
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
    /// The sample that is read.
    pub sample: SampleId,
    /// Its length.
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

/// The sums of the reads of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepOutcome {
    /// The epoch of the step.
    pub epoch: Epoch,
    /// The step within its epoch.
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
    /// The rank of the batch.
    pub rank: Rank,
    /// Samples in the batch.
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

/// Where in staging a sample goes: empty samples may share an offset.
type Destination = (Rank, Bytes, SampleId);

#[derive(Debug, Clone, Copy)]
struct Arrival {
    tier: Option<TierId>,
    issued: Nanoseconds,
    arrived: Nanoseconds,
}

/// The reads of everything that is staged.
#[derive(Debug)]
pub(super) struct Trace<'a, O> {
    observer: &'a mut O,
    ranks: Vec<Rank>,
    tiers: usize,
    in_flight: BTreeMap<OpId, (Destination, Arrival)>,
    arrived: BTreeMap<Destination, Arrival>,
    leased: BTreeMap<BatchId, Vec<Read>>,
    /// Samples that were fetched ahead and not staged since.
    ahead: BTreeSet<SampleId>,
}

impl<'a, O: Observer> Trace<'a, O> {
    pub(super) fn new(settings: &Settings, observer: &'a mut O) -> Self {
        Self {
            observer,
            ranks: settings.order.world.ranks_of(settings.node).collect(),
            tiers: settings.tiers.len(),
            in_flight: BTreeMap::new(),
            arrived: BTreeMap::new(),
            leased: BTreeMap::new(),
            ahead: BTreeSet::new(),
        }
    }

    pub(super) fn started(&mut self, op: OpId, operation: &Operation, now: Nanoseconds) {
        let (sample, tier, to) = match operation {
            Operation::Fetch { sample, to, .. } if O::LISTENS => (sample, None, to),
            Operation::Promote { sample, from, to, held } if O::LISTENS => {
                let tier = (*held == Held::Retained).then_some(from.tier);
                (sample, tier, to)
            }
            Operation::Prefetch { sample, .. } if O::LISTENS => {
                self.ahead.insert(*sample);
                return;
            }
            _ => return,
        };
        self.ahead.remove(sample);
        let arrival = Arrival { tier, issued: now, arrived: now };
        self.in_flight.insert(op, ((to.rank, to.offset, *sample), arrival));
    }

    pub(super) fn answered(&mut self, answer: &Answer, now: Nanoseconds) {
        if let Answer::Lease { offset, batch, .. } = answer
            && O::LISTENS
        {
            self.lease(*offset, batch, now);
        }
    }

    pub(super) fn completed(&mut self, op: OpId, now: Nanoseconds) {
        if let Some((destination, arrival)) = self.in_flight.remove(&op) {
            self.arrived.insert(destination, Arrival { arrived: now, ..arrival });
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
        let destination = |sample, at: Bytes| (batch.id.rank, Bytes(offset.0 + at.0), sample);
        let arrivals = || {
            batch
                .entries
                .iter()
                .filter_map(|it| self.arrived.get(&destination(it.sample, it.offset)))
        };
        // What is read in place was there when the rest was asked for.
        let placed = arrivals().map(|arrival| arrival.issued).min().unwrap_or(now);
        let read = |entry: &Entry| {
            let Entry { sample, offset, len, in_place } = *entry;
            let Arrival { tier, issued, arrived } = match in_place {
                Some(place) => {
                    let tier = (!self.ahead.contains(&sample)).then_some(place.tier);
                    Arrival { tier, issued: placed, arrived: placed }
                }
                None => *self.arrived.get(&destination(sample, offset))?,
            };
            let (batch, len) = (batch.id, len?);
            Some(Read { batch, sample, len, tier, issued, arrived, needed: arrived })
        };
        let reads = batch.entries.iter().filter_map(read);
        let reads = reads.collect();
        for entry in &batch.entries {
            self.arrived.remove(&destination(entry.sample, entry.offset));
            if entry.in_place.is_some() {
                self.ahead.remove(&entry.sample);
            }
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
