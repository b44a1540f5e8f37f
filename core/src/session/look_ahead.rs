//! Cold reads to come, fetched into room of the tiers that no sample takes yet.
//!
//! Staging is as deep as its arenas; behind it the tiers are filled in the order in which batches are
//! needed, the soonest in the fastest tier with room, and move up as room is freed there (DeepMemoryDL,
//! ICPP 2022, Algorithm 1, lines 3 to 8). What is staged takes its samples from there. The policy knows
//! nothing of it: it finds the room that it wants, because what waits there gives way, the last needed
//! first, to a slower tier or out.
//!
//! A read to come is fetched ahead if its sample has no place in any tier, and no earlier read of it that is
//! not staged yet could give it one. Which read that is follows from the order and from what was staged, not
//! from how fast it was; time decides only how much of it is there already. A fetch that is still queued when
//! its batch is staged is dropped, and the sample goes into staging directly. So that few are, no more is
//! fetched ahead than keeps the cold store busy: while two windows of reads wait for it nothing is, and from
//! the time on when less than one waits more is.
//!
//! With DELI's fetches ([`RankFetches`]) a rank is not looked ahead all the time but a fetch at a time: the
//! next one begins when no more samples than the threshold are behind the staged ones and looked at. Samples
//! that a tier has count as fetched, as in DELI, whose service removes them from a request.
//!
//! Invariants, checked by `mod tests` of [`crate::session`]:
//!
//! 1. Beside what is fetched in vain, hardly more is read from the cold store than without it: what waits lies
//!    where the policy would have put other samples, so what fits in the rest of a chunk can differ.
//! 2. Nothing waits for a batch that its rank passed.
//! 3. The cold store is never idle while there is a read to come and room for it.

use alloc::{collections::BTreeMap, vec, vec::Vec};

use super::{
    Session,
    operations::FetchedAhead,
    set_points::SetPoints,
    settings::{LookAhead, STAGED_MIN, Settings},
    staging::Staging,
};
use crate::{
    hash_table::HashTable,
    id::{BatchId, Epoch, OpId, Rank, SampleId},
    order::Spec,
    retention::{cache::Due, policy::RankFetches},
    space::Space,
    units::{Bytes, BytesPerSecond},
};

/// The most samples that wait in tiers or are on their way there, so that the planned operations stay few,
/// however small samples are.
const AHEAD_SAMPLES_MAX: usize = 1 << 16;

/// The most windows of the cold store that may wait when a read is fetched ahead.
const WAITING_WINDOWS_MAX: usize = 2;

/// When fewer windows of the cold store wait, more is fetched ahead, so that the cold store has work until
/// then.
const WAITING_WINDOWS_MIN: usize = 1;

/// With [`LookAhead::Auto`], a cold store that is faster than this is not read ahead: samples that wait in
/// a tier are copied once more, which costs a processor about a tenth of a second for a gigabyte.
pub const AUTO_RATE_MAX: BytesPerSecond = BytesPerSecond(1_000_000_000);

/// The reads of each rank after the staged batches.
#[derive(Debug)]
pub(super) struct Horizon {
    is_looking: bool,
    /// Whether looking ahead stopped because enough reads wait for the cold store.
    is_resting: bool,
    ranks: BTreeMap<Rank, RankHorizon>,
    passed: Passed,
    /// Reads of samples of which an earlier read is not staged yet. Once it is, it is known whether they
    /// are cold.
    deferred: HashTable<SampleId, Due>,
    /// The generation of the schedule and its set points, by the first epoch for which they hold.
    scheduled: BTreeMap<Epoch, (u32, SetPoints)>,
    /// `None` if samples are requested as soon as there is room.
    fetches: Option<RankFetches>,
}

#[derive(Debug, Clone, Copy, Default)]
struct RankHorizon {
    /// The cursor of the rank at the last call of [`Horizon::follow`].
    staged: Option<BatchId>,
    next: Option<Due>,
    is_open: bool,
    /// Samples that are left of the last fetch.
    unfetched: u64,
}

impl RankHorizon {
    /// Samples that were looked at and are not staged.
    fn fetched(&self, spec: &Spec) -> u64 {
        let (Some(staged), Some(next)) = (self.staged, self.next) else { return 0 };
        let batches = spec.batches_between(staged, Some(next.batch));
        batches.saturating_mul(spec.batch_size.into()).saturating_add(next.index.into())
    }
}

/// The samples of which a read was passed and is not staged yet, one bit each.
#[derive(Debug)]
struct Passed(Vec<u64>);

impl Passed {
    fn set(&mut self, sample: SampleId) {
        self.0[sample.0 as usize / 64] |= 1 << (sample.0 % 64);
    }

    fn clear(&mut self, sample: SampleId) {
        if let Some(bits) = self.0.get_mut(sample.0 as usize / 64) {
            *bits &= !(1 << (sample.0 % 64));
        }
    }

    fn contains(&self, sample: SampleId) -> bool {
        self.0[sample.0 as usize / 64] >> (sample.0 % 64) & 1 == 1
    }
}

impl Horizon {
    pub(super) fn new(settings: &Settings) -> Self {
        let words = match settings.look_ahead {
            LookAhead::Off => 0,
            LookAhead::Auto | LookAhead::Room(_) => settings.sizes.len().div_ceil(64),
        };
        Self {
            is_looking: false,
            is_resting: false,
            ranks: BTreeMap::new(),
            passed: Passed(vec![0; words]),
            deferred: HashTable::default(),
            scheduled: BTreeMap::from([(settings.order.start.epoch, (0, settings.first_points()))]),
            fetches: settings.fetches(),
        }
    }

    pub(super) fn is_looking(&self) -> bool {
        self.is_looking
    }

    /// The generation and the set points for an epoch; `None` before the first entry.
    fn scheduled_for(&self, epoch: Epoch) -> Option<(u32, SetPoints)> {
        self.scheduled.range(..=epoch).next_back().map(|(_, scheduled)| *scheduled)
    }

    /// Returns a later read of the sample that waited for this one.
    fn note_staged(&mut self, sample: SampleId, batch: BatchId) -> Option<Due> {
        self.passed.clear(sample);
        self.deferred.remove(sample).filter(|due| due.batch > batch)
    }

    fn pass(&mut self, sample: SampleId, due: Due) {
        self.passed.set(sample);
        let horizon = self.ranks.entry(due.batch.rank).or_default();
        horizon.next = Some(Due { index: due.index + 1, ..due });
        horizon.unfetched = horizon.unfetched.saturating_sub(1);
    }

    /// For ranks whose earlier fetches have at most the threshold left.
    fn begin_fetches(&mut self, spec: &Spec) {
        let Some(RankFetches { size, threshold }) = self.fetches else { return };
        for horizon in self.ranks.values_mut().filter(|horizon| horizon.unfetched == 0) {
            if horizon.fetched(spec) <= threshold {
                horizon.unfetched = size;
            }
        }
    }

    /// Looks at the reads of a rank anew, from where it is staged.
    pub(super) fn restart(&mut self, rank: Rank) {
        self.ranks.remove(&rank);
    }

    /// Looks again at a read whose sample lost its place: it may get one before it is staged.
    fn go_back(&mut self, sample: SampleId, due: Due) {
        self.passed.clear(sample);
        let horizon = self.ranks.entry(due.batch.rank).or_default();
        horizon.next = Some(horizon.next.map_or(due, |next| next.min(due)));
    }

    /// Puts the horizon of each open rank behind its staged batches.
    fn follow(&mut self, staging: &Staging) {
        self.ranks.values_mut().for_each(|horizon| horizon.is_open = false);
        for (rank, cursor) in staging.cursors() {
            let horizon = self.ranks.entry(rank).or_default();
            let went_back = cursor < horizon.staged;
            let is_behind = horizon.next.is_none_or(|next| Some(next.batch) < cursor);
            if horizon.staged != cursor && (went_back || is_behind) {
                horizon.next = cursor.map(|batch| Due { batch, index: 0 });
            }
            horizon.staged = cursor;
            horizon.is_open = true;
        }
    }

    /// The earliest of the open ranks.
    fn next(&self) -> Option<Due> {
        let may_go_on =
            |it: &&RankHorizon| it.is_open && (self.fetches.is_none() || it.unfetched > 0);
        self.ranks.values().filter(may_go_on).filter_map(|horizon| horizon.next).min()
    }

    fn move_to(&mut self, rank: Rank, next: Option<Due>) {
        self.ranks.entry(rank).or_default().next = next;
    }
}

impl Session {
    /// Fetches samples ahead for which there is room, and moves samples up, at most `most` samples. Returns
    /// whether there is more to do.
    pub(super) fn look_ahead(&mut self, most: usize) -> bool {
        self.abandon_passed();
        self.horizon.is_looking = self.is_looking_ahead();
        self.horizon.is_resting = false;
        if !self.horizon.is_looking {
            return false;
        }
        self.horizon.follow(&self.staging);
        let done = (0..most).find(|_| {
            let goes_on = self.planner.cache_mut().advance() || self.look_at_next();
            // Room that was made for a sample in vain serves another.
            self.is_settled &= goes_on || !self.planner.cache().has_changes();
            self.follow_changes(None);
            !goes_on
        });
        done.is_none()
    }

    /// Whether so few reads wait for the cold store that more are to be fetched ahead.
    pub(super) fn is_to_look_further(&self) -> bool {
        self.horizon.is_resting && !self.operations.scheduler().is_cold_fed(WAITING_WINDOWS_MIN)
    }

    pub(super) fn is_looking_ahead(&self) -> bool {
        if self.horizon.fetches.is_some() {
            return true;
        }
        match self.settings.look_ahead {
            LookAhead::Off => false,
            LookAhead::Room(_) => true,
            LookAhead::Auto => self.is_cold_store_slow(),
        }
    }

    /// Whether the cold store gave less than [`AUTO_RATE_MAX`] while it was read; `false` before its first
    /// bytes, and if it takes no time. It is called at every event, so nothing is divided.
    fn is_cold_store_slow(&self) -> bool {
        let (read, time) = (u128::from(self.progress.cold.0), self.progress.cold_busy.time().0);
        let at_rate = |rate: u64| u128::from(rate) * u128::from(time);
        let read = read * 1_000_000_000;
        read >= at_rate(1) && read < at_rate(AUTO_RATE_MAX.0)
    }

    /// Applies the schedule for the epoch that is planned next.
    pub(super) fn apply_schedule(&mut self, epoch: Epoch) {
        let first = (0, self.settings.first_points());
        let (generation, points) = self.horizon.scheduled_for(epoch).unwrap_or(first);
        self.progress.generations.insert(epoch, generation);
        self.begin_span();
        self.depth = points.depth.clamp(STAGED_MIN, self.settings.staged_max().max(STAGED_MIN));
        self.divide_room(epoch, points.room);
    }

    /// Divides the room of the tiers between retained samples and those that are fetched ahead.
    fn divide_room(&mut self, epoch: Epoch, scheduled: Bytes) {
        let room = match (self.settings.look_ahead, self.settings.ahead_room()) {
            (LookAhead::Off, _) => return,
            (_, Some(room)) => room,
            (_, None) => scheduled,
        };
        let room = room.min(self.room_of_most_ahead());
        self.progress.look_ahead_room.insert(epoch, room);
        self.planner.cache_mut().reserve(room);
    }

    /// The room of the most samples that may wait: more of it would be kept free for nothing.
    pub(super) fn room_of_most_ahead(&self) -> Bytes {
        let samples = u64::from(self.settings.order.all_samples().max(1));
        let mean = Space::rounded(Bytes(self.dataset.0.div_ceil(samples)));
        Bytes(mean.0.saturating_mul(AHEAD_SAMPLES_MAX as u64))
    }

    /// Epochs that are planned already keep their schedule.
    pub(super) fn handle_scheduled(&mut self, generation: u32, from: Epoch, points: SetPoints) {
        self.horizon.scheduled.retain(|epoch, _| *epoch < from);
        self.horizon.scheduled.insert(from, (generation, points));
    }

    /// Returns `false` if nothing more can be fetched ahead now.
    fn look_at_next(&mut self) -> bool {
        self.horizon.begin_fetches(self.planner.spec());
        let Some(due) = self.horizon.next() else { return false };
        if self.planner.cache().ahead_count() >= AHEAD_SAMPLES_MAX {
            return false;
        }
        // A fetch as in DELI is requested as a whole.
        if self.horizon.fetches.is_none()
            && self.operations.scheduler().is_cold_fed(WAITING_WINDOWS_MAX)
        {
            self.horizon.is_resting = true;
            return false;
        }
        let Some(samples) = self.planner.planned_samples(due.batch) else { return false };
        let Some(sample) = samples.get(due.index as usize).copied() else {
            let spec = self.planner.spec();
            let has_batches = !samples.is_empty();
            let next = if has_batches { spec.after(due.batch) } else { spec.next_epoch(due.batch) };
            let next = next.map(|batch| Due { batch, index: 0 });
            self.horizon.move_to(due.batch.rank, next);
            // Other ranks may have reads to come.
            self.is_settled &= next.is_some();
            return next.is_some();
        };
        let comes_from_peer = self.peer_of(sample).is_some();
        let cache = self.planner.cache_mut();
        if comes_from_peer {
            // It comes fast enough when it is staged, and costs the cold store nothing.
        } else if self.horizon.passed.contains(sample) {
            self.horizon.deferred.insert(sample, due);
        } else if !cache.has_place(sample)
            && cache.may_fetch_ahead(sample)
            && !cache.fetch_ahead(sample, due)
        {
            return false;
        }
        self.horizon.pass(sample, due);
        true
    }

    /// If the next use of a sample that was just staged was looked at already, and no tier keeps the sample
    /// until then, fetches it ahead for that use.
    pub(super) fn fetch_again(&mut self, sample: SampleId, batch: BatchId) {
        let Some(due) = self.horizon.note_staged(sample, batch) else { return };
        let comes_from_peer = self.peer_of(sample).is_some();
        let cache = self.planner.cache_mut();
        if !comes_from_peer && !cache.has_place(sample) && cache.may_fetch_ahead(sample) {
            cache.fetch_ahead(sample, due);
        }
        self.horizon.passed.set(sample);
    }

    fn abandon_passed(&mut self) {
        let cursors: Vec<_> = self.staging.cursors().collect();
        for (rank, cursor) in cursors {
            while let Some((sample, batch)) = self.planner.cache().first_ahead(rank)
                && cursor.is_none_or(|cursor| batch < cursor)
            {
                self.planner.cache_mut().abandon(sample);
                self.follow_changes(None);
            }
        }
    }

    pub(super) fn abandon_epoch(&mut self, rank: Rank, epoch: Epoch) {
        let waiting = self.planner.cache().ahead_of(rank, epoch);
        waiting.into_iter().for_each(|sample| self.planner.cache_mut().abandon(sample));
        self.follow_changes(None);
        self.horizon.restart(rank);
    }

    /// Drops the fetch of a sample into a tier if none of it was given out: the sample is staged now.
    pub(super) fn overtake(&mut self, sample: SampleId) {
        if self.planner.cache().due(sample).is_some()
            && let Some(runnable) = self.cancel_fetch_ahead(sample)
        {
            self.planner.cache_mut().use_up(sample);
            self.start(runnable);
        }
    }

    /// Cancels the fetch of a sample into a tier. Returns the operations that may run now; `None` if the
    /// fetch was given out.
    pub(super) fn cancel_fetch_ahead(&mut self, sample: SampleId) -> Option<Vec<OpId>> {
        let is_waiting = self.operations.fetched_ahead(sample) == FetchedAhead::Not;
        is_waiting.then(|| self.operations.cancel_writers(sample))
    }

    /// Handles a sample that gave up its place before its use: bytes of it that were read, or are being
    /// read, are in vain.
    pub(super) fn note_abandoned(&mut self, sample: SampleId, due: Due, len: Bytes) {
        self.horizon.go_back(sample, due);
        match self.operations.fetched_ahead(sample) {
            FetchedAhead::Not => {
                let runnable = self.operations.cancel_writers(sample);
                self.start(runnable);
            }
            FetchedAhead::Running(op) => self.operations.note_in_vain(op),
            FetchedAhead::Done => self.progress.in_vain.0 += len.0,
        }
        self.operations.note_evicted(sample);
    }
}
