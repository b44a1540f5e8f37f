//! The bytes that operations access, found by the bytes that overlap with them.
//!
//! Pieces of about equal length are a class. A class divides each chunk into blocks that are at least as long
//! as its pieces, so what overlaps with some bytes starts in one of their blocks or in the block before. The
//! pieces that start in a block are found by its hash: each hash has a list, through all entries. Beside them
//! much longer bytes have too many blocks, so a class that is searched for such bytes gets a tree.
//!
//! Invariants, checked by the tests of [`super`]:
//!
//! 1. What overlaps is found.
//! 2. What was removed is not found.

use alloc::{collections::BTreeMap, vec, vec::Vec};

use super::{Access, Mode};
use crate::id::{ChunkId, OpId, TierId};

/// A class of pieces of about equal length: the longest is less than four times as long as the shortest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LengthClass(u8);

/// Lengths have 64 bits.
const CLASSES: u8 = 32;

impl LengthClass {
    fn of(access: &Access) -> Self {
        let bits = access.piece.len.0.max(1).ilog2();
        Self(u8::try_from(bits / 2).expect("at most 31"))
    }

    /// The number of the block in which an offset lies. No piece of the class is longer than a block.
    fn block(self, offset: u64) -> u64 {
        offset.checked_shr(2 * u32::from(self.0) + 2).unwrap_or(0)
    }

    fn longest(self) -> u64 {
        u64::MAX >> (62 - 2 * u32::from(self.0))
    }

    fn bit(self) -> u32 {
        1 << self.0
    }
}

#[derive(Debug, Clone)]
struct Entry {
    access: Access,
    op: OpId,
    /// The next entry of the list, or [`NONE`].
    next: u32,
}

type Start = (TierId, ChunkId, u64, OpId);

fn start_of(access: &Access, op: OpId) -> Start {
    (access.tier, access.piece.chunk, access.piece.offset.0, op)
}

const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct AccessTable {
    /// The first entry of each list; their number is a power of two.
    lists: Vec<u32>,
    entries: Vec<Entry>,
    /// The first of the entries that hold nothing.
    spare: u32,
    len: usize,
    /// Accesses of each class.
    counts: [u32; CLASSES as usize],
    /// The classes that have any, one bit each.
    classes: u32,
    /// The accesses of classes that were searched for much longer accesses.
    in_order: BTreeMap<u8, BTreeMap<Start, Access>>,
}

/// Bytes that are this many classes above another are much longer.
const LONGER: u8 = 2;

/// An access from the start of a chunk that is this many classes above another is to the chunk as a whole.
/// Chunks are added or given back only now and then, so no tree is kept for that.
const WHOLE_CHUNK: u8 = 6;

impl Default for AccessTable {
    fn default() -> Self {
        Self {
            lists: vec![NONE; LISTS_MIN],
            entries: Vec::new(),
            spare: NONE,
            len: 0,
            counts: [0; CLASSES as usize],
            classes: 0,
            in_order: BTreeMap::new(),
        }
    }
}

const LISTS_MIN: usize = 64;

impl AccessTable {
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0 && self.classes == 0 && self.lists.iter().all(|first| *first == NONE)
    }

    pub(super) fn insert(&mut self, access: &Access, op: OpId) {
        if self.len >= self.lists.len() {
            self.grow();
        }
        let at = self.store(Entry { access: *access, op, next: NONE });
        self.link(at);
        let class = LengthClass::of(access);
        self.len += 1;
        self.counts[usize::from(class.0)] += 1;
        self.classes |= class.bit();
        if let Some(in_order) = self.in_order.get_mut(&class.0) {
            in_order.insert(start_of(access, op), *access);
        }
    }

    pub(super) fn remove(&mut self, access: &Access, op: OpId) {
        let list = self.list_of(access);
        let (mut before, mut at) = (NONE, self.lists[list]);
        while let Some(entry) = self.entries.get(at as usize) {
            if entry.op == op && entry.access == *access {
                break;
            }
            (before, at) = (at, entry.next);
        }
        let Some(entry) = self.entries.get_mut(at as usize) else { return };
        let next = core::mem::replace(&mut entry.next, self.spare);
        self.spare = at;
        match self.entries.get_mut(before as usize) {
            Some(before) => before.next = next,
            None => self.lists[list] = next,
        }
        self.len -= 1;
        let class = LengthClass::of(access);
        let count = &mut self.counts[usize::from(class.0)];
        *count -= 1;
        if *count == 0 {
            self.classes &= !class.bit();
        }
        if let Some(in_order) = self.in_order.get_mut(&class.0) {
            in_order.remove(&start_of(access, op));
        }
    }

    /// Adds the operations that access some of the same bytes, one of the two writing. An operation may be
    /// added more than once.
    pub(super) fn find_conflicts(&mut self, access: &Access, found: &mut Vec<OpId>) {
        let (offset, len) = (access.piece.offset.0, access.piece.len.0);
        let own = LengthClass::of(access);
        let mut classes = self.classes;
        while let Some(class) = classes.checked_ilog2() {
            classes &= !(1 << class);
            let class = LengthClass(u8::try_from(class).expect("at most 31"));
            let blocks = class.block(offset).saturating_sub(1)..=class.block(offset + len - 1);
            let is_chunk = offset == 0 && own.0 >= class.0 + WHOLE_CHUNK;
            if is_chunk && blocks.end() - blocks.start() >= self.lists.len() as u64 {
                (0..self.lists.len()).for_each(|list| self.search(list, access, found));
            } else if is_chunk || own.0 < class.0 + LONGER {
                for block in blocks {
                    self.search(self.list(class, access, block), access, found);
                }
            } else {
                self.search_in_order(class, access, found);
            }
        }
    }

    fn search_in_order(&mut self, class: LengthClass, access: &Access, found: &mut Vec<OpId>) {
        if !self.in_order.contains_key(&class.0) {
            let of_class = self.stored().filter(|it| LengthClass::of(&it.access) == class);
            let in_order = of_class.map(|it| (start_of(&it.access, it.op), it.access)).collect();
            self.in_order.insert(class.0, in_order);
        }
        let Some(in_order) = self.in_order.get(&class.0) else { return };
        let (tier, chunk) = (access.tier, access.piece.chunk);
        let start = |offset| (tier, chunk, offset, OpId(0));
        let offset = access.piece.offset.0;
        let range =
            start(offset.saturating_sub(class.longest()))..start(offset + access.piece.len.0);
        let conflicts = in_order.range(range).filter(|(_, other)| conflict(other, access));
        found.extend(conflicts.map(|((.., op), _)| *op));
    }

    fn stored(&self) -> impl Iterator<Item = &Entry> {
        self.lists.iter().flat_map(|first| {
            let at = |at: u32| self.entries.get(at as usize);
            core::iter::successors(at(*first), move |entry| at(entry.next))
        })
    }

    fn search(&self, list: usize, access: &Access, found: &mut Vec<OpId>) {
        let mut at = self.lists[list];
        while let Some(Entry { access: other, op, next }) = self.entries.get(at as usize) {
            if conflict(other, access) {
                found.push(*op);
            }
            at = *next;
        }
    }

    /// Returns the number of the entry.
    fn store(&mut self, entry: Entry) -> u32 {
        if let Some(spare) = self.entries.get_mut(self.spare as usize) {
            let next = core::mem::replace(spare, entry).next;
            return core::mem::replace(&mut self.spare, next);
        }
        self.entries.push(entry);
        u32::try_from(self.entries.len() - 1).expect("operations in flight are few")
    }

    /// The list of the pieces of a class that start in a block of the chunk of an access.
    fn list(&self, class: LengthClass, of: &Access, block: u64) -> usize {
        let chunk = u64::from(of.piece.chunk.0) << 16 | u64::from(of.tier.0) << 8;
        let word = (chunk | u64::from(class.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ block;
        let hash = word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        usize::try_from(hash).map_or(0, |hash| hash & (self.lists.len() - 1))
    }

    fn list_of(&self, access: &Access) -> usize {
        let class = LengthClass::of(access);
        self.list(class, access, class.block(access.piece.offset.0))
    }

    fn link(&mut self, at: u32) {
        let list = self.list_of(&self.entries[at as usize].access);
        self.entries[at as usize].next = core::mem::replace(&mut self.lists[list], at);
    }

    fn grow(&mut self) {
        let lists = vec![NONE; self.lists.len() * 2];
        for first in core::mem::replace(&mut self.lists, lists) {
            let mut at = first;
            while let Some(entry) = self.entries.get(at as usize) {
                let next = entry.next;
                self.link(at);
                at = next;
            }
        }
    }
}

fn conflict(one: &Access, other: &Access) -> bool {
    one.tier == other.tier
        && one.piece.overlaps(&other.piece)
        && (one.mode == Mode::Write || other.mode == Mode::Write)
}
