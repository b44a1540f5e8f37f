//! What a session has done so far, for reports and for the manager.

use alloc::{collections::BTreeMap, vec, vec::Vec};

use serde::{Deserialize, Serialize};

use crate::{
    id::{BatchId, DatasetId, Epoch, Rank, SampleId, Step, TierId},
    session::{
        Busy, Concern, Fault, Form, Place, Refusal, StallBreakdown, StallCause, Tally,
        TransformCount, TransformTimes, Waits, assignment::Stages, decisions::Decisions,
        edf_scheduler::Channel,
    },
    units::{Bytes, Nanoseconds},
};

/// The number of faults that are kept with their sample; further faults are only counted.
pub const FAULTS_KEPT: usize = 1000;

/// A batch counts as ready if the trainer waits no longer than this for it.
pub const READY_WITHIN: Nanoseconds = Nanoseconds(100_000);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochProgress {
    /// Batches that trainers took from the agent.
    pub batches: u64,
    pub samples: u64,
    /// Samples of the order that are missing in the batches taken and in those that trainers read
    /// themselves, because the job skips samples that cannot be read.
    pub skipped: u64,
    /// Batches that trainers read from the cold store themselves.
    pub self_read_batches: u64,
    pub self_read_samples: u64,
    pub self_read: Bytes,
    pub demand: Bytes,
    pub cold: Bytes,
    /// The part of [`Self::cold`] that was read into tiers, ahead of staging.
    pub ahead: Bytes,
    pub received: Bytes,
    pub received_samples: u64,
    /// Samples that another node was to send and did not, or not in time: they were read cold.
    pub unreceived: u64,
    /// By [`TierId`].
    pub from_tier: Vec<Bytes>,
    pub hits: Vec<u64>,
    /// In the course of this epoch's batches, in whole grains.
    pub written: Vec<Bytes>,
    pub misses: u64,
    /// The part of [`Self::from_tier`] that trainers read in place, without a copy.
    pub in_place: Bytes,
    pub in_place_samples: u64,
    /// By [`Form`] of the samples that arrived.
    pub transforms: [TransformCount; 2],
    /// Bytes of the batches that were [ready](READY_WITHIN) when the trainer asked.
    pub ready: Bytes,
    /// Batches that were not [ready](READY_WITHIN).
    pub late: u64,
    /// The time that trainers waited for batches, decoding included, summed over them.
    pub stall: Nanoseconds,
    pub causes: StallBreakdown,
    /// Batches that were refused because of a sample.
    pub refused: BTreeMap<Rank, Refused>,
}

impl EpochProgress {
    fn none(tiers: usize) -> Self {
        Self {
            from_tier: vec![Bytes(0); tiers],
            hits: vec![0; tiers],
            written: vec![Bytes(0); tiers],
            causes: StallBreakdown::none(tiers),
            ..Self::default()
        }
    }

    /// Batches that no trainer got: the agent refused them because of a sample, and they were not read
    /// directly either.
    #[must_use]
    pub fn refused_batches(&self) -> u64 {
        self.refused.values().map(|refused| refused.batches).sum()
    }
}

/// Batches of a rank that were refused because of a sample. Training ends with them, unless a [`Tally`]
/// reports that the rank has read them itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub batches: u64,
    /// The time that the rank waited for its store then, unless a tally has reported it.
    pub waited: Nanoseconds,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub batch: BatchId,
    /// The time at which it was placed in staging.
    pub placed: Nanoseconds,
    /// The time at which all of it was there.
    pub ready: Nanoseconds,
    pub at: Nanoseconds,
    pub waited: Nanoseconds,
    pub causes: StallBreakdown,
}

impl Taken {
    /// The time for which the batch had been ready when the trainer began to wait for it.
    #[must_use]
    pub const fn lead(&self) -> Nanoseconds {
        let needed = self.at.0.saturating_sub(self.waited.0);
        Nanoseconds(needed.saturating_sub(self.ready.0))
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Unserved {
    pub(super) batch: BatchId,
    pub(super) refusal: Refusal,
    pub(super) asked: Nanoseconds,
    pub(super) at: Nanoseconds,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Content {
    pub(super) dataset: DatasetId,
    pub(super) samples: u64,
    /// Samples of the order that are missing.
    pub(super) skipped: u64,
    pub(super) len: Bytes,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evictions {
    /// The policy preferred other samples.
    pub policy: u64,
    pub resized: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    pub not_in_order: u64,
    pub not_published: u64,
    /// With [`Refusal::TooManySkipped`].
    pub unreadable: u64,
    pub too_large: u64,
    pub already_taken: u64,
    pub no_room: u64,
    pub too_many_jumps: u64,
    pub no_worker: u64,
}

impl Refusals {
    fn note(&mut self, refusal: Refusal) {
        let count = match refusal {
            Refusal::NotInOrder => &mut self.not_in_order,
            Refusal::NotPublished => &mut self.not_published,
            Refusal::Unreadable(..) | Refusal::TooManySkipped { .. } => &mut self.unreadable,
            Refusal::TooLarge { .. } => &mut self.too_large,
            Refusal::AlreadyTaken => &mut self.already_taken,
            Refusal::NoRoom => &mut self.no_room,
            Refusal::TooManyJumps => &mut self.too_many_jumps,
            Refusal::NoWorker => &mut self.no_worker,
        };
        *count += 1;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub epoch: Epoch,
    pub first: Step,
    pub count: u32,
}

/// The latest runs that a batch may continue: worker processes of a loader take batches a little out of
/// order.
const RUNS_OPEN: usize = 16;

fn record(runs: &mut Vec<Run>, epoch: Epoch, step: Step) {
    let open = runs.len().saturating_sub(RUNS_OPEN);
    let follows = |run: &Run| run.epoch == epoch && run.first.0 + run.count == step.0;
    let precedes = |run: &Run| run.epoch == epoch && run.first.0 == step.0 + 1;
    let before = (open..runs.len()).find(|at| follows(&runs[*at]));
    let behind = (open..runs.len()).find(|at| precedes(&runs[*at]));
    match (before, behind) {
        (Some(before), Some(behind)) => {
            runs[before].count += 1 + runs[behind].count;
            runs.remove(behind);
        }
        (Some(before), None) => runs[before].count += 1,
        (None, Some(behind)) => {
            runs[behind].first = step;
            runs[behind].count += 1;
        }
        (None, None) => runs.push(Run { epoch, first: step, count: 1 }),
    }
}

#[derive(Debug, Clone, Default)]
pub struct Progress {
    pub(super) cold: Bytes,
    /// By epoch number. Once trainers have read passes beyond those of the job, one more entry stands for
    /// all of them.
    pub epochs: Vec<EpochProgress>,
    /// The batches that each rank took, in the order in which it took them. Batches that several
    /// connections of a rank took a little out of order are sorted.
    pub handed: BTreeMap<Rank, Vec<Run>>,
    /// The first [`FAULTS_KEPT`] faults, in their order.
    pub faults: Vec<(SampleId, Fault)>,
    pub fault_count: u64,
    /// Failed operations of tiers. Each costs at most cold reads.
    pub tier_faults: u64,
    /// The waits for each batch, decoding left out.
    pub waits: Waits,
    pub waits_by_rank: BTreeMap<Rank, Waits>,
    /// The part of the stall for the first batch of each rank, which no agent can have ready.
    pub first_stall: Nanoseconds,
    /// The times for which batches had been ready when trainers began to wait for them.
    pub leads: Waits,
    /// The times for which trainers held batches.
    pub holds: Waits,
    /// For ranks that decode on threads: the threads of the last report.
    pub decode_threads: BTreeMap<Rank, u32>,
    pub taken: Option<Taken>,
    /// Bytes that were fetched ahead into tiers and then not wanted.
    pub in_vain: Bytes,
    /// The room of the tiers for samples that are fetched ahead, for each planned epoch.
    pub look_ahead_room: BTreeMap<Epoch, Bytes>,
    /// The generation of the schedule that was applied.
    pub generations: BTreeMap<Epoch, u32>,
    pub(super) decisions: Decisions,
    /// By [`TierId`].
    pub evictions: Vec<Evictions>,
    pub refusals: Refusals,
    /// By dataset number.
    pub datasets: Vec<DatasetProgress>,
    pub cold_busy: Busy,
    pub peers_busy: Busy,
    /// The last division, where Algorithm 1 of Lobster divides threads.
    pub threads: Option<Stages>,
    pub transforms_busy: Busy,
    /// Of transforms that made a row.
    pub transform_times: TransformTimes,
    /// Copies into the tier included.
    pub tiers_busy: Vec<Busy>,
    /// The time up to which the waits of each rank are reported.
    told_until: BTreeMap<Rank, Nanoseconds>,
    of_job: usize,
    tiers: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DatasetProgress {
    pub batches: u64,
    pub demand: Bytes,
    pub cold: Bytes,
    /// Summed over all ranks.
    pub stall: Nanoseconds,
}

impl Progress {
    pub(super) fn new(epochs: u32, tiers: usize, datasets: usize) -> Self {
        let of_job = epochs as usize;
        Self {
            epochs: vec![EpochProgress::none(tiers); of_job],
            decisions: Decisions::new(epochs),
            evictions: vec![Evictions::default(); tiers],
            datasets: vec![DatasetProgress::default(); datasets],
            tiers_busy: vec![Busy::default(); tiers],
            of_job,
            tiers,
            ..Self::default()
        }
    }

    pub fn epochs_of_job(&self) -> impl Iterator<Item = &EpochProgress> {
        self.epochs.iter().take(self.of_job)
    }

    /// Batches that trainers read themselves in passes beyond the epochs of the job.
    #[must_use]
    pub fn beyond_batches(&self) -> u64 {
        self.epochs.iter().skip(self.of_job).map(|epoch| epoch.self_read_batches).sum()
    }

    pub(super) fn delivered(&mut self, taken: Taken, content: Content) {
        let (batch, wait) = (taken.batch, taken.waited);
        self.note_told(batch.rank, taken.at);
        let Content { dataset, samples, skipped, len } = content;
        if let Some(dataset) = self.datasets.get_mut(usize::from(dataset.0)) {
            dataset.batches += 1;
            dataset.demand.0 += len.0;
            dataset.stall.0 = dataset.stall.0.saturating_add(wait.0);
        }
        let epoch = &mut self.epochs[batch.epoch.0 as usize];
        epoch.batches += 1;
        epoch.samples += samples;
        epoch.skipped += skipped;
        epoch.demand.0 += len.0;
        epoch.stall.0 = epoch.stall.0.saturating_add(wait.0);
        epoch.causes.add(&taken.causes);
        if wait <= READY_WITHIN {
            epoch.ready.0 += len.0;
        } else {
            epoch.late += 1;
        }
        self.waits.record(wait);
        self.waits_by_rank.entry(batch.rank).or_default().record(wait);
        self.leads.record(taken.lead());
        let runs = self.handed.entry(batch.rank).or_default();
        if runs.is_empty() {
            self.first_stall.0 = self.first_stall.0.saturating_add(wait.0);
        }
        record(runs, batch.epoch, batch.step);
        self.taken = Some(taken);
    }

    /// The most of all ranks; 0 if the training's own threads decode.
    #[must_use]
    pub fn decode_threads_max(&self) -> u32 {
        self.decode_threads.values().copied().max().unwrap_or(0)
    }

    /// `now` is the time of the report.
    pub(super) fn tallied(&mut self, rank: Rank, mut tally: Tally, now: Nanoseconds) {
        self.note_told(rank, now);
        let epoch = self.epoch_or_beyond(tally.epoch);
        let batches = u64::from(tally.self_read_batches);
        if let Some(refused) = epoch.refused.get_mut(&rank).filter(|_| batches > 0) {
            refused.batches = refused.batches.saturating_sub(batches);
            let counted = refused.waited.min(tally.unanswered);
            refused.waited.0 -= counted.0;
            tally.unanswered.0 -= counted.0;
        }
        epoch.self_read_batches += batches;
        epoch.self_read_samples += u64::from(tally.self_read_samples);
        epoch.self_read.0 = epoch.self_read.0.saturating_add(tally.self_read_bytes.0);
        epoch.skipped += u64::from(tally.skipped_samples);
        epoch.stall.0 = epoch.stall.0.saturating_add(tally.waited().0);
        epoch.causes.note(StallCause::Unanswered, tally.unanswered);
        epoch.causes.note(StallCause::SelfRead, tally.self_read);
        epoch.causes.note(StallCause::Decoding, tally.decoding);
        if tally.decode_threads > 0 {
            self.decode_threads.insert(rank, tally.decode_threads);
        }
        if let Some(each) =
            tally.unanswered.0.saturating_add(tally.self_read.0).checked_div(batches)
        {
            let each = Nanoseconds(each);
            self.waits.record_several(each, batches);
            self.waits_by_rank.entry(rank).or_default().record_several(each, batches);
        }
    }

    /// A digest of all decisions on where samples are read from and where they stay. Equal decisions have
    /// equal digests, however long everything took.
    #[must_use]
    pub fn decisions(&self) -> u64 {
        self.decisions.digest()
    }

    pub(super) fn released(&mut self, held: Nanoseconds) {
        self.holds.record(held);
    }

    /// Counts a request that got no batch. Training may end with a refusal because of a sample, and then
    /// reports no wait any more. If the store was waited for, that wait began at the request, or at the
    /// time up to which the rank has reported, if that is later.
    pub(super) fn refused(&mut self, Unserved { batch, refusal, asked, at }: Unserved) {
        self.refusals.note(refusal);
        let (Refusal::Unreadable(_, fault) | Refusal::TooManySkipped { fault, .. }) = refusal
        else {
            return;
        };
        let since = self.told_until.get(&batch.rank).map_or(asked, |until| asked.max(*until));
        let is_of_store = fault.concern() == Concern::Store;
        let waited = Nanoseconds(if is_of_store { at.0.saturating_sub(since.0) } else { 0 });
        let epoch = self.epoch_or_beyond(batch.epoch);
        let refused = epoch.refused.entry(batch.rank).or_default();
        refused.batches += 1;
        refused.waited.0 = refused.waited.0.saturating_add(waited.0);
        epoch.stall.0 = epoch.stall.0.saturating_add(waited.0);
        epoch.causes.note(StallCause::Unanswered, waited);
        if is_of_store {
            self.note_told(batch.rank, at);
            self.waits.record(waited);
            self.waits_by_rank.entry(batch.rank).or_default().record(waited);
        }
    }

    fn note_told(&mut self, rank: Rank, until: Nanoseconds) {
        let told = self.told_until.entry(rank).or_default();
        *told = until.max(*told);
    }

    /// The sums of an epoch; those of all passes beyond the job for a later one.
    fn epoch_or_beyond(&mut self, Epoch(epoch): Epoch) -> &mut EpochProgress {
        let at = self.of_job.min(epoch as usize);
        if at == self.epochs.len() {
            self.epochs.push(EpochProgress::none(self.tiers));
        }
        &mut self.epochs[at]
    }

    pub(super) fn evictions(&mut self, tier: TierId) -> Option<&mut Evictions> {
        self.evictions.get_mut(usize::from(tier.0))
    }

    pub(super) fn busy(&mut self, channel: Channel) -> Option<&mut Busy> {
        match channel {
            Channel::Cold => Some(&mut self.cold_busy),
            Channel::Peers => Some(&mut self.peers_busy),
            Channel::Transform => Some(&mut self.transforms_busy),
            Channel::Tier(tier) => self.tiers_busy.get_mut(usize::from(tier.0)),
        }
    }

    /// The last batch, in the order of the job, that a rank took.
    pub(super) fn farthest(&self, rank: Rank) -> Option<BatchId> {
        let runs = self.handed.get(&rank)?.iter();
        let ends = runs.map(|run| (run.epoch, Step(run.first.0 + run.count - 1)));
        ends.max().map(|(epoch, step)| BatchId { epoch, step, rank })
    }

    pub(super) fn read(&mut self, epoch: Epoch, tier: Option<TierId>, len: Bytes) {
        let tiers = self.tiers;
        let epoch = &mut self.epochs[epoch.0 as usize];
        if let Some(tier) = tier.map(|tier| usize::from(tier.0)).filter(|tier| *tier < tiers) {
            epoch.from_tier[tier].0 += len.0;
            epoch.hits[tier] += 1;
        } else {
            epoch.cold.0 += len.0;
            epoch.misses += 1;
            self.cold.0 += len.0;
        }
    }

    pub(super) fn read_cold_of(&mut self, dataset: DatasetId, len: Bytes) {
        if let Some(dataset) = self.datasets.get_mut(usize::from(dataset.0)) {
            dataset.cold.0 += len.0;
        }
    }

    pub(super) fn received(&mut self, epoch: Epoch, len: Bytes) {
        let epoch = &mut self.epochs[epoch.0 as usize];
        epoch.received.0 += len.0;
        epoch.received_samples += 1;
    }

    pub(super) fn unreceived(&mut self, epoch: Epoch) {
        self.epochs[epoch.0 as usize].unreceived += 1;
    }

    pub(super) fn read_ahead(&mut self, epoch: Epoch, len: Bytes) {
        self.read(epoch, None, len);
        self.epochs[epoch.0 as usize].ahead.0 += len.0;
    }

    /// `made` is the length of the row, if there is one.
    pub(super) fn transformed(
        &mut self,
        epoch: Epoch,
        form: Form,
        read: Bytes,
        made: Result<Bytes, Fault>,
    ) {
        let count = &mut self.epochs[epoch.0 as usize].transforms[form as usize];
        match made {
            Ok(made) => {
                count.samples += 1;
                count.read.0 += read.0;
                count.made.0 += made.0;
            }
            Err(_) => count.failed += 1,
        }
    }

    pub(super) fn worked(&mut self, epoch: Epoch, form: Form, took: Nanoseconds) {
        let count = &mut self.epochs[epoch.0 as usize].transforms[form as usize];
        count.time.0 = count.time.0.saturating_add(took.0);
    }

    pub(super) fn read_in_place(&mut self, epoch: Epoch, tier: TierId, len: Bytes) {
        self.read(epoch, Some(tier), len);
        let epoch = &mut self.epochs[epoch.0 as usize];
        epoch.in_place.0 += len.0;
        epoch.in_place_samples += 1;
    }

    pub(super) fn wrote(&mut self, epoch: Epoch, place: &Place) {
        let epoch = self.epochs.get_mut(epoch.0 as usize);
        if let Some(sum) = epoch.and_then(|it| it.written.get_mut(usize::from(place.tier.0))) {
            sum.0 += place.pieces.iter().map(|piece| piece.len.0).sum::<u64>();
        }
    }

    pub(super) fn fault(&mut self, sample: SampleId, fault: Fault) {
        self.fault_count += 1;
        if self.faults.len() < FAULTS_KEPT {
            self.faults.push((sample, fault));
        }
    }
}
