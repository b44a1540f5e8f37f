//! Sample sizes like those of photographs, the same for the same seed.

use std::{f64::consts::TAU, sync::Arc};

use tierfeed_core::units::Bytes;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Lognormal {
    /// The mean of the distribution, in bytes.
    pub(crate) mean_bytes: f64,
    /// The standard deviation of the logarithms.
    pub(crate) sigma: f64,
    pub(crate) seed: u64,
}

impl Lognormal {
    /// `count` sizes, none empty.
    pub(crate) fn sizes(self, count: u32) -> Arc<[Bytes]> {
        let mut noise = Noise(self.seed);
        let median = self.mean_bytes / (self.sigma * self.sigma / 2.0).exp();
        let size = |_| rounded(median * (self.sigma * noise.normal()).exp()).max(Bytes(1));
        (0..count).map(size).collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "15 digits of a byte count are enough for a share")]
pub(crate) fn part_of(whole: u64, share: f64) -> Bytes {
    rounded(whole as f64 * share)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes are positive, and the cast of a float saturates"
)]
fn rounded(size: f64) -> Bytes {
    Bytes(size.round() as u64)
}

#[derive(Debug)]
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Uniform, above 0 and at most 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are what a double holds")]
    fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Normal, of mean 0 and standard deviation 1 (Box and Muller).
    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (TAU * self.uniform()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "sizes and counts are small")]
    fn sizes_have_the_mean_and_the_deviation() {
        let law = Lognormal { mean_bytes: 110_000.0, sigma: 0.5, seed: 1 };
        let sizes = law.sizes(20_000);
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let bytes: Vec<f64> = sizes.iter().map(|size| size.0 as f64).collect();
        assert!((mean(&bytes) / 110_000.0 - 1.0).abs() < 0.02);
        let logs: Vec<f64> = bytes.iter().map(|size| size.ln()).collect();
        let centre = mean(&logs);
        let squares: Vec<f64> = logs.iter().map(|log| (log - centre).powi(2)).collect();
        assert!((mean(&squares).sqrt() / 0.5 - 1.0).abs() < 0.02);
        assert_eq!(law.sizes(100)[..], sizes[..100], "the same seed gives the same sizes");
        assert_ne!(Lognormal { seed: 2, ..law }.sizes(100)[..], sizes[..100]);
    }
}
