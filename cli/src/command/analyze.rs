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
    layout::{Found, Layout, LayoutError, Measured, Node, Overcommit, TierLayout},
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
    jobs::{self, JobFile, SizedJob},
    output,
};

/// The size limit of a report.
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
    /// Whether the dataset is only described in the job file.
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
    let SizedJob { file, sums, demand, .. } = jobs::sized(path)?;
    let job = &*file.job;
    let observed = observed(arguments.observed.as_deref(), job)?;
    let demand = match observed.and_then(|it| it.step_time) {
        Some(step) => Demand::at(job, &sums, Some(step)).map_err(Failure::input)?,
        None => demand,
    };
    let node = node(&file)?;
    let layout = layout(&file, &demand, &node)?;
    let analysis = Analysis::of(job, &sums, &demand, free_memory(&node, &layout));
    let (known, cold) = (saved(&node), cold_speed(job, &arguments.cold));
    let supply = supply(job, &layout, &analysis, (cold, known.report(&node)));
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
    layout
        .unused_tiers(job)
        .iter()
        .try_for_each(|it| output::lines(&format!("{:<20}{it}", "warning")))?;
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

/// The supply of the tiers: speeds imposed by the job, else measured; main memory without what the job itself
/// needs.
fn supply(
    job: &Job,
    layout: &Layout,
    analysis: &Analysis,
    (cold, measured): (Speed, Option<&Report>),
) -> Supply {
    let speeds = predict::tier_speeds(layout, measured);
    let figure = |(tier, speed): (&TierLayout, Speed)| TierFigure {
        kind: tier.settings.kind,
        capacity: match tier.settings.kind {
            tierfeed_core::tier::Kind::MainMemory => {
                Bytes(tier.cache.0.saturating_sub(analysis.memory.missing.0))
            }
            _ => tier.cache,
        },
        read: speed.bandwidth,
        reads_per_s: reads_per_s(tier, measured),
    };
    Supply {
        tiers: layout.tiers.iter().zip(speeds).map(figure).collect(),
        cold,
        rule: job.policy.into(),
        chunk: layout.chunk,
    }
}

/// Random reads of a tier on a disk; memory is not limited by their number.
fn reads_per_s(tier: &TierLayout, measured: Option<&Report>) -> Option<u64> {
    if tier.settings.emulated.is_some() {
        return None;
    }
    let tiers = &measured?.tiers;
    tiers.iter().find(|other| other.kind == tier.settings.kind)?.random_read_iops
}

/// Free main memory minus the budgets of the tiers.
fn free_memory(node: &Node, layout: &Layout) -> Bytes {
    let free = node.host_memory();
    Bytes(free.0.saturating_sub(layout.memory_budget(node).0))
}

/// The memory and disks of this node.
pub(crate) fn node(file: &JobFile) -> Result<Node, Failure> {
    Node::read(&file.job).map_err(|error| placed(file, error.into()))
}

/// The tiers of a job on a node.
pub(crate) fn layout(file: &JobFile, demand: &Demand, node: &Node) -> Result<Layout, Failure> {
    Layout::fit(&file.job, demand, node, Overcommit::Refused, &saved(node))
        .map_err(|error| placed(file, error))
}

/// What a job finds on a node.
pub(crate) fn found(file: &JobFile, demand: &Demand, node: &Node) -> Result<Found, Failure> {
    Found::on(&file.job, demand, node, Overcommit::Refused, &saved(node))
        .map_err(|error| placed(file, error))
}

/// An error about the tiers of a job, with its place in the job file.
pub(crate) fn placed(file: &JobFile, error: LayoutError) -> Failure {
    let keys = error.keys();
    Failure::input(file.placed(&keys, error))
}

/// What was measured of a host before.
pub(crate) fn saved(node: &Node) -> Measured {
    let path = environment::tiers_report(None).ok();
    path.map(|path| Measured::saved(&path, node.host())).unwrap_or_default()
}

/// The cold store's speed: imposed by the job, else by option.
pub(crate) fn cold_speed(job: &Job, cold: &Cold) -> Speed {
    job.cold.speed.unwrap_or(Speed {
        latency: cold.cold_latency.unwrap_or(Nanoseconds(0)),
        bandwidth: cold.cold_bandwidth.unwrap_or(BytesPerSecond(0)),
    })
}

/// The names of emulated tiers.
pub(crate) fn emulated(layout: &Layout) -> Vec<&'static str> {
    let emulated = |tier: &TierLayout| {
        let is_emulated = tier.origin == tierfeed_core::fleet::Origin::Emulated;
        is_emulated.then(|| tier.settings.kind.name())
    };
    layout.tiers.iter().filter_map(emulated).collect()
}
