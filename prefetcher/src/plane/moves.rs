//! The operations that move a sample: fetch and prefetch, advance, demote.
//!
//! A copy from or to an emulated tier reserves time on the emulated links before it starts and waits for
//! the end of that reservation after it ended, so it takes as long as the slower of real and emulated copy.

use std::sync::Arc;

use tierfeed_core::{
    id::{SampleId, TierId},
    session::{Place, Retention, Slot},
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::read::{ReadError, Sink};
use tierfeed_numa_memory::{
    Checksum,
    lanes::{Job, Lanes},
};

use crate::{
    fetcher::{Fetch, Fetcher, Target},
    plane::{
        DataPlane,
        answer::Answer,
        failure::{Cause, CopyError},
        settings::Verify,
        state::{CountedTier, PlaneState},
    },
    tier::{
        Allocation, Arrival, Check, Medium, Segment, Side, TransferError, forget_sums,
        record_arrival, transfer,
    },
};

pub(super) struct CopySide<'a> {
    /// `None` for staging and the cold store.
    pub(super) tier: Option<&'a CountedTier>,
    pub(super) segments: Vec<Segment>,
}

impl PlaneState {
    pub(crate) fn fetch(
        &self,
        answer: Answer,
        sample: SampleId,
        to: Slot,
        retention: Retention,
        fetcher: &dyn Fetcher,
    ) {
        let segment = match self.staged(to) {
            Ok(segment) => segment,
            Err(error) => return answer.give(Some(sample), Err(error.into())),
        };
        let Allocation::Memory(region) = segment.store.allocation() else {
            let error = CopyError::UnknownArena { rank: to.rank };
            return answer.give(Some(sample), Err(error.into()));
        };
        if is_poisoned(&segment) {
            let error = CopyError::Poisoned { tier: None, chunk: None };
            return answer.give(Some(sample), Err(error.into()));
        }
        forget_sums(std::slice::from_ref(&segment));
        let region = Arc::clone(region);
        let target = match retention {
            Retention::Kept => Target::summed(region, to.offset, to.len),
            Retention::Dropped => Target::new(region, to.offset, to.len),
        };
        fetcher.start(Fetch::new(sample, target.clone(), move |read| {
            let state = answer.state();
            let outcome = read.map_err(Cause::from);
            if outcome.is_err() {
                detect_poison(&segment);
            }
            let outcome = match outcome {
                _ if is_poisoned(&segment) => {
                    Err(CopyError::Poisoned { tier: None, chunk: None }.into())
                }
                Ok(()) if retention == Retention::Kept => record_sum(sample, &segment, &target),
                outcome => outcome,
            };
            state.fetched.count(to.len, &outcome);
            answer.give(Some(sample), outcome);
        }));
    }

    /// A thread of the tier waits for an emulated link, not the thread that ends the read.
    pub(crate) fn prefetch(
        &self,
        answer: Answer,
        sample: SampleId,
        len: Bytes,
        to: &Place,
        fetcher: &dyn Fetcher,
        copies: Arc<Vec<Lanes>>,
    ) {
        let tier = to.tier;
        let arrival = self.cached(to).and_then(|to| {
            let arrival = Arrival::new(to.segments.clone(), len);
            arrival.map_err(|error| explain(error, &CopySide::COLD, &to, len))
        });
        let arrival = match arrival {
            Ok(arrival) => Arc::new(arrival),
            Err(error) => return answer.give(Some(sample), Err(error.into())),
        };
        let target = Target::sink(Arc::clone(&arrival) as Arc<dyn Sink>, len);
        fetcher.start(Fetch::new(sample, target.clone(), move |read| {
            let state = answer.state();
            let outcome = state.end_arrival(sample, tier, &arrival, target.sum(), read);
            state.fetched.count(len, &outcome);
            let Ok(counted) = state.tier(tier) else { return };
            counted.written.count(len, &outcome);
            let Some(link) = counted.tier.link() else {
                return answer.give(Some(sample), outcome);
            };
            let deadline = link.reserve(&state.pace, len);
            let wait: Job = Box::new(move || {
                answer.state().pace.wait_until_blocking(deadline);
                answer.give(Some(sample), outcome);
            });
            // A refused job is dropped with its answer, and dropping the answer answers the operation.
            if let Some(lanes) = copies.get(usize::from(tier.0)) {
                drop(lanes.submit(wait));
            }
        }));
    }

    /// Distinguishes a memory error of the tier from an error of the source.
    fn end_arrival(
        &self,
        sample: SampleId,
        tier: TierId,
        arrival: &Arrival,
        sum: Option<u64>,
        read: Result<(), ReadError>,
    ) -> Result<(), Cause> {
        let arrived = match read {
            Ok(()) => arrival.complete(sample, sum),
            Err(_) => arrival.check(),
        };
        let to = CopySide { tier: Some(self.tier(tier)?), segments: Vec::new() };
        arrived.map_err(|error| explain(error, &CopySide::COLD, &to, Bytes(0)))?;
        Ok(read?)
    }

    pub(crate) fn retain(
        &self,
        answer: Answer,
        sample: SampleId,
        from: Slot,
        len: Bytes,
        to: &Place,
    ) {
        let ends = self.staging(from).and_then(|from| Ok((from, self.cached(to)?)));
        let outcome = ends.and_then(|(from, to)| self.copy_blocking(sample, &from, &to, len));
        if outcome.is_ok() {
            self.drop_pages(sample);
        }
        answer.give(Some(sample), outcome.map_err(Cause::from));
    }

    pub(crate) fn copy(
        &self,
        answer: Answer,
        sample: SampleId,
        from: &Place,
        len: Bytes,
        to: &Place,
    ) {
        let ends = self.cached(from).and_then(|from| Ok((from, self.cached(to)?)));
        let outcome = ends.and_then(|(from, to)| self.copy_blocking(sample, &from, &to, len));
        answer.give(Some(sample), outcome.map_err(Cause::from));
    }

    fn copy_blocking(
        &self,
        sample: SampleId,
        from: &CopySide<'_>,
        to: &CopySide<'_>,
        len: Bytes,
    ) -> Result<(), CopyError> {
        let deadline = [from, to].into_iter().map(|end| end.reserve(self, len)).max();
        let outcome = self.copy_unpaced(sample, from, to, len);
        self.pace.wait_until_blocking(deadline.unwrap_or_default());
        outcome
    }

    pub(super) fn copy_unpaced(
        &self,
        sample: SampleId,
        from: &CopySide<'_>,
        to: &CopySide<'_>,
        len: Bytes,
    ) -> Result<(), CopyError> {
        let check = self.check_of(from);
        let outcome = transfer(sample, &from.segments, &to.segments, len, check)
            .map_err(|error| explain(error, from, to, len));
        if let Some(from) = from.tier {
            from.read.count(len, &outcome);
        }
        if let Some(to) = to.tier {
            to.written.count(len, &outcome);
        }
        outcome
    }

    /// Other processes can write staging memory and files; chunks in memory belong to this process alone.
    pub(super) fn check_of(&self, from: &CopySide<'_>) -> Check {
        match (from.tier.map(|counted| counted.tier.medium()), self.verify) {
            (Some(Medium::Memory), Verify::Shared) => Check::Nothing,
            _ => Check::Bytes,
        }
    }

    pub(super) fn staging(&self, slot: Slot) -> Result<CopySide<'_>, CopyError> {
        Ok(CopySide { tier: None, segments: vec![self.staged(slot)?] })
    }

    fn staged(&self, slot: Slot) -> Result<Segment, CopyError> {
        let store = self.arena_store(slot.rank)?;
        Ok(Segment { store, offset: slot.offset, len: slot.len })
    }

    pub(super) fn cached(&self, place: &Place) -> Result<CopySide<'_>, CopyError> {
        let counted = self.tier(place.tier)?;
        let kind = counted.tier.kind();
        let segments = counted.tier.segments(&place.pieces);
        let segments = segments.map_err(|chunk| CopyError::UnknownChunk { kind, chunk })?;
        Ok(CopySide { tier: Some(counted), segments })
    }
}

impl DataPlane {
    /// The place in staging of a sample that comes from another node; `None` if it has no memory.
    #[must_use]
    pub fn receive(&self, to: Slot) -> Option<Target> {
        let segment = self.state.staged(to).ok().filter(|segment| !is_poisoned(segment))?;
        let Allocation::Memory(region) = segment.store.allocation() else { return None };
        forget_sums(std::slice::from_ref(&segment));
        Some(Target::new(Arc::clone(region), to.offset, to.len))
    }
}

impl CopySide<'_> {
    const COLD: Self = Self { tier: None, segments: Vec::new() };

    /// Reserves the link of an emulated tier; returns the time at which `len` bytes have passed it.
    fn reserve(&self, state: &PlaneState, len: Bytes) -> Nanoseconds {
        let link = self.tier.and_then(|counted| counted.tier.link());
        link.map_or(Nanoseconds(0), |link| link.reserve(&state.pace, len))
    }
}

fn is_poisoned(segment: &Segment) -> bool {
    segment.store.bus_errors() > 0
}

/// Reads the destination of a failed fetch, which counts a poisoned page there. This distinguishes a memory
/// error from an error of the source.
fn detect_poison(segment: &Segment) {
    if let Allocation::Memory(region) = segment.store.allocation() {
        // The range was checked before the fetch.
        let _ = region.sum_into(segment.offset, segment.len, &mut Checksum::of_len(segment.len.0));
    }
}

fn record_sum(sample: SampleId, segment: &Segment, target: &Target) -> Result<(), Cause> {
    match target.sum() {
        Some(sum) => {
            record_arrival(sample, segment, sum);
            Ok(())
        }
        // The fetcher reported success without having written all bytes.
        None => Err(CopyError::Corrupt { from: None }.into()),
    }
}

pub(super) fn explain(
    error: TransferError,
    from: &CopySide<'_>,
    to: &CopySide<'_>,
    len: Bytes,
) -> CopyError {
    let kind = |end: &CopySide<'_>| end.tier.map(|counted| counted.tier.kind());
    match error {
        TransferError::TooShort { place } => CopyError::TooShort { place, len },
        TransferError::NotThere | TransferError::Differs => CopyError::Corrupt { from: kind(from) },
        TransferError::Poisoned { end, chunk } => {
            let at = if end == Side::From { from } else { to };
            CopyError::Poisoned {
                tier: at.tier.map(|counted| (counted.id, counted.tier.kind())),
                chunk,
            }
        }
        TransferError::NoMemory { chunk, source } => {
            CopyError::NoMemory { to: kind(to), chunk, source }
        }
        TransferError::Io(source) => CopyError::Io { from: kind(from), to: kind(to), source },
    }
}
