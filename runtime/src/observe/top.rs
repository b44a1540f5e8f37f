//! The live view `tierfeed top`: a running job between two snapshots.
//!
//! A snapshot is the manager's status of all nodes and the metrics of this node's agent; either may be
//! missing. [`frame`] is a pure function of two snapshots, so a screen can be tested. Counters become rates
//! over the time between the snapshots; a restarted process counts from 0, and one frame has no rates of it.

mod change;
mod links;
mod table;

use std::collections::{BTreeMap, VecDeque};

use tierfeed_core::units::{Bytes, BytesPerSecond, Nanoseconds};

use self::{
    change::{Change, per_second, percent},
    table::Table,
};
use super::{
    metrics::Scrape,
    status::{JobStatus, NodeStatus},
};

#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// On any one clock.
    pub at: Nanoseconds,
    pub status: Option<JobStatus>,
    pub agent: Option<Scrape>,
}

/// The least time that rates are taken over: agents report their progress twice a second.
const RATES_OVER: Nanoseconds = Nanoseconds(2_000_000_000);

#[derive(Debug, Default)]
pub struct History {
    snapshots: VecDeque<Snapshot>,
}

impl History {
    pub fn frame(&mut self, now: Snapshot) -> Vec<String> {
        let is_old = |look: &Snapshot| now.at.0.saturating_sub(look.at.0) >= RATES_OVER.0;
        while self.snapshots.get(1).is_some_and(is_old) {
            self.snapshots.pop_front();
        }
        let lines = frame(self.snapshots.front(), &now);
        self.snapshots.push_back(now);
        lines
    }
}

const RANKS_MAX: usize = 16;

const NODES_MAX: usize = 32;

/// Without an earlier snapshot there are no rates.
#[must_use]
pub fn frame(before: Option<&Snapshot>, now: &Snapshot) -> Vec<String> {
    let passed = before.map(|before| Nanoseconds(now.at.0.saturating_sub(before.at.0)));
    let mut lines = Vec::new();
    if let Some(status) = &now.status {
        let earlier = before.and_then(|before| before.status.as_ref());
        lines.push(job(status, earlier, passed));
        lines.push(String::new());
        let between = between(status, earlier, passed);
        lines.extend(nodes(&between));
        let from_where = links::lines(&between);
        if !from_where.is_empty() {
            lines.push(String::new());
            lines.extend(from_where);
        }
    }
    if let Some(agent) = &now.agent {
        let earlier = before.and_then(|before| before.agent.as_ref());
        let change = Change { before: earlier, now: agent, passed };
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.push(about(&change));
        lines.extend(ranks(&change));
        lines.push(String::new());
        lines.extend(tiers(&change));
        lines.push(String::new());
        lines.extend(sums(&change));
    }
    lines
}

fn job(status: &JobStatus, earlier: Option<&JobStatus>, passed: Option<Nanoseconds>) -> String {
    let batches = |status: &JobStatus| status.joined.iter().map(|node| node.batches).sum::<u64>();
    let done = batches(status);
    let rate = earlier.and_then(|earlier| per_second(batches(earlier), done, passed?));
    let left = rate.filter(|rate| *rate > 0.0).map(|rate| {
        let seconds = float(status.batches.saturating_sub(done)) / rate;
        format!(", {} left at this rate", span(seconds))
    });
    format!(
        "{}: {} of {} nodes, batch {done} of {} ({}){}{}",
        status.job,
        status.joined.len(),
        status.nodes,
        status.batches,
        percent(float(done), float(status.batches)),
        left.unwrap_or_default(),
        if status.draining { ", draining" } else { "" },
    )
}

struct Between<'a> {
    earlier: Option<&'a NodeStatus>,
    now: &'a NodeStatus,
    passed: Option<Nanoseconds>,
}

impl Between<'_> {
    fn rate(&self, of: impl Fn(&NodeStatus) -> u64) -> Option<f64> {
        per_second(of(self.earlier?), of(self.now), self.passed?)
    }
}

/// The nodes of a status, each with how it was before; those whose trainers wait longest come first.
fn between<'a>(
    status: &'a JobStatus,
    earlier: Option<&'a JobStatus>,
    passed: Option<Nanoseconds>,
) -> Vec<Between<'a>> {
    let of = |now: &'a NodeStatus| {
        let same =
            |other: &&NodeStatus| other.node == now.node && other.generation == now.generation;
        let earlier = earlier.and_then(|it| it.joined.iter().find(same));
        Between { earlier, now, passed }
    };
    let mut nodes: Vec<_> = status.joined.iter().map(of).collect();
    nodes.sort_by(|one, other| {
        let waiting = |node: &Between<'_>| node.rate(|it| it.stall_ns).unwrap_or(0.0);
        waiting(other).total_cmp(&waiting(one))
    });
    nodes
}

fn nodes(nodes: &[Between<'_>]) -> Vec<String> {
    let mut table = Table::new(&[
        "node",
        "state",
        "batches",
        "samples/s",
        "handed over",
        "cold",
        "waiting",
        "faults",
    ]);
    for between in nodes.iter().take(NODES_MAX) {
        let node = between.now;
        let rate = |of: fn(&NodeStatus) -> u64| between.rate(of);
        let waiting = rate(|it| it.stall_ns).map(|share| percent(share / 1e9, 1.0));
        table.row([
            node.node.to_string(),
            node.state.name().to_owned(),
            node.batches.to_string(),
            number(rate(|it| it.samples)),
            bytes_rate(rate(|it| it.handed_over_bytes)),
            bytes_rate(rate(|it| it.cold_read_bytes)),
            waiting.unwrap_or_else(unknown),
            node.faults.to_string(),
        ]);
    }
    let mut lines = table.lines();
    let more = nodes.len().saturating_sub(NODES_MAX);
    lines.extend((more > 0).then(|| format!("and {more} more nodes; `tierfeed status` lists all")));
    lines
}

fn about(change: &Change<'_>) -> String {
    let backend = change.label("tierfeed_io_backend_info", "backend").unwrap_or("unknown");
    let job = change.label("tierfeed_job_info", "job").unwrap_or("unknown");
    let policy = change.label("tierfeed_job_info", "policy").unwrap_or("unknown");
    format!("agent of this node: {job}, policy {policy}, cold store read by {backend}")
}

fn ranks(change: &Change<'_>) -> Vec<String> {
    let mut table = Table::new(&["rank", "steps", "steps/s", "ready", "held", "waiting"]);
    let steps = change.by("tierfeed_batch_wait_seconds_count", "rank");
    let waited = change.rates_by("tierfeed_batch_wait_seconds_sum", "rank");
    let rates = change.rates_by("tierfeed_batch_wait_seconds_count", "rank");
    let ready = change.by("tierfeed_batches_ready", "rank");
    let held = change.by("tierfeed_leases_active", "rank");
    let mut ranks: Vec<&str> = ready.keys().chain(steps.keys()).copied().collect();
    ranks.sort_by_key(|rank| (rank.len(), *rank));
    ranks.dedup();
    for rank in ranks.iter().take(RANKS_MAX) {
        let whole =
            |of: &BTreeMap<&str, f64>| format!("{:.0}", of.get(rank).copied().unwrap_or(0.0));
        table.row([
            (*rank).to_owned(),
            whole(&steps),
            number(rates.get(rank).copied()),
            whole(&ready),
            whole(&held),
            waited.get(rank).map_or_else(unknown, |share| percent(*share, 1.0)),
        ]);
    }
    let mut lines = table.lines();
    let more = ranks.len().saturating_sub(RANKS_MAX);
    lines.extend((more > 0).then(|| format!("and {more} more ranks")));
    lines
}

fn tiers(change: &Change<'_>) -> Vec<String> {
    let mut table =
        Table::new(&["tier", "may hold", "holds", "full", "read", "written", "running"]);
    let (capacity, used) = (
        change.by("tierfeed_tier_capacity_bytes", "tier"),
        change.by("tierfeed_tier_used_bytes", "tier"),
    );
    let read = change.rates_by("tierfeed_read_bytes_total", "tier");
    let written = change.rates_by("tierfeed_demoted_bytes_total", "to");
    let running = change.by("tierfeed_io_inflight", "tier");
    let names = ["main-memory", "cxl-memory", "scratch", "storage", "cold"];
    for name in names.into_iter().filter(|name| running.contains_key(name)) {
        let level =
            |of: &BTreeMap<&str, f64>| of.get(name).map_or_else(unknown, |value| size(*value));
        let full = capacity.get(name).map_or_else(unknown, |capacity| {
            percent(used.get(name).copied().unwrap_or(0.0), *capacity)
        });
        table.row([
            name.to_owned(),
            level(&capacity),
            level(&used),
            full,
            bytes_rate(read.get(name).copied()),
            // A tier without writes has no series.
            bytes_rate(written.get(name).copied().or_else(|| change.passed.map(|_| 0.0))),
            format!("{:.0}", running.get(name).copied().unwrap_or(0.0)),
        ]);
    }
    table.lines()
}

fn sums(change: &Change<'_>) -> Vec<String> {
    let value = |name| change.value(name);
    let of = change.by("tierfeed_memory_held_bytes", "of");
    let held = |of_what: &str| of.get(of_what).copied().unwrap_or(0.0);
    let budget = value("tierfeed_memory_budget_bytes");
    let mut lines = vec![format!(
        "memory: {} held of {} that the job may ({}), {} of it staging; {} beside it of the agent itself",
        size(held("job")),
        size(budget),
        percent(held("job"), budget),
        size(value("tierfeed_staging_held_bytes")),
        size(held("agent")),
    )];
    lines.push(waits(change));
    lines.extend(transforms(change));
    lines.push(format!(
        "{:.0} late batches, {:.0} copied out, {} read in vain, {:.0} unreadable samples, {:.0} faults of tiers",
        value("tierfeed_prefetch_late_total"),
        value("tierfeed_lease_copyouts_total"),
        size(value("tierfeed_prefetch_wasted_bytes_total")),
        value("tierfeed_sample_faults_total"),
        value("tierfeed_tier_faults_total"),
    ));
    if change.has("tierfeed_object_requests_total") {
        lines.push(format!(
            "requests: {:.0}, {:.0} repeated, {:.0} hedged, {:.0} of these in time",
            value("tierfeed_object_requests_total"),
            value("tierfeed_object_retries_total"),
            value("tierfeed_object_hedges_total"),
            value("tierfeed_object_hedges_won_total"),
        ));
    }
    lines
}

/// What transform workers do; nothing for a job without a transform.
fn transforms(change: &Change<'_>) -> Option<String> {
    const SAMPLES: &str = "tierfeed_transformed_samples_total";
    const WORK: &str = "tierfeed_transform_work_seconds_total";
    if !change.has("tierfeed_transform_workers") {
        return None;
    }
    let rate = |name| {
        change.differences_by(name, "form")?;
        let rates = change.rates_by(name, "form");
        change.passed.filter(|passed| passed.0 > 0).map(|_| rates.values().sum::<f64>())
    };
    let ended = change.by("tierfeed_transform_workers_ended_total", "reason");
    let of = |reason| ended.get(reason).copied().unwrap_or(0.0);
    Some(format!(
        "transforms: {} samples/s by {:.0} workers on {} cores; {:.0} became no row; {:.0} workers crashed, {:.0} \
         took too long",
        number(rate(SAMPLES)),
        change.value("tierfeed_transform_workers"),
        number(rate(WORK)),
        change.value("tierfeed_transform_failures_total"),
        of("crashed"),
        of("timed-out"),
    ))
}

/// A smaller share of the time is shown as none.
const SHOWN_SHARE: f64 = 0.0005;

/// The causes of waits between two snapshots, the longest first, as shares of the time of all ranks; with one
/// snapshot only, in seconds since the start.
fn waits(change: &Change<'_>) -> String {
    const NAME: &str = "tierfeed_stall_seconds_total";
    let ranks = change.by("tierfeed_batches_ready", "rank").len().max(1);
    let share = |rate: f64| rate / float(ranks as u64);
    let (mut parts, when) = match change.differences_by(NAME, "cause") {
        Some(_) => (change.rates_by(NAME, "cause"), "now"),
        None => (change.by(NAME, "cause"), "since the start"),
    };
    let is_now = when == "now";
    parts.retain(|_, part| if is_now { share(*part) >= SHOWN_SHARE } else { *part > 0.0 });
    let mut parts: Vec<_> = parts.into_iter().collect();
    parts.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let word = |part: f64| {
        if is_now {
            format!("{} of the time", percent(share(part), 1.0))
        } else {
            format!("{part:.2} s")
        }
    };
    let words: Vec<_> =
        parts.iter().map(|(cause, part)| format!("{cause} {}", word(*part))).collect();
    if words.is_empty() {
        return format!("waiting {when}: for nothing");
    }
    format!("waiting {when}: {}", words.join(", "))
}

fn unknown() -> String {
    "-".to_owned()
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(unknown, |value| format!("{value:.1}"))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes are not negative, and are shown to two decimals"
)]
fn size(bytes: f64) -> String {
    Bytes(bytes.max(0.0) as u64).to_string()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are not negative, and are shown to two decimals"
)]
fn bytes_rate(rate: Option<f64>) -> String {
    let shown = |rate: f64| BytesPerSecond(rate.max(0.0) as u64).to_string();
    rate.map_or_else(unknown, shown)
}

fn span(seconds: f64) -> String {
    match seconds {
        it if it < 120.0 => format!("{it:.0} s"),
        it if it < 7200.0 => format!("{:.0} min", it / 60.0),
        it => format!("{:.1} h", it / 3600.0),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
