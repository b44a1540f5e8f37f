//! `torch.randperm` on the CPU.

use alloc::vec::Vec;

use super::mt19937::Mt19937;

/// Beyond this PyTorch 2.6 and later draw 64-bit words, and earlier versions do not.
///
/// # Source
///
/// `aten/src/ATen/native/TensorFactories.cpp`, `randperm_cpu`: the threshold is `0xffff_ffff / 20`.
pub(super) const SAMPLES_MAX: u32 = 0xffff_ffff / 20 - 1;

/// The permutation of `0..samples` that `torch.randperm` draws from a fresh generator.
///
/// The modulo is biased on purpose: PyTorch's is.
pub(super) fn randperm(samples: u32, seed: u64) -> Vec<u32> {
    let mut generator = Mt19937::new(seed);
    let mut permutation: Vec<u32> = (0..samples).collect();
    for i in 0..samples.saturating_sub(1) {
        let offset = generator.word() % (samples - i);
        permutation.swap(i as usize, (i + offset) as usize);
    }
    permutation
}
