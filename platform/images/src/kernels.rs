//! The loops over pixels, compiled for AVX2 and for any processor; both compute the same.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod portable;

use crate::{
    View,
    weights::{Taps, Weights},
};

/// Rows to resize, and which column of the image their first pixel is.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) view: View<'a>,
    pub(crate) first: u32,
}

/// Makes rows of three channels as wide as there are weights.
pub(crate) fn narrow_rgb(rows: Rows<'_>, weights: &Weights, result: &mut [u8], stride: usize) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { avx2::narrow_rgb(rows, weights, result, stride) };
    }
    portable::narrow::<3>(rows, weights, result, stride);
}

/// Makes rows of one channel as wide as there are weights.
pub(crate) fn narrow_grey(rows: Rows<'_>, weights: &Weights, result: &mut [u8], stride: usize) {
    portable::narrow::<1>(rows, weights, result, stride);
}

/// Computes one row as the weighted mean of rows, of which `first` is the number of the first in `view`.
pub(crate) fn mix_rows(
    view: View<'_>,
    first: u32,
    taps: Taps<'_>,
    precision: u32,
    result: &mut [u8],
) {
    let bytes = &view.bytes[(taps.first - first) as usize * view.stride..];
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { avx2::mix_rows(bytes, view.stride, taps.weights, precision, result) };
    }
    portable::mix_rows(bytes, view.stride, taps.weights, precision, 0, result);
}

/// Writes the three channels of a row of pixels to three rows.
pub(crate) fn split(row: &[u8], planes: [&mut [u8]; 3]) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { avx2::split(row, planes) };
    }
    portable::split(row, planes);
}

/// The mean that a sum of weighted bytes stands for.
#[inline]
fn mean(sum: i32, precision: u32) -> u8 {
    u8::try_from((sum >> precision).clamp(0, 255)).expect("it was clamped to a byte")
}

/// Half of the last bit that is kept.
#[inline]
fn half(precision: u32) -> i32 {
    (1 << precision) >> 1
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
