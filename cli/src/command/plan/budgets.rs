//! `tierfeed plan` without more: the budgets of this node, and the batches that are staged.

use serde::Serialize;
use tierfeed_core::{
    retention::policy,
    session::staging_depth::{Depth, Shortfall},
    units::Bytes,
};
use tierfeed_runtime::{layout::Layout, observe::report::DirectEntry, predict::depth};

use super::{Plan, PlanInputs};
use crate::{command::machine::MachineName, failure::Failure, output};

#[derive(Serialize)]
struct Budgets {
    job: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<MachineName>,
    policy: &'static str,
    shuffle: &'static str,
    seed: u64,
    samples: u32,
    epochs: u32,
    steps_per_epoch: u32,
    ranks: u32,
    staged_batches: u32,
    /// The least staging depth with which a first epoch is in time, if known and possible.
    least_staged_batches: Option<u32>,
    chunk_bytes: u64,
    arena_bytes_per_rank: u64,
    tiers: Vec<Tier>,
}

#[derive(Serialize)]
struct Tier {
    name: &'static str,
    budget_bytes: u64,
    cache_bytes: u64,
    emulated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    direct: Option<DirectEntry>,
}

pub(super) fn run(arguments: &Plan, inputs: &PlanInputs, layout: &Layout) -> Result<(), Failure> {
    super::nodes(arguments, &inputs.sized)?;
    let budgets = budgets(inputs, layout, super::policy(arguments, &inputs.sized)?);
    if arguments.json {
        return output::json(&budgets);
    }
    if let Some(name) = &inputs.machine {
        output::lines(&name.text)?;
    }
    output::lines(&table(&budgets))?;
    layout
        .unused_tiers(inputs.sized.job())
        .iter()
        .try_for_each(|unused| output::lines(&format!("{unused}")))?;
    depth::least(&inputs.demand, &inputs.site).iter().try_for_each(|it| output::lines(&staging(it)))
}

fn budgets(inputs: &PlanInputs, layout: &Layout, policy: policy::Kind) -> Budgets {
    let (job, order) = (inputs.sized.job(), &inputs.sized.order);
    let least = depth::least(&inputs.demand, &inputs.site);
    let tiers = layout.tiers.iter().map(|place| Tier {
        name: place.settings.kind.name(),
        budget_bytes: place.budget.0,
        cache_bytes: place.cache.0,
        emulated: place.origin == tierfeed_core::fleet::Origin::Emulated,
        direct: place.direct.map(Into::into),
    });
    Budgets {
        job: job.name.clone(),
        machine: inputs.machine.clone(),
        policy: policy.name(),
        shuffle: order.shuffle.name(),
        seed: order.seed,
        samples: order.samples,
        epochs: order.epochs,
        steps_per_epoch: order.steps_per_epoch(),
        ranks: order.world.ranks(),
        staged_batches: layout.staged.depth,
        least_staged_batches: least.and_then(|least| Some(least.ok()?.batches)),
        chunk_bytes: layout.chunk.0,
        arena_bytes_per_rank: layout.staged.arena.0,
        tiers: tiers.collect(),
    }
}

/// The least staging depth while everything is cold, or why no depth is enough.
fn staging(least: &Result<Depth, Shortfall>) -> String {
    match least {
        Ok(least) => format!(
            "while everything is cold, {} staged batches are in time in {} of all steps",
            least.batches, least.in_time
        ),
        Err(shortfall) => format!("while everything is cold, {shortfall}"),
    }
}

fn table(budgets: &Budgets) -> String {
    let mut lines = vec![format!(
        "job {}: {} samples, {} epochs of {} steps, {} ranks, {} seed {}\n\
         policy {}, {} batches of each rank staged in {}, chunks of {}",
        budgets.job,
        budgets.samples,
        budgets.epochs,
        budgets.steps_per_epoch,
        budgets.ranks,
        budgets.shuffle,
        budgets.seed,
        budgets.policy,
        budgets.staged_batches,
        Bytes(budgets.arena_bytes_per_rank),
        Bytes(budgets.chunk_bytes),
    )];
    for tier in &budgets.tiers {
        let mark = if tier.emulated { "  (emulated)" } else { "" };
        let (budget, cache) = (Bytes(tier.budget_bytes), Bytes(tier.cache_bytes));
        lines.push(format!("{:<14}budget {budget:>12}, cache {cache:>12}{mark}", tier.name));
        if let Some(direct) = &tier.direct {
            lines.push(format!("{:<14}direct use: {}", "", direct.why));
        }
    }
    lines.join("\n")
}
