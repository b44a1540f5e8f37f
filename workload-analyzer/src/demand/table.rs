//! Prints a demand and a verdict for people.

use std::fmt::Write as _;

use tierfeed_core::units::Nanoseconds;

use super::{Bound, Demand, Flow, Verdict, plain::in_seconds};

/// The lines that `tierfeed analyze` shows.
#[must_use]
pub fn table(demand: &Demand, verdict: &Verdict) -> String {
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
        ("demand per rank", flow(demand.rank)),
        ("demand per node", flow(demand.node)),
        ("lead", demand.lead.map_or_else(unknown, |lead| lead.to_string())),
    ];
    for tier in &verdict.tiers {
        let load = format!("keeps {}, gives {} in {}", tier.cached, tier.read, seconds(tier.time));
        rows.push((tier.kind.name(), load));
    }
    rows.extend([
        (
            "cold store",
            format!(
                "gives at least {} an epoch, each node reads for {}",
                verdict.minimal_cold,
                seconds(verdict.cold_time)
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
        ("verdict", sentence(verdict)),
    ]);
    let mut text = String::new();
    for (name, value) in rows {
        writeln!(text, "{name:<20}{value}").expect("writing to a string cannot fail");
    }
    text
}

fn flow(flow: Option<Flow>) -> String {
    flow.map_or_else(unknown, |flow| format!("{}, {} samples/s", flow.bytes, flow.requests_per_s))
}

fn unknown() -> String {
    "unknown without `step_time`".to_owned()
}

fn seconds(time: Nanoseconds) -> String {
    format!("{:.3} s", in_seconds(time))
}

fn sentence(verdict: &Verdict) -> String {
    match (verdict.stall, verdict.bound_by) {
        (None, _) => "unknown without `step_time`".to_owned(),
        (Some(_), Bound::Compute) => "the tiers can meet the demand".to_owned(),
        (Some(stall), bound) => {
            format!("stalls for at least {} an epoch, for {}", seconds(stall), bound.name())
        }
    }
}
