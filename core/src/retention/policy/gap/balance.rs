//! Which samples stay, of those that are equally worth it: so that all ranks and steps miss alike.
//!
//! How much stays is fixed; which samples that are is free. The epoch in which they are used next
//! consists of batches, and each batch should read equally many cold bytes. So the batches are filled
//! like vessels that stand in one water: the level is the cold bytes of a batch, and each keeps what
//! stands above it. Rounding to whole samples is carried on from batch to batch, so that no byte of
//! the quota is lost and no batch is off by more than a sample.
//!
//! What lies in a tier already is chosen first: changing its mind costs a write. Where a batch has
//! more than it should keep, what is read first leaves, and where it has less, what is read last comes:
//! so at no point of the epoch more is kept than at its end.

use crate::id::SampleId;

/// The bytes of a batch by what is known of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Batch {
    /// Of samples of which it is not decided, or decided against, whether they stay.
    pub(super) cold: u64,
    /// Of those, what may stay.
    pub(super) open: u64,
}

impl Batch {
    /// What the batch keeps if `level` of its bytes may be cold.
    fn above(self, level: u64) -> u64 {
        self.cold.saturating_sub(level).min(self.open)
    }
}

/// The level at which the batches together keep `quota` bytes, or as little more as can be told apart.
fn level(batches: &[Batch], quota: u64) -> u64 {
    let kept = |level| batches.iter().map(|batch| batch.above(level)).sum::<u64>();
    let (mut low, mut high) = (0, batches.iter().map(|batch| batch.cold).max().unwrap_or(0));
    // The least level at which no more is kept than allowed.
    while low < high {
        let middle = low + (high - low) / 2;
        if kept(middle) <= quota { high = middle } else { low = middle + 1 }
    }
    low
}

/// A sample that may stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) sample: SampleId,
    pub(super) len: u64,
    /// Where in the epoch that is being decided it is read.
    pub(super) place: u32,
    pub(super) origin: Origin,
}

/// Where a candidate lies when it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// In no tier.
    Cold,
    /// In a tier that is written freely.
    Tier,
    /// In a tier that wears out: it stays there.
    Worn,
}

/// Chooses among the candidates of one batch after the other.
#[derive(Debug)]
pub(super) struct Chooser {
    level: u64,
    fill: Fill,
    /// What the batches so far should have kept and did not, or the other way round.
    carry: i64,
}

/// Whether there is room from the start, or only as samples leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    /// Nothing lies there yet: what comes, comes evenly over the epoch.
    Empty,
    /// Samples lie there already.
    Full,
}

/// What becomes of a candidate that is kept, or was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// In the tier in which it lies.
    Stays,
    /// Into a tier.
    Comes,
    /// Out of its tier.
    Leaves,
}

impl Chooser {
    /// Chooses `quota` bytes from `batches`. Rounding is to the nearest sample, so of equal ones only as
    /// many are wanted as fit whole.
    pub(super) fn new(batches: &[Batch], quota: u64, shortest: u64, fill: Fill) -> Self {
        let level = level(batches, quota);
        let above: u64 = batches.iter().map(|batch| batch.above(level)).sum();
        let carry = signed(quota.saturating_sub(above)) - signed(quota % shortest.max(1));
        Self { level, fill, carry }
    }

    /// Tells `tell` of every candidate of the next batch that stays where it lies, comes into a tier,
    /// or leaves its tier.
    pub(super) fn choose(
        &mut self,
        batch: Batch,
        candidates: &mut [Candidate],
        tell: &mut dyn FnMut(&Candidate, Fate),
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
            // Whatever brings the sum nearer to what is wanted.
            match candidate.origin {
                Origin::Tier if kept > wanted && len < 2 * (kept - wanted) => {
                    kept -= len;
                    tell(candidate, Fate::Leaves);
                }
                Origin::Cold if kept < wanted && len <= 2 * (wanted - kept) => {
                    kept += len;
                    tell(candidate, Fate::Comes);
                }
                Origin::Cold => {}
                Origin::Tier | Origin::Worn => tell(candidate, Fate::Stays),
            }
        }
        self.carry = wanted - kept;
    }
}

/// Sorts as many candidates as are usually looked at until a batch is even: it is off by about the root
/// of their number.
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
