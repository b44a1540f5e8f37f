//! Operations in flight, and which must wait for which.
//!
//! Residency changes when it is decided, bytes move later: a place may be given to a new sample while the
//! old one is still being read from it. Two operations that access the same bytes of a tier, at least one
//! of them writing, run in the order in which they were planned; so does a write after the chunk it goes to
//! was added. All others may run at the same time.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. No two running operations access the same byte of a tier if one of them writes.
//! 2. Every operation is released exactly once, and only after all that it waits for ended.

mod access_table;

use alloc::vec::Vec;

use self::access_table::AccessTable;
use super::op_table::OpTable;
use crate::{
    id::{OpId, TierId},
    space::Piece,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    Write,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) tier: TierId,
    pub(super) piece: Piece,
    pub(super) mode: Mode,
}

/// Almost always at most one piece, which takes no memory of its own.
#[derive(Debug, Clone, Default)]
pub(super) enum Accesses {
    #[default]
    None,
    One(Access),
    Several(Vec<Access>),
}

impl Accesses {
    fn as_slice(&self) -> &[Access] {
        match self {
            Self::None => &[],
            Self::One(access) => core::slice::from_ref(access),
            Self::Several(accesses) => accesses,
        }
    }
}

impl FromIterator<Access> for Accesses {
    fn from_iter<I: IntoIterator<Item = Access>>(accesses: I) -> Self {
        let mut accesses = accesses.into_iter();
        match (accesses.next(), accesses.next()) {
            (None, _) => Self::None,
            (Some(only), None) => Self::One(only),
            (Some(one), Some(other)) => {
                Self::Several([one, other].into_iter().chain(accesses).collect())
            }
        }
    }
}

#[derive(Debug, Default)]
struct Node {
    waits_for: u32,
    dependents: Vec<OpId>,
    accesses: Accesses,
}

/// The operations that were planned and have not ended.
#[derive(Debug, Default)]
pub(super) struct Dependencies {
    next: u64,
    nodes: OpTable<Node>,
    accessed: AccessTable,
}

impl Dependencies {
    /// Names increase monotonically.
    pub(super) fn next_id(&mut self) -> OpId {
        self.next += 1;
        OpId(self.next)
    }

    /// Adds an operation that must also wait for `after`. Returns the operations that it waits for, in the
    /// order in which they were planned; if there are none, it may run now.
    pub(super) fn add(&mut self, op: OpId, accesses: Accesses, after: Option<OpId>) -> Vec<OpId> {
        let mut blockers = Vec::new();
        blockers.extend(after.filter(|before| self.nodes.get(*before).is_some()));
        let of_op = accesses.as_slice().iter();
        of_op.clone().for_each(|access| self.accessed.find_conflicts(access, &mut blockers));
        of_op.for_each(|access| self.accessed.insert(access, op));
        blockers.sort_unstable();
        blockers.dedup();
        let waits_for = u32::try_from(blockers.len()).expect("operations in flight are few");
        for blocker in &blockers {
            let blocker = self.nodes.get_mut(*blocker).expect("what is in flight is waited for");
            blocker.dependents.push(op);
        }
        self.nodes.insert(op, Node { waits_for, dependents: Vec::new(), accesses });
        blockers
    }

    /// Returns the operations that may run now, in the order in which they were planned.
    pub(super) fn remove(&mut self, op: OpId) -> Vec<OpId> {
        let Some(ended) = self.nodes.remove(op) else { return Vec::new() };
        ended.accesses.as_slice().iter().for_each(|access| self.accessed.remove(access, op));
        let mut runnable = Vec::new();
        for waiting in ended.dependents {
            if let Some(state) = self.nodes.get_mut(waiting) {
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
    use alloc::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::{id::ChunkId, units::Bytes};

    fn any_access() -> impl Strategy<Value = Access> {
        let len = prop_oneof![4 => 1_u64..4, 1 => 4_u64..70, 1 => Just(1 << 40)];
        let offset = prop_oneof![4 => 0_u64..8, 1 => 8_u64..70];
        (0_u8..2, 0_u32..2, offset, len, any::<bool>()).prop_map(
            |(tier, chunk, offset, len, writes)| Access {
                tier: TierId(tier),
                piece: Piece { chunk: ChunkId(chunk), offset: Bytes(offset), len: Bytes(len) },
                mode: if writes { Mode::Write } else { Mode::Read },
            },
        )
    }

    fn conflict(a: &Access, b: &Access) -> bool {
        a.tier == b.tier
            && a.piece.overlaps(&b.piece)
            && (a.mode == Mode::Write || b.mode == Mode::Write)
    }

    proptest! {
        #[test]
        fn what_conflicts_runs_in_order_and_everything_runs(
            accesses in prop::collection::vec(any_access(), 1..40),
            picks in prop::collection::vec(0_usize..64, 1..40),
        ) {
            let mut dependencies = Dependencies::default();
            let mut planned = BTreeMap::new();
            let mut running = Vec::new();
            let mut started = BTreeSet::new();
            let mut ended = BTreeSet::new();
            let mut picks = picks.into_iter().cycle();
            let mut accesses = accesses.into_iter();
            loop {
                let pick = picks.next().unwrap();
                let access = if pick % 2 == 0 { accesses.next() } else { None };
                let runnable = if let Some(access) = access {
                    let op = dependencies.next_id();
                    let blockers = dependencies.add(op, Accesses::One(access), None);
                    planned.insert(op, access);
                    if blockers.is_empty() { alloc::vec![op] } else { Vec::new() }
                } else if running.is_empty() {
                    match accesses.next() {
                        None => break,
                        Some(_) => continue,
                    }
                } else {
                    let op: OpId = running.swap_remove(pick % running.len());
                    ended.insert(op);
                    dependencies.remove(op)
                };
                for op in runnable {
                    prop_assert!(started.insert(op), "invariant 2");
                    for (earlier, access) in planned.range(..op) {
                        let is_safe = ended.contains(earlier) || !conflict(access, &planned[&op]);
                        prop_assert!(is_safe, "invariant 1");
                    }
                    running.push(op);
                }
            }
            prop_assert_eq!(started.len(), planned.len());
            prop_assert_eq!(dependencies.nodes.len(), 0);
            prop_assert!(dependencies.accessed.is_empty());
        }
    }
}
