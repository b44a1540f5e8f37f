//! Pieces of samples that wait to be read, merged into runs of adjacent pieces.
//!
//! Pieces arrive in the order of their deadlines. Pieces that are adjacent to the first one in the same file
//! are read by the same request: one request of a megabyte costs a disk and a processor less than eight of
//! 128 KiB.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. Every piece is returned once, the oldest one in the next run.
//! 2. The pieces of a run lie in one file in ascending order, with gaps of at most [`GAP_MAX`].
//! 3. A run is no longer than [`RUN_MAX`] and has at most [`RANGES_MAX`] pieces, unless it is one piece.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tierfeed_file_io::reads::RANGES_MAX;

/// The longest run that is merged, in bytes: the cost of the request is small beside it.
pub(super) const RUN_MAX: u64 = 1 << 20;

/// The longest gap between two pieces of a run, in bytes: headers between samples, the rest of a block.
pub(super) const GAP_MAX: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileRange {
    /// An identifier of the open file.
    pub(super) file: usize,
    pub(super) offset: u64,
    /// Length in bytes, at least 1.
    pub(super) len: u64,
    pub(super) buffering: Buffering,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Buffering {
    /// The kernel writes the target: it is aligned as direct I/O requires.
    ZeroCopy,
    Bounce,
}

impl FileRange {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

#[derive(Debug)]
pub(super) struct Pending<T> {
    next: u64,
    pieces: BTreeMap<u64, (FileRange, T)>,
    by_offset: BTreeSet<(usize, Buffering, u64, u64)>,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self { next: 0, pieces: BTreeMap::new(), by_offset: BTreeSet::new() }
    }
}

impl<T> Pending<T> {
    pub(super) fn push(&mut self, span: FileRange, of: T) {
        self.by_offset.insert((span.file, span.buffering, span.offset, self.next));
        self.pieces.insert(self.next, (span, of));
        self.next += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Removes the oldest piece and its neighbours and returns them in the order of the file.
    pub(super) fn next_run(&mut self) -> Option<Vec<(FileRange, T)>> {
        let number = *self.pieces.first_key_value()?.0;
        let first = self.take(number);
        let (mut start, mut end) = (first.0.offset, first.0.end());
        let mut run = VecDeque::from([first]);
        while run.len() < RANGES_MAX {
            let span = run[0].0;
            if let Some(number) = self.successor(&span, end, start) {
                run.push_back(self.take(number));
                end = run[run.len() - 1].0.end();
            } else if let Some(number) = self.predecessor(&span, start, end) {
                run.push_front(self.take(number));
                start = run[0].0.offset;
            } else {
                break;
            }
        }
        Some(run.into())
    }

    fn take(&mut self, number: u64) -> (FileRange, T) {
        let piece = self.pieces.remove(&number).expect("its number was just found");
        self.by_offset.remove(&(piece.0.file, piece.0.buffering, piece.0.offset, number));
        piece
    }

    /// The piece behind a run, if it is adjacent and both together are not too long.
    fn successor(&self, of: &FileRange, end: u64, start: u64) -> Option<u64> {
        let range = (of.file, of.buffering, end, 0)
            ..=(of.file, of.buffering, end.saturating_add(gap(of.buffering)), u64::MAX);
        let (.., number) = *self.by_offset.range(range).next()?;
        (self.pieces[&number].0.end() - start <= RUN_MAX).then_some(number)
    }

    /// The piece before a run, if it is adjacent and both together are not too long.
    fn predecessor(&self, of: &FileRange, start: u64, end: u64) -> Option<u64> {
        let range = (of.file, of.buffering, 0, 0)..(of.file, of.buffering, start, 0);
        let (.., offset, number) = *self.by_offset.range(range).next_back()?;
        let its_end = self.pieces[&number].0.end();
        let is_beside = its_end <= start && start - its_end <= gap(of.buffering);
        (is_beside && end - offset <= RUN_MAX).then_some(number)
    }
}

/// The longest gap inside a run: only a bounce buffer can hold bytes that belong to no target.
fn gap(buffering: Buffering) -> u64 {
    match buffering {
        Buffering::ZeroCopy => 0,
        Buffering::Bounce => GAP_MAX,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn span(offset: u64, len: u64) -> FileRange {
        FileRange { file: 0, offset, len, buffering: Buffering::ZeroCopy }
    }

    fn runs(spans: &[FileRange]) -> Vec<Vec<u64>> {
        let mut pending = Pending::default();
        spans.iter().for_each(|span| pending.push(*span, ()));
        let run = |run: Vec<(FileRange, ())>| run.iter().map(|(span, ())| span.offset).collect();
        std::iter::from_fn(|| pending.next_run()).map(run).collect()
    }

    #[test]
    fn neighbours_on_both_sides_go_with_the_first() {
        let spans = [span(100, 10), span(500, 10), span(110, 10), span(90, 10), span(121, 10)];
        assert_eq!(runs(&spans), [vec![90, 100, 110], vec![500], vec![121]]);
    }

    #[test]
    fn small_gaps_are_read_over_only_into_a_buffer() {
        let bounce = |offset, len| FileRange { buffering: Buffering::Bounce, ..span(offset, len) };
        assert_eq!(runs(&[bounce(0, 10), bounce(10 + GAP_MAX, 10)]), [[0, 10 + GAP_MAX]]);
        assert_eq!(runs(&[bounce(0, 10), bounce(11 + GAP_MAX, 10)]).len(), 2);
        assert_eq!(runs(&[span(0, 10), span(11, 10)]).len(), 2);
        assert_eq!(runs(&[span(0, 10), bounce(10, 10)]).len(), 2, "they are buffered differently");
    }

    #[test]
    fn the_same_bytes_asked_for_twice_are_read_twice() {
        assert_eq!(runs(&[span(0, 10), span(0, 10), span(5, 10)]).len(), 3);
        let bounce = |offset, len| FileRange { buffering: Buffering::Bounce, ..span(offset, len) };
        assert_eq!(runs(&[bounce(100, 10), bounce(95, 8), bounce(102, 9)]).len(), 3);
    }

    proptest! {
        #[test]
        fn every_piece_comes_out_once_in_runs_that_keep_their_bounds(
            spans in prop::collection::vec((0_usize..3, 0_u64..40, 1_u64..9, any::<bool>()), 1..80),
        ) {
            const UNIT: u64 = RUN_MAX / 16;
            let mut pending = Pending::default();
            for (number, (file, at, len, is_zero_copy)) in spans.iter().enumerate() {
                let buffering = if *is_zero_copy { Buffering::ZeroCopy } else { Buffering::Bounce };
                let span = FileRange { file: *file, offset: at * UNIT, len: len * UNIT, buffering };
                pending.push(span, number);
            }
            let mut seen = vec![false; spans.len()];
            while let Some(run) = pending.next_run() {
                let first = seen.iter().position(|seen| !seen).unwrap();
                prop_assert!(run.iter().any(|(_, number)| *number == first), "invariant 1");
                for (_, number) in &run {
                    prop_assert!(!std::mem::replace(&mut seen[*number], true), "invariant 1");
                }
                for pair in run.windows(2) {
                    let ((one, _), (next, _)) = (&pair[0], &pair[1]);
                    prop_assert_eq!((one.file, one.buffering), (next.file, next.buffering));
                    prop_assert!(next.offset >= one.end() && next.offset - one.end() <= GAP_MAX);
                }
                let whole = run[run.len() - 1].0.end() - run[0].0.offset;
                prop_assert!(run.len() == 1 || whole <= RUN_MAX, "invariant 3");
                prop_assert!(run.len() <= RANGES_MAX, "invariant 3");
            }
            prop_assert!(seen.iter().all(|seen| *seen), "invariant 1");
            prop_assert!(pending.is_empty() && pending.by_offset.is_empty());
        }
    }
}
