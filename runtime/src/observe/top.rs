//! The live view `tierfeed top`: a running job between two snapshots.
//!
//! A snapshot is the manager's status of all nodes and the figures of this node's agent; either may be
//! missing. [`frame`] is a pure function of two snapshots, so a screen can be tested. Counters become rates
//! over the time between the snapshots; a restarted process counts from 0, and one frame has no rates of it.

mod change;
mod links;
mod table;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tierfeed_core::{
    session::{TransformCount, Waits},
    tier::Kind,
    units::{Bytes, BytesPerSecond, Nanoseconds, float, seconds},
};
use tierfeed_prefetcher::{fetcher::ObjectFigures, transforms::Counts};

use self::{
    change::{Change, percent},
    table::Table,
};
use super::{
    node_figures::{COLD, NodeFigures},
    status::{JobStatus, NodeStatus},
};

pub const FIGURES_BYTES_MAX: u64 = 4 << 20;

#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// On any one clock.
    pub at: Nanoseconds,
    pub status: Option<JobStatus>,
    pub agent: Option<NodeFigures>,
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
        let before = before.and_then(|before| before.status.as_ref());
        lines.push(job(&Change { before, now: status, passed }));
        lines.push(String::new());
        let of_nodes = of_nodes(status, before, passed);
        lines.extend(nodes(&of_nodes));
        let from_where = links::lines(&of_nodes);
        if !from_where.is_empty() {
            lines.push(String::new());
            lines.extend(from_where);
        }
    }
    if let Some(agent) = &now.agent {
        let earlier = before.and_then(|before| before.agent.as_ref());
        // Another process counts from 0.
        let before = earlier.filter(|it| it.total.demand <= agent.total.demand);
        let change = Change { before, now: agent, passed };
        if !lines.is_empty() {
            lines.push(String::new());
        }
        let NodeFigures { job, policy, backend, .. } = agent;
        lines.push(format!(
            "agent of this node: {job}, policy {policy}, cold store read by {backend}"
        ));
        lines.extend(ranks(&change));
        lines.push(String::new());
        lines.extend(tiers(&change));
        lines.push(String::new());
        lines.extend(sums(&change));
    }
    lines
}

fn job(change: &Change<'_, JobStatus>) -> String {
    let status = change.now;
    let batches = |status: &JobStatus| status.joined.iter().map(|node| node.batches).sum::<u64>();
    let done = batches(status);
    let left = change.rate(batches).filter(|rate| *rate > 0.0).map(|rate| {
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

/// The nodes of a status, each with how it was before; those whose trainers wait longest come first.
fn of_nodes<'a>(
    status: &'a JobStatus,
    earlier: Option<&'a JobStatus>,
    passed: Option<Nanoseconds>,
) -> Vec<Change<'a, NodeStatus>> {
    let of = |now: &'a NodeStatus| {
        let same =
            |other: &&NodeStatus| other.node == now.node && other.generation == now.generation;
        let before = earlier.and_then(|it| it.joined.iter().find(same));
        Change { before, now, passed }
    };
    let mut nodes: Vec<_> = status.joined.iter().map(of).collect();
    let waiting = |node: &Change<'_, NodeStatus>| node.rate(|it| it.stall_ns).unwrap_or(0.0);
    nodes.sort_by(|one, other| waiting(other).total_cmp(&waiting(one)));
    nodes
}

fn nodes(nodes: &[Change<'_, NodeStatus>]) -> Vec<String> {
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
    for change in nodes.iter().take(NODES_MAX) {
        let node = change.now;
        let rate = |of: fn(&NodeStatus) -> u64| change.rate(of);
        let waiting = change.share(|it| Nanoseconds(it.stall_ns));
        table.row([
            node.node.to_string(),
            node.state.name().to_owned(),
            node.batches.to_string(),
            number(rate(|it| it.samples)),
            bytes_rate(rate(|it| it.handed_over_bytes)),
            bytes_rate(rate(|it| it.cold_read_bytes)),
            waiting.map_or_else(unknown, |share| percent(share, 1.0)),
            node.faults.to_string(),
        ]);
    }
    let mut lines = table.lines();
    let more = nodes.len().saturating_sub(NODES_MAX);
    lines.extend((more > 0).then(|| format!("and {more} more nodes; `tierfeed status` lists all")));
    lines
}

fn ranks(change: &Change<'_, NodeFigures>) -> Vec<String> {
    let mut table = Table::new(&["rank", "steps", "steps/s", "ready", "held", "waiting"]);
    let NodeFigures { waits, ready, leases, .. } = change.now;
    let ranks: BTreeSet<u32> = ready.keys().chain(waits.keys()).copied().collect();
    for rank in ranks.iter().take(RANKS_MAX) {
        let steps = |it: &NodeFigures| it.waits.get(rank).map_or(0, Waits::count);
        let waited = |it: &NodeFigures| it.waits.get(rank).map_or(Nanoseconds(0), Waits::sum);
        let count = |of: &BTreeMap<u32, u64>| of.get(rank).copied().unwrap_or(0).to_string();
        table.row([
            rank.to_string(),
            steps(change.now).to_string(),
            number(change.rate(steps)),
            count(ready),
            count(leases),
            change.share(waited).map_or_else(unknown, |share| percent(share, 1.0)),
        ]);
    }
    let mut lines = table.lines();
    let more = ranks.len().saturating_sub(RANKS_MAX);
    lines.extend((more > 0).then(|| format!("and {more} more ranks")));
    lines
}

fn tiers(change: &Change<'_, NodeFigures>) -> Vec<String> {
    let mut table =
        Table::new(&["tier", "may hold", "holds", "full", "read", "written", "running"]);
    for kind in Kind::ALL.into_iter().filter(|kind| change.now.kinds.contains(kind)) {
        // Tiers of one kind are one.
        let at: Vec<_> = (0..).zip(&change.now.kinds).filter(|(_, it)| **it == kind).collect();
        let sum = |of: &dyn Fn(usize) -> u64| at.iter().map(|(at, _)| of(*at)).sum::<u64>();
        let capacity = sum(&|at| change.now.levels.get(at).map_or(0, |(most, _)| most.0));
        let used = sum(&|at| change.now.levels.get(at).map_or(0, |(_, now)| now.0));
        let read = |it: &NodeFigures| sum(&|at| it.total.from_tier.get(at).map_or(0, |it| it.0));
        let links = &change.now.tiers_busy;
        let running = |at| links.get::<usize>(at).map_or(0, |it| u64::from(it.running()));
        let name = kind.name();
        table.row([
            name.to_owned(),
            Bytes(capacity).to_string(),
            Bytes(used).to_string(),
            percent(float(used), float(capacity)),
            bytes_rate(change.rate(read)),
            bytes_rate(change.rate(|it| it.demoted_to(name).0)),
            sum(&running).to_string(),
        ]);
    }
    table.row([
        COLD.to_owned(),
        unknown(),
        unknown(),
        unknown(),
        bytes_rate(change.rate(|it| it.total.cold.0)),
        bytes_rate(change.rate(|_| 0)),
        change.now.cold_busy.running().to_string(),
    ]);
    table.lines()
}

fn sums(change: &Change<'_, NodeFigures>) -> Vec<String> {
    let it = change.now;
    let budget = it.memory_budget;
    let mut lines = vec![format!(
        "memory: {} held of {budget} that the job may ({}), {} of it staging; {} beside it of the agent itself",
        it.job_memory,
        percent(float(it.job_memory.0), float(budget.0)),
        it.staging_held,
        it.own_memory,
    )];
    lines.push(waits(change));
    lines.extend(transforms(change));
    lines.push(format!(
        "{} late batches, {} copied out, {} read in vain, {} unreadable samples, {} faults of tiers",
        it.total.late, it.copyouts, it.wasted, it.fault_count, it.tier_faults,
    ));
    lines.extend(it.requests.map(|it| {
        let ObjectFigures { requests, retries, hedges, hedges_won, .. } = it;
        format!(
            "requests: {requests}, {retries} repeated, {hedges} hedged, {hedges_won} of these in time"
        )
    }));
    lines
}

/// What transform workers do; nothing for a job without a transform.
fn transforms(change: &Change<'_, NodeFigures>) -> Option<String> {
    let Counts { working, crashed, timed_out, .. } = change.now.transforms?;
    let sum = |it: &NodeFigures, of: fn(&TransformCount) -> u64| {
        it.total.transforms.iter().map(of).sum::<u64>()
    };
    let worked = |it: &NodeFigures| Nanoseconds(sum(it, |it| it.time.0));
    Some(format!(
        "transforms: {} samples/s by {working} workers on {} cores; {} became no row; {crashed} workers crashed, \
         {timed_out} took too long",
        number(change.rate(|it| sum(it, |it| it.samples))),
        number(change.share(worked)),
        sum(change.now, |it| it.failed),
    ))
}

/// A smaller share of the time is shown as none.
const SHOWN_SHARE: f64 = 0.0005;

/// The causes of waits between two snapshots, the longest first, as shares of the time of all ranks; with one
/// snapshot only, in seconds since the start.
fn waits(change: &Change<'_, NodeFigures>) -> String {
    let ranks = float(change.now.ready.len().max(1) as u64);
    let causes: BTreeSet<_> = change.now.stalls().map(|(cause, _)| cause).collect();
    let waited = |it: &NodeFigures, cause: &str| {
        let of_cause = it.stalls().filter(|(other, _)| *other == cause);
        Nanoseconds(of_cause.map(|(_, part)| part.0).sum())
    };
    let part = |cause| match change.before {
        Some(_) => change.share(|it| waited(it, cause)).map(|share| share / ranks),
        None => Some(seconds(waited(change.now, cause))),
    };
    let least = if change.before.is_some() { SHOWN_SHARE } else { f64::MIN_POSITIVE };
    let mut parts: Vec<_> = causes.iter().filter_map(|it| Some((*it, part(it)?))).collect();
    parts.retain(|(_, part)| *part >= least);
    parts.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let word = |(cause, part): &(&str, f64)| match change.before {
        Some(_) => format!("{cause} {} of the time", percent(*part, 1.0)),
        None => format!("{cause} {part:.2} s"),
    };
    let words: Vec<_> = parts.iter().map(word).collect();
    let when = if change.before.is_some() { "now" } else { "since the start" };
    let words = if words.is_empty() { "for nothing".to_owned() } else { words.join(", ") };
    format!("waiting {when}: {words}")
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

#[cfg(test)]
mod tests;
