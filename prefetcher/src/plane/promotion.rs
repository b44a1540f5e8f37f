//! Promotion: copies what a batch takes from one tier into staging.
//!
//! An emulated link takes the list as one transfer. What costs as much as copying a small sample is done once for
//! the list: chunks are looked up where they change, and counters and sums of staging change once.

use tierfeed_core::{
    session::{Held, Promotion},
    units::Bytes,
};

use crate::{
    plane::{
        answer::Answer,
        failure::{Cause, CopyError},
        moves::{CopySide, explain},
        state::PlaneState,
    },
    tier::transfer_bytes,
};

/// Several samples on their way to one rank. They get no sums in staging: no operation reads them there.
struct List<'a> {
    state: &'a PlaneState,
    /// The ends of the last part.
    from: CopySide<'a>,
    to: CopySide<'a>,
    samples: u64,
    bytes: Bytes,
}

impl PlaneState {
    /// Copies one sample after the other.
    pub(crate) fn promote(&self, answer: Answer, parts: &[Promotion]) {
        let tier = parts.first().and_then(|part| self.tier(part.from.tier).ok());
        let link = tier.and_then(|counted| counted.tier.link());
        let deadline = link.map(|link| link.reserve(&self.pace, Promotion::bytes(parts)));
        let mut list = List::begin(self, parts);
        let mut failed = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let outcome = match &mut list {
                Some(list) => list.copy(part),
                None => self.promote_one(part),
            };
            match outcome {
                Ok(()) if part.held == Held::Retained => self.drop_pages(part.sample),
                Ok(()) => {}
                Err(error) => failed.push((index, part, Cause::from(error))),
            }
        }
        list.into_iter().for_each(List::count);
        self.pace.wait_until_blocking(deadline.unwrap_or_default());
        answer.give_parts(failed);
    }

    fn promote_one(&self, Promotion { sample, from, to, .. }: &Promotion) -> Result<(), CopyError> {
        self.copy_unpaced(*sample, &self.cached(from)?, &self.staging(*to)?, to.len)
    }
}

impl<'a> List<'a> {
    /// `None` of one sample, and if the ends of the first are not there: then each says what is wrong.
    fn begin(state: &'a PlaneState, parts: &[Promotion]) -> Option<Self> {
        let [first, _, ..] = parts else { return None };
        let (from, to) = (state.cached(&first.from).ok()?, state.staging(first.to).ok()?);
        let mut sums = to.segments[0].store.sums();
        parts.iter().for_each(|part| sums.forget(part.to.offset, part.to.len));
        drop(sums);
        Some(Self { state, from, to, samples: 0, bytes: Bytes(0) })
    }

    fn copy(&mut self, part: &Promotion) -> Result<(), CopyError> {
        self.locate(part)?;
        let Self { state, from, to, .. } = self;
        let (len, check) = (part.to.len, state.check_of(from));
        let outcome = transfer_bytes(part.sample, &from.segments, &to.segments, len, check)
            .map_err(|error| explain(error, from, to, len));
        match &outcome {
            Ok(()) => {
                self.samples += 1;
                self.bytes.0 += len.0;
            }
            Err(_) => from.tier.into_iter().for_each(|tier| tier.read.count(len, &outcome)),
        }
        outcome
    }

    fn locate(&mut self, part: &Promotion) -> Result<(), CopyError> {
        let is_of_tier = self.from.tier.is_some_and(|tier| tier.id == part.from.tier);
        match (&part.from.pieces[..], &mut self.from.segments[..]) {
            ([piece], [from]) if is_of_tier && from.store.chunk() == Some(piece.chunk) => {
                (from.offset, from.len) = (piece.offset, piece.len);
            }
            _ => self.from = self.state.cached(&part.from)?,
        }
        let to = &mut self.to.segments[0];
        (to.offset, to.len) = (part.to.offset, part.to.len);
        Ok(())
    }

    fn count(self) {
        self.from.tier.into_iter().for_each(|tier| tier.read.count_all(self.samples, self.bytes));
    }
}
