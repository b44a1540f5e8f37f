//! `tierfeed plan`: the schedule of a job, or what it will do; a file for each that can be asked for.

mod budgets;
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
use tierfeed_core::{order::Shuffle, retention::policy, simulator::Model, units::Nanoseconds};
use tierfeed_runtime::{
    layout::Layout,
    predict::{self, Nodes, node_model::NodeModel},
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
    jobs::{self, JobFile, SizedJob},
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

pub(crate) fn run(arguments: &Plan) -> Result<(), Failure> {
    let sized = jobs::sized(JobFile::read(&arguments.job)?)?;
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
    budgets::run(arguments, &inputs, &layout)
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
        let machine = self.machine.iter().map(|name| name.text.clone());
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
