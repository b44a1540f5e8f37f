//! `tierfeed plan --simulate`: runs policies on a virtual clock and shows their figures.

use std::{
    fs::{self, File},
    io::{self, BufWriter},
    ops::ControlFlow,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, anyhow};
use indicatif::ProgressBar;
use serde::Serialize;
use tierfeed_core::{
    id::Epoch,
    order::Spec,
    retention::policy,
    session,
    simulator::{Observer, Read, StepOutcome, warm_up},
    units::Bytes,
};
use tierfeed_runtime::predict::{
    self, PlottedPolicy, Prediction, curve::Curve, node_model::NodeModel, trace::TraceWriter,
    wear::Wear,
};

use super::{PlanInputs, table};
use crate::{
    arguments::Plan,
    command::{self, machine::MachineName},
    failure::Failure,
    output,
};

/// The exit code of an interrupted command, by the convention of shells.
pub(super) const INTERRUPTED: u8 = 130;

pub(super) fn run(arguments: &Plan, inputs: &PlanInputs) -> Result<(), Failure> {
    let policies = super::policies(arguments, &inputs.sized);
    let simulated = simulate(arguments, inputs, &inputs.site, &policies)?;
    let mut notes = inputs.notes();
    if let Some(path) = &arguments.plot {
        let drawn: Vec<_> = simulated.iter().map(Simulated::drawn).collect();
        write(path, &predict::plot(&inputs.sized.job().name, &notes, &drawn))?;
    }
    let predictions: Vec<_> = simulated.into_iter().map(|it| it.prediction).collect();
    notes.extend(predictions.iter().filter_map(played));
    notes.extend(predictions.iter().filter_map(|it| it.wear.as_ref()).map(wear));
    if !arguments.json {
        return output::lines(&table::comparison(&predictions, &notes));
    }
    let machine = inputs.machine.as_ref();
    let assumed = inputs.assumed_lengths();
    let assumed = assumed.as_deref();
    let documents = predictions.iter().map(|prediction| Document { machine, assumed, prediction });
    match documents.collect::<Vec<_>>().as_slice() {
        [only] => output::json(only),
        all => output::json(&all),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    /// The machine that it is predicted for, if not this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<&'a MachineName>,
    /// What is taken for the lengths of prepared samples that are not known here.
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

/// The predictions of `policies` on `site`.
pub(super) fn predict(
    arguments: &Plan,
    inputs: &PlanInputs,
    site: &NodeModel,
    policies: &[policy::Kind],
) -> Result<Vec<Prediction>, Failure> {
    let simulated = simulate(arguments, inputs, site, policies)?;
    Ok(simulated.into_iter().map(|it| it.prediction).collect())
}

/// The result of one policy.
struct Simulated {
    prediction: Prediction,
    curve: Curve,
}

impl Simulated {
    fn drawn(&self) -> PlottedPolicy<'_> {
        PlottedPolicy { prediction: &self.prediction, curve: &self.curve }
    }
}

fn simulate(
    arguments: &Plan,
    inputs: &PlanInputs,
    site: &NodeModel,
    policies: &[policy::Kind],
) -> Result<Vec<Simulated>, Failure> {
    super::require_computed(&inputs.sized)?;
    let nodes = super::nodes(arguments, &inputs.sized)?;
    let settings = &settings(inputs, site);
    let model = &inputs.model(site);
    let runtime = command::runtime()?;
    let curve = Curve::new(&settings.order);
    let epoch = arguments.epoch.map(|epoch| epoch_of(epoch, &settings.order)).transpose()?;
    let runs = policies.len() as u64 * u64::from(nodes.count());
    let bar = output::timed_bar();
    bar.set_length(steps(&settings.order, epoch).saturating_mul(runs));
    let tiers = settings.tiers.iter().map(|tier| tier.kind.name()).collect();
    let mut watch = Watch {
        bar,
        curve: curve.clone(),
        lines: arguments.trace.as_deref().map(|path| create(path, tiers)).transpose()?,
        is_ended: command::ended_by_user(&runtime)?,
    };
    let mut simulated = Vec::new();
    for policy in policies {
        watch.begin(policy.name(), &curve);
        let run = match epoch {
            None => Prediction::observed(settings, nodes, *policy, model, &mut watch),
            Some(epoch) => Prediction::of_epoch(settings, nodes, *policy, model, epoch, &mut watch),
        };
        let prediction = match run {
            ControlFlow::Continue(prediction) => prediction,
            ControlFlow::Break(stop) => return Err(watch.stopped(stop, arguments)),
        };
        simulated.push(Simulated { prediction, curve: watch.curve.clone() });
    }
    watch.bar.finish_and_clear();
    if let (Some(lines), Some(path)) = (watch.lines, &arguments.trace) {
        lines.finish().map_err(|error| unwritable(path, error))?;
        tracing::info!(file = %path.display(), "written");
    }
    runtime.shutdown_background();
    Ok(simulated)
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

/// The steps that are simulated.
fn steps(order: &Spec, epoch: Option<Epoch>) -> u64 {
    let (first, last) = match epoch {
        None => (0, order.epochs - 1),
        Some(epoch) => (epoch.0.saturating_sub(warm_up(order)), epoch.0),
    };
    (first..=last).map(|epoch| u64::from(order.steps_in(Epoch(epoch)))).sum()
}

/// A note about the epochs before the one that is told.
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

/// The settings of a session on `site`.
pub(super) fn settings(inputs: &PlanInputs, site: &NodeModel) -> session::Settings {
    let (job, order) = (inputs.sized.job(), &inputs.sized.order);
    site.session(job, inputs.sized.lengths(), *order)
}

fn create(path: &Path, tiers: Vec<&'static str>) -> Result<TraceWriter<BufWriter<File>>, Failure> {
    let file = File::create(path).map_err(|error| unwritable(path, error))?;
    Ok(TraceWriter::new(BufWriter::new(file), tiers))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| unwritable(path, error))?;
    tracing::info!(file = %path.display(), "written");
    Ok(())
}

fn unwritable(path: &Path, error: io::Error) -> Failure {
    let named = Err::<(), _>(error).with_context(|| format!("cannot write {}", path.display()));
    Failure::Work(named.expect_err("it was made from an error"))
}

/// Why a simulation stopped early.
enum Stop {
    Interrupted,
    Trace(io::Error),
}

/// The observer of a simulation: progress, curve and trace.
struct Watch {
    bar: ProgressBar,
    curve: Curve,
    lines: Option<TraceWriter<BufWriter<File>>>,
    is_ended: Arc<AtomicBool>,
}

impl Watch {
    fn begin(&mut self, policy: &'static str, curve: &Curve) {
        self.bar.set_message(policy);
        self.curve = curve.clone();
        if let Some(lines) = &mut self.lines {
            lines.begin(policy);
        }
    }

    fn stopped(self, stop: Stop, arguments: &Plan) -> Failure {
        self.bar.finish_and_clear();
        match (stop, &arguments.trace) {
            (Stop::Trace(error), Some(path)) => unwritable(path, error),
            (Stop::Trace(error), None) => Failure::work(error),
            (Stop::Interrupted, _) => {
                eprintln!("interrupted");
                Failure::Passed(INTERRUPTED, None)
            }
        }
    }
}

impl Observer for Watch {
    type Stop = Stop;

    fn read(&mut self, read: &Read) {
        if let Some(lines) = &mut self.lines {
            lines.read(read);
        }
    }

    fn step(&mut self, step: &StepOutcome) -> ControlFlow<Stop> {
        self.curve.add(step);
        self.bar.inc(1);
        if self.is_ended.load(Ordering::Relaxed) {
            return ControlFlow::Break(Stop::Interrupted);
        }
        match self.lines.as_mut().map_or(Ok(()), TraceWriter::check) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Stop::Trace(error)),
        }
    }
}
