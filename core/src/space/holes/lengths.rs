//! Holes ordered by length, then by place.
//!
//! Holes of less than [`EXACT`] grains have a list for each number of grains, and two levels of bits say which
//! lists hold something; the others are rare and stand in a tree.

use alloc::{boxed::Box, collections::BTreeSet, vec, vec::Vec};

use crate::{id::ChunkId, space::GRAIN};

/// (length, chunk, offset).
pub(super) type Hole = (u64, ChunkId, u64);

/// Each number of grains below this has a list.
const EXACT: usize = 1 << 16;

/// The number of lists that are made together, and the bits of a word.
const WORD: usize = 64;

/// The most holes of one number of grains that are kept in a sorted list; more are kept in a tree.
const LISTED_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Lengths {
    /// One page of lists for each word of bits, made when it is first needed; empty before any was.
    lists: Vec<Option<Box<[List; WORD]>>>,
    /// One bit for each list that is not empty.
    bits: Vec<u64>,
    /// One bit for each word of `bits` that is not zero.
    words: [u64; EXACT / WORD / WORD],
    long: BTreeSet<Hole>,
}

/// Holes of one number of grains: all in the list, or all in the tree.
#[derive(Debug, Default)]
struct List {
    listed: Vec<Hole>,
    many: BTreeSet<Hole>,
}

impl List {
    fn is_empty(&self) -> bool {
        self.listed.is_empty() && self.many.is_empty()
    }

    fn insert(&mut self, hole: Hole) {
        if self.many.is_empty() && self.listed.len() < LISTED_MAX {
            let at = self.listed.partition_point(|other| *other < hole);
            self.listed.insert(at, hole);
        } else {
            self.many.extend(self.listed.drain(..));
            self.many.insert(hole);
        }
    }

    fn remove(&mut self, hole: Hole) {
        match self.listed.binary_search(&hole) {
            Ok(at) => drop(self.listed.remove(at)),
            Err(_) => drop(self.many.remove(&hole)),
        }
    }

    fn first(&self) -> Option<Hole> {
        self.listed.first().or_else(|| self.many.first()).copied()
    }

    fn descending(&self) -> impl Iterator<Item = Hole> + '_ {
        self.many.iter().rev().chain(self.listed.iter().rev()).copied()
    }
}

/// In descending order.
fn set_bits(mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = word.checked_ilog2()?;
        word &= !(1 << bit);
        Some(bit as usize)
    })
}

/// `None` if the length has no list.
fn list_of(len: u64) -> Option<usize> {
    usize::try_from(len / GRAIN).ok().filter(|grains| *grains < EXACT)
}

impl Lengths {
    pub(super) fn insert(&mut self, hole: Hole) {
        let Some(list) = list_of(hole.0) else {
            self.long.insert(hole);
            return;
        };
        if self.lists.is_empty() {
            self.lists.resize_with(EXACT / WORD, || None);
            self.bits = vec![0; EXACT / WORD];
        }
        let (word, bit) = (list / WORD, list % WORD);
        let page = self.lists[word].get_or_insert_with(|| Box::new([const { List::EMPTY }; WORD]));
        page[bit].insert(hole);
        self.bits[word] |= 1 << bit;
        self.words[word / WORD] |= 1 << (word % WORD);
    }

    pub(super) fn remove(&mut self, hole: Hole) {
        let Some(list) = list_of(hole.0) else {
            self.long.remove(&hole);
            return;
        };
        let (word, bit) = (list / WORD, list % WORD);
        let Some(Some(page)) = self.lists.get_mut(word) else { return };
        page[bit].remove(hole);
        if page[bit].is_empty() {
            self.bits[word] &= !(1 << bit);
            if self.bits[word] == 0 {
                self.words[word / WORD] &= !(1 << (word % WORD));
            }
        }
    }

    /// The first hole of at least `needed` bytes, which are whole grains.
    pub(super) fn best_fit(&self, needed: u64) -> Option<Hole> {
        let short = list_of(needed).and_then(|list| self.next_list(list)).and_then(List::first);
        short.or_else(|| self.long.range((needed, ChunkId(0), 0)..).next().copied())
    }

    /// In descending order.
    pub(super) fn descending(&self) -> impl Iterator<Item = Hole> + '_ {
        let words = (0..self.words.len()).rev();
        let words = words.flat_map(|at| set_bits(self.words[at]).map(move |bit| at * WORD + bit));
        let lists = words.flat_map(|word| set_bits(self.bits[word]).map(move |bit| (word, bit)));
        let short = lists.filter_map(|(word, bit)| self.list(word, bit));
        self.long.iter().rev().copied().chain(short.flat_map(List::descending))
    }

    /// The first list from `list` on that is not empty.
    fn next_list(&self, list: usize) -> Option<&List> {
        let (word, bit) = (list / WORD, list % WORD);
        let here = self.bits.get(word)? & (u64::MAX << bit);
        if here != 0 {
            return self.list(word, here.trailing_zeros() as usize);
        }
        let word = self.next_word(word + 1)?;
        self.list(word, self.bits[word].trailing_zeros() as usize)
    }

    /// The first word of bits from `word` on that is not zero.
    fn next_word(&self, word: usize) -> Option<usize> {
        let (group, bit) = (word / WORD, word % WORD);
        let here = self.words.get(group)? & (u64::MAX << bit);
        if here != 0 {
            return Some(group * WORD + here.trailing_zeros() as usize);
        }
        let group = (group + 1..self.words.len()).find(|group| self.words[*group] != 0)?;
        Some(group * WORD + self.words[group].trailing_zeros() as usize)
    }

    fn list(&self, word: usize, bit: usize) -> Option<&List> {
        self.lists.get(word)?.as_ref().map(|page| &page[bit])
    }
}

impl List {
    const EMPTY: Self = Self { listed: Vec::new(), many: BTreeSet::new() };
}
