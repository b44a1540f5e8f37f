//! The operations that move a sample: fetch, promote, demote.
//!
//! A copy from or to an emulated tier takes its links before it starts and waits for them after it
//! ended, so that it takes as long as the slower of the real and the emulated one.

use std::sync::Arc;

use tierfeed_core::{
    id::SampleId,
    session::{Origin, Place, Retention, Slot},
    units::{Bytes, Nanoseconds},
};
use tierfeed_numa_memory::Checksum;

use crate::{
    fetcher::{Fetch, Fetcher, Target},
    plane::{
        answer::Answer,
        failure::{Cause, CopyError},
        operations::{Operations, WatchedTier},
        settings::Verify,
    },
    tier::{Body, Check, Medium, Segment, TransferError, Which, forget, record_arrival, transfer},
};

/// One end of a copy.
struct End<'a> {
    /// `None` for staging.
    tier: Option<&'a WatchedTier>,
    segments: Vec<Segment>,
}

impl Operations {
    /// Reads a sample from the cold store into staging.
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
        let Body::Memory(region) = segment.store.body() else {
            let error = CopyError::UnknownArena { rank: to.rank };
            return answer.give(Some(sample), Err(error.into()));
        };
        if has_broken(&segment) {
            let error = CopyError::Poisoned { tier: None, chunk: None };
            return answer.give(Some(sample), Err(error.into()));
        }
        forget(std::slice::from_ref(&segment));
        let region = Arc::clone(region);
        let target = match retention {
            Retention::Kept => Target::summed(region, to.offset, to.len),
            Retention::Dropped => Target::new(region, to.offset, to.len),
        };
        fetcher.start(Fetch::new(sample, target.clone(), move |read| {
            let operations = answer.operations();
            let outcome = read.map_err(Cause::from);
            if outcome.is_err() {
                look_at(&segment);
            }
            let outcome = match outcome {
                _ if has_broken(&segment) => {
                    Err(CopyError::Poisoned { tier: None, chunk: None }.into())
                }
                Ok(()) if retention == Retention::Kept => vouch_for(sample, &segment, &target),
                outcome => outcome,
            };
            operations.fetched.count(to.len, &outcome);
            answer.give(Some(sample), outcome);
        }));
    }

    /// Copies a sample from a tier into staging.
    pub(crate) fn promote(&self, answer: Answer, sample: SampleId, from: &Place, to: Slot) {
        let outcome = self.promote_blocking(sample, from, to);
        answer.give(Some(sample), outcome.map_err(Cause::from));
    }

    /// Copies a sample down into a tier.
    pub(crate) fn demote(
        &self,
        answer: Answer,
        sample: SampleId,
        from: &Origin,
        len: Bytes,
        to: &Place,
    ) {
        let outcome = self.demote_blocking(sample, from, len, to);
        answer.give(Some(sample), outcome.map_err(Cause::from));
    }

    fn promote_blocking(&self, sample: SampleId, from: &Place, to: Slot) -> Result<(), CopyError> {
        let from = self.cached(from)?;
        let to_staging = End { tier: None, segments: vec![self.staged(to)?] };
        self.copy_blocking(sample, &from, &to_staging, to.len)
    }

    fn demote_blocking(
        &self,
        sample: SampleId,
        from: &Origin,
        len: Bytes,
        to: &Place,
    ) -> Result<(), CopyError> {
        let from = match from {
            Origin::Staging(slot) => End { tier: None, segments: vec![self.staged(*slot)?] },
            Origin::Tier(place) => self.cached(place)?,
        };
        self.copy_blocking(sample, &from, &self.cached(to)?, len)
    }

    fn copy_blocking(
        &self,
        sample: SampleId,
        from: &End<'_>,
        to: &End<'_>,
        len: Bytes,
    ) -> Result<(), CopyError> {
        let deadline = [from, to].into_iter().map(|end| end.reserve(self, len)).max();
        let check = self.check_of(from);
        let outcome = transfer(sample, &from.segments, &to.segments, len, check)
            .map_err(|error| explain(error, from, to, len));
        if let Some(from) = from.tier {
            from.read.count(len, &outcome);
        }
        if let Some(to) = to.tier {
            to.written.count(len, &outcome);
        }
        self.pace.wait_until_blocking(deadline.unwrap_or_default());
        outcome
    }

    /// Others can write staging and files; chunks in memory are ours alone.
    fn check_of(&self, from: &End<'_>) -> Check {
        match (from.tier.map(|watched| watched.tier.medium()), self.verify) {
            (Some(Medium::Memory), Verify::Shared) => Check::Nothing,
            _ => Check::Bytes,
        }
    }

    fn staged(&self, slot: Slot) -> Result<Segment, CopyError> {
        let store = self.arena_store(slot.rank)?;
        Ok(Segment { store, offset: slot.offset, len: slot.len })
    }

    fn cached(&self, place: &Place) -> Result<End<'_>, CopyError> {
        let watched = self.tier(place.tier)?;
        let kind = watched.tier.kind();
        let segments = watched.tier.segments(&place.pieces);
        let segments = segments.map_err(|chunk| CopyError::UnknownChunk { kind, chunk })?;
        Ok(End { tier: Some(watched), segments })
    }
}

impl End<'_> {
    /// Takes the link of an emulated tier, and returns when `len` bytes would be over it.
    fn reserve(&self, operations: &Operations, len: Bytes) -> Nanoseconds {
        let link = self.tier.and_then(|watched| watched.tier.link());
        link.map_or(Nanoseconds(0), |link| link.reserve(&operations.pace, len))
    }
}

/// Whether memory of the store of a segment broke.
fn has_broken(segment: &Segment) -> bool {
    segment.store.bus_errors() > 0
}

/// Reads a place that a fetch failed to fill: that tells a broken page, which is counted then, from a
/// broken source.
fn look_at(segment: &Segment) {
    if let Body::Memory(region) = segment.store.body() {
        // The place was checked before the fetch.
        let _ = region.sum_into(segment.offset, segment.len, &mut Checksum::of_len(segment.len.0));
    }
}

/// Keeps the sum of a sample that was just fetched.
fn vouch_for(sample: SampleId, segment: &Segment, target: &Target) -> Result<(), Cause> {
    match target.sum() {
        Some(sum) => {
            record_arrival(sample, segment, sum);
            Ok(())
        }
        // A fetcher said that all came, and did not write it.
        None => Err(CopyError::Corrupt { from: None }.into()),
    }
}

fn explain(error: TransferError, from: &End<'_>, to: &End<'_>, len: Bytes) -> CopyError {
    let kind = |end: &End<'_>| end.tier.map(|watched| watched.tier.kind());
    match error {
        TransferError::TooShort { place } => CopyError::TooShort { place, len },
        TransferError::NotThere | TransferError::Differs => CopyError::Corrupt { from: kind(from) },
        TransferError::Poisoned { end, chunk } => {
            let at = if end == Which::From { from } else { to };
            CopyError::Poisoned {
                tier: at.tier.map(|watched| (watched.id, watched.tier.kind())),
                chunk,
            }
        }
        TransferError::Io(source) => CopyError::Io { from: kind(from), to: kind(to), source },
    }
}
