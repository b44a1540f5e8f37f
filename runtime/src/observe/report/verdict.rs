//! The first line of a report: how many batches the agent served of those that were used, how long
//! training waited, and for what.

#![expect(clippy::format_push_string, reason = "a sentence of a few parts, written once")]

use std::collections::BTreeMap;

use tierfeed_core::{
    session::{StallBreakdown, StallCause},
    tier::Kind,
    units::Nanoseconds,
};

/// A smaller stall share of the time is not worth a change.
pub(super) const NOTICEABLE: f64 = 0.005;

/// A training that had no processor for a smaller share of the time is not slowed down by that.
pub(super) const STARVED: f64 = 0.05;

/// A cause with a smaller share of the waits is left out of the sentence.
const MENTIONED: f64 = 0.1;

/// The connections that read batches on this node, and the CPU starvation of their processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReaderStats {
    /// Whether there was any connection to read batches by.
    pub were_there: bool,
    /// The most connections that read batches at a time.
    pub readers_max: u32,
    /// Whether any of them worked for a loader, so that training itself may have waited less.
    pub has_workers: bool,
    /// How long training processes were runnable without a processor, as a mean over them; `None` if the
    /// processes are not visible.
    pub starved: Option<Nanoseconds>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Batches {
    pub(super) served: u64,
    pub(super) self_read: u64,
    /// Self-read batches in passes beyond the epochs of the job.
    pub(super) beyond: u64,
    /// Refused because of a sample, and not read by the trainers either.
    pub(super) refused: u64,
    /// Ranks of the node that used no batch.
    pub(super) absent_ranks: u32,
    pub(super) ranks: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct StallSummary {
    /// The mean over readers, by cause.
    pub(super) by_cause: Vec<(StallCause, f64)>,
    /// The mean over readers.
    pub(super) stall_s: f64,
    /// The part of it for the first batch of a rank.
    pub(super) first_s: f64,
    pub(super) wall_s: f64,
    /// The divisor of sums over readers.
    pub(super) readers: f64,
    /// How long the training was runnable without a processor, at most `wall_s`.
    pub(super) starved_s: Option<f64>,
    batches: Batches,
    has_workers: bool,
    were_there: bool,
}

impl StallSummary {
    /// Sums over readers as means, the longest part first.
    pub(super) fn of(
        causes: &StallBreakdown,
        first: Nanoseconds,
        wall: Nanoseconds,
        reader_stats: ReaderStats,
        batches: Batches,
    ) -> Self {
        let (sum, wall_s) = (super::seconds(causes.total()), super::seconds(wall));
        // A reader waits only while it is connected. If more readers connected one after the other than at a
        // time, the divisor keeps the mean within the time of the run.
        let at_least = if wall_s > 0.0 { sum / wall_s } else { 1.0 };
        let readers = f64::from(reader_stats.readers_max.max(1)).max(at_least);
        let mean = |time: Nanoseconds| super::seconds(time) / readers;
        let mut by_cause: Vec<_> =
            causes.parts().map(|(cause, part)| (cause, mean(part))).collect();
        by_cause.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let ReaderStats { has_workers, were_there, .. } = reader_stats;
        let (stall_s, first_s) = (sum / readers, mean(first));
        let starved_s = reader_stats.starved.map(|time| super::seconds(time).min(wall_s));
        Self {
            by_cause,
            stall_s,
            first_s,
            wall_s,
            readers,
            starved_s,
            batches,
            has_workers,
            were_there,
        }
    }

    /// The share of the training's time that was stall.
    pub(super) fn share(&self) -> f64 {
        if self.wall_s > 0.0 { (self.stall_s / self.wall_s).min(1.0) } else { 0.0 }
    }

    pub(super) fn starved_share(&self) -> f64 {
        let starved_s = self.starved_s.filter(|_| self.wall_s > 0.0);
        starved_s.map_or(0.0, |starved_s| starved_s / self.wall_s)
    }

    /// The part of the waits that was for `cause`.
    pub(super) fn share_of(&self, cause: StallCause) -> f64 {
        if self.stall_s > 0.0 { self.seconds_for(cause) / self.stall_s } else { 0.0 }
    }

    /// The mean over readers of the waits for `cause`.
    pub(super) fn seconds_for(&self, cause: StallCause) -> f64 {
        self.by_cause.iter().find(|(other, _)| *other == cause).map_or(0.0, |(_, part)| *part)
    }

    pub(super) fn sentence(&self, kinds: &[Kind]) -> String {
        let Batches { served, self_read, beyond, refused, absent_ranks, ranks } = self.batches;
        let asked = served + self_read + refused;
        if asked == 0 {
            return if self.wall_s > 0.0 {
                format!("no batch was used; trainers were connected for {}", time(self.wall_s))
            } else if self.were_there {
                "no batch was used: trainers left as soon as they had connected".to_owned()
            } else {
                "no batch was used: no trainer connected".to_owned()
            };
        }
        let who = if self.has_workers { "loader workers" } else { "trainers" };
        let mut sentence = format!("{served} of {asked} batches served by the agent");
        if self_read > 0 {
            sentence.push_str(&format!(", {self_read} read by the {who} themselves"));
        }
        if beyond > 0 {
            sentence.push_str(&format!(" ({beyond} in passes beyond the job's `epochs`)"));
        }
        if refused > 0 {
            sentence.push_str(&format!(", {refused} refused for unreadable samples"));
        }
        if absent_ranks > 0 {
            sentence.push_str(&format!("; {absent_ranks} of {ranks} ranks used none"));
        }
        sentence += "; ";
        sentence += &self.waits(who, kinds);
        if self.starved_share() >= STARVED {
            let (starved, percent) =
                (time(self.starved_s.unwrap_or_default()), self.starved_share() * 100.0);
            sentence.push_str(&format!(
                "; the training had no processor for {starved} ({percent:.1} %)"
            ));
        }
        sentence
    }

    fn waits(&self, who: &str, kinds: &[Kind]) -> String {
        let (stall, wall) = (time(self.stall_s), time(self.wall_s));
        let percent = self.share() * 100.0;
        if self.share() < NOTICEABLE && self.batches.self_read == 0 {
            return format!("{who} hardly waited: {stall} of {wall} ({percent:.2} %)");
        }
        let mentioned = self.by_cause.iter().filter(|(cause, _)| self.share_of(*cause) > MENTIONED);
        let parts: Vec<_> = mentioned
            .map(|(cause, _)| {
                format!("{:.0} % {}", self.share_of(*cause) * 100.0, phrase(*cause, kinds))
            })
            .collect();
        let parts =
            if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
        let first = if self.first_s > self.stall_s / 2.0 {
            format!("; {} of it for the first batch", time(self.first_s))
        } else {
            String::new()
        };
        format!("{who} waited {stall} of {wall} ({percent:.1} %){parts}{first}")
    }
}

/// Seconds by the names of their causes, divided by `readers`; tiers of one kind are one.
#[must_use]
pub fn seconds_by_cause(
    causes: &StallBreakdown,
    kinds: &[&'static str],
    readers: f64,
) -> BTreeMap<&'static str, f64> {
    let mut named = BTreeMap::new();
    for (cause, part) in causes.parts() {
        *named.entry(cause_name(cause, kinds)).or_default() += super::seconds(part) / readers;
    }
    named
}

#[must_use]
pub fn cause_name(cause: StallCause, kinds: &[&'static str]) -> &'static str {
    match cause {
        StallCause::Tier(tier) => kinds.get(usize::from(tier.0)).copied().unwrap_or("unknown"),
        cause => words(cause).0,
    }
}

fn phrase(cause: StallCause, kinds: &[Kind]) -> String {
    match cause {
        StallCause::Tier(tier) => {
            let kind = kinds.get(usize::from(tier.0)).map_or("a tier", |kind| kind.name());
            format!("for copies from {kind}")
        }
        cause => words(cause).1.to_owned(),
    }
}

/// The name of a cause, and its words in a sentence.
const fn words(cause: StallCause) -> (&'static str, &'static str) {
    match cause {
        StallCause::Start => ("start", "for staging memory to open"),
        StallCause::Room => ("staging-room", "for room in staging"),
        StallCause::Cold => ("cold-store", "for the cold store"),
        StallCause::Peers => ("peers", "for other nodes"),
        StallCause::Tier(_) => ("tier", "for copies from a tier"),
        StallCause::Transforming => ("transforming", "for transforms"),
        StallCause::Chunk => ("chunk", "for new chunks of a tier"),
        StallCause::Keep => ("keep", "for copies into a tier"),
        StallCause::Turn => ("turn", "for an earlier batch of the same trainer"),
        StallCause::HandOff => ("hand-off", "for the hand-off"),
        StallCause::Agent => ("agent", "for the agent's own loop"),
        StallCause::Unanswered => ("unanswered", "for an answer of the agent without a batch"),
        StallCause::SelfRead => ("self-read", "reading batches themselves"),
        StallCause::Decoding => ("decoding", "decoding"),
    }
}

/// A time with three digits.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast of a float saturates, and no time is negative"
)]
pub(super) fn time(seconds: f64) -> Nanoseconds {
    // Three digits are enough in a sentence.
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

    const TWO: ReaderStats =
        ReaderStats { were_there: true, readers_max: 2, has_workers: false, starved: None };

    const ALL: Batches =
        Batches { served: 40, self_read: 0, beyond: 0, refused: 0, absent_ranks: 0, ranks: 2 };

    fn causes(cold: u64, cxl: u64, hand_off: u64) -> StallBreakdown {
        StallBreakdown {
            cold: Nanoseconds(cold),
            tiers: vec![Nanoseconds(0), Nanoseconds(cxl)],
            hand_off: Nanoseconds(hand_off),
            ..StallBreakdown::default()
        }
    }

    fn said(
        causes: &StallBreakdown,
        first: u64,
        reader_stats: ReaderStats,
        batches: Batches,
    ) -> String {
        let wall = Nanoseconds(20 * S);
        StallSummary::of(causes, Nanoseconds(first), wall, reader_stats, batches).sentence(&KINDS)
    }

    const KINDS: [Kind; 2] = [Kind::MainMemory, Kind::CxlMemory];

    #[test]
    fn the_sentence_says_what_was_served_how_long_it_took_and_for_what_longest_first() {
        assert_eq!(
            said(&causes(S, 3 * S, S / 1000), 0, TWO, ALL),
            "40 of 40 batches served by the agent; trainers waited 2 s of 20 s (10.0 %): 75 % for copies \
             from cxl-memory, 25 % for the cold store"
        );
    }

    #[test]
    fn an_unnoticeable_wait_is_no_wait_and_what_the_first_batch_took_is_said() {
        assert_eq!(
            said(&causes(S / 100, 0, 0), 0, TWO, ALL),
            "40 of 40 batches served by the agent; trainers hardly waited: 5 ms of 20 s (0.03 %)"
        );
        let first = said(&causes(S, 0, 0), S - 5, TWO, ALL);
        assert!(first.ends_with("for the cold store; 500 ms of it for the first batch"), "{first}");
    }

    #[test]
    fn trainers_without_served_batches_never_hardly_waited() {
        let none = Batches { served: 0, self_read: 48, ..ALL };
        let quick = StallBreakdown { self_read: Nanoseconds(S / 100), ..StallBreakdown::none(2) };
        assert_eq!(
            said(&quick, 0, TWO, none),
            "0 of 48 batches served by the agent, 48 read by the trainers themselves; trainers waited 5 ms \
             of 20 s (0.0 %): 100 % reading batches themselves"
        );
        let hung = StallBreakdown { unanswered: Nanoseconds(6 * S), ..StallBreakdown::none(2) };
        let some = Batches { served: 47, self_read: 1, ..ALL };
        let hung = said(&hung, 0, TWO, some);
        assert!(
            hung.ends_with(
                "waited 3 s of 20 s (15.0 %): 100 % for an answer of the agent without a batch"
            ),
            "{hung}"
        );
        let nothing = said(&StallBreakdown::none(2), 0, TWO, Batches::default());
        assert_eq!(nothing, "no batch was used; trainers were connected for 20 s");
        let idle = |reader_stats| {
            let (none, zero) = (StallBreakdown::default(), Nanoseconds(0));
            StallSummary::of(&none, zero, zero, reader_stats, Batches::default()).sentence(&KINDS)
        };
        assert_eq!(idle(ReaderStats::default()), "no batch was used: no trainer connected");
        assert_eq!(idle(TWO), "no batch was used: trainers left as soon as they had connected");
    }

    #[test]
    fn batches_of_further_passes_and_refused_ones_are_not_served_and_a_refusal_was_waited_for() {
        let beyond = Batches { served: 15, self_read: 75, beyond: 75, ..ALL };
        let direct = StallBreakdown { self_read: Nanoseconds(8 * S), ..StallBreakdown::none(2) };
        let said_beyond = said(&direct, 0, TWO, beyond);
        let expected = "15 of 90 batches served by the agent, 75 read by the trainers themselves (75 in passes \
                        beyond the job's `epochs`); trainers waited 4 s of 20 s";
        assert!(said_beyond.starts_with(expected), "{said_beyond}");
        let refused = Batches { served: 0, refused: 1, ..ALL };
        let waited = StallBreakdown { unanswered: Nanoseconds(6 * S), ..StallBreakdown::none(2) };
        assert_eq!(
            said(&waited, 0, TWO, refused),
            "0 of 1 batches served by the agent, 1 refused for unreadable samples; trainers waited 3 s of \
             20 s (15.0 %): 100 % for an answer of the agent without a batch"
        );
    }

    #[test]
    fn decoding_is_waiting_absent_ranks_are_named_and_workers_are_not_taken_for_the_training() {
        let decoding = StallBreakdown { decoding: Nanoseconds(20 * S), ..causes(S, 0, 0) };
        let batches = Batches { absent_ranks: 1, ..ALL };
        let workers = ReaderStats { readers_max: 4, has_workers: true, ..TWO };
        assert_eq!(
            said(&decoding, 0, workers, batches),
            "40 of 40 batches served by the agent; 1 of 2 ranks used none; loader workers waited 5.25 s of \
             20 s (26.2 %): 95 % decoding"
        );
    }

    #[test]
    fn a_training_without_a_processor_is_said_to_have_none_beside_what_it_waited() {
        let starved = |time| ReaderStats { starved: Some(Nanoseconds(time)), ..TWO };
        let said = |time| said(&causes(S / 100, 0, 0), 0, starved(time), ALL);
        assert!(said(S - 1).ends_with("hardly waited: 5 ms of 20 s (0.03 %)"), "{}", said(S - 1));
        let starved = said(8 * S);
        assert!(
            starved.ends_with("(0.03 %); the training had no processor for 8 s (40.0 %)"),
            "{starved}"
        );
    }

    #[test]
    fn readers_that_come_one_after_the_other_wait_no_longer_than_the_run() {
        let causes = causes(50 * S, 0, 0);
        let wall = Nanoseconds(20 * S);
        let waiting = StallSummary::of(&causes, Nanoseconds(0), wall, TWO, ALL);
        assert!((waiting.stall_s - 20.0).abs() < 1e-9, "{}", waiting.stall_s);
    }

    #[test]
    fn the_named_parts_add_up_to_the_stall() {
        let causes = causes(S, 3 * S, 7);
        let waiting = StallSummary::of(&causes, Nanoseconds(0), Nanoseconds(20 * S), TWO, ALL);
        let sum: f64 = waiting.by_cause.iter().map(|(_, part)| part).sum();
        assert!((sum - waiting.stall_s).abs() < 1e-9);
        assert!((waiting.share_of(StallCause::Tier(TierId(1))) - 0.75).abs() < 1e-6);
        let named = seconds_by_cause(&causes, &["main-memory", "cxl-memory"], 2.0);
        assert!((named.values().sum::<f64>() - waiting.stall_s).abs() < 1e-9);
    }
}
