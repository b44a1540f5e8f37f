//! `tierfeed plan --what-if`: the node as it is beside one with other tiers.

use serde::Serialize;
use tierfeed_core::{
    tier::Kind,
    units::{Bytes, Nanoseconds},
};
use tierfeed_runtime::predict::{Prediction, node_model::NodeModel};
use tierfeed_workload_analyzer::demand::{Rule, Verdict, verdict};

use super::{
    PlanInputs,
    simulate::predict,
    table::{line, ratio, size},
};
use crate::{arguments::Plan, command::machine::MachineName, failure::Failure, output};

#[derive(Serialize)]
struct Comparison {
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<MachineName>,
    as_it_is: Case,
    what_if: Case,
}

/// A node and its figures.
#[derive(Serialize)]
struct Case {
    staged_bytes: u64,
    tiers: Vec<Tier>,
    verdict: Verdict,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    simulated: Vec<Prediction>,
}

#[derive(Serialize)]
struct Tier {
    name: &'static str,
    cache_bytes: u64,
}

pub(super) fn run(arguments: &Plan, inputs: &PlanInputs) -> Result<(), Failure> {
    let measured = inputs.measured.as_ref();
    let changed = inputs.site.with(&arguments.what_if, measured).map_err(Failure::input)?;
    let comparison = Comparison {
        machine: inputs.machine.clone(),
        as_it_is: case(arguments, inputs, &inputs.site)?,
        what_if: case(arguments, inputs, &changed)?,
    };
    if arguments.json {
        return output::json(&comparison);
    }
    let mut notes = inputs.notes();
    notes.extend(unmeasured(inputs, &changed));
    output::lines(&table(&comparison, &notes))
}

fn case(arguments: &Plan, inputs: &PlanInputs, site: &NodeModel) -> Result<Case, Failure> {
    let policies = super::policies(arguments, &inputs.sized);
    let rule = policies.first().copied().unwrap_or(inputs.sized.job().policy);
    let tiers = site.kinds().into_iter().map(|kind| Tier {
        name: kind.name(),
        cache_bytes: site.cache(kind).unwrap_or_default().0,
    });
    Ok(Case {
        staged_bytes: site.staged().0,
        tiers: tiers.collect(),
        verdict: verdict(&inputs.demand, &site.supply(Rule::from(rule))),
        simulated: if arguments.simulate {
            predict(arguments, inputs, site, &policies)?
        } else {
            Vec::new()
        },
    })
}

/// Notes on added tiers whose speed was not measured.
fn unmeasured(inputs: &PlanInputs, changed: &NodeModel) -> Vec<String> {
    let new = changed.tiers.iter().filter(|tier| inputs.site.cache(tier.kind).is_none());
    let new = new.filter(|tier| tier.speed.bandwidth.0 == 0);
    let note = |kind| format!("nothing is known of the speed of {kind}: it is taken as unlimited");
    new.map(|tier| note(tier.kind)).collect()
}

fn table(comparison: &Comparison, notes: &[String]) -> String {
    let Comparison { as_it_is, what_if, .. } = comparison;
    let mut text = String::new();
    line(&mut text, format_args!("{:<32}{:>16}{:>16}", "", "as it is", "what if"));
    let mut row = |name: &str, of: &dyn Fn(&Case) -> String| {
        line(&mut text, format_args!("{name:<32}{:>16}{:>16}", of(as_it_is), of(what_if)));
    };
    row("staged in main-memory", &|it| size(it.staged_bytes));
    for name in tier_names(comparison) {
        row(&format!("{name} cache"), &|it| cache(it, name));
    }
    verdicts(&mut row);
    for (at, prediction) in as_it_is.simulated.iter().enumerate() {
        simulations(&mut row, prediction.policy, at);
    }
    for note in notes {
        line(&mut text, format_args!("{note}"));
    }
    text
}

/// Writes a row of the table: a name, and the figure of each case.
type Row<'a> = &'a mut dyn FnMut(&str, &dyn Fn(&Case) -> String);

/// The results of the closed forms, after the first epoch unless stated.
fn verdicts(row: Row<'_>) {
    row("hits", &|it| format!("{:.1}%", it.verdict.hit_ratio * 100.0));
    row("cold in an epoch", &|it| size(it.verdict.cold.0));
    row("least cold in an epoch", &|it| size(it.verdict.minimal_cold.0));
    row("bound of an epoch s", &|it| seconds(Some(it.verdict.lower_bound)));
    row("stall of an epoch s", &|it| seconds(it.verdict.stall));
    row("longest in an epoch", &|it| it.verdict.bound_by.name().to_owned());
    row("stall of the first epoch s", &|it| seconds(it.verdict.first_epoch_stall));
    row("stall of the job s", &|it| seconds(it.verdict.job_stall));
}

/// The simulated run of the policy at index `at`.
fn simulations(row: Row<'_>, policy: &str, at: usize) {
    let of = |case: &Case, figure: &dyn Fn(&Prediction) -> String| {
        case.simulated.get(at).map(figure).unwrap_or_default()
    };
    row(&format!("{policy} simulated: cold"), &|it| of(it, &|run| size(run.total.cold_read_bytes)));
    row("  times the least", &|it| of(it, &|run| ratio(run.total.cold_to_minimal)));
    row("  stall s", &|it| of(it, &|run| format!("{:.3}", run.total.stall_s)));
    row("  takes s", &|it| of(it, &|run| format!("{:.3}", run.total.duration_s)));
    row("  times the bound", &|it| of(it, &|run| ratio(run.total.duration_to_lower_bound)));
}

/// The tiers of either case, fastest first.
fn tier_names(comparison: &Comparison) -> Vec<&'static str> {
    let kinds = Kind::ALL.into_iter().map(Kind::name);
    let has = |case: &Case, name: &str| case.tiers.iter().any(|tier| tier.name == name);
    kinds.filter(|it| has(&comparison.as_it_is, it) || has(&comparison.what_if, it)).collect()
}

fn cache(case: &Case, name: &str) -> String {
    let tier = case.tiers.iter().find(|tier| tier.name == name);
    tier.map_or_else(|| "none".to_owned(), |tier| Bytes(tier.cache_bytes).to_string())
}

#[expect(clippy::cast_precision_loss, reason = "a table needs no more than 53 bits")]
fn seconds(time: Option<Nanoseconds>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| format!("{:.3}", time.0 as f64 / 1e9))
}
