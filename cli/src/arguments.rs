//! Every command and option, with the help that users read.

#![expect(
    clippy::doc_markdown,
    reason = "these comments are printed in terminals, without Markdown"
)]

use std::{path::PathBuf, time::Duration};

use clap::{
    Args, Parser, Subcommand, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use tierfeed_core::{
    retention::policy,
    tier,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_resource_gatherer::hog::Profile;
use tierfeed_runtime::{
    predict::{
        node_model::{Change, parse_kind},
        whole_job::Moment,
    },
    rpc::client::Address,
};
use tierfeed_workload_analyzer::job::keys::FORMATS;

use crate::nodes_report::NodesReport;

/// Feeds deep-learning training from tiers of memory and storage.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub(crate) struct Arguments {
    /// How logs are written to standard error.
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "text",
        env = "TIERFEED_LOG_FORMAT"
    )]
    pub(crate) log_format: LogFormat,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The policies by their names, of which clap finds the one that was meant.
fn policy_names() -> impl TypedValueParser<Value = policy::Kind> {
    PossibleValuesParser::new(policy::Kind::ALL.map(policy::Kind::name))
        .try_map(|name| name.parse::<policy::Kind>())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people.
    Text,
    /// A JSON document a line, for programs.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measures the memory and storage of this host, or shows what was measured.
    #[command(subcommand)]
    Tiers(Tiers),
    /// Builds the index of a dataset.
    Index(Box<Index>),
    /// Says what a job asks of its node, and whether the tiers can give it.
    Analyze(Analyze),
    /// Shows the schedule of a job, or predicts what it will do.
    Plan(Plan),
    /// Runs a training with everything it needs beside it, and reports at the end.
    Run(Run),
    /// Runs what a training needs beside it, for the process that starts this one: the job comes on standard
    /// input, and its end ends the run.
    #[command(hide = true)]
    Embed(Embed),
    /// Runs the manager of a job alone; agents join it over the network.
    Manager(Manager),
    /// Runs the agent of this node alone.
    Agent(Agent),
    /// Runs a command as a trainer of the agent of this node.
    Exec(Exec),
    /// Says where a running job stands.
    Status(Status),
    /// Shows a running job live: rates by tier, batches ready, waits and their causes, memory.
    Top(Top),
    /// Writes what a running agent did last as a trace for Perfetto, or merges traces.
    Trace(Trace),
    /// Asks all agents of a job to end and to write their reports.
    Drain(Reach),
    /// Answers a question of the Python package, which comes on standard input.
    #[command(hide = true, subcommand)]
    Client(Client),
    /// Answers numbers of samples from standard input with their bytes, for a trainer that reads a bucket
    /// without an agent.
    #[command(hide = true)]
    Read(Read),
    /// Waits for trainers of a run whose agent has failed.
    #[command(hide = true)]
    Attend(Attend),
    /// Holds memory, as background jobs would.
    Hog(Hog),
    /// Says what of this host tierfeed can use, what not, and how to change that.
    Doctor(Doctor),
    /// Prints what a shell needs to complete commands and options.
    Completions(Completions),
    /// Writes the manual pages.
    Man(Man),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tiers {
    /// Measures, and writes the report that other commands read.
    Probe(Probe),
    /// Shows the last report.
    Show(Show),
}

#[derive(Debug, Args)]
pub(crate) struct Probe {
    /// Takes seconds instead of minutes; figures have wider margins.
    #[arg(long)]
    pub(crate) quick: bool,
    /// A job file: its directories are measured too, its NUMA nodes make the tiers that it names, and its
    /// emulated tiers are listed.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A directory on a RAM disk; may be given several times [default: the job's, else /dev/shm].
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch: Vec<PathBuf>,
    /// A directory on storage; may be given several times [default: the job's, else /var/tmp or /tmp].
    #[arg(long, value_name = "DIR")]
    pub(crate) storage: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) buckets: Buckets,
    /// Sorts the tiers without regard to the last report, which else keeps them from changing for a
    /// difference that is not clear.
    #[arg(long)]
    pub(crate) fresh: bool,
    /// The root of a tree with /proc and /sys of another machine: it is described, nothing is measured.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) sysroot: PathBuf,
    /// Where the report goes [default: tierfeed/tiers.json in the user's directory for state].
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Prints the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which buckets a probe measures.
#[derive(Debug, Args)]
pub(crate) struct Buckets {
    /// A bucket, as s3://BUCKET/PREFIX, gs://, az://, or the URL of an object on a web server; may be given
    /// several times. Credentials come from the variables of the provider, such as AWS_ACCESS_KEY_ID.
    #[arg(long, value_name = "URL")]
    pub(crate) object: Vec<String>,
    /// Reads buckets without credentials.
    #[arg(long, requires = "object")]
    pub(crate) anonymous: bool,
    /// How much may be written to a bucket that holds nothing to read, such as "256 MiB", and is removed
    /// again [default: nothing].
    #[arg(long, value_name = "SIZE", requires = "object")]
    pub(crate) object_writes: Option<Bytes>,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Which report [default: the last].
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Prints the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draws the curves of loaded latency and the matrix of latencies into this file, as SVG.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) plot: Option<PathBuf>,
    /// Writes the figures into this file as memory attributes of hwloc, on the topology of this host.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) hwloc: Option<PathBuf>,
    /// Prints the JSON schema of reports.
    #[arg(long, conflicts_with_all = ["report", "json", "plot", "hwloc"])]
    pub(crate) schema: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Index {
    #[command(flatten)]
    pub(crate) dataset: DatasetOptions,
    /// Where the index goes [default: SOURCE's name with .tfx, here].
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Then reads all data and compares it with the checksums that the format has.
    #[arg(long)]
    pub(crate) check: bool,
    /// Prints what was indexed as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where a dataset is and how it is stored: the keys below `dataset` of a job file.
#[derive(Debug, Args)]
pub(crate) struct DatasetOptions {
    /// A directory or file, as a path or as file://PATH, or a bucket as s3://BUCKET/PREFIX, gs://, az:// or
    /// https://HOST/PREFIX. Credentials come from the variables of the provider, such as AWS_ACCESS_KEY_ID.
    pub(crate) source: PathBuf,
    /// The server of a bucket, such as http://127.0.0.1:9000 [default: the usual one of s3://, gs:// or
    /// az://].
    #[arg(long, value_name = "URL", help_heading = "Buckets")]
    pub(crate) endpoint: Option<String>,
    /// The region of a bucket of s3:// [default: as the environment says].
    #[arg(long, value_name = "NAME", help_heading = "Buckets")]
    pub(crate) region: Option<String>,
    /// Reads the bucket without credentials.
    #[arg(long, help_heading = "Buckets")]
    pub(crate) anonymous: bool,
    /// How samples lie in objects.
    #[arg(long, value_name = "FORMAT", default_value = "image-folder", value_parser = FORMATS)]
    pub(crate) format: String,
    /// For files: which files are samples, such as "**/*.npz".
    #[arg(long, value_name = "PATTERN", help_heading = "Formats")]
    pub(crate) glob: Option<String>,
    /// For files: a text file with the path of a sample, below SOURCE, per line.
    #[arg(long, value_name = "FILE", help_heading = "Formats")]
    pub(crate) manifest: Option<String>,
    /// For raw: the size of a record, such as 3073 or "4 KiB".
    #[arg(long, value_name = "SIZE", help_heading = "Formats")]
    pub(crate) record_bytes: Option<String>,
    /// For raw, instead of a size: what a token is, such as uint16.
    #[arg(long, value_name = "NAME", help_heading = "Formats")]
    pub(crate) dtype: Option<String>,
    /// For raw, beside --dtype, and for chunks of tokens of litdata: tokens in a sample.
    #[arg(long, value_name = "NUMBER", help_heading = "Formats")]
    pub(crate) sequence_length: Option<u64>,
    /// For raw: what stands in each file before its first record [default: nothing].
    #[arg(long, value_name = "SIZE", help_heading = "Formats")]
    pub(crate) header_bytes: Option<String>,
    /// For tfrecord: none or gzip [default: none].
    #[arg(long, value_name = "NAME", help_heading = "Formats")]
    pub(crate) compression: Option<String>,
    /// For npz: an array that is a sample; may be given several times [default: all].
    #[arg(long, value_name = "NAME", help_heading = "Formats")]
    pub(crate) member: Vec<String>,
    /// For parquet: row-group or column-chunk [default: row-group].
    #[arg(long, value_name = "NAME", help_heading = "Formats")]
    pub(crate) unit: Option<String>,
    /// For parquet: the dotted path of a column; may be given several times [default: all].
    #[arg(long, value_name = "PATH", help_heading = "Formats")]
    pub(crate) column: Vec<String>,
    /// For hdf5: the path of the dataset in each file.
    #[arg(long, value_name = "PATH", help_heading = "Formats")]
    pub(crate) dataset: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Analyze {
    /// The job file.
    #[arg(required_unless_present = "script")]
    pub(crate) job: Option<PathBuf>,
    /// A training script: says what its source tells, without running it; may be given several times.
    /// With a job file, says where the two contradict each other.
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Vec<PathBuf>,
    /// The report.json of an earlier run of the job: its step time is taken instead of the job's.
    #[arg(long, value_name = "FILE", conflicts_with = "script")]
    pub(crate) observed: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) machine: MachineReports,
    #[command(flatten)]
    pub(crate) cold: Cold,
    /// Prints the analysis as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The machines that a job is planned for, if not this one.
#[derive(Debug, Args)]
pub(crate) struct MachineReports {
    /// The report of `tiers probe` from the machine that the job will run on, instead of this one. For
    /// several kinds of nodes, several times with the nodes before it: 0-3,8=FILE.
    #[arg(long, value_name = "[NODES=]FILE")]
    pub(crate) tiers: Vec<NodesReport>,
}

/// All nodes of a job at once.
#[derive(Debug, Args)]
pub(crate) struct Fleet {
    /// Predicts all nodes of a job with `policy: partitioned` together, step by step: what each reads from
    /// which other and cold, and how long all wait for the slowest.
    #[arg(long, requires = "simulate", conflicts_with_all = ["epoch", "plot", "trace", "node", "all_nodes", "dump",
          "schedule", "replay", "what_if", "minimum", "cost", "peers"])]
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
          conflicts_with_all = ["plot", "trace", "cost"])]
    pub(crate) epoch: Option<u32>,
    /// Draws stalls and cold reads over the steps into this file, as SVG; simulates.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Writes every simulated read into this file, one line of JSON each; simulates.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
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
    #[arg(long, conflicts_with_all = ["simulate", "json", "plot", "trace"])]
    pub(crate) dump: bool,
    /// Prints the schedule that the manager gives the agent of a node like this one: its tiers in order with
    /// their use and the reasons, depth, windows and room for look-ahead.
    #[arg(long, conflicts_with_all = ["policy", "simulate", "plot", "trace", "dump", "what_if", "minimum",
          "cost", "peers", "all_nodes"])]
    pub(crate) schedule: bool,
    /// Repeats the run of this run directory with the schedules that its manager recorded, each from the epoch
    /// in which it was applied, and compares the decisions; ends with 1 if they differ.
    #[arg(long, value_name = "RUN_DIR", requires = "simulate",
          conflicts_with_all = ["policy", "plot", "trace", "dump", "what_if", "minimum", "cost", "peers",
          "all_nodes", "schedule"])]
    pub(crate) replay: Option<PathBuf>,
    /// Compares the node with one whose tiers are changed, such as cxl=64GiB,scratch=none; by closed forms,
    /// and with --simulate by running both. Tiers are main, cxl, scratch and storage.
    #[arg(long, value_name = "CHANGES", value_delimiter = ',',
          conflicts_with_all = ["dump", "plot", "trace"])]
    pub(crate) what_if: Vec<Change>,
    /// Says how little memory keeps the trainers from waiting after the first epoch: in each tier with the
    /// others as they are, or in the one that is named; with --simulate runs the job with it.
    #[arg(long, value_name = "TIER", num_args = 0..=1, require_equals = true, value_parser = parse_kind,
          conflicts_with_all = ["dump", "plot", "trace", "what_if"])]
    #[expect(
        clippy::option_option,
        reason = "an option whose value may be left out, as clap has it"
    )]
    pub(crate) minimum: Option<Option<tier::Kind>>,
    /// Says what the run costs on rented machines at the prices in this file, by where its data is.
    #[arg(long, value_name = "PRICES.yaml",
          conflicts_with_all = ["dump", "plot", "trace", "what_if", "minimum"])]
    pub(crate) cost: Option<PathBuf>,
    /// Plans one cache that all nodes share: what each reads from its tiers, from other nodes and cold.
    /// With --dump each sample stands with the tier or the node that serves it. A run with `policy: partitioned`
    /// reads as little cold, and a little more from other nodes.
    #[arg(long, conflicts_with_all = ["policy", "simulate", "plot", "trace", "what_if", "minimum", "cost",
          "node", "all_nodes"])]
    pub(crate) peers: bool,
    #[command(flatten)]
    pub(crate) fleet: Fleet,
    /// How long a training step computes, where the job file does not say.
    #[arg(long, value_name = "TIME")]
    pub(crate) step_time: Option<Nanoseconds>,
    #[command(flatten)]
    pub(crate) machine: MachineReports,
    #[command(flatten)]
    pub(crate) cold: Cold,
    /// Prints JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_field_names, reason = "options are named for users")]
pub(crate) struct Run {
    /// The job file.
    pub(crate) job: PathBuf,
    /// How often the command is started [default: once if it is a launcher such as torchrun or mpirun, else
    /// once for each rank].
    #[arg(long)]
    pub(crate) launch: Option<Launch>,
    /// Where sockets and the report go; in a job of several nodes the directory where they meet, with one for
    /// each of them in it [default: .tierfeed/runs/JOB-TIME, or JOB and what the launcher calls the job].
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) observe: Observe,
    /// Prints the report as JSON; what the command prints goes to standard error then.
    #[arg(long)]
    pub(crate) json: bool,
    /// Lets what does not fit in main memory go to memory behind CXL instead of to swap [default
    /// policy: auto, main memory first].
    #[arg(long, value_name = "POLICY", num_args = 0..=1, default_missing_value = "auto", require_equals = true)]
    pub(crate) expand_memory: Option<ExpandMemory>,
    /// How long the training may take to end after a signal, before it is killed.
    #[arg(long, value_name = "TIME", default_value = "5 s")]
    pub(crate) grace: Nanoseconds,
    /// The training and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

impl Run {
    /// How long to wait for the process that is ready first.
    pub(crate) const fn wait(&self) -> Duration {
        Duration::from_nanos(self.place.wait.0)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Embed {
    /// The directory in which the run has one of its own, named after the job.
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) observe: Observe,
}

/// Which node of a job of several this is, and where they meet.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The number of this node [default: $TIERFEED_NODE, else as the launcher says].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) node: Option<u32>,
    /// The number of nodes [default: $TIERFEED_NODES, else as the launcher says].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) nodes: Option<u32>,
    /// Where node 0 listens and the others find it, as HOST:PORT; needed where they do not share the run
    /// directory, with the same token on all nodes.
    #[arg(long, value_name = "ADDRESS", env = "TIERFEED_MANAGER")]
    pub(crate) manager: Option<Address>,
    /// The file with the token of the job [default: $TIERFEED_TOKEN, else a new one, in the run directory].
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// How long a process waits for node 0, or for the agent of its node, which may have to index the dataset
    /// first.
    #[arg(long, value_name = "TIME", default_value = "10 min")]
    pub(crate) wait: Nanoseconds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Launch {
    /// Once; it starts its ranks itself, as torchrun does.
    Once,
    /// Once for each local rank, with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and so on set.
    PerRank,
}

#[derive(Debug, Args)]
pub(crate) struct Manager {
    /// The job file.
    pub(crate) job: PathBuf,
    /// Where to listen, as HOST:PORT; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: String,
    /// Where token, address and index go [default: .tierfeed/runs/JOB-TIME].
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    /// The file that holds the token of the job, or gets a new one [default: token in the run
    /// directory].
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) metrics: Metrics,
}

/// How to reach the manager of a job.
#[derive(Debug, Args)]
pub(crate) struct Reach {
    /// Where the manager is, as HOST:PORT or unix:PATH [default: as the run directory says].
    #[arg(long, value_name = "ADDRESS", env = "TIERFEED_MANAGER")]
    pub(crate) manager: Option<Address>,
    /// The file with the token of the job [default: $TIERFEED_TOKEN, else token in the run directory].
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The run directory [default: the newest live one below .tierfeed].
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Agent {
    /// Where the manager is, as HOST:PORT or unix:PATH.
    #[arg(long, value_name = "ADDRESS", env = "TIERFEED_MANAGER")]
    pub(crate) manager: Address,
    /// The file with the token of the job [default: $TIERFEED_TOKEN, else token in the run directory].
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The number of this node [default: $TIERFEED_NODE, else as srun, mpirun or Kubernetes says; 0 in a
    /// job of one node].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) node: Option<u32>,
    /// Where sockets and the report of this node go; the same after a restart [default: in a job of Slurm
    /// node-NUMBER below /tmp/tierfeed-UID/slurm-JOB, else .tierfeed/node-NUMBER, or .tierfeed/agent where
    /// no launcher gives a number].
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) observe: Observe,
}

/// How an agent is watched.
#[derive(Debug, Args)]
pub(crate) struct Observe {
    #[command(flatten)]
    pub(crate) metrics: Metrics,
    /// Writes a trace of the run for Perfetto into this file when it ends.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Trace {
    #[command(subcommand)]
    pub(crate) command: Option<TraceCommand>,
    /// The run directory of the agent [default: the newest live one below .tierfeed].
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    /// Where the trace goes [default: standard output].
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Puts traces into one, such as one of torch.profiler and one of an agent, on the clock of the first.
    Merge(Merge),
}

#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// The traces, as JSON.
    #[arg(required = true, num_args = 2.., value_name = "FILE")]
    pub(crate) traces: Vec<PathBuf>,
    /// Where the merged trace goes [default: standard output].
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Metrics on the network.
#[derive(Debug, Args)]
pub(crate) struct Metrics {
    /// Serves metrics for Prometheus there, as HOST:PORT beside the socket in the run directory; port 0
    /// takes a free one. Those who ask there show a token.
    #[arg(long = "metrics", value_name = "ADDRESS")]
    pub(crate) metrics_address: Option<String>,
    /// The file with the token of those who ask for metrics, such as one for all jobs of a site [default:
    /// metrics.token in the run directory, written at the start].
    #[arg(long, value_name = "FILE", requires = "metrics_address")]
    pub(crate) metrics_token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// The run directory of the agent of this node [default: the newest live one below .tierfeed].
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    /// How long to wait until the agent is ready.
    #[arg(long, value_name = "TIME", default_value = "60 s")]
    pub(crate) wait: Nanoseconds,
    /// Lets what does not fit in main memory go to memory behind CXL instead of to swap [default
    /// policy: auto, main memory first].
    #[arg(long, value_name = "POLICY", num_args = 0..=1, default_missing_value = "auto", require_equals = true)]
    pub(crate) expand_memory: Option<ExpandMemory>,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// How memory is spread over main memory and memory behind CXL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExpandMemory {
    /// The default, which is preferred-many.
    Auto,
    /// Main memory as long as there is room, then memory behind CXL.
    PreferredMany,
    /// Both in turn, by the weights of the kernel: for programs that need more bandwidth than main
    /// memory has.
    Weighted,
}

#[derive(Debug, Args)]
pub(crate) struct Read {
    /// The index of the dataset.
    #[arg(long, value_name = "FILE")]
    pub(crate) index: PathBuf,
    /// The server of the bucket [default: the usual one].
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// The region of the bucket [default: as the environment says].
    #[arg(long, value_name = "NAME")]
    pub(crate) region: Option<String>,
    /// Reads the bucket without credentials.
    #[arg(long)]
    pub(crate) anonymous: bool,
}

/// What the Python package leaves to a process of its own.
#[derive(Debug, Subcommand)]
pub(crate) enum Client {
    /// What a trainer must know of a job to read without an agent.
    Briefing,
    /// Builds an index by the keys of a dataset.
    Index,
}

#[derive(Debug, Args)]
pub(crate) struct Attend {
    /// The numbers of their processes.
    #[arg(required = true, value_name = "PID")]
    pub(crate) trainers: Vec<i32>,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// Prints the status as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// Time between two frames.
    #[arg(long, value_name = "TIME", default_value = "1 s")]
    pub(crate) interval: Nanoseconds,
    /// Ends after so many frames [default: when it is stopped, or the job is over].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) frames: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Hog {
    #[command(flatten)]
    pub(crate) goal: HogGoal,
    /// Only memory of this NUMA node.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) numa_node: Option<u32>,
    /// How long, from the moment that it holds what it should; a profile starts again until then
    /// [default: until it is stopped, or the profile or the command ends].
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) duration: Option<Nanoseconds>,
    /// How long it may take until it holds what it should; then it fails.
    #[arg(long, value_name = "TIME", default_value = "10 min")]
    pub(crate) wait: Nanoseconds,
    /// Prints what was held as JSON at the end; what the command prints goes to standard error then.
    #[arg(long)]
    pub(crate) json: bool,
    /// A command to run while memory is held; it starts when all of it is.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// What a hog holds. Sizes are rounded up to 2 MiB.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct HogGoal {
    /// Holds this much memory; gives back what others need, so that 5 % stay free.
    #[arg(long, value_name = "SIZE")]
    pub(crate) take: Option<Bytes>,
    /// Holds all but this much memory, and follows what others take and give back; at least 1 % stay
    /// free.
    #[arg(long, value_name = "SIZE")]
    pub(crate) leave: Option<Bytes>,
    /// Holds one amount after the other, such as 30s:4GiB,60s:8GiB,30s:leave:1GiB.
    #[arg(long, value_name = "STEPS")]
    pub(crate) profile: Option<Profile>,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The directory that gets a page for each command; without it that of tierfeed itself is printed.
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// A dataset, or a file of it: says how it would be read; may be given several times [default: tried in
    /// the directory for storage].
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Vec<PathBuf>,
    /// Ends with code 1 if anything is missing.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Prints the findings as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
