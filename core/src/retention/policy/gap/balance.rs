//! Chooses which of several equally valuable samples stay, so that all ranks and steps miss alike.
//!
//! The quota fixes how much stays; which samples stay is free. The epoch in which they are used
//! next consists of batches, and each batch should read equally many cold bytes. So the choice is
//! water-filling: one level of cold bytes for all batches, and each batch keeps its bytes above the
//! level. The rounding error of whole samples is carried from batch to batch, so that no byte of
//! the quota is lost and no batch is off by more than a sample.
//!
//! Samples that lie in a tier already are chosen first: replacing one costs a write. Where a batch
//! keeps too much, the samples read first leave, and where it keeps too little, the samples read
//! last come: so at no point of the epoch is more kept than at its end.

use crate::id::SampleId;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Batch {
    /// Bytes of samples that do not stay, or for which it is not decided.
    pub(super) cold: u64,
    /// The part of `cold` that may stay.
    pub(super) open: u64,
}

impl Batch {
    /// Bytes that the batch keeps if `level` of its bytes may be cold.
    fn above(self, level: u64) -> u64 {
        self.cold.saturating_sub(level).min(self.open)
    }
}

/// The least level at which the batches together keep at most `quota` bytes.
fn level(batches: &[Batch], quota: u64) -> u64 {
    let kept = |level| batches.iter().map(|batch| batch.above(level)).sum::<u64>();
    let (mut low, mut high) = (0, batches.iter().map(|batch| batch.cold).max().unwrap_or(0));
    // Binary search: a higher level keeps fewer bytes.
    while low < high {
        let middle = low + (high - low) / 2;
        if kept(middle) <= quota { high = middle } else { low = middle + 1 }
    }
    low
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) sample: SampleId,
    pub(super) len: u64,
    /// In the epoch that is being decided.
    pub(super) place: u32,
    pub(super) origin: Origin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// No tier: the sample is read cold.
    Cold,
    /// In a tier that is written freely.
    Tier,
    /// In a tier that wears out: the candidate stays there.
    Worn,
}

#[derive(Debug)]
pub(super) struct Chooser {
    level: u64,
    fill: Fill,
    /// The bytes that the batches so far kept too little; negative for too much.
    carry: i64,
}

/// Whether the tiers have room from the start, or only as samples leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    /// The tiers are empty: samples come evenly over the epoch.
    Empty,
    /// Samples lie there already.
    Full,
}

/// The decision about a candidate that is kept, or was kept before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Stays,
    Enters,
    Leaves,
}

impl Chooser {
    /// Chooses `quota` bytes from `batches`. It rounds to the nearest sample, so of samples of
    /// equal size it takes only as many as fit whole.
    pub(super) fn new(batches: &[Batch], quota: u64, shortest: u64, fill: Fill) -> Self {
        let level = level(batches, quota);
        let above: u64 = batches.iter().map(|batch| batch.above(level)).sum();
        let carry = signed(quota.saturating_sub(above)) - signed(quota % shortest.max(1));
        Self { level, fill, carry }
    }

    /// Calls `tell` for every candidate of the next batch that stays where it lies, enters a tier,
    /// or leaves its tier.
    pub(super) fn choose(
        &mut self,
        batch: Batch,
        candidates: &mut [Candidate],
        tell: &mut dyn FnMut(&Candidate, Decision),
    ) {
        let wanted = signed(batch.above(self.level)) + self.carry;
        let lies = |it: &Candidate| it.origin != Origin::Cold;
        let mut kept: i64 = candidates.iter().filter(|it| lies(it)).map(|it| signed(it.len)).sum();
        if kept > wanted {
            first_to_front(candidates, |it| it.place);
        } else if self.fill == Fill::Full {
            first_to_front(candidates, |it| u32::MAX - it.place);
        }
        for candidate in candidates.iter() {
            let len = signed(candidate.len);
            // Takes the alternative that brings the sum nearer to the wanted bytes.
            match candidate.origin {
                Origin::Tier if kept > wanted && len < 2 * (kept - wanted) => {
                    kept -= len;
                    tell(candidate, Decision::Leaves);
                }
                Origin::Cold if kept < wanted && len <= 2 * (wanted - kept) => {
                    kept += len;
                    tell(candidate, Decision::Enters);
                }
                Origin::Cold => {}
                Origin::Tier | Origin::Worn => tell(candidate, Decision::Stays),
            }
        }
        self.carry = wanted - kept;
    }
}

/// Sorts only as many candidates as a batch usually needs to become even: its error is about the
/// square root of their number.
fn first_to_front(candidates: &mut [Candidate], key: impl Fn(&Candidate) -> u32) {
    let few = 8 + candidates.len() / 8;
    if few < candidates.len() {
        candidates.select_nth_unstable_by_key(few, &key);
    }
    let few = few.min(candidates.len());
    candidates[..few].sort_unstable_by_key(key);
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
