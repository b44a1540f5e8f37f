//! Records which ranges of a region have no memory, and keeps them unchanged while pages are
//! pinned.
//!
//! An `io_uring` pins the pages of a range and later reads into these very pages. Two things must not
//! happen. A range with a hole must not be pinned: the kernel would fill the hole, which takes
//! memory that no caller claimed. And pages that were pinned before their range was given back must
//! not be read into afterwards: the region has other pages there since, so the bytes would be lost
//! silently.
//!
//! 1. No memory is given back or restored between the check for holes and the end of the pinning:
//!    both happen under the shared lock, changes under the exclusive one.
//! 2. Each change, a failed one too, gives the region another version before the lock is released.
//!    So pages that were pinned under the present version of the region are its pages, except in a
//!    range that is being changed; no read goes to such a range.
//! 3. A range counts as a hole from the attempt to give it back until it was restored as a whole.
//!
//! `verification/models/` compiles this file with the atomics and locks of loom and shuttle in
//! place of the real ones.

use std::collections::BTreeMap;

use super::words::{AtomicU64, Ordering, RwLock};

/// The holes of a region.
#[derive(Debug)]
pub(super) struct Holes {
    version: AtomicU64,
    ranges: RwLock<Ranges>,
}

/// Ranges without memory, by their start; no two are adjacent.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

/// A range of bytes, half open.
pub(super) type Range = std::ops::Range<u64>;

impl Holes {
    pub(super) fn none() -> Self {
        Self { version: AtomicU64::new(0), ranges: RwLock::new(Ranges::default()) }
    }

    /// Number of changes so far. Pages that were pinned under another version may not belong to the
    /// region any more.
    pub(super) fn version(&self) -> u64 {
        // Acquire: a reader that sees the version of a change also sees its effects.
        self.version.load(Ordering::Acquire)
    }

    /// Changes the memory of the region. Waits for threads that pin pages, and they do not wait for
    /// this.
    pub(super) fn change<T>(&self, act: impl FnOnce(&mut Ranges) -> T) -> T {
        // After a panic a range may count as a hole that is none, which only costs speed.
        let mut ranges = self.ranges.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let outcome = act(&mut ranges);
        self.version.fetch_add(1, Ordering::Release);
        outcome
    }

    /// Calls `pin` with the range that has memory around `wanted` inside of `within`, and with the
    /// version. `None` if there is a hole in `wanted`, if `wanted` leaves `within`, or if a change
    /// is in progress.
    pub(super) fn pin<T>(
        &self,
        wanted: &Range,
        within: &Range,
        pin: impl FnOnce(Range, u64) -> T,
    ) -> Option<T> {
        let ranges = self.ranges.try_read().ok()?;
        let run = ranges.run_around(wanted, within)?;
        Some(pin(run, self.version()))
    }
}

impl Ranges {
    /// Records that a range has no memory.
    pub(super) fn add(&mut self, hole: &Range) {
        if hole.is_empty() {
            return;
        }
        let (mut start, mut end) = (hole.start, hole.end);
        while let Some((&other, &other_end)) = self.0.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            self.0.remove(&other);
            (start, end) = (start.min(other), end.max(other_end));
        }
        self.0.insert(start, end);
    }

    /// Records that a range has memory again.
    pub(super) fn remove(&mut self, filled: &Range) {
        while let Some((&start, &end)) = self.0.range(..filled.end).next_back() {
            if end <= filled.start {
                break;
            }
            self.0.remove(&start);
            if start < filled.start {
                self.0.insert(start, filled.start);
            }
            if end > filled.end {
                self.0.insert(filled.end, end);
            }
        }
    }

    /// The longest range around `wanted` inside of `within` that has no hole.
    fn run_around(&self, wanted: &Range, within: &Range) -> Option<Range> {
        if wanted.is_empty() || wanted.start < within.start || wanted.end > within.end {
            return None;
        }
        let before = self.0.range(..wanted.end).next_back();
        let start = before.map_or(within.start, |(_, end)| within.start.max(*end));
        let behind = self.0.range(wanted.end..).next();
        let end = behind.map_or(within.end, |(start, _)| within.end.min(*start));
        (start <= wanted.start).then_some(start..end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEN: u64 = 40;

    fn any_range() -> impl Strategy<Value = Range> {
        (0..LEN, 0..LEN).prop_map(|(one, other)| one.min(other)..one.max(other))
    }

    proptest! {
        #[test]
        fn a_run_is_the_longest_stretch_without_a_hole(
            changes in prop::collection::vec((any::<bool>(), any_range()), 0..12),
            wanted in any_range(),
            within in any_range(),
        ) {
            #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
            let (mut ranges, mut has_memory) = (Ranges::default(), [true; LEN as usize]);
            for (is_filled, range) in &changes {
                if *is_filled { ranges.remove(range) } else { ranges.add(range) }
                range.clone().for_each(|at| has_memory[usize::try_from(at).unwrap()] = *is_filled);
            }
            let is_good = |at: &u64| {
                within.contains(at) && has_memory[usize::try_from(*at).unwrap()]
            };
            let expected = (!wanted.is_empty() && wanted.clone().all(|at| is_good(&at))).then(|| {
                let start = (0..wanted.start).rev().take_while(is_good).last();
                let end = (wanted.end..LEN).take_while(is_good).last();
                start.unwrap_or(wanted.start)..end.map_or(wanted.end, |last| last + 1)
            });
            prop_assert_eq!(ranges.run_around(&wanted, &within), expected);
        }
    }

    #[test]
    fn nothing_is_pinned_while_memory_changes_and_every_change_is_another_version() {
        let holes = Holes::none();
        let during = holes.change(|ranges| {
            ranges.add(&(8..16));
            holes.pin(&(0..4), &(0..32), |run, _| run)
        });
        assert_eq!((during, holes.version()), (None, 1));
        assert_eq!(holes.pin(&(0..4), &(0..32), |run, version| (run, version)), Some((0..8, 1)));
        assert_eq!(holes.pin(&(4..9), &(0..32), |_, _| ()), None);
        holes.change(|ranges| ranges.remove(&(8..16)));
        assert_eq!(holes.pin(&(4..9), &(0..32), |run, version| (run, version)), Some((0..32, 2)));
    }
}
