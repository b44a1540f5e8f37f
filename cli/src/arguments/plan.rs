//! Arguments of `tierfeed analyze` and `tierfeed plan`: which job, on which machines.

use std::path::PathBuf;

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use tierfeed_core::{
    retention::policy,
    units::{BytesPerSecond, Nanoseconds},
};
use tierfeed_runtime::predict::whole_job::Moment;

use crate::nodes_report::NodesReport;

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

/// How long a training step computes.
#[derive(Debug, Args)]
pub(crate) struct Steps {
    /// How long a training step computes [default: as the job file says, else as the newest run below
    /// .tierfeed/runs observed it].
    #[arg(long, value_name = "TIME")]
    pub(crate) step_time: Option<Nanoseconds>,
    /// The report.json of an earlier run of the job: its step time is taken instead of the job's.
    #[arg(long, value_name = "FILE", conflicts_with = "step_time")]
    pub(crate) observed: Option<PathBuf>,
}

/// The machines that a job is planned for, if not this one.
#[derive(Debug, Args)]
pub(crate) struct MachineReports {
    /// The report of `tiers probe` from the machine that the job will run on, instead of this one. For
    /// several kinds of nodes, several times with the nodes before it: 0-3,8=FILE.
    #[arg(long, value_name = "[NODES=]FILE")]
    pub(crate) tiers: Vec<NodesReport>,
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

/// All nodes of a job at once.
#[derive(Debug, Args)]
pub(crate) struct Fleet {
    /// Predicts all nodes of a job with `policy: partitioned` together, step by step: what each reads from
    /// which other and cold, and how long all wait for the slowest.
    #[arg(long, requires = "simulate", conflicts_with_all = ["epoch", "node", "all_nodes", "dump",
          "schedule", "replay", "cost"])]
    pub(crate) whole_job: bool,
    /// Loses the agents of these nodes, such as 17@1 in the middle of epoch 1, or 17@1:20 before step 20 of it.
    /// Their trainers read on from the cold store.
    #[arg(long, value_name = "NODE@EPOCH", value_delimiter = ',', requires = "whole_job")]
    pub(crate) lose: Vec<Moment>,
    /// Lets these nodes come back with empty tiers, after they were lost.
    #[arg(long, value_name = "NODE@EPOCH", value_delimiter = ',', requires = "lose")]
    pub(crate) rejoin: Vec<Moment>,
    /// The network of each node, in each direction, such as "10 GB/s" [default: unlimited].
    #[arg(long, value_name = "RATE", requires = "whole_job")]
    pub(crate) network_bandwidth: Option<BytesPerSecond>,
    /// The time in which a node answers another [default: none].
    #[arg(long, value_name = "TIME", requires = "whole_job")]
    pub(crate) network_latency: Option<Nanoseconds>,
    /// What the cold store gives to all nodes together; --cold-bandwidth is what it gives to one
    /// [default: unlimited].
    #[arg(long, value_name = "RATE", requires = "whole_job")]
    pub(crate) store_bandwidth: Option<BytesPerSecond>,
}

/// The policies by their names, of which clap finds the one that was meant.
fn policy_names() -> impl TypedValueParser<Value = policy::Kind> {
    PossibleValuesParser::new(policy::Kind::ALL.map(policy::Kind::name))
        .try_map(|name| name.parse::<policy::Kind>())
}
