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

use anyhow::Context;
use indicatif::ProgressBar;
use tierfeed_core::{
    policy, session,
    simulator::{Observer, Read, StepOutcome},
    units::Bytes,
};
use tierfeed_runtime::predict::{
    self, Drawn, Prediction, curve::Curve, site::Site, trace::Lines, wear::Wear,
};

use super::{Subject, table};
use crate::{arguments::Plan, command, failure::Failure, output};

/// What a shell reports for a command that was interrupted.
const INTERRUPTED: u8 = 130;

pub(super) fn run(arguments: &Plan, subject: &Subject) -> Result<(), Failure> {
    let policies = super::policies(arguments, &subject.known);
    let simulated = simulate(arguments, subject, &subject.site, &policies)?;
    let mut notes = subject.notes();
    if let Some(path) = &arguments.plot {
        let drawn: Vec<_> = simulated.iter().map(Simulated::drawn).collect();
        write(path, &predict::plot(&subject.known.job().name, &notes, &drawn))?;
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

/// What `policies` come to on `site`.
pub(super) fn predict(
    arguments: &Plan,
    subject: &Subject,
    site: &Site,
    policies: &[policy::Kind],
) -> Result<Vec<Prediction>, Failure> {
    let simulated = simulate(arguments, subject, site, policies)?;
    Ok(simulated.into_iter().map(|it| it.prediction).collect())
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
    subject: &Subject,
    site: &Site,
    policies: &[policy::Kind],
) -> Result<Vec<Simulated>, Failure> {
    super::require_computed(&subject.known)?;
    let nodes = super::nodes(arguments, &subject.known)?;
    let settings = &settings(subject, site);
    let model = &site.model(subject.step_time.unwrap_or_default());
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

/// What a session on `site` is built from.
pub(super) fn settings(subject: &Subject, site: &Site) -> session::Settings {
    let (job, order) = (subject.known.job(), &subject.known.order);
    site.session(job, subject.known.sizes(), *order)
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
        match self.lines.as_mut().map_or(Ok(()), Lines::check) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Stop::Trace(error)),
        }
    }
}
