//! Changes that would have shortened the waits of the trainers, derived from the run's own measurements.
//!
//! Each figure follows from the bytes that were read, from how long links were busy with them, and from how
//! long the trainers computed. Advice that changes nothing, or would not have shortened the waits of this run
//! noticeably, is not given.

mod figures;
mod phases;
#[cfg(test)]
mod tests;

use serde::Serialize;
use tierfeed_core::{
    id::TierId,
    session::{Busy, EpochProgress, StallCause},
    tier::Kind,
    units::{Bytes, BytesPerSecond, float},
};

use self::figures::{Figures, per_second, rate, whole};
use super::{
    EpochEntry, Report, RunFigures, TierEntry,
    verdict::{NOTICEABLE, STARVED, StallSummary},
};
use crate::observe::pauses::PauseEntry;

/// Causes with a smaller share of the waits get no advice.
const WORTH_IT: f64 = 0.15;

/// A link that is busy for this share of the training is saturated.
const SATURATED: f64 = 0.9;

/// A delay that takes more batches than this to bridge is not one that comes now and then.
const MORE_BATCHES_MAX: u64 = 64;

/// Copies do not wait for a tier that is busy for less than this share of the time.
const HALF: f64 = 0.5;

/// The factor over the average demand, for its variation.
const MARGIN: f64 = 1.1;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// The kind of change: `cold-bandwidth`, `cache`, `policy`, `batches-ahead`, `look-ahead`, `look-ahead-room`,
    /// `faster-tier`, `staging-room`, `start-earlier`, `fixed-sizes`, `processors`, `decode-threads`,
    /// `cheaper-decoding`, `transform-threads`, `cheaper-transform`, `larger-samples`, `memory` or
    /// `order`.
    pub change: &'static str,
    pub text: String,
    /// How much of the waits of this run the change would have removed, in seconds; `None` if its figures do
    /// not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saves_s: Option<f64>,
    /// Additional bytes, if the change is a size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_bytes: Option<u64>,
    /// The target rate, if the change is a bandwidth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_bytes_per_s: Option<u64>,
    /// The target if the change is a count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_count: Option<u64>,
}

/// Advice, the most important first; empty if none is needed.
pub(super) fn advise(
    run: &RunFigures<'_>,
    total: &EpochProgress,
    waiting: &StallSummary,
    epochs: &[EpochEntry],
) -> Vec<Advice> {
    let figures = Figures::of(run, total, waiting, epochs);
    let mut advice: Vec<Advice> = Vec::new();
    let starved = figures.against_starving();
    if waiting.share() < NOTICEABLE && waiting.seconds_for(StallCause::SelfRead) <= 0.0 {
        advice.extend(starved);
        return advice;
    }
    let causes = waiting.by_cause.iter().map(|(cause, _)| *cause);
    let is_noticed = |cause: StallCause| {
        waiting.seconds_for(cause) >= NOTICEABLE * waiting.wall_s || cause == StallCause::SelfRead
    };
    let worth_it =
        causes.filter(|cause| waiting.share_of(*cause) >= WORTH_IT && is_noticed(*cause));
    let candidates = worth_it.flat_map(|cause| figures.against(cause));
    for candidate in candidates.filter(|it| figures.saves_enough(it)).chain(starved) {
        if advice.iter().all(|given| given.change != candidate.change) {
            advice.push(candidate);
        }
    }
    advice
}

impl Advice {
    fn new(change: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { change, text, saves_s: None, more_bytes: None, to_bytes_per_s: None, to_count: None }
    }

    fn saving(self, seconds: f64) -> Self {
        Self { saves_s: Some(seconds), ..self }
    }
}

impl Figures<'_> {
    /// Whether the advice would have shortened the waits noticeably; unknown counts as enough.
    fn saves_enough(&self, advice: &Advice) -> bool {
        let enough = (self.waiting.wall_s * NOTICEABLE).min(self.waiting.stall_s * WORTH_IT);
        advice.saves_s.is_none_or(|saves| saves > 0.0 && saves >= enough)
    }

    fn against(&self, cause: StallCause) -> Vec<Advice> {
        match cause {
            StallCause::Cold => {
                self.against_cold().into_iter().chain(self.against_shrinking()).collect()
            }
            StallCause::Tier(tier) => self.against_tier(tier).into_iter().collect(),
            StallCause::Keep => self.against_keeping().into_iter().collect(),
            StallCause::Room => self.more_room().into_iter().collect(),
            StallCause::Start => vec![earlier_start(
                "the trainers were there before the staging memory was: start the agent earlier, \
                 or take less staging memory (`prefetch.batches`)",
            )],
            StallCause::Chunk => self.fixed_sizes().into_iter().collect(),
            StallCause::Transforming => self.against_transforming().into_iter().collect(),
            StallCause::Peers | StallCause::Turn | StallCause::Unanswered => Vec::new(),
            StallCause::Agent => vec![self.against_the_agent()],
            StallCause::HandOff => vec![Advice::new(
                "processors",
                "batches were ready, but the agent or the trainer got no processor to hand them \
                 over: leave the agent a core, with fewer workers or threads in the trainer",
            )],
            StallCause::SelfRead => self.against_reading_themselves().into_iter().collect(),
            StallCause::Decoding => self.against_decoding().into_iter().collect(),
        }
    }

    fn against_cold(&self) -> Vec<Advice> {
        let Some((epoch, computing)) = self.worst_epoch(StallCause::Cold) else {
            return Vec::new();
        };
        let cold_busy = &self.run.progress.cold_busy;
        let Some(given) = rate(self.total.cold, cold_busy) else { return Vec::new() };
        let needed = per_second(epoch.cold, computing);
        if self.waiting.first_s > self.waiting.stall_s / 2.0 {
            return vec![earlier_start(
                "most of it was for the first batches, which are not read before the agent has \
                 started: start the agent while the trainer still loads its framework",
            )];
        }
        if let Some(mut advice) = self.against_phases(given) {
            advice.extend(self.better_policy(epoch, given));
            return advice;
        }
        if needed.0 <= given.0 {
            let waited = self.waited_for_cold();
            let more = self.more_batches("the cold store", (given, needed), cold_busy, waited);
            return more.into_iter().collect();
        }
        let mut advice = vec![self.faster_cold(given, needed)];
        advice.extend(self.better_policy(epoch, given));
        advice.extend(self.more_cache(epoch, given, computing));
        advice
    }

    /// A cache that the node gave less memory than planned reads again what it had no room for.
    fn against_shrinking(&self) -> Option<Advice> {
        let lost = |tier: &&TierEntry| tier.cache_bytes.saturating_sub(tier.cache_least_bytes);
        let tiers = self.run.facts.tiers.iter();
        let in_memory = tiers.filter(|tier| tier.name != Kind::Storage.name());
        let most = in_memory.max_by_key(lost).filter(|tier| lost(tier) > 0)?;
        let (tier, more) = (most.name, Bytes(lost(&most)));
        let (cache, least) = (Bytes(most.cache_bytes), Bytes(most.cache_least_bytes));
        let text = format!(
            "{tier} had room for {least} of the {cache} that it was to cache at times, because too little memory \
             was free beside it: give the job {more} more (its `--mem`, or the limit of its control group), or the \
             tier a smaller `size`"
        );
        Some(Advice { more_bytes: Some(more.0), ..Advice::new("memory", text) })
    }

    fn faster_cold(&self, given: BytesPerSecond, needed: BytesPerSecond) -> Advice {
        let target = BytesPerSecond(whole(float(needed.0) * MARGIN));
        let first =
            if self.is_first_epoch_only() { " in the first epoch, which reads all" } else { "" };
        let text = format!(
            "the cold store gave {given}, the training takes {needed} of it{first}: {target} would keep up"
        );
        let advice =
            Advice { to_bytes_per_s: Some(target.0), ..Advice::new("cold-bandwidth", text) };
        advice.saving(self.waited_for_cold())
    }

    fn better_policy(&self, epoch: &EpochProgress, given: BytesPerSecond) -> Option<Advice> {
        let (least, policy) = (self.minimal_cold, self.run.facts.policy);
        let is_least = float(epoch.cold.0) <= float(least.0) * MARGIN;
        if self.is_first_epoch_only() || is_least || policy == "gap" {
            return None;
        }
        let text = format!(
            "policy {policy} reads {} an epoch from the cold store; {least} must be, with these tiers: \
             use `policy: gap`",
            epoch.cold
        );
        let avoided: u64 = self.later_epochs().map(|it| it.cold.0.saturating_sub(least.0)).sum();
        let saves = float(avoided) / float(given.0.max(1));
        let saves = saves.min(self.waited_for_cold() * self.later_share());
        Some(Advice::new("policy", text).saving(saves))
    }

    /// Advises more cache: cached samples are not read cold in the next epoch.
    fn more_cache(
        &self,
        epoch: &EpochProgress,
        given: BytesPerSecond,
        computing: f64,
    ) -> Option<Advice> {
        if self.is_first_epoch_only() {
            return None;
        }
        let affordable = whole(float(given.0) * computing / MARGIN);
        let surplus = epoch.cold.0.checked_sub(affordable).filter(|surplus| *surplus > 0)?;
        let chunk = self.run.chunk.0.max(1);
        let more = surplus.div_ceil(chunk) * chunk;
        let text = format!(
            "{} more of cache than the {} there are would leave the cold store no more than it can \
             give while the trainers compute",
            Bytes(more),
            self.run.cached()
        );
        let saves = self.waited_for_cold() * self.later_share();
        Some(Advice { more_bytes: Some(more), ..Advice::new("cache", text).saving(saves) })
    }

    fn later_epochs(&self) -> impl Iterator<Item = &EpochProgress> {
        self.run.progress.epochs.iter().skip(1).filter(|epoch| epoch.batches > 0)
    }

    /// Advises more batches ahead, for a link that gives enough and is late for a few batches now and then.
    /// As many as are used during the 99th percentile of the waits bridge it, if the link has the time
    /// between them.
    fn more_batches(
        &self,
        what: &str,
        (given, needed): (BytesPerSecond, BytesPerSecond),
        link: &Busy,
        waited: f64,
    ) -> Option<Advice> {
        let (step, busy) = (self.step(), self.busy_share(link));
        let longest = super::seconds(self.run.progress.waits.percentile(99));
        if step <= 0.0 || longest <= 0.0 || needed.0 == 0 || busy >= SATURATED {
            return None;
        }
        let more = whole((longest / step).ceil());
        let idle = (1.0 - busy).max(0.0);
        let saves = waited.min(idle * self.waiting.wall_s);
        let count = self.staged_with(more).filter(|_| more <= MORE_BATCHES_MAX)?;
        let text = format!(
            "{what} stood idle for {:.0} % of the time and gave {given} where {needed} are needed, but \
             now and then it was late, by {} at most: `prefetch.batches: {count}` instead of {} would \
             bridge that",
            100.0 * idle,
            super::verdict::time(longest),
            self.run.staged_batches
        );
        Some(Advice { to_count: Some(count), ..Advice::new("batches-ahead", text).saving(saves) })
    }

    fn against_tier(&self, tier: TierId) -> Option<Advice> {
        let at = usize::from(tier.0);
        let link = self.run.progress.tiers_busy.get(at)?;
        let given = rate(*self.total.from_tier.get(at)?, link)?;
        let (epoch, computing) = self.worst_epoch(StallCause::Tier(tier))?;
        let needed = per_second(*epoch.from_tier.get(at)?, computing);
        let kind = self.run.kinds.get(at)?.name();
        if needed.0 <= given.0 {
            let waited = self.waiting.seconds_for(StallCause::Tier(tier));
            return self.more_batches(kind, (given, needed), link, waited);
        }
        let target = BytesPerSecond(whole(float(needed.0) * MARGIN));
        let text = format!(
            "{kind} gave {given} where the training takes {needed} of it: a faster device, more \
             copy threads, or more of the tiers above it"
        );
        let saves = self.waiting.seconds_for(StallCause::Tier(tier));
        Some(Advice {
            to_bytes_per_s: Some(target.0),
            ..Advice::new("faster-tier", text).saving(saves)
        })
    }

    fn against_keeping(&self) -> Option<Advice> {
        let links = self.run.progress.tiers_busy.iter().enumerate();
        let (at, link) = links.max_by_key(|(_, busy)| busy.time())?;
        let kind = self.run.kinds.get(at)?.name();
        let busy = self.busy_share(link);
        let text = format!(
            "batches waited for copies of what stays, which are made before a batch is handed \
             over; {kind} was busy for {:.0} % of the time: a tier that is faster to write, or less \
             of it",
            busy.min(1.0) * 100.0
        );
        (busy >= HALF).then(|| Advice::new("faster-tier", text))
    }

    /// The loop of the agent is one thread, and each sample costs it a little: no device is slow.
    fn against_the_agent(&self) -> Advice {
        let EpochProgress { samples, demand, .. } = *self.total;
        let mean = Bytes(demand.0 / samples.max(1));
        let Report { loop_pauses, agent_cpu, .. } = &self.run.facts;
        let PauseEntry { busy_share, ran_share, .. } = *loop_pauses;
        let rate = float(samples) / self.waiting.wall_s.max(1e-9);
        let busy = format!(
            "batches waited for the agent's own loop, which handled {rate:.0} samples/s of {mean} and was \
             busy for {:.0} % of the training",
            busy_share * 100.0
        );
        if ran_share < busy_share / 2.0 {
            let text = format!(
                "{busy}, but had a processor for {:.0} % only: leave the agent a core, with fewer workers or \
                 threads in the trainer",
                ran_share * 100.0
            );
            return Advice::new("processors", text);
        }
        let text = format!(
            "{busy} ({:.0} % of a core; the agent takes {:.0} ns of CPU time a sample): put several of these \
             into one larger sample (a record, a row group), or spread the ranks over more nodes; no device \
             would help",
            ran_share * 100.0,
            agent_cpu.ns_per_sample
        );
        Advice::new("larger-samples", text)
    }

    fn more_room(&self) -> Option<Advice> {
        let count = self.staged_with(2)?;
        let text = format!(
            "trainers asked for batches that had no room in staging: `prefetch.batches: {count}` \
             instead of {}, with main memory for it, or release batches sooner",
            self.run.staged_batches
        );
        Some(Advice { to_count: Some(count), ..Advice::new("staging-room", text) })
    }

    /// The number of staged batches with so many more; `None` if the run has fewer.
    fn staged_with(&self, more: u64) -> Option<u64> {
        let count = u64::from(self.run.staged_batches) + more;
        (more > 0 && count <= self.steps()).then_some(count)
    }

    fn fixed_sizes(&self) -> Option<Advice> {
        let tiers = self.run.facts.tiers.iter();
        let adapting: Vec<_> = tiers.filter(|it| it.adapts).map(|it| it.name).collect();
        let text = format!(
            "tiers grew while the trainers waited: give {} a `size` instead of a `reserve`",
            adapting.join(" and ")
        );
        (!adapting.is_empty()).then(|| Advice::new("fixed-sizes", text))
    }

    /// Other work of the node took the processors. This is no wait for data, and no loader shortens it.
    fn against_starving(&self) -> Option<Advice> {
        let starved_s = self.waiting.starved_s?;
        let text = format!(
            "the training could have run and had no processor for {} of {}: other work of this node \
             takes them, as do its own threads if there are more than processors ({})",
            super::verdict::time(starved_s),
            super::verdict::time(self.waiting.wall_s),
            self.run.processors
        );
        let is_slowed = self.waiting.starved_share() >= STARVED;
        is_slowed.then(|| Advice::new("processors", text))
    }

    /// Trainers read batches themselves that the agent refused for lack of staging memory, or that the job's
    /// order does not contain.
    fn against_reading_themselves(&self) -> Option<Advice> {
        let refusals = self.run.progress.refusals;
        if refusals.no_room > 0 {
            return self.more_room();
        }
        let refused = refusals.too_large + refusals.unreadable + refusals.already_taken;
        if refused + refusals.not_published + refusals.no_worker > 0
            || self.waiting.seconds_for(StallCause::Unanswered) > 0.5
        {
            return None;
        }
        let text = if self.run.progress.beyond_batches() * 2 > self.total.self_read_batches {
            "the training makes more passes than the job has `epochs`, and no agent stages those: raise `epochs`"
        } else {
            "trainers read samples that the job's `order` does not have in this batch: use TierLoader, which \
             follows it, a sampler that yields exactly this order, or `shuffle: published` with \
             `tierfeed.torch.announce`"
        };
        Some(Advice::new("order", text))
    }

    /// Advises more threads while there are processors, and else what costs them less.
    fn against_transforming(&self) -> Option<Advice> {
        let transform = self.run.facts.transform.as_ref()?;
        let processors = self.run.processors;
        let threads = u64::from(transform.threads);
        let busy = format!(
            "transforms kept {:.1} of {threads} threads busy while trainers waited for them",
            transform.busy_cores
        );
        if threads < processors {
            let text = format!(
                "{busy}: `threads: {processors}` gives them every core of this node, if trainers leave them"
            );
            let advice = Advice::new("transform-threads", text);
            return Some(Advice { to_count: Some(processors), ..advice });
        }
        let cached = match transform.cached {
            "stored" => "`cache: prepared`, if a step before the first random one fixes the size, ",
            _ => "",
        };
        let text = format!(
            "{busy}, which are all of this node: {cached}the quicker modes `dct: fast` and `scaled: true` \
             of `decode`, which are not exact, or smaller images cost less"
        );
        Some(Advice::new("cheaper-transform", text))
    }

    /// Advises as many threads as decode the demand while the training computes, at most one per processor.
    fn against_decoding(&self) -> Option<Advice> {
        if self.run.facts.transform.is_some() {
            // Training gets tensors: its own decode is what makes a batch of them, and takes no threads.
            return None;
        }
        let threads = u64::from(self.run.progress.decode_threads_max());
        let processors = (self.run.processors / u64::from(self.run.ranks.max(1))).max(1);
        if threads >= processors {
            let text = format!(
                "decoding takes all {} processors of this node: decode less (smaller images, a cheaper \
                 transform), or use more processors",
                self.run.processors
            );
            return Some(Advice::new("cheaper-decoding", text));
        }
        let (decoding, computing) =
            (self.waiting.seconds_for(StallCause::Decoding), self.computing());
        let work = match threads {
            0 => decoding,
            // They decode while the training computes, too.
            threads => float(threads) * (computing + decoding),
        };
        let wanted = whole((MARGIN * work / computing.max(1e-9)).ceil());
        let count = wanted.clamp(threads + 1, processors);
        let text = format!(
            "training waited {} of {} for samples to be decoded, by {}: `decode_threads={count}` of \
             TierLoader, or `decode_threads=\"auto\"`, with which it finds their number itself (or \
             `num_workers` of a DataLoader); threads help where the decode function releases Python's \
             lock, as Pillow and torchvision do",
            super::verdict::time(decoding),
            super::verdict::time(self.waiting.wall_s),
            match threads {
                0 => "the training's own thread".to_owned(),
                1 => "1 thread".to_owned(),
                threads => format!("{threads} threads"),
            }
        );
        Some(Advice { to_count: Some(count), ..Advice::new("decode-threads", text) })
    }
}

fn earlier_start(text: &str) -> Advice {
    Advice::new("start-earlier", text)
}
