//! Tells an observer, while a simulation runs, what the ranks read for every step, and from where.
//!
//! A read belongs to the batch in whose range of staging it ends: operations name slots there, and the
//! lease of a batch names its range. A sample that is read in place counts with its batch.
//!
//! 1. Every read of a batch that is handed over counts once, for its step and rank.
//! 2. The sums of the steps of an epoch are those of its [`crate::session::EpochProgress`].
//! 3. Nothing is held but what is staged.

mod arrivals;

use alloc::{collections::BTreeMap, vec, vec::Vec};
use core::{convert::Infallible, ops::ControlFlow};

use self::arrivals::{Arrivals, Arrived, Cursor};

use crate::{
    batch::{Batch, Entry},
    id::{BatchId, Epoch, Rank, SampleId, Step, TierId},
    session::{Answer, Held, LookAhead, Operation, Promotion, Settings, Slot},
    units::{Bytes, Nanoseconds},
};

/// An observer of a simulated run, which may end it.
pub trait Observer {
    /// The reason to end a run; [`Infallible`] if it never ends one.
    type Stop;

    /// Whether the observer is told anything at all.
    const LISTENS: bool = true;

    /// Called when a step starts. The run ends if this breaks.
    fn step(&mut self, step: &StepOutcome) -> ControlFlow<Self::Stop>;
}

/// Is told nothing.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Cold,
    Peers,
    Tier(TierId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Read {
    source: Source,
    len: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepOutcome {
    pub epoch: Epoch,
    pub step: Step,
    /// The time at which the previous step had ended.
    pub needed: Nanoseconds,
    /// The time that the ranks waited for the last of their batches.
    pub stall: Nanoseconds,
    /// In the order of the ranks of the node.
    pub ranks: Vec<RankStep>,
}

impl StepOutcome {
    #[must_use]
    pub fn cold(&self) -> Bytes {
        Bytes(self.ranks.iter().map(|rank| rank.cold.0).sum())
    }

    #[must_use]
    pub fn demand(&self) -> Bytes {
        Bytes(self.ranks.iter().map(|rank| rank.demand().0).sum())
    }
}

/// The reads of one rank for one step. A batch that was refused counts nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankStep {
    pub rank: Rank,
    pub samples: u32,
    pub cold: Bytes,
    pub received: Bytes,
    /// By [`TierId`].
    pub from_tier: Vec<Bytes>,
}

impl RankStep {
    #[must_use]
    pub fn demand(&self) -> Bytes {
        let local = self.from_tier.iter().map(|bytes| bytes.0).sum::<u64>();
        Bytes(self.cold.0 + self.received.0 + local)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Started {
    pub(super) epoch: Epoch,
    pub(super) step: Step,
    pub(super) needed: Nanoseconds,
    pub(super) stall: Nanoseconds,
}

/// The place of a sample in staging: empty samples may share an offset.
type Destination = (Rank, Bytes, SampleId);

#[derive(Debug, Clone, Copy)]
pub(super) struct InFlight {
    to: Destination,
    read: Read,
}

#[derive(Debug)]
pub(super) struct Trace<'a, O> {
    observer: &'a mut O,
    ranks: Vec<Rank>,
    tiers: usize,
    arrivals: Arrivals,
    /// Of the batch that is leased.
    arrived: Vec<Arrived>,
    leased: BTreeMap<BatchId, Vec<Read>>,
    ahead: Ahead,
}

/// The samples that were fetched ahead and not staged since, one bit each.
#[derive(Debug)]
struct Ahead(Vec<u64>);

impl Ahead {
    fn insert(&mut self, sample: SampleId) {
        self.0[sample.0 as usize / 64] |= 1 << (sample.0 % 64);
    }

    fn remove(&mut self, sample: SampleId) {
        if let Some(bits) = self.0.get_mut(sample.0 as usize / 64) {
            *bits &= !(1 << (sample.0 % 64));
        }
    }

    fn contains(&self, sample: SampleId) -> bool {
        self.0.get(sample.0 as usize / 64).is_some_and(|bits| bits >> (sample.0 % 64) & 1 == 1)
    }
}

impl<'a, O: Observer> Trace<'a, O> {
    pub(super) fn new(settings: &Settings, observer: &'a mut O) -> Self {
        let ranks: Vec<Rank> = settings.order.world.ranks_of(settings.node).collect();
        let words = match settings.look_ahead {
            LookAhead::Off => 0,
            LookAhead::Auto | LookAhead::Room(_) => settings.sizes.len().div_ceil(64),
        };
        Self {
            observer,
            arrivals: Arrivals::new(settings, ranks.first().map_or(0, |rank| rank.0)),
            ranks,
            tiers: settings.tiers.len(),
            arrived: Vec::new(),
            leased: BTreeMap::new(),
            ahead: Ahead(vec![0; words]),
        }
    }

    /// Notes an operation that is given out. Returns the arguments of [`Self::completed`] for its end.
    pub(super) fn started(&mut self, operation: &Operation) -> Vec<InFlight> {
        match operation {
            _ if !O::LISTENS => Vec::new(),
            Operation::Fetch { sample, to, .. } => vec![self.arriving(*sample, Source::Cold, *to)],
            Operation::Receive { sample, to, .. } => {
                vec![self.arriving(*sample, Source::Peers, *to)]
            }
            Operation::Promote { parts } => {
                let source = |part: &Promotion| match part.held {
                    Held::Retained => Source::Tier(part.from.tier),
                    Held::Ahead => Source::Cold,
                };
                parts.iter().map(|part| self.arriving(part.sample, source(part), part.to)).collect()
            }
            // What arrived is read where its row is, and as soon as that is there.
            Operation::Transform { sample, from, to, .. } => {
                let read = self.arrivals.remove((from.rank, from.offset, *sample));
                let at = (to.rank, to.offset, *sample);
                read.map(|read| InFlight { to: at, read }).into_iter().collect()
            }
            Operation::Prefetch { sample, .. } => {
                self.ahead.insert(*sample);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn arriving(&mut self, sample: SampleId, source: Source, to: Slot) -> InFlight {
        self.ahead.remove(sample);
        InFlight { to: (to.rank, to.offset, sample), read: Read { source, len: to.len } }
    }

    pub(super) fn answered(&mut self, answer: &Answer) {
        if let Answer::Lease { offset, batch, .. } = answer
            && O::LISTENS
        {
            self.lease(*offset, batch);
        }
    }

    pub(super) fn completed(&mut self, InFlight { to, read }: InFlight) {
        self.arrivals.add(to, read);
    }

    /// Reports the sums of the reads of a step.
    pub(super) fn start(&mut self, started: Started) -> ControlFlow<O::Stop> {
        if !O::LISTENS {
            return ControlFlow::Continue(());
        }
        let Started { epoch, step, needed, stall } = started;
        let mut outcome = StepOutcome { epoch, step, needed, stall, ranks: Vec::new() };
        for rank in self.ranks.clone() {
            let from_tier = vec![Bytes(0); self.tiers];
            let (cold, received) = (Bytes(0), Bytes(0));
            let mut sums = RankStep { rank, samples: 0, cold, received, from_tier };
            for read in self.leased.remove(&BatchId { epoch, step, rank }).unwrap_or_default() {
                sums.add(read);
            }
            outcome.ranks.push(sums);
        }
        self.observer.step(&outcome)
    }

    fn lease(&mut self, offset: Bytes, batch: &Batch) {
        self.arrivals.take(batch.id.rank.0, offset, batch.len, &mut self.arrived);
        let mut cursor = Cursor::new(&self.arrived);
        let read = |entry: &Entry| {
            let Entry { sample, offset: at, len, in_place, stored: _ } = *entry;
            let len = len?;
            match in_place {
                Some(place) => {
                    let was_ahead = self.ahead.contains(sample);
                    let source = if was_ahead { Source::Cold } else { Source::Tier(place.tier) };
                    Some(Read { source, len })
                }
                None => cursor.find(Bytes(offset.0 + at.0), sample),
            }
        };
        let reads = batch.entries.iter().filter_map(read);
        let reads = reads.collect();
        for entry in batch.entries.iter().filter(|entry| entry.in_place.is_some()) {
            self.ahead.remove(entry.sample);
        }
        self.leased.insert(batch.id, reads);
    }
}

impl RankStep {
    fn add(&mut self, read: Read) {
        self.samples += 1;
        match read.source {
            Source::Cold => self.cold.0 += read.len.0,
            Source::Peers => self.received.0 += read.len.0,
            Source::Tier(tier) => {
                let sum = self.from_tier.get_mut(usize::from(tier.0));
                sum.into_iter().for_each(|sum| sum.0 += read.len.0);
            }
        }
    }
}

#[cfg(test)]
mod tests;
