//! The metrics of an agent and their sources. docs/metrics.md lists them; a test compares the names.

use std::collections::BTreeMap;

use prometheus_client::registry::Unit;
use tierfeed_core::{
    id::{Rank, TierId},
    session::{Busy, EpochProgress, Form, Progress},
    tier::Kind,
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::read::page_cache::PageCacheFigures;
use tierfeed_prefetcher::{
    fetcher::ObjectFigures,
    plane::{Counters, Moves, Usage},
    recorder::Endpoint,
    transforms::Counts,
};

use super::{Families, Family, FamilyKind, Labels, Value, seconds};
use crate::observe::{footprint::Footprint, pauses::Pauses, report};

#[derive(Debug)]
pub struct View<'a> {
    pub progress: &'a Progress,
    pub counters: &'a Counters,
    pub usage: &'a Usage,
    pub kinds: &'a [Kind],
    /// The capacity and the use of each tier.
    pub levels: Vec<(Bytes, Bytes)>,
    pub leases: Vec<(Rank, usize)>,
    /// Batches that are complete and not taken yet, by rank.
    pub ready: Vec<(Rank, usize)>,
    /// Batches that each rank may have staged now.
    pub batches_max: u32,
    pub copyouts: u64,
    /// The requests to a bucket; `None` if the cold store is files.
    pub requests: Option<ObjectFigures>,
    /// What the page cache holds and served; `None` if reads leave nothing there.
    pub page_cache: Option<PageCacheFigures>,
    /// What the workers that transform did; `None` without a transform.
    pub transforms: Option<Counts>,
    /// Reads of the cold store that may be in flight now.
    pub cold_window: usize,
    pub pauses: &'a Pauses,
    pub memory: &'a Footprint,
    pub job: &'a str,
    pub policy: &'a str,
    /// Bytes read for batches that no trainer took.
    pub wasted: Bytes,
    pub first_rank: Rank,
    /// The kind of source: `file`, `s3` and so on.
    pub source: String,
    /// The engine that reads the cold store.
    pub backend: &'static str,
}

const COLD: &str = "cold";

impl View<'_> {
    #[must_use]
    pub fn families(&self) -> Families {
        let groups = [
            self.about(),
            self.delivered(),
            self.waits(),
            self.reads(),
            self.moves(),
            self.tiers(),
            self.links(),
            self.requests(),
            self.page_cache(),
            self.transforms(),
            self.pauses(),
        ];
        Families(groups.into_iter().flatten().collect())
    }

    fn about(&self) -> Vec<Family> {
        let mut build = Family::new("build", "The version of tierfeed", None, FamilyKind::Info);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        build.add(vec![("version", version)], Value::Present);
        let mut backend =
            Family::new("io_backend", "What reads the cold store", None, FamilyKind::Info);
        backend.add(vec![("backend", self.backend.to_owned())], Value::Present);
        let mut job =
            Family::new("job", "The job and its rule of retention", None, FamilyKind::Info);
        let labels = [("job", self.job), ("policy", self.policy)];
        let labels = labels.map(|(name, value)| (name, value.to_owned()));
        job.add(labels.into(), Value::Present);
        vec![build, backend, job]
    }

    fn delivered(&self) -> Vec<Family> {
        let sum = |of: fn(&EpochProgress) -> u64| self.progress.epochs.iter().map(of).sum();
        vec![
            count("batches", "Batches that trainers took", sum(|epoch| epoch.batches)),
            count(
                "self_read_batches",
                "Batches that trainers read from the cold store themselves",
                sum(|epoch| epoch.self_read_batches),
            ),
            count(
                "skipped_samples",
                "Samples left out, as the job skips what cannot be read",
                sum(|epoch| epoch.skipped),
            ),
            count("samples", "Samples in them", sum(|epoch| epoch.samples)),
            bytes("handed_over", "Bytes in them", Bytes(sum(|epoch| epoch.demand.0))),
            count("misses", "Samples read from the cold store", sum(|epoch| epoch.misses)),
            count("prefetch_late", "Batches that were not ready", sum(|epoch| epoch.late)),
            bytes("prefetch_wasted", "Bytes read and not used", self.wasted),
            bytes(
                "prefetch_ahead",
                "Bytes read from the cold store into tiers, ahead of staging",
                Bytes(sum(|epoch| epoch.ahead.0)),
            ),
            count("sample_faults", "Samples that could not be read", self.progress.fault_count),
            count("tier_faults", "Operations of tiers that failed", self.progress.tier_faults),
            self.refusals(),
        ]
    }

    fn refusals(&self) -> Family {
        let help = "Requests of trainers that got no batch";
        let mut family = Family::new("refusals", help, None, FamilyKind::Counter);
        let refusals = self.progress.refusals;
        for (reason, count) in [
            ("not-in-order", refusals.not_in_order),
            ("not-published", refusals.not_published),
            ("unreadable", refusals.unreadable),
            ("too-large", refusals.too_large),
            ("already-taken", refusals.already_taken),
            ("no-room", refusals.no_room),
            ("too-many-jumps", refusals.too_many_jumps),
            ("no-worker", refusals.no_worker),
        ] {
            family.add(vec![("reason", reason.to_owned())], Value::Count(count));
        }
        family
    }

    fn waits(&self) -> Vec<Family> {
        let mut wait = durations("batch_wait", "How long trainers waited for a batch");
        for (rank, waits) in &self.progress.waits_by_rank {
            wait.add(self.rank(*rank), Value::waits(waits));
        }
        let mut stall = seconds_total("stall", "Time for which trainers waited, by what for");
        let kinds: Vec<_> = self.kinds.iter().map(|kind| kind.name()).collect();
        for (cause, part) in self.progress.epochs.iter().flat_map(|epoch| epoch.causes.parts()) {
            let cause = report::cause_name(cause, &kinds).to_owned();
            stall.add(vec![("cause", cause)], Value::Seconds(seconds(part)));
        }
        let help = "How long batches had been ready when trainers began to wait for them";
        let mut lead = durations("lead_time", help);
        lead.add(Labels::new(), Value::waits(&self.progress.leads));
        let mut hold = durations("lease_hold", "How long trainers held batches");
        hold.add(Labels::new(), Value::waits(&self.progress.holds));
        let help = "Batches that trainers have or were handed";
        let mut leases = Family::new("leases_active", help, None, FamilyKind::Gauge);
        for (rank, active) in &self.leases {
            leases.add(self.rank(*rank), Value::Count(*active as u64));
        }
        let help = "Batches that are complete and that no trainer has taken";
        let mut ready = Family::new("batches_ready", help, None, FamilyKind::Gauge);
        for (rank, count) in &self.ready {
            ready.add(self.rank(*rank), Value::Count(*count as u64));
        }
        let help = "Batches that trainers went on with as copies, because they keep too many";
        let copyouts = count("lease_copyouts", help, self.copyouts);
        vec![wait, stall, lead, hold, leases, ready, copyouts]
    }

    fn reads(&self) -> Vec<Family> {
        let help = "Bytes read for batches, by where they lay";
        let mut read = Family::new("read", help, Some(Unit::Bytes), FamilyKind::Counter);
        let mut hits = Family::new("hits", "Samples read from a tier", None, FamilyKind::Counter);
        let cold = self.progress.epochs.iter().map(|epoch| epoch.cold.0).sum();
        let labels = |tier: &str, source: &str| {
            vec![("tier", tier.to_owned()), ("source", source.to_owned())]
        };
        read.add(labels(COLD, &self.source), Value::Count(cold));
        let received = self.progress.epochs.iter().map(|epoch| epoch.received.0).sum();
        if received > 0 {
            read.add(labels("none", "peer"), Value::Count(received));
        }
        for (tier, kind) in self.kinds.iter().enumerate() {
            let epochs = self.progress.epochs.iter();
            let sum = epochs.clone().filter_map(|it| it.from_tier.get(tier)).map(|it| it.0).sum();
            read.add(labels(kind.name(), "cache"), Value::Count(sum));
            let samples = epochs.filter_map(|it| it.hits.get(tier)).sum();
            hits.add(vec![("tier", kind.name().to_owned())], Value::Count(samples));
        }
        let mut errors = Family::new("read_errors", "Reads that failed", None, FamilyKind::Counter);
        let mut time = durations("read_duration", "How long reading a sample took");
        for (tier, moves) in self.moves_by_source() {
            let mut failed = BTreeMap::<_, u64>::new();
            moves
                .failed
                .iter()
                .for_each(|(fault, count)| *failed.entry(fault.name()).or_default() += count);
            for (fault, count) in failed {
                let labels = vec![("tier", tier.to_owned()), ("kind", fault.to_owned())];
                errors.add(labels, Value::Count(count));
            }
            let value = Value::durations(&moves.durations, moves.duration);
            time.add(vec![("tier", tier.to_owned())], value);
        }
        vec![read, hits, errors, time]
    }

    /// Reads by source: into staging, and from the cold store also into tiers.
    fn moves_by_source(&self) -> BTreeMap<&'static str, Moves> {
        let is_read =
            |moves: &&Moves| moves.to == Endpoint::Staging || moves.from == Endpoint::Cold;
        let mut reads = BTreeMap::<_, Moves>::new();
        for moves in self.counters.moves.iter().filter(is_read) {
            let sum = reads.entry(self.end(moves.from));
            sum.and_modify(|sum| sum.add(moves)).or_insert_with(|| moves.clone());
        }
        reads
    }

    fn moves(&self) -> Vec<Family> {
        let counter = |name, help, unit| Family::new(name, help, unit, FamilyKind::Counter);
        let mut up = counter("promotions", "Samples copied up, from a tier", None);
        let mut up_bytes = counter("promoted", "Their bytes", Some(Unit::Bytes));
        let mut down = counter("demotions", "Samples copied down, into a tier", None);
        let mut down_bytes = counter("demoted", "Their bytes", Some(Unit::Bytes));
        for moves in &self.counters.moves {
            let labels = || {
                vec![
                    ("from", self.end(moves.from).to_owned()),
                    ("to", self.end(moves.to).to_owned()),
                ]
            };
            let (number, len) = match (moves.from, moves.to) {
                (Endpoint::Tier(_), Endpoint::Staging) => (&mut up, &mut up_bytes),
                (Endpoint::Tier(from), Endpoint::Tier(to)) if to < from => (&mut up, &mut up_bytes),
                (Endpoint::Tier(_) | Endpoint::Staging, Endpoint::Tier(_)) => {
                    (&mut down, &mut down_bytes)
                }
                _ => continue,
            };
            number.add(labels(), Value::Count(moves.operations));
            len.add(labels(), Value::Count(moves.bytes.0));
        }
        let mut evictions = counter("evictions", "Samples that left the tiers", None);
        for (kind, evicted) in self.kinds.iter().zip(&self.progress.evictions) {
            for (reason, count) in [("policy", evicted.policy), ("resized", evicted.resized)] {
                let labels = vec![("tier", kind.name().to_owned()), ("reason", reason.to_owned())];
                evictions.add(labels, Value::Count(count));
            }
        }
        vec![up, up_bytes, down, down_bytes, evictions]
    }

    fn tiers(&self) -> Vec<Family> {
        let gauge = |name, help| Family::new(name, help, Some(Unit::Bytes), FamilyKind::Gauge);
        let mut capacity = gauge("tier_capacity", "What a tier may hold");
        let mut used = gauge("tier_used", "What a tier holds");
        let mut held = gauge("tier_held", "Chunks that a tier takes up");
        for (kind, (most, now)) in self.kinds.iter().zip(&self.levels) {
            let labels = || vec![("tier", kind.name().to_owned())];
            capacity.add(labels(), Value::Count(most.0));
            used.add(labels(), Value::Count(now.0));
        }
        for tier in &self.usage.tiers {
            let labels = vec![("tier", tier.kind.name().to_owned())];
            held.add(labels, Value::Count(tier.bytes.0));
        }
        let mut staging = gauge("staging_held", "Staging memory of all ranks");
        staging.add(Labels::new(), Value::Count(self.usage.arenas.0));
        let says = "Batches that each rank may have staged";
        let mut batches = Family::new("staging_batches_max", says, None, FamilyKind::Gauge);
        batches.add(Labels::new(), Value::Count(self.batches_max.into()));
        let mut memory =
            gauge("memory_held", "Memory of the job, RAM disks included, and of the agent");
        for (of, bytes) in [("job", self.memory.job_bytes), ("agent", self.memory.own_bytes)] {
            memory.add(vec![("of", of.to_owned())], Value::Count(bytes));
        }
        let mut budget = gauge("memory_budget", "What the job may hold");
        budget.add(Labels::new(), Value::Count(self.memory.budget_bytes));
        vec![capacity, used, held, staging, batches, memory, budget]
    }

    fn links(&self) -> Vec<Family> {
        let mut inflight =
            Family::new("io_inflight", "Operations that were given out", None, FamilyKind::Gauge);
        let mut busy = seconds_total("link_busy", "Time for which anything was given out");
        let mut add = |tier: &str, link: &Busy| {
            let labels = || vec![("tier", tier.to_owned())];
            inflight.add(labels(), Value::Count(link.running().into()));
            busy.add(labels(), Value::Seconds(seconds(link.time())));
        };
        add(COLD, &self.progress.cold_busy);
        for (kind, link) in self.kinds.iter().zip(&self.progress.tiers_busy) {
            add(kind.name(), link);
        }
        let help = "Reads of the cold store that may be given out at a time";
        let mut window = Family::new("cold_window", help, None, FamilyKind::Gauge);
        window.add(Labels::new(), Value::Count(self.cold_window as u64));
        vec![inflight, busy, window]
    }

    fn requests(&self) -> Vec<Family> {
        let Some(it) = self.requests else { return Vec::new() };
        vec![
            count("object_requests", "Requests to the bucket, of every kind", it.requests),
            count("object_retries", "Those that repeat one that failed", it.retries),
            count("object_hedges", "Those that were sent because another was late", it.hedges),
            count("object_hedges_won", "Hedges that brought the last byte", it.hedges_won),
            count("object_split", "Samples read by several requests", it.split),
            bytes("object_discarded", "Bytes that came and were of no use", it.discarded),
        ]
    }

    fn page_cache(&self) -> Vec<Family> {
        let Some(it) = self.page_cache else { return Vec::new() };
        let gauge = |name, help, value: Bytes| {
            let mut family = Family::new(name, help, Some(Unit::Bytes), FamilyKind::Gauge);
            family.add(Labels::new(), Value::Count(value.0));
            family
        };
        vec![
            bytes("page_cache_read", "Bytes read cold that the page cache had", it.served),
            gauge("page_cache_left", "What reads left in the page cache", it.left),
            gauge("page_cache_limit", "What they may leave there now", it.limit),
        ]
    }

    fn transforms(&self) -> Vec<Family> {
        let Some(counts) = self.transforms else { return Vec::new() };
        let counter = |name, help| Family::new(name, help, None, FamilyKind::Counter);
        let mut made = counter("transformed_samples", "Samples that became rows, by what came in");
        let mut failed = counter("transform_failures", "Samples that became no row");
        let mut time = seconds_total("transform_work", "Processor time of workers for samples");
        for form in Form::ALL {
            let of_form = || self.progress.epochs.iter().map(|it| it.transforms[form as usize]);
            let labels = || vec![("form", form.name().to_owned())];
            made.add(labels(), Value::Count(of_form().map(|it| it.samples).sum()));
            failed.add(labels(), Value::Count(of_form().map(|it| it.failed).sum()));
            let worked = Nanoseconds(of_form().map(|it| it.time.0).sum());
            time.add(labels(), Value::Seconds(seconds(worked)));
        }
        let help = "The time of a transform, from when it is given out";
        let mut duration = durations("transform_duration", help);
        let lasted = &self.counters.transform_durations;
        duration.add(Labels::new(), Value::durations(&lasted.buckets, lasted.sum));
        let help = "Workers that take samples now";
        let mut workers = Family::new("transform_workers", help, None, FamilyKind::Gauge);
        workers.add(Labels::new(), Value::Count(counts.working as u64));
        let mut ended = counter("transform_workers_ended", "Workers that had to be replaced");
        for (reason, count) in [("crashed", counts.crashed), ("timed-out", counts.timed_out)] {
            ended.add(vec![("reason", reason.to_owned())], Value::Count(count));
        }
        vec![made, failed, time, duration, workers, ended]
    }

    fn pauses(&self) -> Vec<Family> {
        let pauses = self.pauses.durations();
        let help = "For how long the loop did not look at its events";
        let mut pause = durations("loop_pause", help);
        pause.add(Labels::new(), Value::waits(pauses));
        let help = "The longest of these pauses";
        let mut longest =
            Family::new("loop_pause_max", help, Some(Unit::Seconds), FamilyKind::Gauge);
        longest.add(Labels::new(), Value::Seconds(seconds(pauses.max())));
        let help = "The most processor time that the loop took for one event";
        let mut ran = Family::new("loop_ran_max", help, Some(Unit::Seconds), FamilyKind::Gauge);
        ran.add(Labels::new(), Value::Seconds(seconds(self.pauses.cpu_max().1)));
        vec![pause, longest, ran]
    }

    fn rank(&self, rank: Rank) -> Labels {
        vec![("rank", rank.0.saturating_sub(self.first_rank.0).to_string())]
    }

    fn end(&self, end: Endpoint) -> &'static str {
        match end {
            Endpoint::Cold => COLD,
            Endpoint::Staging => "staging",
            Endpoint::Tier(TierId(tier)) => {
                self.kinds.get(usize::from(tier)).map_or("unknown", |kind| kind.name())
            }
        }
    }
}

pub(super) fn count(name: &'static str, help: &'static str, value: u64) -> Family {
    let mut family = Family::new(name, help, None, FamilyKind::Counter);
    family.add(Labels::new(), Value::Count(value));
    family
}

pub(super) fn bytes(name: &'static str, help: &'static str, value: Bytes) -> Family {
    let mut family = Family::new(name, help, Some(Unit::Bytes), FamilyKind::Counter);
    family.add(Labels::new(), Value::Count(value.0));
    family
}

fn durations(name: &'static str, help: &'static str) -> Family {
    Family::new(name, help, Some(Unit::Seconds), FamilyKind::Histogram)
}

fn seconds_total(name: &'static str, help: &'static str) -> Family {
    Family::new(name, help, Some(Unit::Seconds), FamilyKind::Counter)
}
