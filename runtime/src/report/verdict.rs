//! The first line of a report: how long the trainers waited, and for what.

use std::collections::BTreeMap;

use tierfeed_core::{
    session::{Cause, Causes},
    tier::Kind,
    units::Nanoseconds,
};

/// A smaller share of the time is not worth a change.
pub(super) const NOTICEABLE: f64 = 0.005;

/// A cause with a smaller share of the waits is left out of the sentence.
const MENTIONED: f64 = 0.1;

/// How long the trainers waited, and for what.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Waiting {
    /// The mean over ranks, by cause.
    pub(super) by_cause: Vec<(Cause, f64)>,
    /// The mean over ranks.
    pub(super) stall_s: f64,
    /// The part of it that was for the first batch of a rank.
    pub(super) first_s: f64,
    /// How long the training took.
    pub(super) wall_s: f64,
}

impl Waiting {
    /// Sums over `ranks` as means, the longest part first.
    pub(super) fn of(causes: &Causes, first: Nanoseconds, wall: Nanoseconds, ranks: u32) -> Self {
        let mean = |time: Nanoseconds| super::seconds(time) / f64::from(ranks.max(1));
        let mut by_cause: Vec<_> =
            causes.parts().map(|(cause, part)| (cause, mean(part))).collect();
        by_cause.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        Self {
            by_cause,
            stall_s: mean(causes.total()),
            first_s: mean(first),
            wall_s: super::seconds(wall),
        }
    }

    /// The part of the training in which the trainers stood still.
    pub(super) fn share(&self) -> f64 {
        if self.wall_s > 0.0 { (self.stall_s / self.wall_s).min(1.0) } else { 0.0 }
    }

    /// The part of the waits that was for `cause`.
    pub(super) fn share_of(&self, cause: Cause) -> f64 {
        let part = self.by_cause.iter().find(|(other, _)| *other == cause);
        part.map_or(0.0, |(_, part)| if self.stall_s > 0.0 { part / self.stall_s } else { 0.0 })
    }

    /// The sentence; `kinds` are the tiers.
    pub(super) fn sentence(&self, kinds: &[Kind]) -> String {
        if self.wall_s <= 0.0 {
            return "no trainer took a batch".to_owned();
        }
        let (stall, wall) = (time(self.stall_s), time(self.wall_s));
        let percent = self.share() * 100.0;
        if self.share() < NOTICEABLE {
            return format!("trainers hardly waited: {stall} of {wall} ({percent:.2} %)");
        }
        let mentioned = self.by_cause.iter().filter(|(cause, _)| self.share_of(*cause) > MENTIONED);
        let parts: Vec<_> = mentioned
            .map(|(cause, _)| {
                format!("{:.0} % of it {}", self.share_of(*cause) * 100.0, phrase(*cause, kinds))
            })
            .collect();
        let first = if self.first_s > self.stall_s / 2.0 {
            format!("; {} of it before the first batch", time(self.first_s))
        } else {
            String::new()
        };
        format!("trainers waited {stall} of {wall} ({percent:.1} %), {}{first}", parts.join(", "))
    }
}

/// Seconds by the names of their causes; tiers of one kind are one.
#[must_use]
pub fn by_name(causes: &Causes, kinds: &[&'static str], ranks: u32) -> BTreeMap<&'static str, f64> {
    let mut named = BTreeMap::new();
    for (cause, part) in causes.parts() {
        *named.entry(name(cause, kinds)).or_default() +=
            super::seconds(part) / f64::from(ranks.max(1));
    }
    named
}

/// The name of a cause in reports and metrics.
#[must_use]
pub fn name(cause: Cause, kinds: &[&'static str]) -> &'static str {
    match cause {
        Cause::Start => "start",
        Cause::Room => "staging-room",
        Cause::Cold => "cold-store",
        Cause::Tier(tier) => kinds.get(usize::from(tier.0)).copied().unwrap_or("unknown"),
        Cause::Chunk => "chunk",
        Cause::Keep => "keep",
        Cause::Turn => "turn",
        Cause::HandOff => "hand-off",
    }
}

fn phrase(cause: Cause, kinds: &[Kind]) -> String {
    match cause {
        Cause::Start => "for staging memory to open".to_owned(),
        Cause::Room => "for room in staging".to_owned(),
        Cause::Cold => "for the cold store".to_owned(),
        Cause::Tier(tier) => {
            let kind = kinds.get(usize::from(tier.0)).map_or("a tier", |kind| kind.name());
            format!("for copies from {kind}")
        }
        Cause::Chunk => "for new chunks of a tier".to_owned(),
        Cause::Keep => "for copies into a tier".to_owned(),
        Cause::Turn => "for a batch that was asked for before".to_owned(),
        Cause::HandOff => "for the hand-off".to_owned(),
    }
}

/// As people read it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast of a float saturates, and no time is negative"
)]
pub(super) fn time(seconds: f64) -> Nanoseconds {
    // Three digits: a sentence is no table.
    let ns = seconds * 1e9;
    if ns < 1.0 {
        return Nanoseconds(0);
    }
    let grain = 10_f64.powf(ns.log10().floor() - 2.0).max(1.0);
    Nanoseconds(((ns / grain).round() * grain) as u64)
}

#[cfg(test)]
mod tests {
    use tierfeed_core::id::TierId;

    use super::*;

    const S: u64 = 1_000_000_000;

    fn waiting(cold: u64, cxl: u64, hand_off: u64, first: u64) -> Waiting {
        let causes = Causes {
            cold: Nanoseconds(cold),
            tiers: vec![Nanoseconds(0), Nanoseconds(cxl)],
            hand_off: Nanoseconds(hand_off),
            ..Causes::default()
        };
        Waiting::of(&causes, Nanoseconds(first), Nanoseconds(20 * S), 2)
    }

    const KINDS: [Kind; 2] = [Kind::MainMemory, Kind::CxlMemory];

    #[test]
    fn the_sentence_says_how_long_and_for_what_longest_first() {
        let said = waiting(S, 3 * S, S / 1000, 0).sentence(&KINDS);
        assert_eq!(
            said,
            "trainers waited 2 s of 20 s (10.0 %), 75 % of it for copies from cxl-memory, \
             25 % of it for the cold store"
        );
    }

    #[test]
    fn what_nobody_notices_is_no_wait_and_what_the_first_batch_took_is_said() {
        let said = waiting(S / 100, 0, 0, 0).sentence(&KINDS);
        assert_eq!(said, "trainers hardly waited: 5 ms of 20 s (0.03 %)");
        let said = waiting(S, 0, 0, S - 5).sentence(&KINDS);
        assert!(
            said.ends_with("for the cold store; 500 ms of it before the first batch"),
            "{said}"
        );
        let idle = Waiting::of(&Causes::default(), Nanoseconds(0), Nanoseconds(0), 1);
        assert_eq!(idle.sentence(&KINDS), "no trainer took a batch");
    }

    #[test]
    fn the_named_parts_add_up_to_the_stall() {
        let waiting = waiting(S, 3 * S, 7, 0);
        let sum: f64 = waiting.by_cause.iter().map(|(_, part)| part).sum();
        assert!((sum - waiting.stall_s).abs() < 1e-9);
        assert!((waiting.share_of(Cause::Tier(TierId(1))) - 0.75).abs() < 1e-6);
    }
}
