//! `tierfeed tiers probe` and `tierfeed tiers show`.

use std::path::PathBuf;

use tierfeed_core::{tier::Kind, units::Bytes};
use tierfeed_resource_gatherer::{
    Budget, EmulatedTier, ProbeError, ProbeSettings, Report, Sysroot, probe as measure,
    probe::usual_directories, report,
};
use tierfeed_workload_analyzer::{
    Job,
    job::{Budget as Wanted, TierRequest},
};

use crate::{
    arguments::{Probe, Show},
    environment,
    failure::Failure,
    output,
};

pub(crate) fn probe(arguments: &Probe) -> Result<(), Failure> {
    let job = arguments.config.as_deref().map(Job::load).transpose().map_err(Failure::input)?;
    let tiers = job.map(|job| job.tiers).unwrap_or_default();
    let directory = |kind| -> Option<PathBuf> {
        tiers.iter().find(|tier| tier.kind == kind).and_then(|tier| tier.path.clone())
    };
    let usual = usual_directories(Sysroot::live()).map_err(Failure::work)?;
    let settings = ProbeSettings {
        sysroot: "/".into(),
        scratch: directory(Kind::Scratch).or(usual.scratch),
        storage: directory(Kind::Storage).or(usual.storage),
        budget: if arguments.quick { Budget::Quick } else { Budget::Full },
        emulated: tiers.iter().filter_map(emulated).collect(),
    };
    let path = environment::tiers_report(arguments.output.as_deref())?;
    let bar = output::bar();
    let measured = measure(&settings, &mut |progress| {
        bar.set_message(progress.step.to_string());
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
    });
    bar.finish_and_clear();
    let measured = measured.map_err(|error| match error {
        ProbeError::NoDirectory { .. } => Failure::input(error),
        _ => Failure::work(error),
    })?;
    report::write(&measured, &path).map_err(Failure::work)?;
    tracing::info!(report = %path.display(), "written");
    print(&measured, arguments.json)
}

pub(crate) fn show(arguments: &Show) -> Result<(), Failure> {
    let path = environment::tiers_report(arguments.report.as_deref())?;
    let report = report::read(&path).map_err(Failure::input)?;
    print(&report, arguments.json)
}

fn print(report: &Report, as_json: bool) -> Result<(), Failure> {
    if as_json { output::json(report) } else { output::lines(&report::table(report)) }
}

/// A share has no capacity before the job starts.
fn emulated(tier: &TierRequest) -> Option<EmulatedTier> {
    let capacity = match tier.budget {
        Wanted::Size(size) => size,
        Wanted::Reserve(_) => Bytes(0),
    };
    tier.speed.map(|speed| EmulatedTier { kind: tier.kind, speed, capacity })
}
