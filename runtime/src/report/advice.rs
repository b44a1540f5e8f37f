//! What would have made the trainers wait less, from what the run itself measured.
//!
//! Nothing here is a rule of thumb: each figure follows from bytes that were read, from how long links
//! were busy with them, and from how long the trainers computed. Advice that cannot be backed by such a
//! figure is not given.

use serde::Serialize;
use tierfeed_core::{
    id::TierId,
    session::{Busy, Cause, EpochProgress, Progress},
    tier::Kind,
    units::{Bytes, BytesPerSecond},
};

use super::verdict::{NOTICEABLE, Waiting};

/// Causes with a smaller share of the waits get no advice.
const WORTH_IT: f64 = 0.15;

/// A link that is busy for this share of the training has nothing left to give.
const SATURATED: f64 = 0.9;

/// Room for what varies, on top of what is needed on average.
const MARGIN: f64 = 1.1;

/// Something to change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// What: `cold-bandwidth`, `cache`, `policy`, `batches-ahead`, `faster-tier`, `staging-room`,
    /// `start-earlier`, `fixed-sizes` or `processors`.
    pub change: &'static str,
    /// A sentence with the reason.
    pub text: String,
    /// How many bytes more, where that is the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_bytes: Option<u64>,
    /// To which rate, where that is the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_bytes_per_s: Option<u64>,
    /// To which number, where that is the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_count: Option<u64>,
}

/// What advice is made from.
#[derive(Debug)]
pub(super) struct Grounds<'a> {
    pub(super) waiting: &'a Waiting,
    pub(super) progress: &'a Progress,
    pub(super) kinds: &'a [Kind],
    pub(super) ranks: u32,
    pub(super) policy: &'static str,
    pub(super) staged_batches: u32,
    pub(super) chunk: Bytes,
    /// The caches of all tiers.
    pub(super) cached: Bytes,
    /// Of the last epoch that was read.
    pub(super) minimal_cold: Bytes,
}

/// What would help, the most important first; empty if nothing has to.
pub(super) fn advise(grounds: &Grounds<'_>) -> Vec<Advice> {
    let waiting = grounds.waiting;
    if waiting.share() < NOTICEABLE {
        return Vec::new();
    }
    let causes = waiting.by_cause.iter().map(|(cause, _)| *cause);
    let worth_it = causes.filter(|cause| waiting.share_of(*cause) >= WORTH_IT);
    worth_it.flat_map(|cause| grounds.against(cause)).collect()
}

impl Advice {
    fn new(change: &'static str, text: String) -> Self {
        Self { change, text, more_bytes: None, to_bytes_per_s: None, to_count: None }
    }
}

impl Grounds<'_> {
    fn against(&self, cause: Cause) -> Vec<Advice> {
        match cause {
            Cause::Cold => self.against_cold(),
            Cause::Tier(tier) => self.against_tier(tier).into_iter().collect(),
            Cause::Keep => self.against_keeping().into_iter().collect(),
            Cause::Room => vec![self.more_room()],
            Cause::Start => vec![Advice::new(
                "start-earlier",
                "the trainers were there before the staging memory was: start the agent earlier, \
                 or take less staging memory (`prefetch.batches`)"
                    .to_owned(),
            )],
            Cause::Chunk => vec![Advice::new(
                "fixed-sizes",
                "tiers grew while the trainers waited: give tiers a `size` instead of a `reserve`, \
                 or larger chunks"
                    .to_owned(),
            )],
            Cause::Turn => Vec::new(),
            Cause::HandOff => vec![Advice::new(
                "processors",
                "batches were ready, but the agent or the trainer got no processor to hand them \
                 over: leave the agent a core, with fewer workers or threads in the trainer"
                    .to_owned(),
            )],
        }
    }

    fn against_cold(&self) -> Vec<Advice> {
        let Some((epoch, computing)) = self.steady() else { return Vec::new() };
        let cold: u64 = self.progress.epochs.iter().map(|epoch| epoch.cold.0).sum();
        let Some(given) = rate(Bytes(cold), &self.progress.cold_busy) else { return Vec::new() };
        let needed = per_second(epoch.cold, computing);
        let waiting = self.waiting;
        if waiting.first_s > waiting.stall_s / 2.0 {
            return vec![Advice::new(
                "start-earlier",
                "most of it was for the first batches, which nobody can read before there is an \
                 agent: start the agent while the trainer still loads its framework"
                    .to_owned(),
            )];
        }
        if needed.0 <= given.0 && self.busy_share(&self.progress.cold_busy) < SATURATED {
            return vec![self.more_batches(given, needed)];
        }
        let mut advice = vec![self.faster_cold(given, needed)];
        advice.extend(self.better_policy(epoch));
        advice.extend(self.more_cache(epoch, given, computing));
        advice
    }

    fn faster_cold(&self, given: BytesPerSecond, needed: BytesPerSecond) -> Advice {
        let target = BytesPerSecond(whole(number(needed.0) * MARGIN));
        let first =
            if self.is_first_epoch_only() { " in the first epoch, which reads all" } else { "" };
        let text = format!(
            "the cold store gave {given}, the training takes {needed} of it{first}: {target} would keep up"
        );
        Advice { to_bytes_per_s: Some(target.0), ..Advice::new("cold-bandwidth", text) }
    }

    fn better_policy(&self, epoch: &EpochProgress) -> Option<Advice> {
        let least = self.minimal_cold;
        if self.is_first_epoch_only() || number(epoch.cold.0) <= number(least.0) * MARGIN {
            return None;
        }
        let text = format!(
            "policy {} reads {} an epoch from the cold store; {least} must be, with these tiers: \
             use `policy: gap`",
            self.policy, epoch.cold
        );
        (self.policy != "gap").then(|| Advice::new("policy", text))
    }

    /// What is cached is not read cold in the next epoch.
    fn more_cache(
        &self,
        epoch: &EpochProgress,
        given: BytesPerSecond,
        computing: f64,
    ) -> Option<Advice> {
        if self.progress.epochs.len() < 2 {
            return None;
        }
        let affordable = whole(number(given.0) * computing / MARGIN);
        let surplus = epoch.cold.0.checked_sub(affordable).filter(|surplus| *surplus > 0)?;
        let more = surplus.min(epoch.cold.0).div_ceil(self.chunk.0.max(1)) * self.chunk.0.max(1);
        let text = format!(
            "{} more of cache than the {} there are would leave the cold store no more than it can \
             give while the trainers compute",
            Bytes(more),
            self.cached
        );
        Some(Advice { more_bytes: Some(more), ..Advice::new("cache", text) })
    }

    /// The link had time left, so what came late was asked for late.
    fn more_batches(&self, given: BytesPerSecond, needed: BytesPerSecond) -> Advice {
        let batches: u64 = self.progress.epochs.iter().map(|epoch| epoch.batches).sum();
        let steps = number(batches / u64::from(self.ranks.max(1)).max(1)).max(1.0);
        let step = (self.waiting.wall_s - self.waiting.stall_s).max(0.0) / steps;
        let longest = super::seconds(self.progress.waits.percentile(99));
        let more = if step > 0.0 { (longest / step).ceil() } else { 0.0 };
        let count = u64::from(self.staged_batches) + whole(more).clamp(1, 64);
        let text = format!(
            "the cold store stood idle for {:.0} % of the time and gave {given} where {needed} are \
             needed, but now and then it was late: `prefetch.batches: {count}` instead of {} would \
             bridge that",
            100.0 * (1.0 - self.busy_share(&self.progress.cold_busy)),
            self.staged_batches
        );
        Advice { to_count: Some(count), ..Advice::new("batches-ahead", text) }
    }

    fn against_tier(&self, tier: TierId) -> Option<Advice> {
        let at = usize::from(tier.0);
        let read: u64 =
            self.progress.epochs.iter().filter_map(|it| it.from_tier.get(at)).map(|it| it.0).sum();
        let given = rate(Bytes(read), self.progress.tiers_busy.get(at)?)?;
        let (epoch, computing) = self.steady()?;
        let needed = per_second(*epoch.from_tier.get(at)?, computing);
        let kind = self.kinds.get(at)?.name();
        let target = BytesPerSecond(whole(number(needed.0.max(given.0)) * MARGIN));
        let text = format!(
            "{kind} gave {given} where the training takes {needed} of it: a faster device, more \
             copy threads, or more of the tiers above it"
        );
        Some(Advice { to_bytes_per_s: Some(target.0), ..Advice::new("faster-tier", text) })
    }

    fn against_keeping(&self) -> Option<Advice> {
        let busy =
            self.progress.tiers_busy.iter().enumerate().max_by_key(|(_, busy)| busy.time())?;
        let kind = self.kinds.get(busy.0)?.name();
        let text = format!(
            "batches waited for copies of what stays, which are made before a batch is handed \
             over; {kind} was the busiest: a tier that is faster to write, or less of it"
        );
        Some(Advice::new("faster-tier", text))
    }

    fn more_room(&self) -> Advice {
        let count = u64::from(self.staged_batches) + 2;
        let text = format!(
            "trainers asked for batches that had no room in staging: `prefetch.batches: {count}` \
             instead of {}, with main memory for it, or release batches sooner",
            self.staged_batches
        );
        Advice { to_count: Some(count), ..Advice::new("staging-room", text) }
    }

    /// The last epoch of which at least half was read, and how long each rank computed in it.
    fn steady(&self) -> Option<(&EpochProgress, f64)> {
        let epochs = &self.progress.epochs;
        let most = epochs.iter().map(|epoch| epoch.batches).max().filter(|most| *most > 0)?;
        let epoch = epochs.iter().rev().find(|epoch| epoch.batches * 2 > most)?;
        let all: u64 = epochs.iter().map(|epoch| epoch.batches).sum();
        let computing = (self.waiting.wall_s - self.waiting.stall_s).max(0.0);
        Some((epoch, computing * number(epoch.batches) / number(all)))
    }

    fn is_first_epoch_only(&self) -> bool {
        self.progress.epochs.iter().filter(|epoch| epoch.batches > 0).count() < 2
    }

    fn busy_share(&self, link: &Busy) -> f64 {
        if self.waiting.wall_s > 0.0 {
            super::seconds(link.time()) / self.waiting.wall_s
        } else {
            0.0
        }
    }
}

/// What a link gave while it was busy.
fn rate(bytes: Bytes, busy: &Busy) -> Option<BytesPerSecond> {
    let seconds = super::seconds(busy.time());
    (bytes.0 > 0 && seconds > 0.0).then(|| per_second(bytes, seconds))
}

/// Three digits are enough for advice; without time any rate is too low.
fn per_second(bytes: Bytes, seconds: f64) -> BytesPerSecond {
    let rate = number(bytes.0) / seconds.max(1e-9);
    let grain = 10_f64.powf(rate.max(1.0).log10().floor() - 2.0).max(1.0);
    BytesPerSecond(whole((rate / grain).round() * grain))
}

#[expect(clippy::cast_precision_loss, reason = "advice needs no more than 53 bits")]
fn number(value: u64) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast of a float saturates, which is near enough for advice"
)]
fn whole(value: f64) -> u64 {
    value as u64
}
