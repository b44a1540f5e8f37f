//! Follows a chain of pointers, each known only when the one before has arrived: latency.
//!
//! The elements of a group are visited in random order before the next group is, so that groups can be
//! made small enough for the TLB; a group as long as the buffer gives the worst case. Inside its
//! stride each pointer lies on a random cache line, else only some sets of the caches would be used.
//!
//! 1. The chain is one cycle through all elements: it is made by walking a permutation, never by
//!    drawing random successors, which makes short cycles.
//! 2. Equal buffers and shapes make equal chains.
//! 3. Every pointer that [`Chain::chase`] follows lies in the buffer and was written when the chain was
//!    made: the chain owns the buffer, and nothing writes it afterwards.

use tierfeed_core::units::Bytes;

use crate::anonymous::Anonymous;

/// Hops are made in rounds of this many, without a branch between them.
pub const HOPS_PER_ROUND: u64 = 64;

const LINE_BYTES: u64 = 64;
const WORD_BYTES: u64 = size_of::<u64>() as u64;

/// A cycle of pointers through a buffer.
#[derive(Debug)]
pub struct Chain {
    buffer: Anonymous,
    elements: u64,
    /// The address of the pointer that the next hop reads.
    position: usize,
}

/// How a chain runs through its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainShape {
    /// The distance of neighbouring elements: a multiple of 64 B. 256 B defeats prefetchers that
    /// fetch the next line or the other line of a pair.
    pub stride: Bytes,
    /// What is visited before the chain moves on: a multiple of `stride`, at most the buffer.
    pub group: Bytes,
    /// Draws the order.
    pub seed: u64,
}

/// Why a chain cannot have a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// Pointers must lie on lines of their own.
    #[error("a stride of {stride} is no multiple of 64 B")]
    Stride {
        /// As asked for.
        stride: Bytes,
    },
    /// Groups must consist of whole strides and fit in the buffer.
    #[error(
        "a group of {group} is no multiple of the stride, {stride}, within a buffer of {buffer}"
    )]
    Group {
        /// As asked for.
        group: Bytes,
        /// As asked for.
        stride: Bytes,
        /// As it is.
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
        if stride.0 == 0 || !stride.0.is_multiple_of(LINE_BYTES) {
            return Err(ChainError::Stride { stride });
        }
        if group.0 == 0 || !group.0.is_multiple_of(stride.0) || group > buffer.len() {
            return Err(ChainError::Group { group, stride, buffer: buffer.len() });
        }
        let groups = buffer.len().0 / group.0;
        let position = link(buffer.words_mut(), visit_order(groups, shape));
        let elements = groups * (group.0 / stride.0);
        Ok(Self { buffer, elements, position })
    }

    /// How many hops lead back to the start.
    #[must_use]
    pub fn cycle_hops(&self) -> u64 {
        self.elements
    }

    /// Makes at least `hops` hops from where the last call ended, in whole rounds, and returns how many.
    pub fn chase(&mut self, hops: u64) -> u64 {
        let rounds = hops.div_ceil(HOPS_PER_ROUND);
        for _ in 0..rounds {
            self.position = round(self.position);
        }
        rounds * HOPS_PER_ROUND
    }

    /// The buffer, for another use.
    #[must_use]
    pub fn into_buffer(self) -> Anonymous {
        self.buffer
    }
}

/// The offsets of all pointers, in the order of the chain.
fn visit_order(groups: u64, shape: ChainShape) -> impl Iterator<Item = u64> {
    let ChainShape { stride, group, seed } = shape;
    let mut random = SplitMix64(seed);
    let mut group_order: Vec<u64> = (0..groups).collect();
    random.shuffle(&mut group_order);
    let mut inside: Vec<u64> = (0..group.0 / stride.0).collect();
    group_order.into_iter().flat_map(move |index| {
        random.shuffle(&mut inside);
        let start = index * group.0;
        let lines = inside.iter().map(|element| {
            let line = random.below(stride.0 / LINE_BYTES);
            start + element * stride.0 + line * LINE_BYTES
        });
        lines.collect::<Vec<_>>()
    })
}

/// Makes the pointers at `offsets` one cycle, and returns the address of the first.
fn link(words: &mut [u64], offsets: impl Iterator<Item = u64>) -> usize {
    let base = words.as_mut_ptr().expose_provenance();
    let mut cells = offsets.map(|offset| index_of(offset / WORD_BYTES));
    let first = cells.next().expect("a group has at least one element");
    let mut previous = first;
    for cell in cells {
        words[previous] = address_of(base, cell) as u64;
        previous = cell;
    }
    words[previous] = address_of(base, first) as u64;
    address_of(base, first)
}

fn address_of(base: usize, word: usize) -> usize {
    base + word * size_of::<u64>()
}

fn index_of(word: u64) -> usize {
    usize::try_from(word).expect("a mapped length fits in the address space")
}

/// Makes [`HOPS_PER_ROUND`] hops.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn round(mut position: usize) -> usize {
    macro_rules! hops {
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
                    hops = const HOPS_PER_ROUND,
                    position = inout(reg) position,
                    options(nostack, readonly, preserves_flags),
                );
            }
        };
    }
    #[cfg(target_arch = "x86_64")]
    hops!("mov {position}, qword ptr [{position}]");
    #[cfg(target_arch = "aarch64")]
    hops!("ldr {position}, [{position}]");
    position
}

/// Makes [`HOPS_PER_ROUND`] hops.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn round(mut position: usize) -> usize {
    for _ in 0..HOPS_PER_ROUND {
        let pointer = std::ptr::with_exposed_provenance::<usize>(position);
        // SAFETY:
        // - By invariants 1 and 3 `position` is the address of an aligned, initialised word of the live
        //   buffer, whose provenance was exposed when the chain was made.
        position = unsafe { pointer.read_volatile() };
    }
    position
}

/// Random numbers that are the same everywhere.
///
/// Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`, with a bias that is far too small to matter for an order of visits.
    fn below(&mut self, bound: u64) -> u64 {
        let scaled = (u128::from(self.next()) * u128::from(bound)) >> 64;
        u64::try_from(scaled).expect("the upper half of a product is below its factor")
    }

    /// Fisher and Yates.
    fn shuffle(&mut self, items: &mut [u64]) {
        for last in (1..items.len()).rev() {
            items.swap(last, index_of(self.below(last as u64 + 1)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tierfeed_core::tier::Locality;

    use super::*;
    use crate::region::Pages;

    fn buffer(len: u64) -> Anonymous {
        Anonymous::allocate(Bytes(len), Locality::Anywhere, Pages::Small).unwrap()
    }

    fn shape(stride: u64, group: u64) -> ChainShape {
        ChainShape { stride: Bytes(stride), group: Bytes(group), seed: 7 }
    }

    /// The words of the chain, from where it stands until it comes back, or for `limit` hops.
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

    /// Else a prefetcher would guess the next hop. One step in 128 is between neighbours by chance.
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
