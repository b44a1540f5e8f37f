//! Prints a demand, a verdict and advice as text.

use std::fmt::Write as _;

use tierfeed_core::units::Nanoseconds;

use super::{Advice, Bound, Demand, ReadRate, Verdict, seconds::in_words as seconds};

/// The lines of `tierfeed analyze` about the demand.
#[must_use]
pub fn table(demand: &Demand, verdict: &Verdict) -> String {
    let mut text = String::new();
    for (name, value) in rows(demand, verdict) {
        writeln!(text, "{name:<20}{value}").expect("writing to a string cannot fail");
    }
    text
}

/// The first lines of `tierfeed analyze`: whether the tiers can meet the demand, and which changes help.
#[must_use]
pub fn summary(demand: &Demand, verdict: &Verdict, advice: &[Advice]) -> String {
    let mut text = format!("{:<20}{}\n", "verdict", sentence(demand, verdict));
    for it in advice {
        let (change, from, to) = (it.change.name(), &it.from, &it.to);
        let (before, after) = (seconds(it.before), seconds(it.after));
        writeln!(
            text,
            "{:<20}{change} from {from} to {to}: the job waits {after} instead of {before}; {}",
            "advice", it.reason
        )
        .expect("writing to a string cannot fail");
    }
    text
}

/// Leaves out the rows that are unknown without the step time: the verdict says that once.
fn rows(demand: &Demand, verdict: &Verdict) -> Vec<(&'static str, String)> {
    let mut rows = every_row(demand, verdict);
    rows.retain(|(_, text)| *text != unknown());
    rows
}

fn every_row(demand: &Demand, verdict: &Verdict) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("dataset", format!("{} samples, {}", demand.samples, demand.total)),
        ("ranks", format!("{} on {} nodes", demand.nodes * demand.ranks_per_node, demand.nodes)),
        (
            "per rank and epoch",
            format!("{} samples in {} steps", demand.samples_per_rank, demand.steps_per_epoch),
        ),
        ("batch", format!("{} on average, {} p99", demand.batch_mean, demand.batch_p99)),
        (
            "staged per node",
            format!("{} for {} batches a rank", demand.staged_per_node, demand.batches_ahead),
        ),
        ("demand per rank", rate(demand.rank, demand.rank_p99)),
        ("demand per node", rate(demand.node, demand.node_p99)),
        ("lead", demand.lead.map_or_else(unknown, |lead| lead.to_string())),
    ];
    for tier in &verdict.tiers {
        let time = match tier.time {
            Nanoseconds(0) if tier.read.0 > 0 => "a time that is not known".to_owned(),
            time => seconds(time),
        };
        let load = format!(
            "keeps {}, gives {} in {} samples in {time}",
            tier.cached, tier.read, tier.requests
        );
        rows.push((tier.kind.name(), load));
    }
    rows.extend([
        (
            "cold store",
            format!(
                "gives {} an epoch (at least {}), {}",
                verdict.cold,
                verdict.minimal_cold,
                cold_time(verdict)
            ),
        ),
        ("compute per epoch", verdict.compute.map_or_else(unknown, seconds)),
        (
            "epoch at least",
            format!(
                "{} ({} for the first)",
                seconds(verdict.lower_bound),
                seconds(verdict.first_epoch_lower_bound)
            ),
        ),
    ]);
    let keeps = |it: &super::RuleOutcome| {
        let stall = it.stall.map_or_else(String::new, |stall| format!(" ({})", seconds(stall)));
        format!("{} {:.1} %{stall}", it.policy.name(), it.hit_ratio * 100.0)
    };
    let policies: Vec<_> = verdict.policies.iter().map(keeps).collect();
    rows.push(("hits (stall)", policies.join(", ")));
    rows
}

fn rate(mean: Option<ReadRate>, p99: Option<ReadRate>) -> String {
    let words = |(mean, p99): (ReadRate, ReadRate)| {
        format!("{} ({} p99), {} samples/s", mean.bytes, p99.bytes, mean.requests_per_s)
    };
    mean.zip(p99).map_or_else(unknown, words)
}

fn unknown() -> String {
    "unknown without `step_time`".to_owned()
}

fn cold_time(verdict: &Verdict) -> String {
    match verdict.cold_rate.0 {
        0 => format!("its rate is not known; each node needs {}", cold_needed(verdict)),
        _ => format!("each node reads for {}", seconds(verdict.cold_time)),
    }
}

fn cold_needed(verdict: &Verdict) -> String {
    match verdict.cold_needed.zip(verdict.first_epoch_cold_needed) {
        Some((later, first)) => format!("{later} ({first} in the first epoch)"),
        None => unknown(),
    }
}

fn sentence(demand: &Demand, verdict: &Verdict) -> String {
    let (Some(stall), Some(first), Some(job)) =
        (verdict.stall, verdict.first_epoch_stall, verdict.job_stall)
    else {
        return "unknown without the time of a step: run an epoch, whose report is found by itself, or give \
                --step-time"
            .to_owned();
    };
    if job == Nanoseconds(0) {
        let condition = match verdict.cold_rate.0 {
            0 => format!(" if the cold store gives each node {}", cold_needed(verdict)),
            _ => String::new(),
        };
        return format!(
            "the tiers can meet the demand{condition}; the trainer is the bottleneck, and more memory \
             does not make it faster"
        );
    }
    let (first, job_s) = (seconds(first), seconds(job));
    if demand.epochs < 2 {
        let bound = verdict.first_epoch_bound_by.name();
        return format!("stalls for {first} in its only epoch, for {bound}");
    }
    let later = match verdict.bound_by {
        Bound::Compute => "does not stall after the first epoch".to_owned(),
        bound => {
            let percent = verdict.stall_percent.unwrap_or_default();
            format!("stalls for {} an epoch ({percent:.1} %), for {}", seconds(stall), bound.name())
        }
    };
    format!("{later}; for {first} in the first, for {job_s} in the whole job")
}
