//! `tierfeed plan`.

mod dump;
mod simulate;
mod table;

use std::fmt::Write as _;

use serde::Serialize;
use tierfeed_core::{order::Shuffle, units::Bytes};
use tierfeed_runtime::places::Layout;

use super::analyze::layout;
use crate::{
    arguments::Plan,
    failure::Failure,
    jobs::{self, Known},
    output,
};

/// The schedule that an agent gets, with the budgets of this node.
#[derive(Serialize)]
struct Schedule {
    job: String,
    policy: &'static str,
    shuffle: &'static str,
    seed: u64,
    samples: u32,
    epochs: u32,
    steps_per_epoch: u32,
    ranks: u32,
    staged_batches: u32,
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
}

pub(crate) fn run(arguments: &Plan) -> Result<(), Failure> {
    let known = jobs::know(&arguments.job)?;
    if arguments.dump {
        require_computed(&known)?;
        return dump::dump(&known.order);
    }
    let layout = layout(&known.job, &known.demand)?;
    if arguments.simulate || arguments.plot.is_some() || arguments.trace.is_some() {
        require_computed(&known)?;
        return simulate::run(arguments, &known, &layout);
    }
    let schedule = schedule(&known, &layout, arguments);
    if arguments.json { output::json(&schedule) } else { output::lines(&table(&schedule)) }
}

/// Refuses an order that nobody but the trainer knows.
fn require_computed(known: &Known) -> Result<(), Failure> {
    if known.order.shuffle == Shuffle::Published {
        return Err(Failure::Input(anyhow::anyhow!(
            "order.shuffle is published: the trainer's sampler knows this order, the job does not"
        )));
    }
    Ok(())
}

fn schedule(known: &Known, layout: &Layout, arguments: &Plan) -> Schedule {
    let Known { job, order, .. } = known;
    let offer = layout.offer();
    let tiers = layout.places.iter().zip(&offer).map(|(place, tier)| Tier {
        name: tier.kind.name(),
        budget_bytes: tier.budget.0,
        cache_bytes: place.cache.0,
        emulated: tier.origin == tierfeed_core::fleet::Origin::Emulated,
    });
    Schedule {
        job: job.name.clone(),
        policy: arguments.policy.first().unwrap_or(&job.policy).name(),
        shuffle: order.shuffle.name(),
        seed: order.seed,
        samples: order.samples,
        epochs: order.epochs,
        steps_per_epoch: order.steps_per_epoch(),
        ranks: order.world.ranks(),
        staged_batches: job.prefetch_batches,
        chunk_bytes: job.chunk.0,
        arena_bytes_per_rank: layout.arena.0,
        tiers: tiers.collect(),
    }
}

fn table(schedule: &Schedule) -> String {
    let mut text = format!(
        "job {}: {} samples, {} epochs of {} steps, {} ranks, {} seed {}\n\
         policy {}, {} batches of each rank staged in {}\n",
        schedule.job,
        schedule.samples,
        schedule.epochs,
        schedule.steps_per_epoch,
        schedule.ranks,
        schedule.shuffle,
        schedule.seed,
        schedule.policy,
        schedule.staged_batches,
        Bytes(schedule.arena_bytes_per_rank),
    );
    for tier in &schedule.tiers {
        let mark = if tier.emulated { "  (emulated)" } else { "" };
        let (budget, cache) = (Bytes(tier.budget_bytes), Bytes(tier.cache_bytes));
        writeln!(text, "{:<14}budget {budget:>12}, cache {cache:>12}{mark}", tier.name)
            .expect("writing to a string cannot fail");
    }
    text
}
