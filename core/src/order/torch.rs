//! The orders of PyTorch's samplers: `torch.randperm` on the CPU, and what draws from its generator
//! between two epochs of a `DataLoader`.
//!
//! Source: `aten/src/ATen/native/TensorFactories.cpp` (`randperm_cpu`), `CPUGeneratorImpl.cpp`,
//! `torch/utils/data/{sampler,dataloader}.py`; `core/tests/vectors/` proves equality with PyTorch
//! 1.13 and 2.6.

pub use super::torch_release::{OLDEST_RANDOM, Version, VersionError, WIDE_SAMPLES};

use serde::{Deserialize, Serialize};

use super::{
    Spec, SpecError,
    mt19937::Mt19937,
    swaps,
    torch_release::{DISCARDS_SINCE, WIDE_SINCE},
};

/// The parameters of a `DataLoader` with `shuffle=True` beside its seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Random {
    pub generator: Generator,
    /// Whether the loader draws a seed for its workers once or in every epoch.
    #[serde(rename = "persistent_workers")]
    pub workers: Workers,
    /// `None` for any release since 1.11, if it makes no difference.
    pub version: Option<Version>,
}

/// The generator that a `RandomSampler` draws from; the seed is the one that it had before the
/// first epoch, with nothing drawn since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Generator {
    /// No generator was passed: PyTorch's default one, after `torch.manual_seed(seed)`.
    Default,
    /// `DataLoader(shuffle=True, generator=g)`: the loader draws from `g` too.
    Loader,
    /// `RandomSampler(generator=g)` in a loader without a generator.
    Sampler,
}

impl Generator {
    pub const ALL: [Self; 3] = [Self::Default, Self::Loader, Self::Sampler];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Loader => "loader",
            Self::Sampler => "sampler",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Workers {
    /// One epoch, or there are no workers: each epoch draws a base seed.
    PerEpoch,
    /// `persistent_workers=True`: only the first epoch draws a base seed.
    Persistent,
}

impl From<bool> for Workers {
    fn from(is_persistent: bool) -> Self {
        if is_persistent { Self::Persistent } else { Self::PerEpoch }
    }
}

impl From<Workers> for bool {
    fn from(workers: Workers) -> Self {
        workers == Workers::Persistent
    }
}

/// The width of the words that draw a permutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    Narrow,
    Wide,
}

impl Width {
    /// `None` if the width depends on the release, and the release is not known.
    pub(super) fn of(samples: u32, version: Option<Version>) -> Option<Self> {
        match version {
            _ if samples < WIDE_SAMPLES => Some(Self::Narrow),
            None => None,
            Some(version) if version < WIDE_SINCE => Some(Self::Narrow),
            Some(_) => Some(Self::Wide),
        }
    }

    /// The number of 32-bit words that a permutation takes from the generator.
    fn words(self, samples: u32) -> u64 {
        match self {
            Self::Narrow => u64::from(samples.saturating_sub(1)),
            Self::Wide => 2 * u64::from(samples),
        }
    }
}

/// Refuses an order in which PyTorch's releases differ if the release is not given.
pub(super) fn validate_version(samples: u32, version: Option<Version>) -> Result<(), SpecError> {
    match Width::of(samples, version) {
        Some(_) => Ok(()),
        None => Err(SpecError::VersionNeeded { samples }),
    }
}

impl Random {
    pub(super) fn validate(self, spec: &Spec) -> Result<(), SpecError> {
        validate_version(spec.samples, self.version)?;
        match self.version {
            Some(version) if version < OLDEST_RANDOM => Err(SpecError::VersionTooOld { version }),
            _ if spec.world.ranks() > 1 => Err(SpecError::OneRank { ranks: spec.world.ranks() }),
            _ => Ok(()),
        }
    }

    /// Shuffles `items` as the sampler does in `epoch`, if every epoch before was read to its end.
    ///
    /// A loader draws a base seed of two words before its sampler starts. Without a generator the
    /// sampler seeds a fresh one with the low half of two words of the default one; with a
    /// generator it draws the permutation from it, and then a second one that it discards.
    pub(super) fn shuffle(self, items: &mut [u32], seed: u64, epoch: u32) {
        let samples = u32::try_from(items.len()).expect("samples are counted in 32 bits");
        let width = Width::of(samples, self.version).expect("validated");
        let discards = self.version.is_none_or(|version| version >= DISCARDS_SINCE);
        let of_sampler = match self.generator {
            Generator::Default => 2,
            _ if discards => 2 * width.words(samples),
            _ => width.words(samples),
        };
        let base_seeds = match (self.generator, self.workers) {
            (Generator::Sampler, _) => 0,
            (_, Workers::Persistent) => 1,
            (_, Workers::PerEpoch) => u64::from(epoch) + 1,
        };
        let mut generator = Mt19937::new(seed);
        generator.skip(u64::from(epoch) * of_sampler + 2 * base_seeds);
        if self.generator == Generator::Default {
            let seed = generator.double_word();
            generator = Mt19937::new(seed);
        }
        permute(items, &mut generator, width);
    }
}

/// Shuffles `items` as `DistributedSampler` does: `torch.randperm` with a fresh generator.
pub(super) fn shuffle_distributed(items: &mut [u32], seed: u64, version: Option<Version>) {
    let samples = u32::try_from(items.len()).expect("samples are counted in 32 bits");
    let width = Width::of(samples, version).expect("validated");
    permute(items, &mut Mt19937::new(seed), width);
}

/// Permutes as `torch.randperm` does, drawing from `generator`.
///
/// The modulo is biased on purpose: PyTorch's is. The wide form is the inside-out shuffle, `a[i] = a[z];
/// a[z] = i`, which on ascending numbers equals a swap.
pub(super) fn permute(items: &mut [u32], generator: &mut Mt19937, width: Width) {
    let len = u32::try_from(items.len()).expect("samples are counted in 32 bits");
    match width {
        Width::Narrow => {
            let swaps = (0..len.saturating_sub(1)).map(|i| (i, i + generator.word() % (len - i)));
            swaps::apply(items, swaps);
        }
        Width::Wide => {
            let below = |end: u64, word: u64| u32::try_from(word % end).expect("below 32 bits");
            let swaps = (0..len).map(|i| (i, below(u64::from(i) + 1, generator.double_word())));
            swaps::apply(items, swaps);
        }
    }
}
