//! The `tierfeed-bench` command: runs one experiment, both sides of it, and prints figures with their ratio.
//!
//! Exit codes: 0 done, 1 the work failed or a promise was missed, 2 the input was wrong, 3 the figures are
//! inconclusive. With `--json` one document goes to standard output; steps go to standard error.

#![forbid(unsafe_code)]
#![expect(
    clippy::doc_markdown,
    reason = "docs of options are printed in terminals, without Markdown"
)]

mod agents;
mod copy;
mod cpu_time;
mod decode;
mod end_to_end;
mod fio;
mod frameworks;
mod handoff;
mod hidden;
mod hogged;
mod import;
mod index;
mod io;
mod manager;
mod no_harm;
mod objects;
mod peers;
mod peers_transport;
mod phases;
mod policies;
mod processes;
mod reader;
mod runs;
mod samples;
mod tiers_accuracy;
mod tiers_contended;
mod transforms;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tierfeed_experiments::{dlcache, limits, loaders, papers};
use tierfeed_harness::{
    bench::{Bench, Command},
    failure::{self, Failure},
    output::{self, Format},
};

use self::hidden::{ForwardedArguments, PeersRelay, PeersServe, RemoveLeftovers};

/// Runs an experiment on tierfeed: both sides in one run, with the ratio.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    /// Warm files of 1 MiB through tierfeed, through PyTorch's DataLoader and through a bare loop. With --samples
    /// small samples that tierfeed keeps, beside a plain loop over the page cache.
    Handoff(Handoff),
    /// Samples through tierfeed under each framework, and in the framework's own ways, warm and from a slow disk.
    Frameworks(Command<frameworks::Settings>),
    /// Photographs decoded, cropped and resized by tierfeed, torchvision, Pillow, DALI and SPDL, turn by turn, and
    /// whole loaders.
    Decode(Command<decode::Settings>),
    /// Epochs whose samples the agent decodes, beside the slowest of computing, decoding and reading.
    Transforms(Command<transforms::EndToEnd>),
    /// Tiers that hold samples as stored or prepared, beside what the plan chooses.
    CachedForm(Command<transforms::CachedForm>),
    /// Samples that are dear to read, then to decode, then to read: ours, Algorithm 1 of Lobster, fixed threads.
    Balance(Command<transforms::Balance>),
    /// Samples from tier to tier through the data plane, and plain copies by as many threads.
    Copy(Command<copy::Settings>),
    /// Real runs of every policy on the same files, beside the prediction and the minimum.
    Policies(Command<policies::Settings>),
    /// Trainings that pause, beside the least time that they can take.
    Phases(Command<phases::Settings>),
    /// The native module that a trainer loads: its size, and the time of its import.
    Import(Command<import::Settings>),
    /// Many small files, listed by find and indexed by tierfeed.
    Index(Command<index::Settings>),
    /// The eviction experiment of DLCache: its policy, its baselines and ours over the same orders of jobs.
    Dlcache(Command<dlcache::Settings>),
    /// What the probe measures beside a variant of STREAM, another pointer chase (both compiled for this
    /// run) and fio.
    TiersAccuracy(Command<tiers_accuracy::Settings>),
    /// What the probe measures on a quiet machine and while another program loads every core.
    TiersContended(Command<tiers_contended::Settings>),
    /// What every policy keeps, and how early and how evenly the rest is read, beside what is possible.
    Limits(Command<limits::Settings>),
    /// The loaders that people use over the same photographs: warm, from a slow disk, with little memory.
    Loaders(Command<loaders::Settings>),
    /// Figures of papers, repeated as real trainings.
    Paper(Command<papers::Settings>),
    /// Cold files through the fetchers of the agent and through fio: throughput and CPU time.
    Io(Command<io::Settings>),
    /// A live training of two ranks into which faults are injected: kills, stops, full and lost tiers,
    /// memory pressure, a cold store that fails.
    #[command(disable_help_flag = true)]
    Chaos(ForwardedArguments),
    /// A manager with many agents that start at once: until they joined, its memory, its CPU time, and until all
    /// have another schedule.
    Agents(Command<agents::Settings>),
    /// The CPU time of an agent whose trainers do nothing.
    #[command(disable_help_flag = true)]
    Idle(ForwardedArguments),
    /// A training on photographs whose cold store the kernel throttles, beside the least time that any
    /// loader needs. Needs root: the photographs are copied to an image on a loop device.
    EndToEnd(Command<end_to_end::Settings>),
    /// A training on a few large files of a slow disk, through tierfeed and through DataLoader with the page
    /// cache. Needs root: the files lie on an image on a loop device.
    NoHarm(Command<no_harm::Settings>),
    /// A default job beside a hog that leaves 1 GiB, and beside one that comes and goes, with the least time that
    /// the memory permits. Needs root: both run in a memory group.
    Hogged(Command<hogged::Settings>),
    /// Objects of an S3 server on loopback, through tierfeed and through other clients.
    Objects(Command<objects::Settings>),
    /// Trainings on several nodes of this host, whose caches are one or are each for itself. With --transport
    /// samples from the memory of one process into that of another, through the transport between nodes and by
    /// a plain TCP copy, turn by turn.
    Peers(Peers),
    /// Holds the samples of the bench of peers.
    #[command(hide = true)]
    PeersServe(PeersServe),
    /// Delays the connections of the bench of peers.
    #[command(hide = true)]
    PeersRelay(PeersRelay),
    /// Takes every batch of every rank from the agent, as a training whose steps cost no CPU.
    #[command(hide = true)]
    Reader(reader::Settings),
    /// Removes what an experiment leaves, once its own input ends.
    #[command(hide = true)]
    RemoveLeftovers(RemoveLeftovers),
}

#[derive(Debug, Args)]
struct Handoff {
    #[command(flatten)]
    files: handoff::Settings,
    /// Small samples instead of files of 1 MiB.
    #[arg(long)]
    samples: bool,
    #[command(flatten)]
    small: samples::Samples,
    #[command(flatten)]
    format: Format,
}

impl Handoff {
    fn run(self) -> Result<(), Failure> {
        if self.samples {
            let outcome = self.small.run(&self.files.python, &self.files.folder)?;
            return self.format.show(&outcome);
        }
        self.format.show(&self.files.run()?)
    }
}

#[derive(Debug, Args)]
struct Peers {
    #[command(flatten)]
    agents: peers::Settings,
    /// The transport alone, without agents.
    #[arg(long)]
    transport: bool,
    #[command(flatten)]
    alone: peers_transport::Transport,
    #[command(flatten)]
    format: Format,
}

impl Peers {
    fn run(self) -> Result<(), Failure> {
        if self.transport {
            return self.format.show(&self.alone.run()?);
        }
        self.format.show(&self.agents.run()?)
    }
}

impl Experiment {
    fn run(self) -> Result<(), Failure> {
        match self {
            Self::Handoff(it) => it.run(),
            Self::Frameworks(it) => it.run(),
            Self::Decode(it) => it.run(),
            Self::Transforms(it) => it.run(),
            Self::CachedForm(it) => it.run(),
            Self::Balance(it) => it.run(),
            Self::Copy(it) => it.run(),
            Self::Policies(it) => it.run(),
            Self::Phases(it) => it.run(),
            Self::Import(it) => it.run(),
            Self::Index(it) => it.run(),
            Self::Dlcache(it) => it.run(),
            Self::TiersAccuracy(it) => it.run(),
            Self::TiersContended(it) => it.run(),
            Self::Limits(it) => it.run(),
            Self::Loaders(it) => it.run(),
            Self::Paper(it) => it.run(),
            Self::Io(it) => it.run(),
            Self::Chaos(it) => it.exec("tierfeed-bench chaos", None),
            Self::Agents(it) => it.run(),
            Self::Idle(it) => it.exec("tierfeed-bench", Some("idle")),
            Self::EndToEnd(it) => it.run(),
            Self::NoHarm(it) => it.run(),
            Self::Hogged(it) => it.run(),
            Self::Objects(it) => it.run(),
            Self::Peers(it) => it.run(),
            Self::PeersServe(it) => it.run(),
            Self::PeersRelay(it) => it.run(),
            Self::Reader(it) => it.run(),
            Self::RemoveLeftovers(it) => it.run(),
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    output::log_to_stderr();
    failure::exit_code(arguments.experiment.run())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn options_of_all_benches_go_together() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn an_unknown_framework_is_refused_by_the_names_of_those_there_are() {
        let words = ["tierfeed-bench", "frameworks", "--python", "python3", "--only", "theano"];
        let error = Arguments::try_parse_from(words).unwrap_err().to_string();
        assert!(error.contains("theano") && error.contains("tensorflow"), "{error}");
    }
}
