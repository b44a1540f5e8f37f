//! `tierfeed analyze`.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use clap::Args;
use serde::Serialize;
use tierfeed_core::{
    fleet::schedule::Figures,
    tier::Speed,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_resource_gatherer::Report;
use tierfeed_runtime::{
    layout::{Layout, Node, TierLayout},
    predict,
};
use tierfeed_workload_analyzer::{
    Job,
    analysis::{self, Analysis},
    demand::{self, Advice, Demand, Observed, Supply, TierFigure, Verdict},
};

use super::{
    machine::{Machine, MachineName, MachineReports},
    script_analysis,
    step_time::{StepTime, Steps},
};
use crate::{
    failure::Failure,
    jobs::{self, JobFile, SizedJob},
    output,
};

#[derive(Debug, Args)]
pub(crate) struct Analyze {
    /// The job file.
    #[arg(required_unless_present = "script")]
    pub(crate) job: Option<PathBuf>,
    /// A training script: says what its source tells, without running it; may be given several times.
    /// With a job file, says where the two contradict each other.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tiers", "cold_bandwidth", "cold_latency",
          "step_time", "observed"])]
    pub(crate) script: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) steps: Steps,
    #[command(flatten)]
    pub(crate) machine: MachineReports,
    #[command(flatten)]
    pub(crate) cold: Cold,
    /// Prints the analysis as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The speed of the cold store, where the job file does not impose one.
#[derive(Debug, Args)]
pub(crate) struct Cold {
    /// The rate of the cold store, such as "500 MB/s" [default: as measured, else unlimited].
    #[arg(long, value_name = "RATE")]
    pub(crate) cold_bandwidth: Option<BytesPerSecond>,
    /// The latency of the cold store, such as "2 ms" [default: as measured, else none].
    #[arg(long, value_name = "TIME")]
    pub(crate) cold_latency: Option<Nanoseconds>,
}

#[derive(Serialize)]
struct Document<'a> {
    job: &'a str,
    /// `None` for this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<&'a MachineName>,
    demand: &'a Demand,
    analysis: Analysis,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed: Option<Observed>,
    verdict: Verdict,
    advice: Vec<Advice>,
    emulated_tiers: Vec<&'static str>,
    /// Whether the dataset is only described in the job file.
    dataset_described: bool,
}

pub(crate) fn run(arguments: &Analyze) -> Result<(), Failure> {
    match &arguments.job {
        Some(job) if arguments.script.is_empty() => run_job(arguments, job),
        job => {
            let scripts = &arguments.script;
            output::lines(&script_analysis::analyze(scripts, job.as_deref(), arguments.json)?)
        }
    }
}

fn run_job(arguments: &Analyze, path: &Path) -> Result<(), Failure> {
    let SizedJob { file, sums, demand, .. } = jobs::sized(JobFile::read(path)?)?;
    let job = &*file.job;
    let step_time = StepTime::of(&arguments.steps, job)?;
    let observed = step_time.observed.as_ref().map(|(observed, _)| *observed);
    let demand = match step_time.time {
        Some(step) => Demand::at(job, &sums, Some(step)).map_err(Failure::input)?,
        None => demand,
    };
    let machines = Machine::kinds(&file, &arguments.machine)?;
    let cases = machines.iter().map(|machine| {
        let layout = machine.layout(&file, &demand)?;
        let free = free_memory(&machine.node, &layout);
        let analysis = Analysis::of(job, &sums, &demand, free);
        let cold = cold_speed(job, &arguments.cold, &layout.cold);
        let supply = supply(job, &layout, &analysis, machine.measured(), cold);
        let document = Document {
            job: &job.name,
            machine: machine.name.as_ref(),
            demand: &demand,
            analysis,
            observed,
            verdict: demand::verdict(&demand, &supply),
            advice: demand::advice(&demand, &supply),
            emulated_tiers: emulated(&layout),
            dataset_described: job.described.is_some(),
        };
        Ok((document, layout))
    });
    let cases = cases.collect::<Result<Vec<_>, Failure>>()?;
    if arguments.json {
        return output::json_of_each(cases.iter().map(|(document, _)| document));
    }
    let observed = step_time.note();
    cases.iter().try_for_each(|(document, layout)| {
        let cold = measured_cold(job, &arguments.cold, &layout.cold);
        print(document, &layout.unused_tiers(job), observed.as_deref(), cold)
    })
}

fn print(
    document: &Document<'_>,
    unused: &[impl fmt::Display],
    observed: Option<&str>,
    cold: Option<String>,
) -> Result<(), Failure> {
    let titled = |title: &str, text: &dyn fmt::Display| format!("{title:<20}{text}");
    let Document { demand, verdict, .. } = document;
    let mut parts = Vec::new();
    parts.extend(document.machine.map(|name| titled("machine", &name.text)));
    parts.push(demand::summary(demand, verdict, &document.advice));
    parts.extend(unused.iter().map(|it| titled("warning", it)));
    parts.push(analysis::table(&document.analysis));
    parts.push(demand::table(demand, verdict));
    parts.extend(observed.map(|observed| titled("observed", &observed)));
    if document.dataset_described {
        parts.push(titled("note", &"the dataset is described, not here"));
    }
    parts.extend(cold.map(|note| titled("note", &note)));
    if !document.emulated_tiers.is_empty() {
        parts.push(titled("emulated", &document.emulated_tiers.join(", ")));
    }
    parts.iter().try_for_each(|part| output::lines(part))
}

/// The supply of the tiers: speeds imposed by the job, else measured; main memory without what the job itself
/// needs.
fn supply(
    job: &Job,
    layout: &Layout,
    analysis: &Analysis,
    measured: Option<&Report>,
    cold: Speed,
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

/// A sentence about the speed of the cold store where it is a measured one.
pub(crate) fn measured_cold(job: &Job, cold: &Cold, measured: &Figures) -> Option<String> {
    let is_told = job.cold.speed.is_some() || cold.cold_bandwidth.is_some();
    let rate = measured.bandwidth.filter(|_| !is_told)?;
    Some(format!("the cold store gives {rate}: {}", measured.from))
}

/// Free main memory minus the budgets of the tiers.
fn free_memory(node: &Node, layout: &Layout) -> Bytes {
    let free = node.host_memory();
    Bytes(free.0.saturating_sub(layout.memory_budget(node).0))
}

/// The cold store's speed: imposed by the job, else by option, else as measured.
pub(crate) fn cold_speed(job: &Job, cold: &Cold, measured: &Figures) -> Speed {
    job.cold.speed.unwrap_or(Speed {
        latency: cold.cold_latency.or(measured.latency).unwrap_or(Nanoseconds(0)),
        bandwidth: cold.cold_bandwidth.or(measured.bandwidth).unwrap_or(BytesPerSecond(0)),
    })
}

pub(crate) fn emulated(layout: &Layout) -> Vec<&'static str> {
    let emulated = |tier: &TierLayout| {
        let is_emulated = tier.origin == tierfeed_core::fleet::Origin::Emulated;
        is_emulated.then(|| tier.settings.kind.name())
    };
    layout.tiers.iter().filter_map(emulated).collect()
}
