//! The options of `tierfeed-chaos` and of the processes that it starts, with the help that users read.

#![expect(
    clippy::doc_markdown,
    reason = "these comments are printed in terminals, without Markdown"
)]

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tierfeed_core::units::{Bytes, Nanoseconds};
use tierfeed_harness::output::FolderAndFormat;

use crate::samples::Samples;

/// A live training into which faults are injected: kills, stops, full and lost tiers, memory pressure, a cold
/// store that fails, links that drop packets.
#[derive(Debug, Parser)]
#[command(
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) campaign: ChaosArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The CPU time of an agent whose trainers do nothing.
    #[command(hide = true)]
    Idle(IdleArguments),
    /// Takes the batches of a rank, compares them with checksums, and continues where it was killed.
    #[command(hide = true)]
    Trainer(TrainerArguments),
    /// A client of an agent that attacks it.
    #[command(hide = true)]
    Hostile(HostileArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ChaosArguments {
    /// For how long faults are injected.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) minutes: u64,
    /// Of the faults: the same number draws the same faults again [default: another one each time].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Nodes of the job: with several, each has one rank, and nodes read from each other what one of them holds.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) nodes: u32,
    /// How much memory is taken away at a time, and the memory limit of the agent's control group.
    #[arg(long, value_name = "SIZE", default_value = "1 GiB")]
    pub(crate) pressure: Bytes,
    /// Where the dataset lies.
    #[arg(long, value_enum, default_value_t = Source::Files)]
    pub(crate) source: Source,
    /// The S3 server for `--source bucket` [default: examples/s3_server beside this program].
    #[arg(long, value_name = "FILE")]
    pub(crate) server: Option<PathBuf>,
    /// What the samples are.
    #[arg(long, value_enum, default_value_t = Samples::Noise)]
    pub(crate) samples: Samples,
    #[command(flatten)]
    pub(crate) output: FolderAndFormat,
}

/// Where the dataset lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Source {
    /// In files of a folder.
    Files,
    /// In a bucket of an S3 server.
    Bucket,
}

#[derive(Debug, Args)]
pub(crate) struct IdleArguments {
    /// For how long the agent is watched.
    #[arg(long, value_name = "TIME", default_value = "30 s")]
    pub(crate) time: Nanoseconds,
    #[command(flatten)]
    pub(crate) output: FolderAndFormat,
}

#[derive(Debug, Args)]
pub(crate) struct TrainerArguments {
    /// The folder of the campaign: checksums, the record of each rank, and files by which trainers are told
    /// to do something.
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// How long a step computes.
    #[arg(long, value_name = "TIME")]
    pub(crate) step: Nanoseconds,
}

#[derive(Debug, Args)]
pub(crate) struct HostileArguments {
    /// Where the agent listens.
    #[arg(long, value_name = "FILE")]
    pub(crate) socket: PathBuf,
    /// Where the manager listens.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) manager: Option<String>,
    /// The rank that it may have; those below belong to other clients.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) rank: u32,
    /// For how long it attacks.
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Nanoseconds,
    /// The seed of its attacks.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: u64,
}
