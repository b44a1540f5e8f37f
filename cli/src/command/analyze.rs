//! `tierfeed analyze`.

use std::path::Path;

use serde::Serialize;
use tierfeed_core::{
    tier::Speed,
    units::{BytesPerSecond, Nanoseconds},
};
use tierfeed_resource_gatherer::{Report, report};
use tierfeed_runtime::{
    places::{Layout, Node, PlacesError},
    prediction,
};
use tierfeed_workload_analyzer::{
    Job,
    demand::{self, Demand, TierFigure, Verdict},
    script,
};

use crate::{
    arguments::{Analyze, Cold},
    environment,
    failure::Failure,
    jobs::{self, Indexed},
    output,
};

#[derive(Serialize)]
struct Analysis<'a> {
    job: &'a str,
    demand: &'a Demand,
    verdict: &'a Verdict,
    emulated_tiers: Vec<&'static str>,
}

pub(crate) fn run(arguments: &Analyze) -> Result<(), Failure> {
    match &arguments.job {
        Some(job) if arguments.script.is_empty() => run_job(arguments, job),
        job => run_script(arguments, job.as_deref()),
    }
}

/// The dataset is not read: a script can be compared with a job before its data is there.
fn run_script(arguments: &Analyze, job: Option<&Path>) -> Result<(), Failure> {
    let mut analysis = script::analyze(&arguments.script).map_err(Failure::input)?;
    if let Some(job) = job {
        analysis = analysis.compared_with(&Job::load(job).map_err(Failure::input)?);
    }
    if arguments.json { output::json(&analysis) } else { output::lines(&script::table(&analysis)) }
}

fn run_job(arguments: &Analyze, job: &Path) -> Result<(), Failure> {
    let Indexed { job, demand, .. } = jobs::load(job, None)?;
    let layout = layout(&job, &demand)?;
    let measured = measured();
    let speeds = prediction::tier_speeds(&layout, measured.as_ref());
    let tiers: Vec<_> = layout
        .places
        .iter()
        .zip(speeds)
        .map(|(place, speed)| TierFigure {
            kind: place.settings.kind,
            capacity: place.cache,
            read: speed.bandwidth,
        })
        .collect();
    let verdict = demand::verdict(&demand, &tiers, cold_speed(&job, &arguments.cold));
    let emulated_tiers = emulated(&layout);
    if arguments.json {
        let job = &job.name;
        return output::json(&Analysis { job, demand: &demand, verdict: &verdict, emulated_tiers });
    }
    output::lines(&demand::table(&demand, &verdict))?;
    match emulated_tiers.as_slice() {
        [] => Ok(()),
        names => output::lines(&format!("{:<20}{}", "emulated", names.join(", "))),
    }
}

/// The tiers of a job on this node.
pub(crate) fn layout(job: &Job, demand: &Demand) -> Result<Layout, Failure> {
    let node = Node::read(job).map_err(PlacesError::from).map_err(Failure::input)?;
    Layout::fit(job, demand, &node).map_err(Failure::input)
}

/// The last report of the probe, if there is one.
pub(crate) fn measured() -> Option<Report> {
    let path = environment::tiers_report(None).ok()?;
    report::read(&path).ok()
}

/// What the job imposes, else what the user says.
pub(crate) fn cold_speed(job: &Job, cold: &Cold) -> Speed {
    job.dataset.speed.unwrap_or(Speed {
        latency: cold.cold_latency.unwrap_or(Nanoseconds(0)),
        bandwidth: cold.cold_bandwidth.unwrap_or(BytesPerSecond(0)),
    })
}

/// The tiers that are not what their names say.
pub(crate) fn emulated(layout: &Layout) -> Vec<&'static str> {
    let emulated = |tier: &tierfeed_core::fleet::Tier| {
        (tier.origin == tierfeed_core::fleet::Origin::Emulated).then(|| tier.kind.name())
    };
    layout.offer().iter().filter_map(emulated).collect()
}
