//! `tierfeed plan`.

mod cost;
mod dump;
mod replay;
mod schedule;
mod simulate;
mod table;
mod whole_job;

use std::path::PathBuf;

use anyhow::anyhow;
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use serde::Serialize;
use tierfeed_core::{
    order::Shuffle,
    retention::policy,
    session::staging_depth::{Depth, Shortfall},
    simulator::Model,
    units::{Bytes, Nanoseconds},
};
use tierfeed_runtime::{
    layout::Layout,
    observe::report::DirectEntry,
    predict::{self, Nodes, depth, node_model::NodeModel},
};
use tierfeed_workload_analyzer::demand::Demand;

use self::whole_job::Fleet;
use super::{
    analyze::{Cold, cold_speed, emulated, measured_cold},
    machine::{Machine, MachineName, MachineReports},
    step_time::{StepTime, Steps},
};
use crate::{
    failure::Failure,
    jobs::{self, SizedJob},
    output,
};

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct Plan {
    /// The job file.
    pub(crate) job: PathBuf,
    /// Policies instead of the job's own, such as gap,fifo.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = policy_names())]
    pub(crate) policy: Vec<policy::Kind>,
    /// Predicts what the job will do on this node.
    #[arg(long)]
    pub(crate) simulate: bool,
    /// Predicts this epoch alone, numbered from 0, from a few epochs before it: in a minute what a run of 90
    /// epochs takes an hour for.
    #[arg(long, value_name = "NUMBER", requires = "simulate",
          conflicts_with_all = ["cost", "replay"])]
    pub(crate) epoch: Option<u32>,
    /// Which node of the job is predicted or printed; all are taken to be like this one [default: 0, and
    /// all of them where only the order is printed].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) node: Option<u32>,
    /// Predicts or prints all nodes of the job, one after the other: bytes are summed, times are the
    /// slowest node's.
    #[arg(long, conflicts_with = "node")]
    pub(crate) all_nodes: bool,
    /// Prints every batch: epoch, step, rank and sample numbers, one batch a line. With --policy each
    /// sample stands with where it will come from, such as 17:cxl-memory or 17:cold.
    #[arg(long, conflicts_with_all = ["simulate", "json"])]
    pub(crate) dump: bool,
    /// Prints the schedule that the manager gives the agent of a node like this one: its tiers in order with
    /// their use and the reasons, depth, windows and room for look-ahead.
    #[arg(long, conflicts_with_all = ["policy", "simulate", "dump", "cost", "all_nodes",
          "step_time", "transform_time", "cold_bandwidth", "cold_latency"])]
    pub(crate) schedule: bool,
    /// Repeats the run of this run directory with the schedules that its manager recorded, each from the epoch
    /// in which it was applied, and compares the decisions; ends with 1 if they differ.
    #[arg(long, value_name = "RUN_DIR", requires = "simulate",
          conflicts_with_all = ["policy", "dump", "cost", "all_nodes", "schedule",
          "tiers", "transform_time"])]
    pub(crate) replay: Option<PathBuf>,
    /// Says what the run costs on rented machines at the prices in this file, by where its data is.
    #[arg(long, value_name = "PRICES.yaml", conflicts_with = "dump")]
    pub(crate) cost: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) fleet: Fleet,
    #[command(flatten)]
    pub(crate) steps: Steps,
    /// How long a thread of an agent needs to transform a sample, where the job has a transform; else what was
    /// measured counts.
    #[arg(long, value_name = "TIME")]
    pub(crate) transform_time: Option<Nanoseconds>,
    /// How long the agent reads before the training begins, which loads its framework meanwhile; a report says it
    /// of a run [default: none].
    #[arg(long, value_name = "TIME", requires = "simulate", conflicts_with_all = ["replay", "cost"])]
    pub(crate) head_start: Option<Nanoseconds>,
    /// How far the cold store may be ahead of its rate after it was idle, as disks with a limit and volumes with
    /// credits are [default: not at all].
    #[arg(long, value_name = "TIME", requires = "simulate", conflicts_with_all = ["replay", "cost"])]
    pub(crate) cold_burst: Option<Nanoseconds>,
    #[command(flatten)]
    pub(crate) machine: MachineReports,
    #[command(flatten)]
    pub(crate) cold: Cold,
    /// Prints JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The policies by their names, of which clap finds the one that was meant.
fn policy_names() -> impl TypedValueParser<Value = policy::Kind> {
    PossibleValuesParser::new(policy::Kind::ALL.map(policy::Kind::name))
        .try_map(|name| name.parse::<policy::Kind>())
}

/// The schedule that an agent gets, with the budgets of this node.
#[derive(Serialize)]
struct Schedule {
    job: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<MachineName>,
    policy: &'static str,
    shuffle: &'static str,
    seed: u64,
    samples: u32,
    epochs: u32,
    steps_per_epoch: u32,
    ranks: u32,
    staged_batches: u32,
    /// The least staging depth with which a first epoch is in time, if known and possible.
    least_staged_batches: Option<u32>,
    chunk_bytes: u64,
    arena_bytes_per_rank: u64,
    tiers: Vec<Tier>,
}

#[derive(Serialize)]
struct Tier {
    name: &'static str,
    budget_bytes: u64,
    cache_bytes: u64,
    emulated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    direct: Option<DirectEntry>,
}

pub(crate) fn run(arguments: &Plan) -> Result<(), Failure> {
    let sized = jobs::sized(&arguments.job)?;
    if arguments.dump && arguments.policy.is_empty() {
        require_computed(&sized)?;
        return dump::order(arguments, &sized);
    }
    if let Some(run_dir) = &arguments.replay {
        return replay::run(arguments, &sized, run_dir);
    }
    let machine = machine(arguments, &sized)?;
    if arguments.schedule {
        return schedule::run(arguments, &sized, &machine);
    }
    let layout = machine.layout(&sized.file, &sized.demand)?;
    if arguments.dump {
        require_computed(&sized)?;
        return dump::sources(arguments, &sized, &layout);
    }
    let inputs = PlanInputs::of(arguments, sized, machine, &layout)?;
    if let Some(prices) = &arguments.cost {
        return cost::run(arguments, &inputs, prices);
    }
    if arguments.fleet.whole_job {
        return whole_job::run(arguments, &inputs);
    }
    if arguments.simulate {
        return simulate::run(arguments, &inputs);
    }
    nodes(arguments, &inputs.sized)?;
    let schedule = schedule(&inputs, &layout, policy(arguments, &inputs.sized)?);
    if arguments.json {
        return output::json(&schedule);
    }
    if let Some(name) = &inputs.machine {
        output::lines(name.text())?;
    }
    output::lines(&table(&schedule))?;
    layout
        .unused_tiers(inputs.sized.job())
        .iter()
        .try_for_each(|unused| output::lines(&format!("{unused}")))?;
    depth::least(&inputs.demand, &inputs.site).iter().try_for_each(|it| output::lines(&staging(it)))
}

struct PlanInputs {
    sized: SizedJob,
    step_time: StepTime,
    head_start: Nanoseconds,
    /// How far the cold store may be ahead of its rate.
    cold_burst: Nanoseconds,
    /// The demand at that step time.
    demand: Demand,
    site: NodeModel,
    /// `None` for this host.
    machine: Option<MachineName>,
    emulated: Vec<&'static str>,
    /// A note about the speed of the cold store, where it is a measured one.
    measured_cold: Option<String>,
}

impl PlanInputs {
    fn of(
        arguments: &Plan,
        sized: SizedJob,
        machine: Machine,
        layout: &Layout,
    ) -> Result<Self, Failure> {
        if arguments.transform_time.is_some() && sized.job().transform.is_none() {
            let unused =
                anyhow!("--transform-time is for a job with a transform, and this one has none");
            return Err(Failure::input(unused));
        }
        let step_time = StepTime::of(&arguments.steps, sized.job())?;
        let demand =
            Demand::at(sized.job(), &sized.sums, step_time.time).map_err(Failure::input)?;
        let cold = cold_speed(sized.job(), &arguments.cold, &layout.cold);
        let site = NodeModel::of(&demand, layout, machine.measured(), cold);
        let site = match arguments.transform_time {
            Some(time) => site.with_transform_time(time),
            None => site,
        };
        let emulated = emulated(layout);
        let measured_cold = measured_cold(sized.job(), &arguments.cold, &layout.cold);
        let machine = machine.name;
        let head_start = arguments.head_start.unwrap_or_default();
        let cold_burst = arguments.cold_burst.unwrap_or_default();
        Ok(Self {
            sized,
            step_time,
            head_start,
            cold_burst,
            demand,
            site,
            machine,
            emulated,
            measured_cold,
        })
    }

    /// The simulator's model of a node, with the steps and idle phases of the job.
    fn model(&self) -> Model {
        let pause = self.sized.job().trainer.pause;
        let steps = self.sized.order.steps_per_epoch();
        Model {
            pause: pause.map(|pause| pause.in_steps(steps)),
            head_start: self.head_start,
            cold_burst: self.cold_burst,
            ..self.site.model(self.step_time.time.unwrap_or_default())
        }
    }

    fn assumed_lengths(&self) -> Option<String> {
        self.site.assumed_lengths(self.sized.job(), &self.sized.lengths())
    }

    fn notes(&self) -> Vec<String> {
        let machine = self.machine.iter().map(|name| name.text().to_owned());
        let emulated = self.emulated.iter().map(|name| format!("{name} is emulated"));
        let measured_cold = self.measured_cold.clone();
        let mut notes: Vec<_> =
            machine.chain(emulated).chain(measured_cold).chain(self.assumed_lengths()).collect();
        if self.site.cold == predict::UNLIMITED {
            let note = "the cold store is taken as unlimited: --cold-bandwidth says what it is";
            notes.push(note.to_owned());
        }
        notes.extend(self.step_time.note().map(|note| format!("observed: {note}")));
        if self.step_time.time.is_none() {
            let note = "steps are taken to compute nothing: run an epoch, whose report is found by itself, or say \
                        how long they do with --step-time";
            notes.push(note.to_owned());
        }
        if self.sized.job().transform.is_some() && self.site.transform_costs().is_none() {
            let note =
                "transforms are taken to cost nothing: --transform-time says what a sample costs";
            notes.push(note.to_owned());
        }
        notes
    }
}

fn nodes(arguments: &Plan, sized: &SizedJob) -> Result<Nodes, Failure> {
    let nodes = sized.order.world.nodes;
    let node = arguments.node.unwrap_or(0);
    match (arguments.all_nodes, node < nodes) {
        (true, _) => Ok(Nodes::All { nodes }),
        (false, true) => Ok(Nodes::One { node }),
        (false, false) => Err(Failure::Input(anyhow!(
            "--node {node}: the job has {nodes} nodes, numbered from 0 to {}",
            nodes - 1
        ))),
    }
}

fn machine(arguments: &Plan, sized: &SizedJob) -> Result<Machine, Failure> {
    let kinds = arguments.machine.tiers.len();
    let takes_all = arguments.all_nodes || arguments.fleet.whole_job;
    if kinds > 1 && takes_all {
        return Err(Failure::Input(anyhow!(
            "--tiers names {kinds} machines, and this takes all nodes to be alike; \
             plan for one node of each with --node"
        )));
    }
    let number = arguments.node.unwrap_or(0);
    let machine = Machine::of_node(&sized.file, &arguments.machine, number)?;
    Ok(machine.with_measured_transform(&sized.file, sized.index()))
}

/// The requested policies, else that of the job.
fn policies(arguments: &Plan, sized: &SizedJob) -> Vec<policy::Kind> {
    if arguments.policy.is_empty() { vec![sized.job().policy] } else { arguments.policy.clone() }
}

/// The single requested policy, else that of the job.
fn policy(arguments: &Plan, sized: &SizedJob) -> Result<policy::Kind, Failure> {
    match arguments.policy.as_slice() {
        [] => Ok(sized.job().policy),
        [only] => Ok(*only),
        several => Err(Failure::Input(anyhow!(
            "--policy names {} policies; this takes one",
            several.len()
        ))),
    }
}

/// Refuses an order that only the trainer knows.
fn require_computed(sized: &SizedJob) -> Result<(), Failure> {
    if sized.order.shuffle == Shuffle::Published {
        return Err(Failure::Input(anyhow!(
            "order.shuffle is published: the trainer's sampler knows this order, the job does not"
        )));
    }
    Ok(())
}

fn schedule(inputs: &PlanInputs, layout: &Layout, policy: policy::Kind) -> Schedule {
    let (job, order) = (inputs.sized.job(), &inputs.sized.order);
    let least = depth::least(&inputs.demand, &inputs.site);
    let tiers = layout.tiers.iter().map(|place| Tier {
        name: place.settings.kind.name(),
        budget_bytes: place.budget.0,
        cache_bytes: place.cache.0,
        emulated: place.origin == tierfeed_core::fleet::Origin::Emulated,
        direct: place.direct.map(Into::into),
    });
    Schedule {
        job: job.name.clone(),
        machine: inputs.machine.clone(),
        policy: policy.name(),
        shuffle: order.shuffle.name(),
        seed: order.seed,
        samples: order.samples,
        epochs: order.epochs,
        steps_per_epoch: order.steps_per_epoch(),
        ranks: order.world.ranks(),
        staged_batches: layout.depth,
        least_staged_batches: least.and_then(|least| Some(least.ok()?.batches)),
        chunk_bytes: layout.chunk.0,
        arena_bytes_per_rank: layout.arena.0,
        tiers: tiers.collect(),
    }
}

/// The least staging depth while everything is cold, or why no depth is enough.
fn staging(least: &Result<Depth, Shortfall>) -> String {
    match least {
        Ok(least) => format!(
            "while everything is cold, {} staged batches are in time in {} of all steps",
            least.batches, least.in_time
        ),
        Err(shortfall) => format!("while everything is cold, {shortfall}"),
    }
}

fn table(schedule: &Schedule) -> String {
    let mut lines = vec![format!(
        "job {}: {} samples, {} epochs of {} steps, {} ranks, {} seed {}\n\
         policy {}, {} batches of each rank staged in {}, chunks of {}",
        schedule.job,
        schedule.samples,
        schedule.epochs,
        schedule.steps_per_epoch,
        schedule.ranks,
        schedule.shuffle,
        schedule.seed,
        schedule.policy,
        schedule.staged_batches,
        Bytes(schedule.arena_bytes_per_rank),
        Bytes(schedule.chunk_bytes),
    )];
    for tier in &schedule.tiers {
        let mark = if tier.emulated { "  (emulated)" } else { "" };
        let (budget, cache) = (Bytes(tier.budget_bytes), Bytes(tier.cache_bytes));
        lines.push(format!("{:<14}budget {budget:>12}, cache {cache:>12}{mark}", tier.name));
        if let Some(direct) = &tier.direct {
            lines.push(format!("{:<14}direct use: {}", "", direct.why));
        }
    }
    lines.join("\n")
}
