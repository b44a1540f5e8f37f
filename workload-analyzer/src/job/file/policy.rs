//! The keys that adjust a policy, each in a mapping with the name of the policy.

use serde::Deserialize;
use tierfeed_core::{
    budget::Percent,
    retention::policy::{Kind, SampleCount, Source},
};
use tierfeed_dataset::keys::Reason;

use super::one_of;
use crate::{
    job::trainer::Interval,
    yaml::scalar::{Checked, Count, Scalar},
};

/// The most uses that a sample can have left and still be evicted.
const REUSE_COUNT_MAX: u32 = 1_000_000;

const ITERATIONS_MAX: u32 = 1_000_000_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ threshold: 90 %, iterations: 500 }`")]
pub(crate) struct DeepMemoryFile {
    pub(crate) threshold: Option<Checked<Percent>>,
    pub(crate) iterations: Option<Count<1, ITERATIONS_MAX>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ reuse_distance: 2 epochs }`")]
pub(crate) struct LobsterFile {
    pub(crate) reuse_count: Option<Count<0, REUSE_COUNT_MAX>>,
    pub(crate) reuse_distance: Option<Checked<Interval>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ fetch_size: 50 %, threshold: 50 % }`")]
pub(crate) struct DeliFile {
    pub(crate) fetch_size: Option<Checked<Samples<1>>>,
    pub(crate) threshold: Option<Checked<Samples<0>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ source: fastest }`")]
pub(crate) struct NoPfsFile {
    pub(crate) source: Option<Checked<Source>>,
}

/// At least `MIN` samples, or a share of the cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Samples<const MIN: u32>(pub(crate) SampleCount);

impl<const MIN: u32> Scalar for Samples<MIN> {
    type Reason = String;

    fn parse(typed: &str) -> Result<Self, String> {
        if typed.ends_with('%') {
            let share = Percent::parse(typed)?;
            return Ok(Self(SampleCount::Share(share.get())));
        }
        let count = typed.parse().ok().filter(|count| *count >= MIN);
        count.map(|it| Self(SampleCount::Samples(it))).ok_or_else(|| {
            format!(
                "expected a number of samples from {MIN} to {}, or a share of the cache such as `50 %`",
                u32::MAX
            )
        })
    }
}

impl Scalar for Kind {
    type Reason = Reason;

    fn parse(typed: &str) -> Result<Self, Reason> {
        one_of(typed, &Self::ALL, Self::name, Self::NAMES)
    }
}

impl Scalar for Source {
    type Reason = Reason;

    fn parse(typed: &str) -> Result<Self, Reason> {
        one_of(typed, &[Self::Fastest, Self::Tier], Self::name, "fastest, tier")
    }
}
