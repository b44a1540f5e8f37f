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

use anyhow::Context;
use indicatif::ProgressBar;
use tierfeed_core::{
    retention::policy,
    session,
    simulator::{Observer, Read, StepOutcome},
    units::Bytes,
};
use tierfeed_runtime::predict::{
    self, PlottedPolicy, Prediction, curve::Curve, node_model::NodeModel, trace::TraceWriter,
    wear::Wear,
};

use super::{PlanInputs, table};
use crate::{arguments::Plan, command, failure::Failure, output};

/// The exit code of an interrupted command, by the convention of shells.
const INTERRUPTED: u8 = 130;

pub(super) fn run(arguments: &Plan, inputs: &PlanInputs) -> Result<(), Failure> {
    let policies = super::policies(arguments, &inputs.sized);
    let simulated = simulate(arguments, inputs, &inputs.site, &policies)?;
    let mut notes = inputs.notes();
    if let Some(path) = &arguments.plot {
        let drawn: Vec<_> = simulated.iter().map(Simulated::drawn).collect();
        write(path, &predict::plot(&inputs.sized.job().name, &notes, &drawn))?;
    }
    let predictions: Vec<_> = simulated.into_iter().map(|it| it.prediction).collect();
    notes.extend(predictions.iter().filter_map(|it| it.wear.as_ref()).map(wear));
    match (predictions.as_slice(), arguments.json) {
        ([only], true) => output::json(only),
        (all, true) => output::json(&all),
        (all, false) => output::lines(&table::comparison(all, &notes)),
    }
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
    let runs = policies.len() as u64 * u64::from(nodes.count());
    let bar = output::bar();
    bar.set_length(curve.steps().saturating_mul(runs));
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
        let run = Prediction::observed(settings, nodes, *policy, model, &mut watch);
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

/// The settings of a session on `site`.
pub(super) fn settings(inputs: &PlanInputs, site: &NodeModel) -> session::Settings {
    let (job, order) = (inputs.sized.job(), &inputs.sized.order);
    site.session(job, inputs.sized.sizes(), *order)
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
