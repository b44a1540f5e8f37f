//! Operations in flight, and which must wait for which.
//!
//! The residency of the cache change hands at once, bytes take their time: a place may be promised to a
//! new sample while the old one is still being read from it. Two operations that touch the same bytes
//! of a tier, at least one of them writing, run in the order in which they were planned; so does a
//! write after the chunk it goes to was added. Everything else runs at the same time.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. No two running operations touch the same byte of a tier if one of them writes.
//! 2. Every operation is released exactly once, and only after all that it waits for ended.

use alloc::{collections::BTreeMap, vec::Vec};

use super::op_table::OpTable;
use crate::{
    id::{ChunkId, OpId, TierId},
    space::Piece,
};

/// How an operation touches bytes of a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// What an operation touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Touch {
    pub(super) tier: TierId,
    pub(super) pieces: Vec<Piece>,
    pub(super) access: Access,
}

/// Where a touched piece starts, and who touches it. One number for tier, chunk and offset is compared
/// faster than three.
type Start = (u128, OpId);

fn start_of(tier: TierId, chunk: ChunkId, offset: u64) -> u128 {
    u128::from(tier.0) << 96 | u128::from(chunk.0) << 64 | u128::from(offset)
}

/// Pieces of about equal length, each at least half as long as the longest that belongs here: so few of them
/// can lie shortly before a byte without reaching it, and a search passes over no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LengthClass(u32);

impl LengthClass {
    fn of(len: u64) -> Self {
        Self(len.max(1).ilog2())
    }

    /// What no piece is longer than.
    fn longest(self) -> u64 {
        u64::MAX >> (63 - self.0)
    }
}

#[derive(Debug, Default)]
struct Waiting {
    waits_for: u32,
    unblocks: Vec<OpId>,
    starts: Vec<(LengthClass, Start)>,
}

/// The operations that were planned and have not ended.
#[derive(Debug, Default)]
pub(super) struct Ops {
    next: u64,
    waiting: OpTable<Waiting>,
    /// The pieces that are touched, with their length. No class is empty.
    touched: BTreeMap<LengthClass, BTreeMap<Start, (u64, Access)>>,
}

impl Ops {
    /// Operations that have not ended.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The name of the next operation.
    pub(super) fn name(&mut self) -> OpId {
        self.next += 1;
        OpId(self.next)
    }

    /// Plans an operation that must also wait for `after`. Returns the operations that it waits for, in
    /// the order in which they were planned; if there are none it may run now.
    pub(super) fn plan(&mut self, op: OpId, touches: &[Touch], after: Option<OpId>) -> Vec<OpId> {
        let mut blockers = Vec::new();
        blockers.extend(after.filter(|before| self.waiting.get(*before).is_some()));
        let mut starts = Vec::new();
        for touch in touches {
            for piece in &touch.pieces {
                self.find_conflicts(touch, piece, &mut blockers);
            }
        }
        for touch in touches {
            for piece in &touch.pieces {
                starts.push(self.touch(op, touch, piece));
            }
        }
        blockers.sort_unstable();
        blockers.dedup();
        let waits_for = u32::try_from(blockers.len()).expect("operations in flight are few");
        for blocker in &blockers {
            let blocker = self.waiting.get_mut(*blocker).expect("what is in flight is waited for");
            blocker.unblocks.push(op);
        }
        self.waiting.insert(op, Waiting { waits_for, unblocks: Vec::new(), starts });
        blockers
    }

    fn find_conflicts(&self, touch: &Touch, piece: &Piece, blockers: &mut Vec<OpId>) {
        let conflicts = |access: Access| access == Access::Write || touch.access == Access::Write;
        let start = |offset| (start_of(touch.tier, piece.chunk, offset), OpId(0));
        let (offset, end) = (piece.offset.0, piece.offset.0 + piece.len.0);
        let (first, _) = start(offset);
        for (class, touched) in &self.touched {
            let near = touched.range(start(offset.saturating_sub(class.longest()))..start(end));
            let overlapping = near.filter(|((other, _), (len, access))| {
                *other + u128::from(*len) > first && conflicts(*access)
            });
            blockers.extend(overlapping.map(|((_, op), _)| *op));
        }
    }

    fn touch(&mut self, op: OpId, touch: &Touch, piece: &Piece) -> (LengthClass, Start) {
        let class = LengthClass::of(piece.len.0);
        let start = (start_of(touch.tier, piece.chunk, piece.offset.0), op);
        self.touched.entry(class).or_default().insert(start, (piece.len.0, touch.access));
        (class, start)
    }

    /// Ends an operation. Returns those that may run now, in the order in which they were planned.
    pub(super) fn end(&mut self, op: OpId) -> Vec<OpId> {
        let Some(ended) = self.waiting.remove(op) else { return Vec::new() };
        for (class, start) in ended.starts {
            if let Some(touched) = self.touched.get_mut(&class) {
                touched.remove(&start);
                if touched.is_empty() {
                    self.touched.remove(&class);
                }
            }
        }
        let mut runnable = Vec::new();
        for waiting in ended.unblocks {
            if let Some(state) = self.waiting.get_mut(waiting) {
                state.waits_for -= 1;
                if state.waits_for == 0 {
                    runnable.push(waiting);
                }
            }
        }
        runnable
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::units::Bytes;

    fn any_touch() -> impl Strategy<Value = Touch> {
        let len = prop_oneof![4 => 1_u64..4, 1 => 4_u64..70, 1 => Just(1 << 40)];
        let offset = prop_oneof![4 => 0_u64..8, 1 => 8_u64..70];
        (0_u8..2, 0_u32..2, offset, len, any::<bool>()).prop_map(
            |(tier, chunk, offset, len, writes)| Touch {
                tier: TierId(tier),
                pieces: alloc::vec![Piece {
                    chunk: ChunkId(chunk),
                    offset: Bytes(offset),
                    len: Bytes(len),
                }],
                access: if writes { Access::Write } else { Access::Read },
            },
        )
    }

    fn conflict(a: &Touch, b: &Touch) -> bool {
        a.tier == b.tier
            && a.pieces[0].overlaps(&b.pieces[0])
            && (a.access == Access::Write || b.access == Access::Write)
    }

    proptest! {
        #[test]
        fn what_conflicts_runs_in_order_and_everything_runs(
            touches in prop::collection::vec(any_touch(), 1..40),
            picks in prop::collection::vec(0_usize..64, 1..40),
        ) {
            let mut ops = Ops::default();
            let mut planned = BTreeMap::new();
            let mut running = Vec::new();
            let mut started = BTreeSet::new();
            let mut ended = BTreeSet::new();
            let mut picks = picks.into_iter().cycle();
            let mut touches = touches.into_iter();
            loop {
                let pick = picks.next().unwrap();
                let touch = if pick % 2 == 0 { touches.next() } else { None };
                let runnable = if let Some(touch) = touch {
                    let op = ops.name();
                    let blockers = ops.plan(op, core::slice::from_ref(&touch), None);
                    planned.insert(op, touch);
                    if blockers.is_empty() { alloc::vec![op] } else { Vec::new() }
                } else if running.is_empty() {
                    match touches.next() {
                        None => break,
                        Some(_) => continue,
                    }
                } else {
                    let op: OpId = running.swap_remove(pick % running.len());
                    ended.insert(op);
                    ops.end(op)
                };
                for op in runnable {
                    prop_assert!(started.insert(op), "invariant 2");
                    for (earlier, touch) in planned.range(..op) {
                        let is_safe = ended.contains(earlier) || !conflict(touch, &planned[&op]);
                        prop_assert!(is_safe, "invariant 1");
                    }
                    running.push(op);
                }
            }
            prop_assert_eq!(started.len(), planned.len());
            prop_assert_eq!(ops.len(), 0);
            prop_assert!(ops.touched.is_empty());
        }
    }
}
