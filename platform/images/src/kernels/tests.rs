//! Both ways to compute, compared.

use proptest::prelude::*;

use super::*;
use crate::{Channels, Size, weights::Weights};

/// Pixels that differ, at places that no pattern of the kernels shares.
fn noise(length: usize) -> Vec<u8> {
    (0..length as u64).map(|it| (it.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

fn weights(from: u32, to: u32) -> Weights {
    let mut weights = Weights::default();
    weights.compute(from, to, 0..to);
    weights
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_are_narrowed_alike_on_any_processor(
        width in 1_u32..90, height in 1_u32..10, to in 1_u32..70,
    ) {
        if !std::is_x86_feature_detected!("avx2") {
            return Ok(());
        }
        let bytes = noise((width * height * 3) as usize);
        let view = View::of(&bytes, Size { width, height }, Channels::Rgb).expect("as many bytes");
        let (rows, weights) = (Rows { view, first: 0 }, weights(width, to));
        let stride = to as usize * 3;
        let mut quick = vec![0; stride * height as usize];
        let mut slow = quick.clone();
        // SAFETY: the processor has AVX2.
        unsafe { avx2::narrow_rgb(rows, &weights, &mut quick, stride) };
        portable::narrow::<3>(rows, &weights, &mut slow, stride);
        prop_assert_eq!(quick, slow);
    }

    #[test]
    fn rows_are_mixed_alike_on_any_processor(
        width in 1_usize..90, height in 1_u32..60, to in 1_u32..30,
    ) {
        if !std::is_x86_feature_detected!("avx2") {
            return Ok(());
        }
        let bytes = noise(width * height as usize);
        let weights = weights(height, to);
        for taps in weights.outputs() {
            let rows = &bytes[taps.first as usize * width..];
            let (mut quick, mut slow) = (vec![0; width], vec![0; width]);
            let precision = weights.precision();
            // SAFETY: the processor has AVX2.
            unsafe { avx2::mix_rows(rows, width, taps.weights, precision, &mut quick) };
            portable::mix_rows(rows, width, taps.weights, precision, 0, &mut slow);
            prop_assert_eq!(quick, slow);
        }
    }
}
