//! `tierfeed plan`.

use std::fmt::Write as _;

use serde::Serialize;
use tierfeed_core::{
    id::{Epoch, NodeId, Step},
    order::Spec,
    simulator::Model,
    units::{Bytes, Nanoseconds},
};
use tierfeed_runtime::{
    places::Layout,
    prediction::{self, Prediction},
};

use super::analyze::{cold_speed, emulated, layout, measured};
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
        return dump(&known.order);
    }
    let layout = layout(&known.job, &known.demand)?;
    if arguments.simulate {
        return simulate(arguments, &known, &layout);
    }
    let schedule = schedule(&known, &layout, arguments);
    if arguments.json { output::json(&schedule) } else { output::lines(&table(&schedule)) }
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

fn simulate(arguments: &Plan, known: &Known, layout: &Layout) -> Result<(), Failure> {
    let Known { job, order, .. } = known;
    let settings = layout.session(job, known.sizes(), *order, NodeId(0));
    let model = Model {
        cold: cold_speed(job, &arguments.cold),
        tiers: prediction::tier_speeds(layout, measured().as_ref()),
        step_time: arguments.step_time.or(job.step_time).unwrap_or(Nanoseconds(0)),
    };
    let policies = match arguments.policy.as_slice() {
        [] => vec![job.policy],
        named => named.to_vec(),
    };
    let predictions: Vec<_> =
        policies.iter().map(|policy| Prediction::of(&settings, *policy, &model)).collect();
    if !arguments.json {
        return output::lines(&comparison(&predictions, layout));
    }
    match predictions.as_slice() {
        [only] => output::json(only),
        all => output::json(&all),
    }
}

fn comparison(predictions: &[Prediction], layout: &Layout) -> String {
    let mut text = format!(
        "{:<12}{:>6}{:>14}{:>14}{:>8}{:>8}{:>10}{:>10}{:>10}\n",
        "policy", "epoch", "cold", "minimum", "hits", "ready", "stall s", "takes s", "bound s"
    );
    for prediction in predictions {
        for epoch in &prediction.epochs {
            writeln!(
                text,
                "{:<12}{:>6}{:>14}{:>14}{:>7.1}%{:>7.1}%{:>10.3}{:>10.3}{:>10.3}",
                prediction.policy,
                epoch.epoch,
                Bytes(epoch.cold_read_bytes).to_string(),
                Bytes(epoch.minimal_cold_bytes).to_string(),
                epoch.hit_ratio * 100.0,
                epoch.ready_ratio * 100.0,
                epoch.stall_s,
                epoch.duration_s,
                epoch.lower_bound_s,
            )
            .expect("writing to a string cannot fail");
        }
    }
    for name in emulated(layout) {
        writeln!(text, "{name} is emulated").expect("writing to a string cannot fail");
    }
    text
}

/// One line for each batch; an order that the trainer publishes is not known yet.
fn dump(order: &Spec) -> Result<(), Failure> {
    output::lines("epoch step rank samples")?;
    for epoch in 0..order.epochs {
        let Some(batches) = order.epoch(Epoch(epoch)) else {
            return Err(Failure::Input(anyhow::anyhow!(
                "order.shuffle is published: the trainer's sampler knows this order, the job does not"
            )));
        };
        let mut text = String::new();
        for step in 0..order.steps_per_epoch() {
            for rank in (0..order.world.nodes).flat_map(|it| order.world.ranks_of(NodeId(it))) {
                let samples = batches.batch(rank, Step(step));
                let samples: Vec<_> = samples.map(|sample| sample.0.to_string()).collect();
                writeln!(text, "{epoch} {step} {} {}", rank.0, samples.join(","))
                    .expect("writing to a string cannot fail");
            }
        }
        output::lines(&text)?;
    }
    Ok(())
}
