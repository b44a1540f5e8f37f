//! `tierfeed plan --simulate --whole-job`: all nodes of a job that share what they keep, on one clock.

use std::ops::ControlFlow;

use anyhow::anyhow;
use clap::Args;
use serde::Serialize;
use tierfeed_core::{
    retention::policy,
    simulator::whole_job::{Change, ChangeKind},
    tier::Speed,
    units::{BytesPerSecond, Nanoseconds},
};
use tierfeed_runtime::predict::{
    UNLIMITED,
    whole_job::{Moment, SharedLinks, WholeJobPlan},
};

use super::{Plan, PlanInputs, simulate};
use crate::{command::machine::MachineName, failure::Failure, output};

/// All nodes of a job at once.
#[derive(Debug, Args)]
pub(crate) struct Fleet {
    /// Predicts all nodes of a job with `policy: partitioned` together, step by step: what each reads from
    /// which other and cold, and how long all wait for the slowest.
    #[arg(long, requires = "simulate", conflicts_with_all = ["epoch", "node", "all_nodes", "dump",
          "schedule", "replay", "cost"])]
    pub(crate) whole_job: bool,
    /// Loses the agents of these nodes, such as 17@1 in the middle of epoch 1, or 17@1:20 before step 20 of it.
    /// Their trainers read on from the cold store.
    #[arg(long, value_name = "NODE@EPOCH", value_delimiter = ',', requires = "whole_job")]
    pub(crate) lose: Vec<Moment>,
    /// Lets these nodes come back with empty tiers, after they were lost.
    #[arg(long, value_name = "NODE@EPOCH", value_delimiter = ',', requires = "lose")]
    pub(crate) rejoin: Vec<Moment>,
    /// The network of each node, in each direction, such as "10 GB/s" [default: unlimited].
    #[arg(long, value_name = "RATE", requires = "whole_job")]
    pub(crate) network_bandwidth: Option<BytesPerSecond>,
    /// The time in which a node answers another [default: none].
    #[arg(long, value_name = "TIME", requires = "whole_job")]
    pub(crate) network_latency: Option<Nanoseconds>,
    /// What the cold store gives to all nodes together; --cold-bandwidth is what it gives to one
    /// [default: unlimited].
    #[arg(long, value_name = "RATE", requires = "whole_job")]
    pub(crate) store_bandwidth: Option<BytesPerSecond>,
}

#[derive(Serialize)]
struct Document<'a> {
    /// `None` for this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<&'a MachineName>,
    policy: &'static str,
    #[serde(flatten)]
    plan: &'a WholeJobPlan,
}

pub(super) fn run(arguments: &Plan, inputs: &PlanInputs) -> Result<(), Failure> {
    super::require_computed(&inputs.sized)?;
    let policy = super::policy(arguments, &inputs.sized)?;
    if policy != policy::Kind::Partitioned {
        return Err(Failure::Input(anyhow!(
            "--whole-job: with policy {} each node keeps for itself; only with partitioned they read from each \
             other (--all-nodes predicts nodes of any policy, one after the other)",
            policy.name()
        )));
    }
    let plan = simulate(arguments, inputs)?;
    if arguments.json {
        let machine = inputs.machine.as_ref();
        return output::json(&Document { machine, policy: policy.name(), plan: &plan });
    }
    let mut notes = inputs.notes();
    if links(arguments).network == UNLIMITED {
        notes.push(
            "the network is taken as unlimited: --network-bandwidth says what it is".to_owned(),
        );
    }
    notes.iter().try_for_each(|note| output::lines(note))?;
    output::lines(&plan.to_string())
}

fn simulate(arguments: &Plan, inputs: &PlanInputs) -> Result<WholeJobPlan, Failure> {
    let settings = simulate::settings(inputs);
    let model = inputs.model();
    let (links, changes) = (links(arguments), changes(arguments, inputs));
    let plan = simulate::watched(WholeJobPlan::steps(&settings), |watch| {
        watch.bar.set_message("all nodes");
        let mut step = || watch.step_done();
        match WholeJobPlan::of(&settings, &model, links, changes, &mut step) {
            Ok(plan) => ControlFlow::Continue(Ok(plan?)),
            Err(refused) => ControlFlow::Continue(Err(refused)),
        }
    })?;
    plan.map_err(Failure::input)
}

fn links(arguments: &Plan) -> SharedLinks {
    let asked = &arguments.fleet;
    let network = Speed {
        latency: asked.network_latency.unwrap_or(UNLIMITED.latency),
        bandwidth: asked.network_bandwidth.unwrap_or(UNLIMITED.bandwidth),
    };
    SharedLinks { network, store: asked.store_bandwidth.unwrap_or(UNLIMITED.bandwidth) }
}

fn changes(arguments: &Plan, inputs: &PlanInputs) -> Vec<Change> {
    let (order, asked) = (&inputs.sized.order, &arguments.fleet);
    let lost = asked.lose.iter().map(|moment| moment.change(order, ChangeKind::Lost));
    let back = asked.rejoin.iter().map(|moment| moment.change(order, ChangeKind::Back));
    lost.chain(back).collect()
}
