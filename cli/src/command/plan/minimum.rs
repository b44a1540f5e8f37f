//! `tierfeed plan --minimum`: the least memory with which trainers do not wait.

use anyhow::anyhow;
use serde::Serialize;
use tierfeed_core::{retention::policy, tier::Kind, units::Bytes};
use tierfeed_runtime::predict::{
    Prediction,
    minimum::{MinimumError, minimum},
};
use tierfeed_workload_analyzer::demand::Rule;

use super::{PlanInputs, simulate::predict, table::line};
use crate::{arguments::Plan, command::machine::MachineName, failure::Failure, output};

#[derive(Serialize)]
struct Minima {
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<MachineName>,
    policy: &'static str,
    tiers: Vec<Minimum>,
}

/// The least cache of one tier with the others as they are.
#[derive(Serialize)]
struct Minimum {
    name: &'static str,
    cache_bytes: u64,
    /// `None` if no size is enough.
    least_cache_bytes: Option<u64>,
    /// The cache and, in main memory, staging.
    least_size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated: Option<Prediction>,
}

/// Prints the least cache of `tier`, or of each tier.
pub(super) fn run(
    arguments: &Plan,
    inputs: &PlanInputs,
    tier: Option<Kind>,
) -> Result<(), Failure> {
    let policy = super::policy(arguments, &inputs.sized)?;
    let kinds = tier.map_or_else(|| inputs.site.kinds(), |kind| vec![kind]);
    let found = kinds.into_iter().map(|kind| of(arguments, inputs, policy, kind));
    let tiers = found.collect::<Result<Vec<_>, _>>()?;
    if tiers.iter().all(|it| it.least_cache_bytes.is_none()) {
        let reasons: Vec<_> = tiers.into_iter().filter_map(|it| it.why_not).collect();
        return Err(Failure::Input(anyhow!("{}", reasons.join("; "))));
    }
    let minima = Minima { machine: inputs.machine.clone(), policy: policy.name(), tiers };
    if arguments.json {
        return output::json(&minima);
    }
    output::lines(&table(&minima, &inputs.notes()))
}

fn of(
    arguments: &Plan,
    inputs: &PlanInputs,
    policy: policy::Kind,
    kind: Kind,
) -> Result<Minimum, Failure> {
    let site = &inputs.site;
    let (least, why_not) = match minimum(&inputs.demand, site, Rule::from(policy), kind) {
        Ok(least) => (Some(least), None),
        Err(error @ MinimumError::Insufficient { .. }) => (None, Some(error.to_string())),
        Err(error) => return Err(Failure::input(error)),
    };
    let staged = if kind == Kind::MainMemory { site.staged() } else { Bytes(0) };
    let simulated = match least {
        Some(least) if arguments.simulate => {
            predict(arguments, inputs, &site.with_cache(kind, least), &[policy])?.pop()
        }
        _ => None,
    };
    Ok(Minimum {
        name: kind.name(),
        cache_bytes: site.cache(kind).unwrap_or_default().0,
        least_cache_bytes: least.map(|least| least.0),
        least_size_bytes: least.map(|least| least.0.saturating_add(staged.0)),
        why_not,
        simulated,
    })
}

fn table(minima: &Minima, notes: &[String]) -> String {
    let mut text = String::new();
    let heads =
        format_args!("{:<14}{:>14}{:>14}{:>18}", "tier", "cache", "least cache", "with staging");
    line(&mut text, heads);
    for tier in &minima.tiers {
        let size = |bytes: Option<u64>| bytes.map_or("-".to_owned(), |it| Bytes(it).to_string());
        let least = (size(tier.least_cache_bytes), size(tier.least_size_bytes));
        let cache = size(Some(tier.cache_bytes));
        line(&mut text, format_args!("{:<14}{cache:>14}{:>14}{:>18}", tier.name, least.0, least.1));
    }
    for tier in &minima.tiers {
        if let Some(simulated) = &tier.simulated {
            let later = simulated.epochs.iter().skip(1).map(|epoch| epoch.figures.stall_s);
            let (name, stall) = (tier.name, later.sum::<f64>());
            line(
                &mut text,
                format_args!("with it in {name}, {stall:.3} s of stall after the first epoch"),
            );
        }
        if let Some(reason) = &tier.why_not {
            line(&mut text, format_args!("{reason}"));
        }
    }
    for note in notes {
        line(&mut text, format_args!("{note}"));
    }
    text
}
