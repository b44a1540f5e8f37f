//! Stores past the caches: no line is read before it is written, and none stays in a cache.
//!
//! `x86_64` has instructions for it (`MOVNTDQ`, `VMOVNTDQ`). `AArch64` has a hint (`STNP`) that a
//! processor may ignore. Elsewhere the stores are ordinary ones, and [`has_non_temporal_stores`]
//! returns false: then these kernels measure the same as the ordinary ones.
//!
//! Stores of 64 bytes (AVX-512) are not used: the buffers that combine stores are one line long,
//! and two stores of 32 bytes fill one without a partial write.

use std::ptr;

use crate::cache_line::{LINE_BYTES, LINE_WORDS};

/// Whether the non-temporal kernels differ from the ordinary ones. On `AArch64` they do, as far as
/// the processor follows a hint.
#[must_use]
pub const fn has_non_temporal_stores() -> bool {
    cfg!(any(target_arch = "x86_64", target_arch = "aarch64"))
}

/// Sets all words, past the caches. Writes each once; the ends that share a cache line with other
/// memory are stored through the caches.
pub fn fill_non_temporal(words: &mut [u64], value: u64) {
    let line = [value; LINE_WORDS];
    let count = size_of_val(words);
    let from = line.as_ptr().cast();
    // SAFETY:
    // - `words` is valid for writes of `count` bytes and borrowed mutably.
    // - `line` is valid for reads of one line, all that a step of 0 reads, and lies elsewhere. Its
    //   start is a multiple of a word in every word, so ends of whole words get the right bytes.
    unsafe { store(words.as_mut_ptr().cast(), from, count, FromStep::Stay) };
}

/// Copies `from` to `to`, past the caches of `to`. Reads and writes each word once.
///
/// # Panics
///
/// If the lengths differ.
pub fn copy_non_temporal(to: &mut [u64], from: &[u64]) {
    assert!(to.len() == from.len(), "a copy needs equal lengths");
    let count = size_of_val(to);
    // SAFETY:
    // - `to` is valid for writes and `from` for reads of `count` bytes.
    // - They do not overlap: `to` is borrowed mutably.
    unsafe { copy_bytes_non_temporal(to.as_mut_ptr().cast(), from.as_ptr().cast(), count) };
}

/// Copies `count` bytes, past the caches of `to`.
///
/// # Safety
///
/// - `to` is valid for writes and `from` for reads of `count` bytes. Other processes may write
///   either meanwhile; the bytes are then a mixture.
/// - The ranges may map the same memory, but not overlap as addresses of this process.
pub(crate) unsafe fn copy_bytes_non_temporal(to: *mut u8, from: *const u8, count: usize) {
    // SAFETY:
    // - As promised by the caller.
    unsafe { store(to, from, count, FromStep::Advance) };
}

/// The step of the source address between two lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FromStep {
    /// The next line is read behind the one before.
    Advance,
    /// The same line is read again.
    Stay,
}

impl FromStep {
    const fn bytes(self) -> usize {
        match self {
            Self::Advance => LINE_BYTES,
            Self::Stay => 0,
        }
    }
}

/// Stores `count` bytes: whole lines of `to` past the caches, the ends before and behind them through.
///
/// # Safety
///
/// `to` is valid for writes of `count` bytes, `from` for reads of `count` bytes, or of one line if it
/// stays, and neither overlaps the other.
unsafe fn store(to: *mut u8, from: *const u8, count: usize, step: FromStep) {
    let head = to.align_offset(LINE_BYTES).min(count);
    let lines = (count - head) / LINE_BYTES;
    let tail = count - head - lines * LINE_BYTES;
    let behind = |bytes: usize| from.wrapping_add(if step == FromStep::Stay { 0 } else { bytes });
    // SAFETY:
    // - `head` is at most `count`, and less than a line.
    unsafe { ptr::copy_nonoverlapping(from, to, head) };
    // SAFETY:
    // - `to + head` is aligned to a line, and `lines` lines lie within `count` bytes of it.
    // - `from` is readable as far, or stays.
    unsafe { store_lines(to.wrapping_add(head), behind(head), lines, step.bytes()) };
    let done = head + lines * LINE_BYTES;
    // SAFETY:
    // - `done + tail` is `count`, and `tail` less than a line.
    unsafe { ptr::copy_nonoverlapping(behind(done), to.wrapping_add(done), tail) };
}

/// Stores `lines` lines, each read `from_step` bytes behind the one before.
///
/// # Safety
///
/// `to` is aligned to a line and valid for writes of `lines` lines, `from` for reads of a line at each
/// step, and neither overlaps the other.
#[cfg(target_arch = "x86_64")]
unsafe fn store_lines(to: *mut u8, from: *const u8, lines: usize, from_step: usize) {
    if is_x86_feature_detected!("avx") {
        // SAFETY:
        // - The processor has AVX; the rest as promised by the caller.
        unsafe { x86::store_lines_avx(to, from, lines, from_step) };
    } else {
        // SAFETY:
        // - As promised by the caller. SSE2 is part of the target.
        unsafe { x86::store_lines_sse2(to, from, lines, from_step) };
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128, _mm256_loadu_si256,
        _mm256_stream_si256,
    };

    use super::LINE_BYTES;

    /// Generates the loop for one width of vectors.
    macro_rules! store_lines {
        ($name:ident, $feature:literal, $vector:ty, $load:ident, $stream:ident) => {
            /// # Safety
            ///
            /// As `super::store_lines`.
            #[expect(clippy::cast_ptr_alignment, reason = "unaligned loads; lines are aligned")]
            #[target_feature(enable = $feature)]
            pub(super) unsafe fn $name(
                to: *mut u8,
                from: *const u8,
                lines: usize,
                from_step: usize,
            ) {
                const VECTORS: usize = LINE_BYTES / size_of::<$vector>();
                for line in 0..lines {
                    let from = from.wrapping_add(line * from_step).cast::<$vector>();
                    let to = to.wrapping_add(line * LINE_BYTES).cast::<$vector>();
                    for vector in 0..VECTORS {
                        // SAFETY:
                        // - The vector is part of a line that is readable; it needs no alignment.
                        let value = unsafe { $load(from.wrapping_add(vector)) };
                        // SAFETY:
                        // - The vector is part of a line that is writable and aligned, so it is aligned
                        //   to its own size.
                        // - The fence below is executed before another thread reads.
                        unsafe { $stream(to.wrapping_add(vector), value) };
                    }
                }
                // These stores are not ordered with later ones: without this, another thread that
                // learns that the memory is written could still read the old bytes.
                _mm_sfence();
            }
        };
    }

    store_lines!(store_lines_sse2, "sse2", __m128i, _mm_loadu_si128, _mm_stream_si128);
    store_lines!(store_lines_avx, "avx", __m256i, _mm256_loadu_si256, _mm256_stream_si256);
}

/// Stores the lines with `STNP`, see the version for `x86_64`.
///
/// # Safety
///
/// See the version for `x86_64`.
#[cfg(target_arch = "aarch64")]
unsafe fn store_lines(to: *mut u8, from: *const u8, lines: usize, from_step: usize) {
    for line in 0..lines {
        // SAFETY:
        // - By the caller's promise the line at `from` is readable and the one at `to` writable; neither
        //   instruction needs alignment.
        // - `STNP` is ordered as ordinary stores are, so no fence must follow.
        // - Only the two vector registers named are changed, no flags and no stack.
        unsafe {
            std::arch::asm!(
                "ldp {a:q}, {b:q}, [{from}]",
                "stnp {a:q}, {b:q}, [{to}]",
                "ldp {a:q}, {b:q}, [{from}, #32]",
                "stnp {a:q}, {b:q}, [{to}, #32]",
                a = out(vreg) _,
                b = out(vreg) _,
                from = in(reg) from.wrapping_add(line * from_step),
                to = in(reg) to.wrapping_add(line * LINE_BYTES),
                options(nostack, preserves_flags),
            );
        }
    }
}

/// Stores the lines through the caches, see the version for `x86_64`.
///
/// # Safety
///
/// See the version for `x86_64`.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn store_lines(to: *mut u8, from: *const u8, lines: usize, from_step: usize) {
    for line in 0..lines {
        let from = from.wrapping_add(line * from_step);
        // SAFETY:
        // - By the caller's promise the line at `from` is readable and the one at `to` writable.
        unsafe { ptr::copy_nonoverlapping(from, to.wrapping_add(line * LINE_BYTES), LINE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The words around a kernel's target, to check that they stay unchanged.
    const AROUND: u64 = 0xa5a5_a5a5_a5a5_a5a5;

    proptest! {
        #[test]
        fn a_copy_past_the_caches_is_a_copy(
            words in proptest::collection::vec(any::<u64>(), 0..200),
            before in 0..9_usize,
            behind in 0..9_usize,
        ) {
            let mut to = vec![AROUND; before + words.len() + behind];
            copy_non_temporal(&mut to[before..before + words.len()], &words);
            prop_assert_eq!(&to[before..before + words.len()], &words[..]);
            prop_assert!(to[..before].iter().all(|it| *it == AROUND));
            prop_assert!(to[before + words.len()..].iter().all(|it| *it == AROUND));
        }

        #[test]
        fn a_fill_past_the_caches_is_a_fill(
            len in 0..200_usize, before in 0..9_usize, behind in 0..9_usize, value: u64,
        ) {
            let mut to = vec![AROUND; before + len + behind];
            fill_non_temporal(&mut to[before..before + len], value);
            prop_assert!(to[before..before + len].iter().all(|it| *it == value));
            prop_assert!(to[..before].iter().all(|it| *it == AROUND));
            prop_assert!(to[before + len..].iter().all(|it| *it == AROUND));
        }

        /// Mappings copy ranges that begin at any byte.
        #[test]
        fn a_copy_of_bytes_may_begin_anywhere(
            bytes in proptest::collection::vec(any::<u8>(), 0..500), before in 0..70_usize,
        ) {
            let mut to = vec![0xa5_u8; before + bytes.len() + 70];
            let start = to[before..].as_mut_ptr();
            // SAFETY:
            // - `to` has `bytes.len()` bytes behind `before`, and is another vector.
            unsafe { copy_bytes_non_temporal(start, bytes.as_ptr(), bytes.len()) };
            prop_assert_eq!(&to[before..before + bytes.len()], &bytes[..]);
            prop_assert!(to[..before].iter().all(|it| *it == 0xa5));
            prop_assert!(to[before + bytes.len()..].iter().all(|it| *it == 0xa5));
        }

        /// The processor of the test machine runs only one of the two in the tests above.
        #[test]
        #[cfg(target_arch = "x86_64")]
        fn both_widths_store_the_same(words in proptest::collection::vec(any::<u64>(), 64)) {
            #[repr(align(64))]
            #[derive(PartialEq, Debug)]
            struct Lines([u64; 64]);
            let (mut narrow, mut wide) = (Lines([0; 64]), Lines([0; 64]));
            let from = words.as_ptr().cast();
            // SAFETY:
            // - `narrow` and `words` have 8 lines each, and `narrow` is aligned to one.
            unsafe { x86::store_lines_sse2(narrow.0.as_mut_ptr().cast(), from, 8, LINE_BYTES) };
            if is_x86_feature_detected!("avx") {
                // SAFETY:
                // - As above, and the processor has AVX.
                unsafe { x86::store_lines_avx(wide.0.as_mut_ptr().cast(), from, 8, LINE_BYTES) };
                prop_assert_eq!(&narrow, &wide);
            }
            prop_assert_eq!(&narrow.0[..], &words[..]);
        }
    }

    #[test]
    fn a_copy_of_unequal_lengths_is_refused() {
        let copy = || copy_non_temporal(&mut [0; 3], &[0; 4]);
        assert!(std::panic::catch_unwind(copy).is_err());
    }
}
