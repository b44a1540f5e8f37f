//! Follows a chain of dependent pointers, to measure latency.
//!
//! The elements of a group are visited in random order before the next group is, so that groups can
//! be made small enough for the TLB; a group as long as the buffer gives the worst case. Each
//! pointer lies on a random cache line of its stride, because otherwise only some sets of the
//! caches would be used.
//!
//! 1. The chain is one cycle through all elements: it is made by walking a permutation, never by
//!    drawing random successors, which makes short cycles.
//! 2. Equal buffers and shapes make equal chains.
//! 3. Every pointer that [`Chain::chase`] follows lies in the buffer and was written when the chain
//!    was built: the chain owns the buffer, and no code writes it afterwards.

use fastrand::Rng;
use tierfeed_units::Bytes;

use super::LINE_BYTES;
use crate::anonymous::Anonymous;

/// Hops per round; a round has no branch between its hops.
pub const HOPS_PER_ROUND: u64 = 64;

/// The stride of both usual shapes.
const STRIDE: Bytes = Bytes(256);
const LINE: u64 = LINE_BYTES as u64;
const WORD_BYTES: u64 = size_of::<u64>() as u64;

/// A cycle of pointers through a buffer.
#[derive(Debug)]
pub struct Chain {
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "it only has to live as long as the pointers in it")
    )]
    buffer: Anonymous,
    elements: u64,
    /// The address of the pointer that the next hop reads.
    position: usize,
}

/// The parameters of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainShape {
    /// The distance of neighbouring elements: a multiple of 64 B. 256 B defeats prefetchers that
    /// fetch the next line or the other line of a pair.
    pub stride: Bytes,
    /// Bytes that are visited before the chain moves on: a multiple of `stride`, at most the
    /// buffer.
    pub group: Bytes,
    /// Seed of the random order.
    pub seed: u64,
}

impl ChainShape {
    /// Groups of 256 KiB, whose pages fit in any TLB: the cost of a load without address
    /// translation.
    #[must_use]
    pub const fn tlb_local(seed: u64) -> Self {
        Self { stride: STRIDE, group: Bytes(256 << 10), seed }
    }

    /// One group over a whole buffer of `len`: with small pages nearly every hop also misses the
    /// TLB, and often the caches that hold the page tables.
    #[must_use]
    pub const fn worst_case(len: Bytes, seed: u64) -> Self {
        Self { stride: STRIDE, group: Bytes(len.0 - len.0 % STRIDE.0), seed }
    }
}

/// Why a chain cannot have the requested shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// The stride is no multiple of a cache line.
    #[error("a stride of {stride} is no multiple of 64 B")]
    Stride {
        /// Stride that the caller requested.
        stride: Bytes,
    },
    /// The group does not consist of whole strides, or does not fit in the buffer.
    #[error(
        "a group of {group} is no multiple of the stride, {stride}, within a buffer of {buffer}"
    )]
    Group {
        /// Group that the caller requested.
        group: Bytes,
        /// Stride that the caller requested.
        stride: Bytes,
        /// Length of the buffer.
        buffer: Bytes,
    },
}

impl Chain {
    /// Writes the chain into `buffer`, over as many whole groups as fit.
    ///
    /// # Errors
    ///
    /// If the shape does not fit the buffer.
    pub fn build(mut buffer: Anonymous, shape: ChainShape) -> Result<Self, ChainError> {
        let ChainShape { stride, group, .. } = shape;
        if stride.0 == 0 || !stride.0.is_multiple_of(LINE) {
            return Err(ChainError::Stride { stride });
        }
        let unfit = ChainError::Group { group, stride, buffer: buffer.len() };
        if group.0 == 0 || !group.0.is_multiple_of(stride.0) || group > buffer.len() {
            return Err(unfit);
        }
        // The order takes half the memory; a group of a terabyte is not used by any benchmark.
        let groups = u32::try_from(buffer.len().0 / group.0).map_err(|_| unfit)?;
        let group_elements = u32::try_from(group.0 / stride.0).map_err(|_| unfit)?;
        let mut ring = Ring::new(buffer.words_mut());
        visit_in_order(groups, group_elements, shape, |offset| ring.append(offset));
        let position = ring.close();
        Ok(Self { buffer, elements: u64::from(groups) * u64::from(group_elements), position })
    }

    /// Number of hops that lead back to the start.
    #[must_use]
    pub fn cycle_hops(&self) -> u64 {
        self.elements
    }

    /// Makes at least `hops` hops from where the last call ended, in whole rounds, and returns how many.
    pub fn chase(&mut self, hops: u64) -> u64 {
        let rounds = hops.div_ceil(HOPS_PER_ROUND);
        for _ in 0..rounds {
            self.position = follow::<HOPS_PER_ROUND>(self.position);
        }
        rounds * HOPS_PER_ROUND
    }
}

/// Calls `see` with the offsets of all pointers, in the order of the chain.
fn visit_in_order(groups: u32, elements: u32, shape: ChainShape, mut see: impl FnMut(u64)) {
    let ChainShape { stride, group, seed } = shape;
    let mut random = Rng::with_seed(seed);
    let mut group_order: Vec<u32> = (0..groups).collect();
    random.shuffle(&mut group_order);
    let mut inside: Vec<u32> = (0..elements).collect();
    for index in group_order {
        random.shuffle(&mut inside);
        let start = u64::from(index) * group.0;
        for element in &inside {
            let line = random.u64(..stride.0 / LINE);
            see(start + u64::from(*element) * stride.0 + line * LINE);
        }
    }
}

/// A cycle of pointers while it is written.
struct Ring<'buffer> {
    words: &'buffer mut [u64],
    base: usize,
    /// The words of the first and the last pointer so far.
    ends: Option<(usize, usize)>,
}

impl<'buffer> Ring<'buffer> {
    fn new(words: &'buffer mut [u64]) -> Self {
        let base = words.as_mut_ptr().expose_provenance();
        Self { words, base, ends: None }
    }

    fn append(&mut self, offset: u64) {
        let word = index_of(offset / WORD_BYTES);
        self.ends = match self.ends {
            None => Some((word, word)),
            Some((first, last)) => {
                self.words[last] = address_of(self.base, word) as u64;
                Some((first, word))
            }
        };
    }

    /// Links the last pointer to the first, and returns the address of the first.
    fn close(self) -> usize {
        let (first, last) = self.ends.expect("a group has at least one element");
        let start = address_of(self.base, first);
        self.words[last] = start as u64;
        start
    }
}

fn address_of(base: usize, word: usize) -> usize {
    base + word * size_of::<u64>()
}

fn index_of(word: u64) -> usize {
    usize::try_from(word).expect("a mapped length fits in the address space")
}

/// Makes `COUNT` hops without a branch between them.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline]
fn follow<const COUNT: u64>(mut position: usize) -> usize {
    macro_rules! load {
        ($instruction:literal) => {
            // SAFETY:
            // - By invariants 1 and 3 `position`, and every word that the chain leads to, is the address
            //   of an aligned word of the live buffer.
            // - The loads change no memory, no flags and no stack, as the options say.
            unsafe {
                std::arch::asm!(
                    ".rept {hops}",
                    $instruction,
                    ".endr",
                    hops = const COUNT,
                    position = inout(reg) position,
                    options(nostack, readonly, preserves_flags),
                );
            }
        };
    }
    #[cfg(target_arch = "x86_64")]
    load!("mov {position}, qword ptr [{position}]");
    #[cfg(target_arch = "aarch64")]
    load!("ldr {position}, [{position}]");
    position
}

/// Makes `COUNT` hops with volatile loads.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
fn follow<const COUNT: u64>(mut position: usize) -> usize {
    for _ in 0..COUNT {
        let pointer = std::ptr::with_exposed_provenance::<usize>(position);
        // SAFETY:
        // - By invariants 1 and 3 `position` is the address of an aligned, initialised word of the live
        //   buffer, whose provenance was exposed when the chain was made.
        position = unsafe { pointer.read_volatile() };
    }
    position
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tierfeed_units::Locality;

    use super::*;
    use crate::region::Pages;

    fn buffer(len: u64) -> Anonymous {
        Anonymous::allocate(Bytes(len), Locality::Anywhere, Pages::Small).unwrap()
    }

    fn shape(stride: u64, group: u64) -> ChainShape {
        ChainShape { stride: Bytes(stride), group: Bytes(group), seed: 7 }
    }

    /// The words of the chain, from its position until it returns there, or for `limit` hops.
    fn walk(chain: &Chain, limit: u64) -> Vec<usize> {
        let words = chain.buffer.words();
        let base = words.as_ptr().addr();
        let mut seen = vec![(chain.position - base) / size_of::<u64>()];
        for _ in 0..limit {
            let next = usize::try_from(words[*seen.last().unwrap()]).unwrap();
            let word = (next - base) / size_of::<u64>();
            if word == seen[0] {
                break;
            }
            seen.push(word);
        }
        seen
    }

    #[test]
    fn the_chain_is_one_cycle_through_every_element() {
        for (len, stride, group) in [
            (64, 64, 64),
            (4096, 64, 4096),
            (1 << 20, 256, 64 << 10),
            (1 << 20, 256, 1 << 20),
            (3 << 20, 4096, 1 << 20),
            ((1 << 20) + 4096, 256, 256 << 10),
        ] {
            let chain = Chain::build(buffer(len), shape(stride, group)).unwrap();
            let seen = walk(&chain, 2 * chain.cycle_hops());
            let elements: BTreeSet<_> =
                seen.iter().map(|word| word * 8 / usize::try_from(stride).unwrap()).collect();
            assert_eq!(
                chain.cycle_hops(),
                len / group * (group / stride),
                "{len} {stride} {group}"
            );
            assert_eq!(seen.len() as u64, chain.cycle_hops(), "{len} {stride} {group}");
            assert_eq!(elements.len(), seen.len(), "{len} {stride} {group}");
        }
    }

    #[test]
    fn a_group_is_left_only_when_it_was_visited_whole() {
        let chain = Chain::build(buffer(1 << 20), shape(256, 64 << 10)).unwrap();
        let groups: Vec<_> =
            walk(&chain, 1 << 20).iter().map(|word| word * 8 / (64 << 10)).collect();
        for visit in groups.chunks(256) {
            assert!(visit.iter().all(|group| *group == visit[0]), "{visit:?}");
        }
    }

    /// Otherwise a prefetcher would guess the next hop. One step in 128 is between neighbours by
    /// chance.
    #[test]
    fn neighbours_seldom_follow_each_other() {
        let chain = Chain::build(buffer(1 << 20), shape(256, 64 << 10)).unwrap();
        let elements: Vec<_> = walk(&chain, 1 << 20).iter().map(|word| word * 8 / 256).collect();
        let between_neighbours =
            elements.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count();
        assert!(between_neighbours < elements.len() / 32, "{between_neighbours}");
        let groups: Vec<_> = elements.chunks(256).map(|visit| visit[0] / 256).collect();
        assert!(!groups.is_sorted(), "{groups:?}");
    }

    #[test]
    fn pointers_use_every_line_of_the_stride() {
        let chain = Chain::build(buffer(1 << 20), shape(256, 64 << 10)).unwrap();
        let lines: BTreeSet<_> = walk(&chain, 1 << 20).iter().map(|word| word * 8 % 256).collect();
        assert_eq!(lines.into_iter().collect::<Vec<_>>(), [0, 64, 128, 192]);
    }

    #[test]
    fn chasing_follows_the_pointers() {
        let mut chain = Chain::build(buffer(64 << 10), shape(64, 4096)).unwrap();
        let way = walk(&chain, 1 << 20);
        let base = chain.buffer.words().as_ptr().addr();
        assert_eq!(chain.chase(100), 128, "hops come in rounds of 64");
        assert_eq!(chain.position, base + way[128] * 8);
        chain.chase(chain.cycle_hops());
        assert_eq!(chain.position, base + way[128] * 8, "a cycle leads back");
    }

    /// Hops inside a huge page would hit the TLB.
    #[test]
    fn the_worst_case_goes_anywhere_from_anywhere() {
        let len = Bytes((8 << 20) + 192);
        let chain = Chain::build(buffer(len.0), ChainShape::worst_case(len, 1)).unwrap();
        assert_eq!(chain.cycle_hops(), (8 << 20) / 256);
        let pages: Vec<_> = walk(&chain, 1 << 20).iter().map(|word| word * 8 / 4096).collect();
        let on_one_page = pages.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!(on_one_page < pages.len() / 500, "{on_one_page} of {}", pages.len());
        let halves = pages.windows(2).filter(|pair| pair[0] / 1024 != pair[1] / 1024).count();
        assert!(halves > pages.len() / 3, "{halves} of {} change the half", pages.len());
    }

    #[test]
    fn the_usual_chain_leaves_a_group_of_256_kib_when_it_was_visited_whole() {
        let chain = Chain::build(buffer(1 << 20), ChainShape::tlb_local(1)).unwrap();
        let groups: Vec<_> =
            walk(&chain, 1 << 20).iter().map(|word| word * 8 / (256 << 10)).collect();
        assert_eq!(groups.chunk_by(|a, b| a == b).count(), 4, "{groups:?}");
    }

    #[test]
    fn the_seed_fixes_the_chain() {
        let way = |seed| {
            let shape = ChainShape { seed, ..shape(64, 4096) };
            walk(&Chain::build(buffer(64 << 10), shape).unwrap(), 1 << 20)
        };
        assert_eq!(way(1), way(1));
        assert_ne!(way(1), way(2));
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let build = |stride, group| Chain::build(buffer(8192), shape(stride, group)).unwrap_err();
        assert!(matches!(build(0, 64), ChainError::Stride { .. }));
        assert!(matches!(build(96, 96), ChainError::Stride { .. }));
        assert!(matches!(build(64, 0), ChainError::Group { .. }));
        assert!(matches!(build(128, 192), ChainError::Group { .. }));
        assert!(matches!(build(64, 16384), ChainError::Group { .. }));
    }
}
