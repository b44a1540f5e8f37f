//! The loops for processors with AVX2.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_cvtsi32_si128, _mm_unpackhi_epi8, _mm_unpacklo_epi8, _mm256_add_epi32,
    _mm256_broadcastsi128_si256, _mm256_castsi256_si128, _mm256_cvtepu8_epi16, _mm256_madd_epi16,
    _mm256_packs_epi32, _mm256_packus_epi16, _mm256_permute2x128_si256, _mm256_permute4x64_epi64,
    _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_shuffle_epi8,
    _mm256_sra_epi32,
};

use super::{Rows, half, portable};
use crate::weights::Weights;

/// Rows that share the loads of their weights.
const ROWS: usize = 4;

/// Bytes of one load.
const LOAD: usize = 16;

/// Takes a byte that is 0.
const NONE: i8 = -1;

/// Of four pixels: the channels of the first two, in pairs of 16 bits, then those of the last two.
const PAIRS: [i8; 32] = [
    0, NONE, 3, NONE, 1, NONE, 4, NONE, 2, NONE, 5, NONE, NONE, NONE, NONE, NONE, //
    6, NONE, 9, NONE, 7, NONE, 10, NONE, 8, NONE, 11, NONE, NONE, NONE, NONE, NONE,
];

/// Of four weights of 16 bits: the first two for each channel, then the last two.
const WEIGHTS: [i8; 32] = [
    0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, NONE, NONE, NONE, NONE, //
    4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, NONE, NONE, NONE, NONE,
];

/// Makes rows of three channels as wide as there are weights.
#[target_feature(enable = "avx2")]
pub(super) fn narrow_rgb(rows: Rows<'_>, weights: &Weights, result: &mut [u8], stride: usize) {
    let height = rows.view.size.height as usize;
    for (number, result) in (0..height).step_by(ROWS).zip(result.chunks_mut(stride * ROWS)) {
        // Of the last rows some may be missing: their results are dropped.
        let inputs: [&[u8]; ROWS] = std::array::from_fn(|it| {
            &rows.view.bytes[(number + it).min(height - 1) * rows.view.stride..]
        });
        narrow_four(inputs, rows.first, weights, result, stride);
    }
}

#[target_feature(enable = "avx2")]
fn narrow_four(
    inputs: [&[u8]; ROWS],
    first: u32,
    weights: &Weights,
    result: &mut [u8],
    stride: usize,
) {
    let pairs = bytemuck::must_cast(PAIRS);
    let spread = bytemuck::must_cast(WEIGHTS);
    let half = _mm256_set1_epi32(half(weights.precision()));
    let precision = shift(weights.precision());
    let mut rows = result.chunks_exact_mut(stride);
    let mut results: [&mut [[u8; 3]]; ROWS] = std::array::from_fn(|_| match rows.next() {
        Some(row) => row.as_chunks_mut().0,
        None => &mut [],
    });
    for (column, taps) in weights.outputs().enumerate() {
        let mut sums = [_mm256_setzero_si256(); ROWS];
        let mut at = (taps.first - first) as usize * 3;
        for group in taps.groups {
            let weights = _mm256_set1_epi64x(bytemuck::must_cast(*group));
            let weights = _mm256_shuffle_epi8(weights, spread);
            for (sum, input) in sums.iter_mut().zip(inputs) {
                let pixels = _mm256_broadcastsi128_si256(load(input, at));
                let pixels = _mm256_shuffle_epi8(pixels, pairs);
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pixels, weights));
            }
            at += 4 * 3;
        }
        let [zero, one, two, three] = sums;
        let first = _mm256_sra_epi32(_mm256_add_epi32(folded(zero, one), half), precision);
        let second = _mm256_sra_epi32(_mm256_add_epi32(folded(two, three), half), precision);
        let packed = _mm256_packs_epi32(first, second);
        let packed = _mm256_packus_epi16(packed, packed);
        let [zero_two, _, one_three, _] = bytemuck::must_cast::<__m256i, [[u8; 8]; 4]>(packed);
        let [red, green, blue, _, red2, green2, blue2, _] = zero_two;
        let [red1, green1, blue1, _, red3, green3, blue3, _] = one_three;
        let pixels = [
            [red, green, blue],
            [red1, green1, blue1],
            [red2, green2, blue2],
            [red3, green3, blue3],
        ];
        for (row, pixel) in results.iter_mut().zip(pixels) {
            if let Some(place) = row.get_mut(column) {
                *place = pixel;
            }
        }
    }
}

/// The halves of each vector added: those of `first`, then those of `second`.
#[target_feature(enable = "avx2")]
fn folded(first: __m256i, second: __m256i) -> __m256i {
    let low = _mm256_permute2x128_si256::<0x20>(first, second);
    let high = _mm256_permute2x128_si256::<0x31>(first, second);
    _mm256_add_epi32(low, high)
}

/// Computes one row as the weighted mean of rows.
#[target_feature(enable = "avx2")]
pub(super) fn mix_rows(
    bytes: &[u8],
    stride: usize,
    weights: &[i16],
    precision: u32,
    result: &mut [u8],
) {
    let half = _mm256_set1_epi32(half(precision));
    let shift = shift(precision);
    let (pairs, last) = weights.as_chunks::<2>();
    let (blocks, _) = result.as_chunks_mut::<LOAD>();
    let done = blocks.len() * LOAD;
    for (number, block) in blocks.iter_mut().enumerate() {
        let mut at = number * LOAD;
        let mut low = half;
        let mut high = half;
        let mut add = |first, second, weights: [i16; 2]| {
            let weights = _mm256_set1_epi32(bytemuck::must_cast(weights));
            let (first_half, second_half) = interleaved(first, second);
            low = _mm256_add_epi32(low, _mm256_madd_epi16(first_half, weights));
            high = _mm256_add_epi32(high, _mm256_madd_epi16(second_half, weights));
        };
        for pair in pairs {
            add(load(bytes, at), load(bytes, at + stride), *pair);
            at += 2 * stride;
        }
        if let [weight] = last {
            let row = load(bytes, at);
            add(row, row, [*weight, 0]);
        }
        let packed =
            _mm256_packs_epi32(_mm256_sra_epi32(low, shift), _mm256_sra_epi32(high, shift));
        let ordered = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
        let packed = _mm256_packus_epi16(ordered, ordered);
        let ordered = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
        *block = bytemuck::must_cast(_mm256_castsi256_si128(ordered));
    }
    portable::mix_rows(bytes, stride, weights, precision, done, result);
}

/// The bytes of two rows in turn, as 16 bits each.
#[target_feature(enable = "avx2")]
fn interleaved(first: __m128i, second: __m128i) -> (__m256i, __m256i) {
    let low = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(first, second));
    let high = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(first, second));
    (low, high)
}

/// Writes the three channels of a row of pixels to three rows.
#[target_feature(enable = "avx2")]
pub(super) fn split(row: &[u8], planes: [&mut [u8]; 3]) {
    portable::split(row, planes);
}

/// A count of bits to shift by.
#[target_feature(enable = "avx2")]
fn shift(precision: u32) -> __m128i {
    _mm_cvtsi32_si128(precision.cast_signed())
}

/// The bytes from `at` on, and 0 beyond the end.
#[inline]
#[target_feature(enable = "avx2")]
fn load(bytes: &[u8], at: usize) -> __m128i {
    match bytes.get(at..).and_then(|it| it.first_chunk::<LOAD>()) {
        Some(block) => bytemuck::must_cast(*block),
        None => load_end(bytes.get(at..).unwrap_or_default()),
    }
}

#[cold]
fn load_end(rest: &[u8]) -> __m128i {
    let mut block = [0; LOAD];
    block[..rest.len()].copy_from_slice(rest);
    bytemuck::must_cast(block)
}
