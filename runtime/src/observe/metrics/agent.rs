//! The metrics of an agent. docs/metrics.md lists them; a test compares the names.

use std::collections::BTreeMap;

use prometheus_client::metrics::MetricType::{Counter, Gauge, Histogram};
use tierfeed_core::session::{Fault, Form};
use tierfeed_prefetcher::{fetcher::ObjectFigures, plane::Moves, recorder::Endpoint};

use super::{Families, Labels, Value, labelled, one};
use crate::observe::node_figures::{COLD, NodeFigures, is_down, is_up};

#[must_use]
pub fn of_agent(it: &NodeFigures) -> Families {
    let mut to = Families::default();
    to.version();
    to.info("io_backend", "What reads the cold store", [("backend", &it.backend)]);
    to.about(&it.job, &it.policy);
    let groups =
        [delivered, waits, reads, moves, tiers, memory, links, requests, transforms, pauses];
    groups.into_iter().for_each(|group| group(it, &mut to));
    to
}

fn delivered(it: &NodeFigures, to: &mut Families) {
    let total = &it.total;
    let help = "Batches that trainers read from the cold store themselves";
    to.add(Counter, "batches", "Batches that trainers took", one(total.batches));
    to.add(Counter, "self_read_batches", help, one(total.self_read_batches));
    let help = "Samples left out, as the job skips what cannot be read";
    to.add(Counter, "skipped_samples", help, one(total.skipped));
    to.add(Counter, "samples", "Samples in them", one(total.samples));
    to.add(Counter, "handed_over_bytes", "Bytes in them", one(total.demand));
    to.add(Counter, "misses", "Samples read from the cold store", one(total.misses));
    to.add(Counter, "prefetch_late", "Batches that were not ready", one(total.late));
    to.add(Counter, "prefetch_wasted_bytes", "Bytes read and not used", one(it.wasted));
    let help = "Bytes read from the cold store into tiers, ahead of staging";
    to.add(Counter, "prefetch_ahead_bytes", help, one(total.ahead));
    to.add(Counter, "sample_faults", "Samples that could not be read", one(it.fault_count));
    to.add(Counter, "tier_faults", "Operations of tiers that failed", one(it.tier_faults));
    let reasons = [
        ("not-in-order", it.refusals.not_in_order),
        ("not-published", it.refusals.not_published),
        ("unreadable", it.refusals.unreadable),
        ("too-large", it.refusals.too_large),
        ("already-taken", it.refusals.already_taken),
        ("no-room", it.refusals.no_room),
        ("too-many-jumps", it.refusals.too_many_jumps),
        ("no-worker", it.refusals.no_worker),
    ];
    let help = "Requests of trainers that got no batch";
    to.add(Counter, "refusals", help, by("reason", reasons));
}

fn waits(it: &NodeFigures, to: &mut Families) {
    let help = "How long trainers waited for a batch";
    to.add(Histogram, "batch_wait_seconds", help, by_rank(&it.waits));
    let help = "Time for which trainers waited, by what for";
    to.add(Counter, "stall_seconds", help, by("cause", it.stalls()));
    let help = "How long batches had been ready when trainers began to wait for them";
    to.add(Histogram, "lead_time_seconds", help, one(&it.leads));
    to.add(Histogram, "lease_hold_seconds", "How long trainers held batches", one(&it.holds));
    let help = "Batches that trainers have or were handed";
    to.add(Gauge, "leases_active", help, by_rank(&it.leases));
    let help = "Batches that are complete and that no trainer has taken";
    to.add(Gauge, "batches_ready", help, by_rank(&it.ready));
    let help = "Batches that trainers went on with as copies, because they keep too many";
    to.add(Counter, "lease_copyouts", help, one(it.copyouts));
}

fn reads(it: &NodeFigures, to: &mut Families) {
    let source = |tier, source, bytes| labelled([("tier", tier), ("source", source)], bytes);
    let cold = source(COLD, &it.source, it.total.cold);
    let received = it.total.received;
    let received = (received.0 > 0).then(|| source("none", "peer", received));
    let tiers = it.kinds.iter().zip(&it.total.from_tier);
    let tiers = tiers.map(|(kind, bytes)| source(kind.name(), "cache", *bytes));
    let all = [cold].into_iter().chain(received).chain(tiers);
    to.add(Counter, "read_bytes", "Bytes read for batches, by where they lay", all);
    to.add(Counter, "hits", "Samples read from a tier", by_tier(it, it.total.hits.iter().copied()));
    let is_read = |moves: &&Moves| moves.to == Endpoint::Staging || moves.from == Endpoint::Cold;
    let moves = || it.moves.iter().filter(is_read).map(|moves| (it.end_name(moves.from), moves));
    let errors = moves().flat_map(|(tier, moves)| {
        let of_fault = move |(fault, count): &(Fault, u64)| {
            labelled([("tier", tier), ("kind", fault.name())], *count)
        };
        moves.failed.iter().map(of_fault)
    });
    to.add(Counter, "read_errors", "Reads that failed", errors);
    let lasted = moves().map(|(tier, moves)| (tier, &moves.lasted));
    let help = "How long reading a sample took";
    to.add(Histogram, "read_duration_seconds", help, by("tier", lasted));
}

fn moves(it: &NodeFigures, to: &mut Families) {
    let ends = |moves: &Moves, value: Value| {
        labelled([("from", it.end_name(moves.from)), ("to", it.end_name(moves.to))], value)
    };
    let all = || it.moves.iter();
    let number = |moves| ends(moves, moves.operations.into());
    let len = |moves| ends(moves, moves.bytes.into());
    let help = "Samples copied up, from a tier";
    to.add(Counter, "promotions", help, all().filter(|it| is_up(it)).map(number));
    to.add(Counter, "promoted_bytes", "Their bytes", all().filter(|it| is_up(it)).map(len));
    let help = "Samples copied down, into a tier";
    to.add(Counter, "demotions", help, all().filter(|it| is_down(it)).map(number));
    to.add(Counter, "demoted_bytes", "Their bytes", all().filter(|it| is_down(it)).map(len));
    let evicted = it.kinds.iter().zip(&it.evictions).flat_map(|(kind, evicted)| {
        let reasons = [("policy", evicted.policy), ("resized", evicted.resized)];
        reasons.map(|(reason, count)| labelled([("tier", kind.name()), ("reason", reason)], count))
    });
    to.add(Counter, "evictions", "Samples that left the tiers", evicted);
}

fn tiers(it: &NodeFigures, to: &mut Families) {
    let (most, now) = it.levels.iter().copied().unzip::<_, _, Vec<_>, Vec<_>>();
    to.add(Gauge, "tier_capacity_bytes", "What a tier may hold", by_tier(it, most));
    to.add(Gauge, "tier_used_bytes", "What a tier holds", by_tier(it, now));
    let held = it.held.iter().map(|(kind, bytes)| (kind.name(), *bytes));
    to.add(Gauge, "tier_held_bytes", "Chunks that a tier takes up", by("tier", held));
}

fn memory(it: &NodeFigures, to: &mut Families) {
    to.add(Gauge, "staging_held_bytes", "Staging memory of all ranks", one(it.staging_held));
    let help = "Batches that each rank may have staged";
    to.add(Gauge, "staging_batches_max", help, one(it.batches_max));
    let help = "Memory of the job, RAM disks included, and of the agent";
    let parts = [("job", it.job_memory), ("agent", it.own_memory)];
    to.add(Gauge, "memory_held_bytes", help, by("of", parts));
    to.add(Gauge, "memory_budget_bytes", "What the job may hold", one(it.memory_budget));
}

fn links(it: &NodeFigures, to: &mut Families) {
    let tiers = it.kinds.iter().map(|kind| kind.name()).zip(&it.tiers_busy);
    let links = || [(COLD, &it.cold_busy)].into_iter().chain(tiers.clone());
    let running = links().map(|(tier, link)| (tier, link.running()));
    to.add(Gauge, "io_inflight", "Operations that were given out", by("tier", running));
    let busy = links().map(|(tier, link)| (tier, link.time()));
    let help = "Time for which anything was given out";
    to.add(Counter, "link_busy_seconds", help, by("tier", busy));
    let help = "Reads of the cold store that may be given out at a time";
    to.add(Gauge, "cold_window", help, one(it.cold_window));
}

fn requests(it: &NodeFigures, to: &mut Families) {
    if let Some(of_bucket) = it.requests {
        let ObjectFigures { requests, retries, hedges, hedges_won, split, discarded } = of_bucket;
        let help = "Requests to the bucket, of every kind";
        to.add(Counter, "object_requests", help, one(requests));
        to.add(Counter, "object_retries", "Those that repeat one that failed", one(retries));
        let help = "Those that were sent because another was late";
        to.add(Counter, "object_hedges", help, one(hedges));
        let help = "Hedges that brought the last byte";
        to.add(Counter, "object_hedges_won", help, one(hedges_won));
        to.add(Counter, "object_split", "Samples read by several requests", one(split));
        let help = "Bytes that came and were of no use";
        to.add(Counter, "object_discarded_bytes", help, one(discarded));
    }
    if let Some(cache) = it.page_cache {
        let help = "Bytes read cold that the page cache had";
        to.add(Counter, "page_cache_read_bytes", help, one(cache.served));
        let help = "What reads left in the page cache";
        to.add(Gauge, "page_cache_left_bytes", help, one(cache.left));
        to.add(Gauge, "page_cache_limit_bytes", "What they may leave there now", one(cache.limit));
    }
}

fn transforms(it: &NodeFigures, to: &mut Families) {
    let Some(counts) = it.transforms else { return };
    let forms = || Form::ALL.map(|form| (form.name(), it.total.transforms[form as usize]));
    let help = "Samples that became rows, by what came in";
    let made = forms().map(|(form, it)| (form, it.samples));
    to.add(Counter, "transformed_samples", help, by("form", made));
    let failed = forms().map(|(form, it)| (form, it.failed));
    to.add(Counter, "transform_failures", "Samples that became no row", by("form", failed));
    let worked = forms().map(|(form, it)| (form, it.time));
    let help = "Processor time of workers for samples";
    to.add(Counter, "transform_work_seconds", help, by("form", worked));
    let lasted = &it.transform_durations;
    let help = "The time of a transform, from when it is given out";
    to.add(Histogram, "transform_duration_seconds", help, one(lasted));
    let working = counts.working as u64;
    to.add(Gauge, "transform_workers", "Workers that take samples now", one(working));
    let ended = [("crashed", counts.crashed), ("timed-out", counts.timed_out)];
    let help = "Workers that had to be replaced";
    to.add(Counter, "transform_workers_ended", help, by("reason", ended));
}

fn pauses(it: &NodeFigures, to: &mut Families) {
    to.add(Counter, "agent_cpu_seconds", "CPU time of the agent's process", one(it.own_cpu));
    let help = "For how long the loop did not look at its events";
    to.add(Histogram, "loop_pause_seconds", help, one(&it.pauses));
    let longest = one(it.pauses.max());
    to.add(Gauge, "loop_pause_max_seconds", "The longest of these pauses", longest);
    let help = "The most processor time that the loop took for one event";
    to.add(Gauge, "loop_ran_max_seconds", help, one(it.ran_max));
}

fn by<'a, V: Into<Value>>(
    label: &'static str,
    values: impl IntoIterator<Item = (&'a str, V)>,
) -> impl Iterator<Item = (Labels, Value)> {
    values.into_iter().map(move |(name, value)| labelled([(label, name)], value))
}

fn by_tier<V: Into<Value>>(
    it: &NodeFigures,
    values: impl IntoIterator<Item = V>,
) -> impl Iterator<Item = (Labels, Value)> {
    by("tier", it.kinds.iter().map(|kind| kind.name()).zip(values))
}

fn by_rank<'a, V>(of_ranks: &'a BTreeMap<u32, V>) -> impl Iterator<Item = (Labels, Value)>
where
    &'a V: Into<Value>,
{
    of_ranks.iter().map(|(rank, value)| labelled([("rank", &rank.to_string())], value))
}
