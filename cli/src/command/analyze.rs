//! `tierfeed analyze`.

mod script;

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::Context;
use serde::Serialize;
use tierfeed_core::{
    tier::Speed,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_resource_gatherer::Report;
use tierfeed_runtime::{
    layout::{Layout, Node, Place, PlacesError, Room, report_at},
    predict,
};
use tierfeed_workload_analyzer::{
    Job,
    analysis::{self, Analysis},
    demand::{self, Advice, Demand, Observed, Supply, TierFigure, Verdict},
};

use crate::{
    arguments::{Analyze, Cold},
    environment,
    failure::Failure,
    jobs::{self, JobFile, Known},
    output,
};

/// A larger text is not the report of a run.
const REPORT_BYTES_MAX: u64 = 64 << 20;

#[derive(Serialize)]
struct Document<'a> {
    job: &'a str,
    demand: &'a Demand,
    analysis: &'a Analysis,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed: Option<Observed>,
    verdict: &'a Verdict,
    advice: &'a [Advice],
    emulated_tiers: Vec<&'static str>,
    /// Whether the dataset is here, or only described in the job.
    dataset_described: bool,
}

pub(crate) fn run(arguments: &Analyze) -> Result<(), Failure> {
    match &arguments.job {
        Some(job) if arguments.script.is_empty() => run_job(arguments, job),
        job => {
            let scripts = &arguments.script;
            output::lines(&script::analyze(scripts, job.as_deref(), arguments.json)?)
        }
    }
}

fn run_job(arguments: &Analyze, path: &Path) -> Result<(), Failure> {
    let Known { file, sums, demand, .. } = jobs::know(path)?;
    let job = &*file.job;
    let observed = observed(arguments.observed.as_deref(), job)?;
    let demand = match observed.and_then(|it| it.step_time) {
        Some(step) => Demand::at(job, &sums, Some(step)).map_err(Failure::input)?,
        None => demand,
    };
    let node = node(&file)?;
    let layout = layout(&file, &demand, &node)?;
    let analysis = Analysis::of(job, &sums, &demand, free_memory(&node, &layout));
    let supply = supply(job, &layout, &analysis, cold_speed(job, &arguments.cold));
    let verdict = demand::verdict(&demand, &supply);
    let advice = demand::advice(&demand, &supply);
    let emulated_tiers = emulated(&layout);
    if arguments.json {
        return output::json(&Document {
            job: &job.name,
            demand: &demand,
            analysis: &analysis,
            observed,
            verdict: &verdict,
            advice: &advice,
            emulated_tiers,
            dataset_described: job.described.is_some(),
        });
    }
    output::lines(&demand::summary(&demand, &verdict, &advice))?;
    layout.idle(job).iter().try_for_each(|it| output::lines(&format!("{:<20}{it}", "warning")))?;
    output::lines(&analysis::table(&analysis))?;
    output::lines(&demand::table(&demand, &verdict))?;
    if let Some(observed) = observed {
        output::lines(&format!("{:<20}{observed}", "observed"))?;
    }
    if job.described.is_some() {
        output::lines(&format!("{:<20}the dataset is described, not here", "note"))?;
    }
    match emulated_tiers.as_slice() {
        [] => Ok(()),
        names => output::lines(&format!("{:<20}{}", "emulated", names.join(", "))),
    }
}

fn observed(report: Option<&Path>, job: &Job) -> Result<Option<Observed>, Failure> {
    let Some(path) = report else { return Ok(None) };
    let read = || -> anyhow::Result<Observed> {
        let mut text = String::new();
        File::open(path)?.take(REPORT_BYTES_MAX).read_to_string(&mut text)?;
        Ok(Observed::parse(&text, job)?)
    };
    let observed = read().with_context(|| PathBuf::from(path).display().to_string());
    observed.map(Some).map_err(Failure::Input)
}

/// What the tiers give: as the job imposes, else as measured; main memory without what the job itself
/// needs.
fn supply(job: &Job, layout: &Layout, analysis: &Analysis, cold: Speed) -> Supply {
    let measured = measured();
    let speeds = predict::tier_speeds(layout, measured.as_ref());
    let figure = |(place, speed): (&Place, Speed)| TierFigure {
        kind: place.settings.kind,
        capacity: match place.settings.kind {
            tierfeed_core::tier::Kind::MainMemory => {
                Bytes(place.cache.0.saturating_sub(analysis.memory.missing.0))
            }
            _ => place.cache,
        },
        read: speed.bandwidth,
        reads_per_s: reads_per_s(place, measured.as_ref()),
    };
    Supply {
        tiers: layout.places.iter().zip(speeds).map(figure).collect(),
        cold,
        rule: job.policy.into(),
        chunk: layout.chunk,
    }
}

/// Random reads of a tier on a disk; memory is not limited by their number.
fn reads_per_s(place: &Place, measured: Option<&Report>) -> Option<u64> {
    if place.settings.emulated.is_some() {
        return None;
    }
    let tiers = &measured?.tiers;
    tiers.iter().find(|tier| tier.kind == place.settings.kind)?.random_read_iops
}

/// What is free in main memory beside what the tiers take of it.
fn free_memory(node: &Node, layout: &Layout) -> Bytes {
    let free = node.host_memory();
    Bytes(free.0.saturating_sub(layout.memory_budget(node).0))
}

/// This node, as the job sees it.
pub(crate) fn node(file: &JobFile) -> Result<Node, Failure> {
    Node::read(&file.job).map_err(|error| placed(file, error.into()))
}

/// The tiers of a job on a node.
pub(crate) fn layout(file: &JobFile, demand: &Demand, node: &Node) -> Result<Layout, Failure> {
    Layout::fit(&file.job, demand, node, Room::Free).map_err(|error| placed(file, error))
}

/// An error about the tiers of a job, with its place in the job file.
fn placed(file: &JobFile, error: PlacesError) -> Failure {
    let keys = error.keys();
    Failure::input(file.placed(&keys, error))
}

/// The last report of the probe, if there is one.
pub(crate) fn measured() -> Option<Report> {
    let path = environment::tiers_report(None).ok()?;
    report_at(&path)
}

/// What the job imposes, else what the user says.
pub(crate) fn cold_speed(job: &Job, cold: &Cold) -> Speed {
    job.cold.speed.unwrap_or(Speed {
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
