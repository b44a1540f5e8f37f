//! Moves words in order, to measure bandwidth.
//!
//! The loops are plain. Each is compiled twice, for the baseline of the target and for AVX2, and
//! the processor decides at run time which version runs.

use std::{hint::black_box, sync::atomic};

use super::LINE_WORDS;

/// Independent sums, so that loads do not wait for additions: four vectors of four words.
const SUMS: usize = 16;

/// Calls the AVX2 version of a function if the processor has it, else the baseline.
#[cfg(target_arch = "x86_64")]
macro_rules! widest {
    ($function:ident($($argument:ident: $type:ty),*) -> $output:ty) => {{
        #[target_feature(enable = "avx2")]
        fn wide($($argument: $type),*) -> $output {
            $function($($argument),*)
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY:
            // - The processor has AVX2, the only feature that `wide` is compiled for.
            unsafe { wide($($argument),*) }
        } else {
            $function($($argument),*)
        }
    }};
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! widest {
    ($function:ident($($argument:ident: $type:ty),*) -> $output:ty) => {
        $function($($argument),*)
    };
}

/// The wrapping sum of all words; reads each once.
#[must_use]
pub fn read_sum(words: &[u64]) -> u64 {
    widest!(sum_of(words: &[u64]) -> u64)
}

/// Sets all words; writes each once.
pub fn fill(words: &mut [u64], value: u64) {
    widest!(filled(words: &mut [u64], value: u64) -> ());
    // The stores must happen even if the words are not read again.
    black_box(words);
}

/// STREAM's copy, `to = from`. Reads and writes each word once.
///
/// # Panics
///
/// If the lengths differ.
pub fn copy(to: &mut [u64], from: &[u64]) {
    assert!(to.len() == from.len(), "a copy needs equal lengths");
    widest!(copied(to: &mut [u64], from: &[u64]) -> ());
    black_box(to);
}

/// STREAM's scale, `to = factor x from`, over words that are the bits of `f64`. One read and one write
/// each.
///
/// # Panics
///
/// If the lengths differ.
pub fn scale(to: &mut [u64], from: &[u64], factor: f64) {
    assert!(to.len() == from.len(), "a scale needs equal lengths");
    widest!(scaled(to: &mut [u64], from: &[u64], factor: f64) -> ());
    black_box(to);
}

/// STREAM's add, `to = first + second`, over words that are the bits of `f64`. Two reads and one write
/// each.
///
/// # Panics
///
/// If the lengths differ.
pub fn add(to: &mut [u64], first: &[u64], second: &[u64]) {
    assert!(to.len() == first.len() && to.len() == second.len(), "an add needs equal lengths");
    widest!(sums(to: &mut [u64], first: &[u64], second: &[u64]) -> ());
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
    widest!(scaled_sums(to: &mut [u64], first: &[u64], second: &[u64], factor: f64) -> ());
    black_box(to);
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
fn filled(words: &mut [u64], value: u64) {
    let (lines, rest) = words.as_chunks_mut::<LINE_WORDS>();
    for line in lines {
        *line = [value; LINE_WORDS];
        keep_the_loop();
    }
    rest.fill(value);
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "a call would leave the wide caller for baseline code")]
fn copied(to: &mut [u64], from: &[u64]) {
    let (to_lines, to_rest) = to.as_chunks_mut::<LINE_WORDS>();
    let (from_lines, from_rest) = from.as_chunks::<LINE_WORDS>();
    for (to, from) in to_lines.iter_mut().zip(from_lines) {
        *to = *from;
        keep_the_loop();
    }
    to_rest.copy_from_slice(from_rest);
}

/// Keeps the compiler from replacing the loop by `memcpy` or `memset`; it emits no instruction.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a call would leave the wide caller for baseline code")]
fn keep_the_loop() {
    atomic::compiler_fence(atomic::Ordering::SeqCst);
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "a call would leave the wide caller for baseline code")]
fn scaled(to: &mut [u64], from: &[u64], factor: f64) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = (factor * f64::from_bits(*from)).to_bits();
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "a call would leave the wide caller for baseline code")]
fn sums(to: &mut [u64], first: &[u64], second: &[u64]) {
    for ((to, first), second) in to.iter_mut().zip(first).zip(second) {
        *to = (f64::from_bits(*first) + f64::from_bits(*second)).to_bits();
    }
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

    /// Lengths around whole lines and whole vectors.
    const LENS: [usize; 9] = [0, 1, 7, 8, 9, 63, 64, 777, 1001];

    fn floats(len: usize, factor: u32) -> Vec<u64> {
        (0..u32::try_from(len).unwrap()).map(|it| f64::from(factor * it).to_bits()).collect()
    }

    #[test]
    fn the_sum_counts_every_word_once() {
        for len in [0, 1, 15, 16, 17, 1000] {
            let words: Vec<u64> = (1..=len).map(|it| it << 40).collect();
            assert_eq!(read_sum(&words), (len * (len + 1) / 2) << 40, "{len} words");
        }
    }

    #[test]
    fn stream_kernels_compute_what_they_are_named_after() {
        for len in LENS {
            let (first, second) = (floats(len, 1), floats(len, 2));
            let mut to = vec![7; len];
            scale(&mut to, &second, 3.0);
            assert_eq!(to, floats(len, 6), "scale of {len}");
            add(&mut to, &first, &second);
            assert_eq!(to, floats(len, 3), "add of {len}");
            triad(&mut to, &first, &second, 3.0);
            assert_eq!(to, floats(len, 7), "triad of {len}");
        }
    }

    #[test]
    fn fills_and_copies_reach_every_word() {
        for len in LENS {
            let from: Vec<u64> = (1..=len as u64).collect();
            let mut to = vec![0; len];
            copy(&mut to, &from);
            assert_eq!(to, from);
            fill(&mut to, 5);
            assert_eq!(to, vec![5; len]);
        }
    }

    type Run = fn(&mut [u64], &[u64], &[u64]);

    #[test]
    fn unequal_lengths_are_refused() {
        let (short, long) = ([0_u64; 8], [0_u64; 9]);
        let runs: [Run; 4] = [
            |to, a, _| copy(to, a),
            |to, a, _| scale(to, a, 1.0),
            add,
            |to, a, b| triad(to, a, b, 1.0),
        ];
        for (index, run) in runs.iter().enumerate() {
            let run = || run(&mut [0; 8], &long, &short);
            assert!(std::panic::catch_unwind(run).is_err(), "kernel {index}");
        }
        for run in &runs[2..] {
            let run = || run(&mut [0; 8], &short, &long);
            assert!(std::panic::catch_unwind(run).is_err());
        }
    }
}
