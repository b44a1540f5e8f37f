//! The loops for any processor.

use super::{Rows, half, mean};
use crate::weights::Weights;

/// Makes rows of `N` channels as wide as there are weights.
pub(super) fn narrow<const N: usize>(
    rows: Rows<'_>,
    weights: &Weights,
    result: &mut [u8],
    stride: usize,
) {
    let precision = weights.precision();
    for (number, result) in (0..rows.view.size.height).zip(result.chunks_exact_mut(stride)) {
        let (pixels, _) = rows.view.row(number).as_chunks::<N>();
        let (result, _) = result.as_chunks_mut::<N>();
        for (taps, result) in weights.outputs().zip(result) {
            let inputs = &pixels[(taps.first - rows.first) as usize..];
            let mut sums = [half(precision); N];
            for (weight, pixel) in taps.weights.iter().zip(inputs) {
                for (sum, level) in sums.iter_mut().zip(pixel) {
                    *sum += i32::from(*weight) * i32::from(*level);
                }
            }
            *result = sums.map(|sum| mean(sum, precision));
        }
    }
}

/// Computes the bytes of a row from number `done` on.
#[inline]
pub(super) fn mix_rows(
    bytes: &[u8],
    stride: usize,
    weights: &[i16],
    precision: u32,
    done: usize,
    result: &mut [u8],
) {
    for (column, result) in result.iter_mut().enumerate().skip(done) {
        let levels = bytes[column..].iter().step_by(stride);
        let sum: i32 =
            weights.iter().zip(levels).map(|(it, level)| i32::from(*it) * i32::from(*level)).sum();
        *result = mean(sum + half(precision), precision);
    }
}

/// Writes the three channels of a row of pixels to three rows.
#[expect(clippy::inline_always, reason = "it is compiled for AVX2 where that inlines it")]
#[inline(always)]
pub(super) fn split(row: &[u8], [red, green, blue]: [&mut [u8]; 3]) {
    let channels = red.iter_mut().zip(green).zip(blue);
    for (pixel, ((red, green), blue)) in row.as_chunks::<3>().0.iter().zip(channels) {
        [*red, *green, *blue] = *pixel;
    }
}
