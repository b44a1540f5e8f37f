//! Whether trainers read cached samples in place, or a copy in main memory.
//!
//! A copy costs twice: the copying threads read the tier, and main memory is written by them and
//! read by the trainer. In place the trainer reads the tier itself, alone and so more slowly than
//! the threads together. The choice is the way that takes less time per byte, summed over copying
//! threads and trainer:
//!
//! ```text
//! copied: 1 / tier read by the copying threads + 2 / main memory read by one thread
//! direct: 1 / tier read by one thread
//! ```
//!
//! The time of the copying threads counts although it overlaps with the training: they take memory
//! bandwidth and cores that the training needs. A trainer is assumed to read a sample once; one
//! that reads it more often is faster with a copy. Without measured rates samples are copied.
//!
//! Deliberately absent: GPU reads by DMA, which are not measured here.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    retention::policy::Stay,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

/// The most tiers that trainers of one node may map: each of them gets a descriptor of each.
pub const SHARED_TIERS_MAX: usize = 16;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InPlaceMode {
    /// The cheaper way, by [`Rates`].
    #[default]
    Auto,
    /// In place wherever it is possible.
    Always,
    Never,
}

impl InPlaceMode {
    /// The default first.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Always, Self::Never];

    pub const NAMES: &str = "auto, always, never";

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    /// The tier, read by the number of threads that copy.
    pub tier_copying: BytesPerSecond,
    /// The tier, read by one thread.
    pub tier_alone: BytesPerSecond,
    /// Main memory, read by one thread.
    pub main_memory: BytesPerSecond,
}

pub const COSTS_OF: Bytes = Bytes::mib(1);

/// The CPU time that [`COSTS_OF`] bytes take, copying threads and trainer together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Costs {
    pub copied: Nanoseconds,
    pub direct: Nanoseconds,
}

impl Rates {
    /// `None` if a rate is 0, which means unknown.
    #[must_use]
    pub fn costs(&self) -> Option<Costs> {
        let Self { tier_copying, tier_alone, main_memory } = *self;
        let time = |rate: BytesPerSecond| (rate.0 > 0).then(|| rate.time_for(COSTS_OF).0);
        let twice = time(main_memory)?.saturating_mul(2);
        let copied = Nanoseconds(time(tier_copying)?.saturating_add(twice));
        Some(Costs { copied, direct: Nanoseconds(time(tier_alone)?) })
    }
}

/// Which copies between tiers are compared with the checksum of the bytes that the cold store delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verify {
    /// Copies from memory and files that other processes can write: staging and directories.
    #[default]
    Shared,
    /// All copies, also those from memory tiers. This excludes reading in place, which makes no copy.
    Always,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleLengths {
    /// A batch of samples is handed over as one array.
    One,
    Several,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpeedOrigin {
    Own,
    /// Copies are slowed down for an experiment. Reads of a trainer would not be.
    Imposed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InPlaceInputs {
    pub mode: InPlaceMode,
    /// `None` without a measurement.
    pub rates: Option<Rates>,
    pub stay: Stay,
    pub verify: Verify,
    pub lengths: SampleLengths,
    pub pace: SpeedOrigin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadPath {
    Direct,
    Copied,
}

/// The reason for a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    Asked,
    Costs,
    /// Copies must be verified ([`Verify::Always`]).
    Verified,
    /// Batches are handed over as one array ([`SampleLengths::One`]).
    OneLength,
    /// The policy does not say how long a sample stays ([`Stay::Unknown`]).
    Policy,
    /// The speed of the tier is imposed ([`SpeedOrigin::Imposed`]).
    Imposed,
    NoRates,
    /// The node could not reserve addresses for the tier, or has more such tiers than a trainer
    /// maps.
    NoAddresses,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InPlaceDecision {
    pub mode: InPlaceMode,
    pub path: ReadPath,
    pub reason: Reason,
    /// `None` if they are not known.
    pub costs: Option<Costs>,
}

#[must_use]
pub fn choose(facts: &InPlaceInputs) -> InPlaceDecision {
    let costs = facts.rates.and_then(|rates| rates.costs());
    let (path, reason) = decide(facts, costs);
    InPlaceDecision { mode: facts.mode, path, reason, costs }
}

fn decide(facts: &InPlaceInputs, costs: Option<Costs>) -> (ReadPath, Reason) {
    if facts.mode == InPlaceMode::Never {
        return (ReadPath::Copied, Reason::Asked);
    }
    if facts.verify == Verify::Always {
        return (ReadPath::Copied, Reason::Verified);
    }
    if facts.stay == Stay::Unknown {
        return (ReadPath::Copied, Reason::Policy);
    }
    if facts.lengths == SampleLengths::One {
        return (ReadPath::Copied, Reason::OneLength);
    }
    match (facts.mode, facts.pace, costs) {
        (InPlaceMode::Always, ..) => (ReadPath::Direct, Reason::Asked),
        (_, SpeedOrigin::Imposed, _) => (ReadPath::Copied, Reason::Imposed),
        (_, SpeedOrigin::Own, None) => (ReadPath::Copied, Reason::NoRates),
        (_, SpeedOrigin::Own, Some(costs)) if costs.direct < costs.copied => {
            (ReadPath::Direct, Reason::Costs)
        }
        (_, SpeedOrigin::Own, Some(_)) => (ReadPath::Copied, Reason::Costs),
    }
}

impl fmt::Display for InPlaceDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answer = match self.path {
            ReadPath::Direct => "yes",
            ReadPath::Copied => "no",
        };
        let mode = self.mode.name();
        write!(f, "{answer}, because ")?;
        match (self.reason, self.path) {
            (Reason::Asked, _) => write!(f, "the job says `direct: {mode}`"),
            (Reason::Costs, ReadPath::Direct) => f.write_str("a copy costs more than it saves"),
            (Reason::Costs, ReadPath::Copied) => f.write_str("a copy saves more than it costs"),
            (Reason::Verified, _) => {
                f.write_str("the job says `verify: always`, and only copies are compared")
            }
            (Reason::OneLength, _) => f.write_str(
                "all samples have one length, and a batch of them is handed over as one array",
            ),
            (Reason::Policy, _) => {
                f.write_str("with the policy of the job a sample may have to make room at any time")
            }
            (Reason::Imposed, _) => {
                f.write_str("its speed is imposed on copies, and trainers would not be slowed down")
            }
            (Reason::NoRates, _) => f.write_str(
                "it is not known how fast it is read; `tierfeed tiers probe` measures it",
            ),
            (Reason::NoAddresses, _) => {
                f.write_str("trainers cannot map it: too many tiers, or no addresses for it")
            }
        }?;
        match self.costs {
            Some(Costs { copied, direct }) => {
                write!(f, " (each MiB: {} us copied, {} us in place)", us(copied), us(direct))
            }
            None => Ok(()),
        }
    }
}

fn us(time: Nanoseconds) -> u64 {
    time.0.saturating_add(500) / 1000
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use proptest::prelude::*;

    use super::*;

    const GB: u64 = 1_000_000_000;

    fn rates(tier_copying: u64, tier_alone: u64, main_memory: u64) -> Rates {
        let rate = |gb| BytesPerSecond(gb * GB);
        Rates {
            tier_copying: rate(tier_copying),
            tier_alone: rate(tier_alone),
            main_memory: rate(main_memory),
        }
    }

    fn facts(mode: InPlaceMode, rates: Option<Rates>) -> InPlaceInputs {
        InPlaceInputs {
            mode,
            rates,
            stay: Stay::UntilRead,
            verify: Verify::Shared,
            lengths: SampleLengths::Several,
            pace: SpeedOrigin::Own,
        }
    }

    #[test]
    fn what_costs_less_is_chosen_and_both_costs_are_said() {
        // 16 GB/s by two threads, 10 by one; main memory 12: 62.5 + 166.7 us against 100, in MB.
        let fast = choose(&facts(InPlaceMode::Auto, Some(rates(16, 10, 12))));
        assert_eq!((fast.path, fast.reason), (ReadPath::Direct, Reason::Costs));
        let costs = Costs { copied: Nanoseconds(240_300), direct: Nanoseconds(104_858) };
        assert_eq!(fast.costs, Some(costs));
        let sentence = "yes, because a copy costs more than it saves \
                        (each MiB: 240 us copied, 105 us in place)";
        assert_eq!(fast.to_string(), sentence);
        // One thread alone gets a quarter of what it gets from main memory.
        let slow = choose(&facts(InPlaceMode::Auto, Some(rates(16, 3, 12))));
        assert_eq!((slow.path, slow.reason), (ReadPath::Copied, Reason::Costs));
        // 1/8 + 2/16 against 1/4.
        let even = choose(&facts(InPlaceMode::Auto, Some(rates(8, 4, 16))));
        assert_eq!(
            (even.path, even.reason),
            (ReadPath::Copied, Reason::Costs),
            "nothing is gained"
        );
    }

    #[test]
    fn where_nothing_is_known_samples_are_copied() {
        for rates in [None, Some(rates(0, 10, 12)), Some(rates(16, 0, 12)), Some(rates(16, 10, 0))]
        {
            let choice = choose(&facts(InPlaceMode::Auto, rates));
            assert_eq!(
                (choice.path, choice.reason, choice.costs),
                (ReadPath::Copied, Reason::NoRates, None)
            );
            assert_eq!(choose(&facts(InPlaceMode::Always, rates)).path, ReadPath::Direct);
        }
    }

    #[test]
    fn nobody_s_wish_overrides_what_cannot_be() {
        let always = facts(InPlaceMode::Always, Some(rates(16, 10, 12)));
        let cases = [
            (InPlaceInputs { verify: Verify::Always, ..always }, Reason::Verified),
            (InPlaceInputs { lengths: SampleLengths::One, ..always }, Reason::OneLength),
            (InPlaceInputs { stay: Stay::Unknown, ..always }, Reason::Policy),
        ];
        for (facts, reason) in cases {
            let choice = choose(&facts);
            assert_eq!((choice.path, choice.reason), (ReadPath::Copied, reason));
            assert!(choice.to_string().starts_with("no, because "));
        }
    }

    #[test]
    fn an_imposed_speed_counts_for_nothing_unless_the_job_insists() {
        let imposed = |mode| InPlaceInputs {
            pace: SpeedOrigin::Imposed,
            ..facts(mode, Some(rates(16, 10, 12)))
        };
        assert_eq!(choose(&imposed(InPlaceMode::Auto)).reason, Reason::Imposed);
        assert_eq!(choose(&imposed(InPlaceMode::Always)).path, ReadPath::Direct);
    }

    proptest! {
        #[test]
        fn a_faster_trainer_never_turns_the_choice_to_copies(
            copying in 1_u64..100, alone in 1_u64..100, main in 1_u64..100, more in 0_u64..50,
        ) {
            let way = |alone| choose(&facts(InPlaceMode::Auto, Some(rates(copying, alone, main)))).path;
            prop_assert!(way(alone) == ReadPath::Copied || way(alone + more) == ReadPath::Direct);
            let never = choose(&facts(InPlaceMode::Never, Some(rates(copying, alone, main))));
            prop_assert_eq!((never.path, never.reason), (ReadPath::Copied, Reason::Asked));
        }
    }
}
