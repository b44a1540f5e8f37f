//! Every experiment and its options, with the help that users read.

#![expect(
    clippy::doc_markdown,
    reason = "these comments are printed in terminals, without Markdown"
)]

mod experiments;

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use tierfeed_benchmarks::frameworks;
use tierfeed_core::units::{Bytes, BytesPerSecond, Nanoseconds};
use tierfeed_harness::output::{FolderAndFormat, Format};

pub(crate) use self::experiments::{
    BenchDlcache, BenchLimits, BenchLoaders, BenchPaper, DlcachePatterns, FiguresOutput,
};

/// Runs an experiment on tierfeed: both sides in one run, with the ratio.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) bench: Bench,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Warm files of 1 MiB through tierfeed, through PyTorch's DataLoader and through a bare loop.
    Handoff(BenchHandoff),
    /// Samples through tierfeed under each framework, and in the framework's own ways, warm and from a slow disk.
    Frameworks(BenchFrameworks),
    /// Photographs decoded, cropped and resized by tierfeed, torchvision, Pillow, DALI and SPDL, turn by turn, and
    /// whole loaders.
    Decode(BenchDecode),
    /// Epochs whose samples the agent decodes, beside the slowest of computing, decoding and reading.
    Transforms(BenchTransforms),
    /// Tiers that hold samples as stored or prepared, beside what the plan chooses.
    CachedForm(BenchTransforms),
    /// Samples that are dear to read, then to decode, then to read: ours, Algorithm 1 of Lobster, fixed threads.
    Balance(BenchTransforms),
    /// Samples from tier to tier through the data plane, and plain copies by as many threads.
    Copy(BenchCopy),
    /// Samples of a tier read in place, and a copy of them in main memory, turn by turn.
    Direct(BenchDirect),
    /// Real runs of every policy on the same files, beside the prediction and the minimum.
    Policies(BenchPolicies),
    /// Trainings that pause, beside the least time that they can take.
    Phases(BenchPhases),
    /// The native module that a trainer loads: its size, and the time of its import.
    Import(BenchImport),
    /// Many small files, listed by find and indexed by tierfeed.
    Index(BenchIndex),
    /// The eviction experiment of DLCache: its policy, its baselines and ours over the same orders of jobs.
    Dlcache(BenchDlcache),
    /// What the probe measures beside a variant of STREAM, another pointer chase (both compiled for this
    /// run) and fio.
    TiersAccuracy(BenchTiersAccuracy),
    /// What the probe measures on a quiet machine and while another program loads every core.
    TiersContended(BenchTiersContended),
    /// What every policy keeps, and how early and how evenly the rest is read, beside what is possible.
    Limits(BenchLimits),
    /// The loaders that people use over the same photographs: warm, from a slow disk, with little memory.
    Loaders(BenchLoaders),
    /// Figures of papers, repeated as real trainings.
    Paper(BenchPaper),
    /// Cold files through the fetchers of the agent and through fio: throughput and CPU time.
    Io(BenchIo),
    /// A live training of two ranks into which faults are injected: kills, stops, full and lost tiers,
    /// memory pressure, a cold store that fails.
    #[command(disable_help_flag = true)]
    Chaos(ForwardedArguments),
    /// A manager with many agents that start at once: until they joined, its memory, its CPU time, and until all
    /// have another schedule.
    Agents(BenchAgents),
    /// The CPU time of an agent whose trainers do nothing.
    #[command(disable_help_flag = true)]
    Idle(ForwardedArguments),
    /// A training on photographs whose cold store the kernel throttles, beside the least time that any
    /// loader needs. Needs root: the photographs are copied to an image on a loop device.
    EndToEnd(BenchEndToEnd),
    /// A training on a few large files of a slow disk, through tierfeed and through DataLoader with the page
    /// cache. Needs root: the files lie on an image on a loop device.
    NoHarm(BenchNoHarm),
    /// A default job beside a hog that leaves 1 GiB, and beside one that comes and goes, with the least time that
    /// the memory permits. Needs root: both run in a memory group.
    Hogged(FolderAndFormat),
    /// Objects of an S3 server on loopback, through tierfeed and through other clients.
    Objects(BenchObjects),
    /// Trainings on several nodes of this host, whose caches are one or are each for itself. With --transport
    /// samples from the memory of one process into that of another, through the transport between nodes and by
    /// a plain TCP copy, turn by turn.
    Peers(BenchPeers),
    /// Holds the samples of the bench of peers.
    #[command(hide = true)]
    PeersServe(BenchPeersServe),
    /// Delays the connections of the bench of peers.
    #[command(hide = true)]
    PeersRelay(BenchPeersRelay),
    /// Takes every batch of every rank from the agent, as a training whose steps cost no CPU.
    #[command(hide = true)]
    Reader(BenchReader),
    /// Removes what an experiment leaves, once its own input ends.
    #[command(hide = true)]
    RemoveLeftovers(RemoveLeftovers),
}

/// Arguments of `tierfeed-chaos`, which it parses itself.
#[derive(Debug, Args)]
pub(crate) struct ForwardedArguments {
    /// As tierfeed-chaos takes them; --help lists them.
    #[arg(value_name = "OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) options: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchAgents {
    /// The number of agents.
    #[arg(long, value_name = "NUMBER", default_value_t = 1_024,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) agents: u32,
    /// How long they report before their schedules change, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) seconds: u64,
    #[command(flatten)]
    pub(crate) output: FolderAndFormat,
}

#[derive(Debug, Args)]
pub(crate) struct BenchEndToEnd {
    /// An image folder [default: 500 files of such sizes, made for this run].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// A RAM disk for the scratch tier.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub(crate) scratch: PathBuf,
    /// Epochs at each rate of the cold store.
    #[arg(long, value_name = "NUMBER", default_value_t = 6,
          value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(crate) epochs: u32,
    /// How long a step takes.
    #[arg(long, value_name = "TIME", default_value = "100 ms")]
    pub(crate) step: Nanoseconds,
    #[command(flatten)]
    pub(crate) output: FolderAndFormat,
}

#[derive(Debug, Args)]
pub(crate) struct BenchNoHarm {
    /// A Python with torch and tierfeed.
    #[arg(long, value_name = "FILE", default_value = "python3")]
    pub(crate) python: PathBuf,
    /// One round of three epochs, at twice the rate: it takes less than a minute.
    #[arg(long)]
    pub(crate) quick: bool,
    /// The number of files.
    #[arg(long, value_name = "NUMBER", default_value_t = 96,
          value_parser = clap::value_parser!(u64).range(8..=100_000))]
    pub(crate) files: u64,
    /// The size of a file.
    #[arg(long, value_name = "SIZE", default_value = "4 MB")]
    pub(crate) file: Bytes,
    /// Files in a batch.
    #[arg(long, value_name = "NUMBER", default_value_t = 4,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) batch_size: u64,
    /// How long a step takes.
    #[arg(long, value_name = "TIME", default_value = "100 ms")]
    pub(crate) step: Nanoseconds,
    /// How fast the disk is read.
    #[arg(long, value_name = "RATE", default_value = "60 MB/s")]
    pub(crate) rate: BytesPerSecond,
    /// The size of main memory and of CXL memory, an emulated one.
    #[arg(long, value_name = "SIZE", default_value = "160 MiB")]
    pub(crate) tier: Bytes,
    /// Epochs of a turn.
    #[arg(long, value_name = "NUMBER", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(crate) epochs: u32,
    /// Turns of each side.
    #[arg(long, value_name = "NUMBER", default_value_t = 3,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100))]
    pub(crate) rounds: usize,
    /// Workers of DataLoader.
    #[arg(long, value_name = "NUMBER", default_value_t = 4)]
    pub(crate) workers: usize,
    #[command(flatten)]
    pub(crate) output: FolderAndFormat,
}

#[derive(Debug, Args)]
pub(crate) struct BenchReader {
    /// How long a step takes.
    #[arg(long, value_name = "TIME", default_value = "0 s")]
    pub(crate) step: Nanoseconds,
    /// Pauses after so many steps.
    #[arg(long, value_name = "STEPS")]
    pub(crate) pause_every: Option<u64>,
    /// How long a pause is.
    #[arg(long, value_name = "TIME", default_value = "0 s")]
    pub(crate) pause: Nanoseconds,
    /// Gets the seconds of each epoch, as a list in JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchHandoff {
    /// A Python with torch and tierfeed.
    #[arg(long, value_name = "FILE", default_value = "python3")]
    pub(crate) python: PathBuf,
    /// The number of files.
    #[arg(long, value_name = "NUMBER", default_value_t = 256)]
    pub(crate) files: usize,
    /// How often each side reads them all.
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub(crate) rounds: usize,
    #[command(flatten)]
    pub(crate) output: FolderAndFormat,
}

#[derive(Debug, Args)]
pub(crate) struct BenchFrameworks {
    /// A Python with the frameworks and tierfeed: target/frameworks/newest/bin/python after
    /// `make test-frameworks`.
    #[arg(long, value_name = "FILE")]
    pub(crate) python: PathBuf,
    /// The frameworks that are measured, separated by commas; all unless given.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = frameworks::names())]
    pub(crate) only: Vec<String>,
    /// How many samples there are.
    #[arg(long, value_name = "NUMBER", default_value_t = 256,
          value_parser = clap::value_parser!(u64).range(8..=1_000_000))]
    pub(crate) samples: u64,
    /// The size of a sample.
    #[arg(long, value_name = "SIZE", default_value = "1 MiB")]
    pub(crate) sample: Bytes,
    /// Samples in a batch.
    #[arg(long, value_name = "NUMBER", default_value_t = 8,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) batch_size: u64,
    /// Epochs of a turn.
    #[arg(long, value_name = "NUMBER", default_value_t = 4,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(2..=1000))]
    pub(crate) epochs: usize,
    /// Turns of each side.
    #[arg(long, value_name = "NUMBER", default_value_t = 3,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100))]
    pub(crate) rounds: usize,
    /// How fast the slow disk is read; `0 B/s` measures warm samples only. The disk needs root.
    #[arg(long, value_name = "RATE", default_value = "200 MB/s")]
    pub(crate) rate: BytesPerSecond,
    #[command(flatten)]
    pub(crate) output: FolderAndFormat,
}

#[derive(Debug, Args)]
pub(crate) struct BenchDecode {
    /// A Python with torchvision, Pillow and tierfeed: target/frameworks/newest/bin/python after
    /// `make test-frameworks`. DALI and SPDL are measured if it has them (nvidia-dali-cuda120, spdl).
    #[arg(long, value_name = "FILE")]
    pub(crate) python: PathBuf,
    /// A folder of photographs (*.JPEG), beside generated ones.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) photographs: Option<PathBuf>,
    /// How many photographs are taken at most.
    #[arg(long, value_name = "NUMBER", default_value_t = 256,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(32..=1_000_000))]
    pub(crate) images: usize,
    /// Turns of each side.
    #[arg(long, value_name = "NUMBER", default_value_t = 5,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100))]
    pub(crate) rounds: usize,
    /// Fewer photographs and turns: less than three minutes.
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) output: FolderAndFormat,
}

#[derive(Debug, Args)]
pub(crate) struct BenchTransforms {
    /// A Python with NumPy, Pillow, PyTorch and tierfeed.
    #[arg(long, value_name = "FILE", default_value = ".venv/bin/python")]
    pub(crate) python: PathBuf,
    /// How many images there are, rounded up to a multiple of 24.
    #[arg(long, value_name = "NUMBER", default_value_t = 960,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(24..=1_000_000))]
    pub(crate) samples: usize,
    /// Turns of each side.
    #[arg(long, value_name = "NUMBER", default_value_t = 5,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100))]
    pub(crate) rounds: usize,
    /// 240 images and 3 turns.
    #[arg(long, conflicts_with_all = ["samples", "rounds"])]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) output: FolderAndFormat,
}

#[derive(Debug, Args)]
pub(crate) struct BenchCopy {
    /// What each turn copies: the chunk of every tier. Six times as much memory is taken.
    #[arg(long, value_name = "SIZE", default_value = "512 MiB")]
    pub(crate) chunk: Bytes,
    /// Turns of each side, at least 3.
    #[arg(long, value_name = "NUMBER", default_value_t = 7,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(3..=1000))]
    pub(crate) rounds: usize,
    /// Threads of each side.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,2")]
    pub(crate) threads: Vec<std::num::NonZeroUsize>,
    /// A RAM disk for the scratch tier.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub(crate) scratch: PathBuf,
    #[command(flatten)]
    pub(crate) output: FolderAndFormat,
}

#[derive(Debug, Args)]
pub(crate) struct BenchPeers {
    /// The numbers of nodes.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_values_t = [2, 3, 4],
          value_parser = clap::value_parser!(u32).range(2..=64), conflicts_with = "transport")]
    pub(crate) nodes: Vec<u32>,
    /// The transport alone, without agents.
    #[arg(long)]
    pub(crate) transport: bool,
    /// Lengths of samples.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "100 KiB,1 MiB")]
    pub(crate) samples: Vec<Bytes>,
    /// Round trips that a relay adds.
    #[arg(
        long,
        value_name = "TIMES",
        value_delimiter = ',',
        default_value = "0 s,50 us,1 ms,10 ms"
    )]
    pub(crate) delays: Vec<Nanoseconds>,
    /// What each turn reads.
    #[arg(long, value_name = "SIZE", default_value = "1 GiB")]
    pub(crate) turn: Bytes,
    /// Turns of each side, at least 3.
    #[arg(long, value_name = "NUMBER", default_value_t = 5,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(3..=1000))]
    pub(crate) rounds: usize,
    #[command(flatten)]
    pub(crate) output: FolderAndFormat,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveLeftovers {
    /// The process of the experiment.
    #[arg(long, value_name = "PID")]
    pub(crate) process: u32,
    /// Where it made its files.
    #[arg(value_name = "DIR", required = true)]
    pub(crate) folders: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchPeersServe {
    /// The length of a sample.
    #[arg(long, value_name = "SIZE")]
    pub(crate) sample: Bytes,
}

#[derive(Debug, Args)]
pub(crate) struct BenchPeersRelay {
    /// Where connections go on to.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) to: std::net::SocketAddr,
    /// What is added to a round trip.
    #[arg(long, value_name = "TIME")]
    pub(crate) delay: Nanoseconds,
}

#[derive(Debug, Args)]
pub(crate) struct BenchDirect {
    /// The NUMA node that the tier lies on [default: main memory stands for it].
    #[arg(long, value_name = "N")]
    pub(crate) numa_node: Option<u32>,
    /// What each turn reads; twice as much memory is taken.
    #[arg(long, value_name = "SIZE", default_value = "256 MiB")]
    pub(crate) chunk: Bytes,
    /// The length of a sample.
    #[arg(long, value_name = "SIZE", default_value = "112 KiB")]
    pub(crate) sample: Bytes,
    /// The number of threads that copy.
    #[arg(long, value_name = "NUMBER", default_value = "2")]
    pub(crate) threads: std::num::NonZeroUsize,
    /// Turns of each side, at least 3.
    #[arg(long, value_name = "NUMBER", default_value_t = 15,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(3..=1000))]
    pub(crate) rounds: usize,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct BenchIo {
    /// A folder whose files are read, each a multiple of 1 MiB long [default: one that is generated].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// How long the generated file is.
    #[arg(long, value_name = "SIZE", default_value = "1 GiB")]
    pub(crate) file: Bytes,
    /// What each side reads in a turn.
    #[arg(long, value_name = "SIZE", default_value = "128 MiB")]
    pub(crate) turn: Bytes,
    /// Turns of each side in each case, at least 6 for a verdict.
    #[arg(long, value_name = "NUMBER", default_value_t = 7,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) rounds: usize,
    /// Only this way to read.
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<IoEngine>,
    /// The flexible I/O tester.
    #[arg(long, value_name = "FILE", default_value = "fio")]
    pub(crate) fio: PathBuf,
    #[command(flatten)]
    pub(crate) output: FolderAndFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IoEngine {
    /// Threads that block, through the page cache.
    Threads,
    /// The same, with what they read dropped from the page cache.
    ThreadsDropping,
    /// Rings of the kernel, past the page cache.
    Ring,
}

#[derive(Debug, Args)]
pub(crate) struct BenchPolicies {
    /// How many files, of 20 to 200 KB.
    #[arg(long, value_name = "NUMBER", default_value_t = 500)]
    pub(crate) files: u64,
    /// A RAM disk for the scratch tier.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub(crate) scratch: PathBuf,
    #[command(flatten)]
    pub(crate) output: FolderAndFormat,
}

#[derive(Debug, Args)]
pub(crate) struct BenchPhases {
    /// An image folder of some 50 MB [default: files that are made].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: FolderAndFormat,
}

#[derive(Debug, Args)]
pub(crate) struct BenchObjects {
    /// The S3 server, built by `cargo build --example s3_server` [default: examples/s3_server beside
    /// tierfeed].
    #[arg(long, value_name = "FILE")]
    pub(crate) server: Option<PathBuf>,
    /// A Python that may have obstore, boto3 and s3torchconnector.
    #[arg(long, value_name = "FILE", default_value = "python3")]
    pub(crate) python: PathBuf,
    /// How often each client has its turn.
    #[arg(long, value_name = "NUMBER", default_value_t = 5,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) rounds: usize,
    #[command(flatten)]
    pub(crate) output: FolderAndFormat,
}

#[derive(Debug, Args)]
pub(crate) struct BenchIndex {
    /// The number of files.
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) files: u64,
    /// How often each side has its turn.
    #[arg(long, value_name = "NUMBER", default_value_t = 5,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) rounds: usize,
    /// Where the files are made, and removed afterwards; on a disk its speed is measured too.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct BenchImport {
    /// The module of an optimised build, such as target/release/libtierfeed_native.so.
    #[arg(long, value_name = "FILE")]
    pub(crate) module: PathBuf,
    /// Another build of it, to compare with.
    #[arg(long, value_name = "FILE")]
    pub(crate) before: Option<PathBuf>,
    /// A Python of the version that the modules are for.
    #[arg(long, value_name = "FILE", default_value = "python3")]
    pub(crate) python: PathBuf,
    /// How often each is loaded.
    #[arg(long, value_name = "NUMBER", default_value_t = 15,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) rounds: usize,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct BenchTiersAccuracy {
    /// Runs only these comparisons.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<TiersSubject>,
    /// Pairs of turns in each comparison, at least 6; disturbed ones are repeated.
    #[arg(long, value_name = "NUMBER", default_value_t = 9)]
    pub(crate) pairs: usize,
    /// Samples of each kernel in each turn.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub(crate) samples: usize,
    /// The size of each array, such as "512 MiB" [default: four times the last-level cache].
    #[arg(long, value_name = "SIZE")]
    pub(crate) array: Option<Bytes>,
    /// A C compiler with OpenMP.
    #[arg(long, value_name = "FILE", default_value = "cc")]
    pub(crate) compiler: PathBuf,
    /// The flexible I/O tester.
    #[arg(long, value_name = "FILE", default_value = "fio")]
    pub(crate) fio: PathBuf,
    #[command(flatten)]
    pub(crate) output: FolderAndFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TiersSubject {
    /// Copy, scale, add and triad by one thread and by all.
    Bandwidth,
    /// A dependent load, TLB-local and anywhere.
    Latency,
    /// Random and sequential reads in the folder.
    Storage,
}

#[derive(Debug, Args)]
pub(crate) struct BenchTiersContended {
    /// Pairs of turns, at least 6; pairs that were not quiet are repeated.
    #[arg(long, value_name = "NUMBER", default_value_t = 9)]
    pub(crate) pairs: usize,
    /// The longest that one figure is sampled.
    #[arg(long, value_name = "TIME", default_value = "600 ms")]
    pub(crate) time: Nanoseconds,
    /// The size of each buffer, such as "512 MiB" [default: four times the last-level cache].
    #[arg(long, value_name = "SIZE")]
    pub(crate) buffer: Option<Bytes>,
    #[command(flatten)]
    pub(crate) format: Format,
}
