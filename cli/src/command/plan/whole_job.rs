//! `tierfeed plan --simulate --whole-job`: all nodes of a job that share what they keep, on one clock.

use std::{ops::ControlFlow, sync::atomic::Ordering};

use anyhow::anyhow;
use serde::Serialize;
use tierfeed_core::{
    retention::policy,
    simulator::whole_job::{Change, ChangeKind},
    tier::Speed,
};
use tierfeed_runtime::predict::{
    UNLIMITED,
    whole_job::{SharedLinks, WholeJobPlan},
};

use super::{PlanInputs, simulate};
use crate::{
    arguments::Plan,
    command::{self, machine::MachineName},
    failure::Failure,
    output,
};

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
    let runtime = command::runtime()?;
    let is_ended = command::ended_by_user(&runtime)?;
    let bar = output::timed_bar();
    bar.set_length(WholeJobPlan::steps(&settings));
    bar.set_message("all nodes");
    let mut step = || {
        bar.inc(1);
        if is_ended.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    };
    let (links, changes) = (links(arguments), changes(arguments, inputs));
    let played = WholeJobPlan::of(&settings, &model, links, changes, &mut step);
    bar.finish_and_clear();
    runtime.shutdown_background();
    match played.map_err(Failure::input)? {
        ControlFlow::Continue(plan) => Ok(plan),
        ControlFlow::Break(()) => {
            eprintln!("interrupted");
            Err(Failure::Passed(simulate::INTERRUPTED, None))
        }
    }
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
