//! Moves words in order, for bandwidth.
//!
//! The loops are plain. What makes them wide is that each is compiled twice, for the baseline of the
//! target and for AVX2, and the processor at hand decides which runs.

use std::hint::black_box;

/// Independent sums, so that loads do not wait for additions: four vectors of four words.
const SUMS: usize = 16;

/// Calls a function as compiled for AVX2 where the processor has it, else as it stands.
macro_rules! widest {
    ($function:ident($($argument:ident: $type:ty),*) -> $output:ty) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2")]
        fn wide($($argument: $type),*) -> $output {
            $function($($argument),*)
        }
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY:
            // - The processor has AVX2, the only feature that `wide` is compiled for.
            return unsafe { wide($($argument),*) };
        }
        $function($($argument),*)
    }};
}

/// The wrapping sum of all words. Reads each once.
#[must_use]
pub fn read_sum(words: &[u64]) -> u64 {
    widest!(sum_of(words: &[u64]) -> u64)
}

/// Sets all words. Writes each once.
pub fn fill(words: &mut [u64], value: u64) {
    words.fill(value);
    // The stores must happen even if nobody reads the words again.
    black_box(words);
}

/// Copies `from` to `to` with the C library's `memcpy`. Reads and writes each word once.
///
/// # Panics
///
/// If the lengths differ.
pub fn copy(to: &mut [u64], from: &[u64]) {
    to.copy_from_slice(from);
    black_box(to);
}

/// STREAM's triad, `to = first + factor x second`, over words that are the bits of `f64`. Two reads
/// and one write each.
///
/// # Panics
///
/// If the lengths differ.
pub fn triad(to: &mut [u64], first: &[u64], second: &[u64], factor: f64) {
    assert!(to.len() == first.len() && to.len() == second.len(), "a triad needs equal lengths");
    triad_into(to, first, second, factor);
    black_box(to);
}

fn triad_into(to: &mut [u64], first: &[u64], second: &[u64], factor: f64) {
    widest!(scaled_sums(to: &mut [u64], first: &[u64], second: &[u64], factor: f64) -> ());
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "a call would leave the wide caller for baseline code")]
fn sum_of(words: &[u64]) -> u64 {
    let mut sums = [0_u64; SUMS];
    let (blocks, rest) = words.as_chunks::<SUMS>();
    for block in blocks {
        for (sum, word) in sums.iter_mut().zip(block) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().chain(rest).fold(0, |total, word| total.wrapping_add(*word))
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "a call would leave the wide caller for baseline code")]
fn scaled_sums(to: &mut [u64], first: &[u64], second: &[u64], factor: f64) {
    for ((to, first), second) in to.iter_mut().zip(first).zip(second) {
        *to = (f64::from_bits(*first) + factor * f64::from_bits(*second)).to_bits();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_counts_every_word_once() {
        for len in [0, 1, 15, 16, 17, 1000] {
            let words: Vec<u64> = (1..=len).map(|it| it << 40).collect();
            assert_eq!(read_sum(&words), (len * (len + 1) / 2) << 40, "{len} words");
        }
    }

    #[test]
    fn a_triad_scales_and_adds() {
        let first: Vec<u64> = (0..1001).map(|it| f64::from(it).to_bits()).collect();
        let second: Vec<u64> = (0..1001).map(|it| f64::from(2 * it).to_bits()).collect();
        let mut to = vec![0; 1001];
        triad(&mut to, &first, &second, 3.0);
        let expected: Vec<u64> = (0..1001).map(|it| f64::from(7 * it).to_bits()).collect();
        assert_eq!(to, expected);
    }

    #[test]
    fn fill_and_copy_reach_the_last_word() {
        let mut from = vec![0; 777];
        fill(&mut from, 5);
        let mut to = vec![0; 777];
        copy(&mut to, &from);
        assert_eq!(to, vec![5; 777]);
    }
}
