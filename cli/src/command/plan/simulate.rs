//! `tierfeed plan --simulate`: runs policies on a virtual clock and shows their figures.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::anyhow;
use indicatif::ProgressBar;
use serde::Serialize;
use tierfeed_core::{
    id::Epoch,
    order::Spec,
    retention::policy,
    session,
    simulator::{Observer, StepOutcome, warm_up},
    units::Bytes,
};
use tierfeed_runtime::predict::{Prediction, wear::Wear};

use super::{Plan, PlanInputs, table};
use crate::{
    command::{self, machine::MachineName},
    failure::Failure,
    output,
};

/// The exit code of an interrupted command, by the convention of shells.
const INTERRUPTED: u8 = 130;

pub(super) fn run(arguments: &Plan, inputs: &PlanInputs) -> Result<(), Failure> {
    let policies = super::policies(arguments, &inputs.sized);
    let predictions = predict(arguments, inputs, &policies)?;
    let mut notes = inputs.notes();
    notes.extend(predictions.iter().filter_map(played));
    notes.extend(predictions.iter().filter_map(|it| it.wear.as_ref()).map(wear));
    if !arguments.json {
        return output::lines(&table::comparison(&predictions, &notes));
    }
    let machine = inputs.machine.as_ref();
    let assumed = inputs.assumed_lengths();
    let assumed = assumed.as_deref();
    let of = |prediction| Document { machine, assumed, prediction };
    output::json_of_each(predictions.iter().map(of))
}

#[derive(Serialize)]
struct Document<'a> {
    /// `None` for this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<&'a MachineName>,
    /// The assumption on lengths of prepared samples that are not known here.
    assumed: Option<&'a str>,
    #[serde(flatten)]
    prediction: &'a Prediction,
}

fn wear(wear: &Wear) -> String {
    format!(
        "storage wears out, so what lies there stays: {} are written in an epoch; evening out cold \
         reads with it too would write {}",
        Bytes(wear.written_bytes_per_epoch),
        Bytes(wear.balanced_written_bytes_per_epoch)
    )
}

pub(super) fn predict(
    arguments: &Plan,
    inputs: &PlanInputs,
    policies: &[policy::Kind],
) -> Result<Vec<Prediction>, Failure> {
    super::require_computed(&inputs.sized)?;
    let nodes = super::nodes(arguments, &inputs.sized)?;
    let settings = &settings(inputs);
    let model = &inputs.model();
    let epoch = arguments.epoch.map(|epoch| epoch_of(epoch, &settings.order)).transpose()?;
    let runs = policies.len() as u64 * u64::from(nodes.count());
    watched(steps(&settings.order, epoch).saturating_mul(runs), |watch| {
        let mut predictions = Vec::new();
        for policy in policies {
            watch.bar.set_message(policy.name());
            predictions.push(Prediction::of(settings, nodes, *policy, model, epoch, watch)?);
        }
        ControlFlow::Continue(predictions)
    })
}

/// Simulates so many steps, shows the progress, and stops if the user wants that.
pub(super) fn watched<T>(
    steps: u64,
    simulate: impl FnOnce(&mut Watch) -> ControlFlow<(), T>,
) -> Result<T, Failure> {
    let runtime = command::runtime()?;
    let bar = output::timed_bar();
    bar.set_length(steps);
    let mut watch = Watch { bar, is_ended: command::ended_by_user(&runtime)? };
    let simulated = simulate(&mut watch);
    watch.bar.finish_and_clear();
    runtime.shutdown_background();
    match simulated {
        ControlFlow::Continue(simulated) => Ok(simulated),
        ControlFlow::Break(()) => {
            eprintln!("interrupted");
            Err(Failure::Passed(INTERRUPTED, None))
        }
    }
}

fn epoch_of(epoch: u32, order: &Spec) -> Result<Epoch, Failure> {
    let first = order.start.epoch.0;
    if (first..order.epochs).contains(&epoch) {
        return Ok(Epoch(epoch));
    }
    Err(Failure::Input(anyhow!(
        "--epoch {epoch}: the job has {} epochs, numbered from {first} to {}",
        order.epochs - first,
        order.epochs - 1
    )))
}

fn steps(order: &Spec, epoch: Option<Epoch>) -> u64 {
    let (first, last) = match epoch {
        None => (0, order.epochs - 1),
        Some(epoch) => (epoch.0.saturating_sub(warm_up(order)), epoch.0),
    };
    (first..=last).map(|epoch| u64::from(order.steps_in(Epoch(epoch)))).sum()
}

/// A note about the epochs before the one that is reported.
fn played(prediction: &Prediction) -> Option<String> {
    let from = prediction.played_from?;
    let bytes = match prediction.carried_over? {
        "equal" => "bytes from tiers are those of the whole run",
        "near" => "bytes from tiers differ little from those of the whole run",
        _ => "bytes from tiers are an estimate",
    };
    let policy = prediction.policy;
    Some(format!("{policy} is played from epoch {from} on, with empty tiers: {bytes}"))
}

pub(super) fn settings(inputs: &PlanInputs) -> session::Settings {
    let (job, order) = (inputs.sized.job(), &inputs.sized.order);
    inputs.site.session(job, inputs.sized.lengths(), *order)
}

/// The observer of a simulation: its progress, and the end that the user asks for.
pub(super) struct Watch {
    pub(super) bar: ProgressBar,
    is_ended: Arc<AtomicBool>,
}

impl Watch {
    pub(super) fn step_done(&self) -> ControlFlow<()> {
        self.bar.inc(1);
        if self.is_ended.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

impl Observer for Watch {
    type Stop = ();

    fn step(&mut self, _: &StepOutcome) -> ControlFlow<()> {
        self.step_done()
    }
}
