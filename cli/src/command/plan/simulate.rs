//! `tierfeed plan --simulate`: runs the policies on a virtual clock, and shows what they come to.

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
use tierfeed_core::{
    id::NodeId,
    policy, session,
    simulator::{Model, Observer, Read, StepOutcome},
    units::Nanoseconds,
};
use tierfeed_runtime::{
    places::Layout,
    prediction::{self, Drawn, Nodes, Prediction, curve::Curve, trace::Lines},
};

use super::table;
use crate::{
    arguments::Plan,
    command::{
        self,
        analyze::{cold_speed, emulated, measured},
    },
    failure::Failure,
    jobs::Known,
    output,
};

/// What a shell reports for a command that was interrupted.
const INTERRUPTED: u8 = 130;

pub(super) fn run(arguments: &Plan, known: &Known, layout: &Layout) -> Result<(), Failure> {
    let nodes = nodes(arguments, known)?;
    let settings = layout.session(&known.job, known.sizes(), known.order, NodeId(0));
    let model = model(arguments, known, layout);
    let policies = policies(arguments, known);
    let simulated = simulate(arguments, &settings, nodes, &model, &policies)?;
    let notes = notes(&model, &emulated(layout));
    if let Some(path) = &arguments.plot {
        let drawn: Vec<_> = simulated.iter().map(|it| it.drawn()).collect();
        write(path, &prediction::plot(&known.job.name, &notes, &drawn))?;
    }
    let predictions: Vec<_> = simulated.into_iter().map(|it| it.prediction).collect();
    match (predictions.as_slice(), arguments.json) {
        ([only], true) => output::json(only),
        (all, true) => output::json(&all),
        (all, false) => output::lines(&table::comparison(all, &notes)),
    }
}

/// Which nodes are asked for.
fn nodes(arguments: &Plan, known: &Known) -> Result<Nodes, Failure> {
    let nodes = known.order.world.nodes;
    let node = arguments.node;
    match (arguments.all_nodes, node < nodes) {
        (true, _) => Ok(Nodes::All { nodes }),
        (false, true) => Ok(Nodes::One { node }),
        (false, false) => Err(Failure::Input(anyhow!(
            "--node {node}: the job has {nodes} nodes, numbered from 0 to {}",
            nodes - 1
        ))),
    }
}

/// The policies that are asked for, else that of the job.
pub(super) fn policies(arguments: &Plan, known: &Known) -> Vec<policy::Kind> {
    if arguments.policy.is_empty() { vec![known.job.policy] } else { arguments.policy.clone() }
}

fn model(arguments: &Plan, known: &Known, layout: &Layout) -> Model {
    Model {
        cold: cold_speed(&known.job, &arguments.cold),
        tiers: prediction::tier_speeds(layout, measured().as_ref()),
        step_time: arguments.step_time.or(known.job.step_time).unwrap_or(Nanoseconds(0)),
    }
}

/// What of the figures is not what it seems.
fn notes(model: &Model, emulated: &[&str]) -> Vec<String> {
    let mut notes: Vec<_> = emulated.iter().map(|name| format!("{name} is emulated")).collect();
    if model.cold == prediction::UNLIMITED {
        notes.push("the cold store is taken as unlimited: --cold-bandwidth says what it is".into());
    }
    if model.step_time == Nanoseconds(0) {
        notes.push("steps are taken to compute nothing: --step-time says how long they do".into());
    }
    notes
}

/// A policy that was run.
struct Simulated {
    prediction: Prediction,
    curve: Curve,
}

impl Simulated {
    fn drawn(&self) -> Drawn<'_> {
        Drawn { prediction: &self.prediction, curve: &self.curve }
    }
}

fn simulate(
    arguments: &Plan,
    settings: &session::Settings,
    nodes: Nodes,
    model: &Model,
    policies: &[policy::Kind],
) -> Result<Vec<Simulated>, Failure> {
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
        is_ended: command::ended_by_user(&runtime),
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

fn create(path: &Path, tiers: Vec<&'static str>) -> Result<Lines<BufWriter<File>>, Failure> {
    let file = File::create(path).map_err(|error| unwritable(path, error))?;
    Ok(Lines::new(BufWriter::new(file), tiers))
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

/// Why a simulation ended before its run did.
enum Stop {
    Interrupted,
    Trace(io::Error),
}

/// Follows a simulation.
struct Watch {
    bar: ProgressBar,
    curve: Curve,
    lines: Option<Lines<BufWriter<File>>>,
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
                Failure::Passed(INTERRUPTED)
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
        match self.lines.as_mut().map_or(Ok(()), Lines::check) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Stop::Trace(error)),
        }
    }
}
