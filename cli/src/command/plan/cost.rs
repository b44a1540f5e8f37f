//! `tierfeed plan --cost`: what the run costs on rented machines, by where its data is.
//!
//! Times come from simulations: without a cache for reading on demand, with DELI's cache, and with the plan.
//! With all data on local disks the trainers only compute.

use std::path::Path;

use serde::Serialize;
use tierfeed_core::{
    retention::policy,
    tier::Kind,
    units::{Bytes, Nanoseconds, float},
};
use tierfeed_runtime::predict::{Nodes, Prediction};
use tierfeed_workload_analyzer::cost::{self, Bill, Planned, Prefetched, Prices, Usage};

use super::{Plan, PlanInputs, simulate::predict};
use crate::{command::machine::MachineName, failure::Failure, output};

#[derive(Serialize)]
struct Document<'a> {
    job: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<&'a MachineName>,
    planned_policy: &'static str,
    #[serde(flatten)]
    bill: &'a Bill,
}

pub(super) fn run(arguments: &Plan, inputs: &PlanInputs, file: &Path) -> Result<(), Failure> {
    let prices = Prices::load(file).map_err(Failure::input)?;
    let planned = super::policy(arguments, &inputs.sized)?;
    let policies = [policy::Kind::None, policy::Kind::Deli, planned];
    let predictions = predict(arguments, inputs, &policies)?;
    let [direct, deli, plan] = predictions.as_slice() else {
        unreachable!("there is a prediction for each of three policies");
    };
    let bill = cost::bill(&prices, &usage(inputs, direct, deli, plan));
    if arguments.json {
        let (job, planned_policy) = (inputs.sized.job().name.as_str(), planned.name());
        let machine = inputs.machine.as_ref();
        return output::json(&Document { job, machine, planned_policy, bill: &bill });
    }
    output::lines(&cost::table(&bill, &prices))?;
    inputs.notes().iter().try_for_each(|note| output::lines(note))
}

fn usage(inputs: &PlanInputs, direct: &Prediction, deli: &Prediction, plan: &Prediction) -> Usage {
    let PlanInputs { sized, demand, site, .. } = inputs;
    let epochs = demand.epochs;
    let cache: u64 = site.tiers.iter().map(|tier| tier.cache.0).sum();
    let ahead = u64::from(demand.batch_samples) * u64::from(demand.batches_ahead);
    Usage {
        nodes: demand.nodes,
        epochs,
        samples: u64::from(demand.samples_per_rank) * u64::from(sized.order.world.ranks()),
        objects: sized.sums.objects(),
        dataset: demand.total,
        disk: demand.compute_per_epoch().map(|it| Nanoseconds(it.0.saturating_mul(epochs.into()))),
        direct: Some(duration(direct)),
        prefetched: Some(Prefetched {
            time: duration(deli),
            cache: Bytes(cache),
            fetch: ahead,
            misses: Some(late(deli, inputs).div_ceil(epochs.max(1).into())),
        }),
        planned: Some(Planned {
            time: duration(plan),
            // Memory comes with the machine; a disk is rented.
            cache: site.cache(Kind::Storage),
            cold_reads: of_all_nodes(plan, inputs),
        }),
    }
}

/// Samples of the whole run that were not ready in time: a loader beside the prefetcher would read them
/// itself.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a count, which needs no more than 53 bits"
)]
fn late(prediction: &Prediction, inputs: &PlanInputs) -> u64 {
    let cold = of_all_nodes(prediction, inputs);
    let taken = float(prediction.total.samples) * (1.0 - prediction.total.ready_ratio);
    let nodes = match prediction.nodes {
        Nodes::One { .. } => inputs.demand.nodes,
        Nodes::All { .. } => 1,
    };
    cold.min((taken * f64::from(nodes)) as u64)
}

/// Cold reads of the whole run. Nodes that were not simulated are taken to read as many.
fn of_all_nodes(prediction: &Prediction, inputs: &PlanInputs) -> u64 {
    let each = prediction.total.cold_samples;
    match prediction.nodes {
        Nodes::One { .. } => each.saturating_mul(inputs.demand.nodes.into()),
        Nodes::All { .. } => each,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a duration is positive, and the cast of a float saturates"
)]
fn duration(prediction: &Prediction) -> Nanoseconds {
    Nanoseconds((prediction.total.duration_s * 1e9).round() as u64)
}
