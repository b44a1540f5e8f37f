//! `tierfeed-bench objects`: objects of an S3 server on loopback through tierfeed's fetcher and through
//! other clients, in turn, with as many requests in flight.
//!
//! The server is a process of its own, so that its CPU time is not mixed with that of the clients; no
//! request is signed. All clients keep their connections. What a client does with the bytes is what it is
//! made for: tierfeed puts them to their places in staging memory, the libraries give each object in
//! memory of its own, `curl` throws them away.

mod client;
mod clients;
mod fetching;
mod python;
mod server;

use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::{Args, builder::RangedU64ValueParser};
use serde::Serialize;
use tierfeed_harness::{
    bench::{Bench, Folder},
    failure::Failure,
    judgement::{Judged, Judgement},
    output::step,
    programs,
    statistics::{Quartiles, percentile},
};

use self::{
    client::{Client, Turn},
    server::{KINDS, Kind, Server},
};

/// The promised rate over that of the best other client.
const MARK: f64 = 0.9;
const OTHERS_MIN: usize = 3;
const OURS: &str = "tierfeed";

#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// The S3 server, built by `make build-benchmarks` [default: examples/s3_server beside
    /// tierfeed].
    #[arg(long, value_name = "FILE")]
    pub(crate) server: Option<PathBuf>,
    /// A Python that may have obstore, boto3 and s3torchconnector.
    #[arg(long, value_name = "FILE", default_value = "python3")]
    pub(crate) python: PathBuf,
    /// How often each client has its turn.
    #[arg(long, value_name = "NUMBER", default_value_t = 5,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) rounds: usize,
    #[command(flatten)]
    pub(crate) folder: Folder,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) kinds: Vec<Comparison>,
    /// Clients that are not installed, with the reason.
    pub(crate) absent: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Comparison {
    pub(crate) object_bytes: u64,
    pub(crate) objects: usize,
    pub(crate) requests: usize,
    /// The clients, the fastest first.
    pub(crate) sides: Vec<Side>,
    pub(crate) best_other: String,
    /// tierfeed's rate over that of the best other, in the same round.
    #[serde(flatten)]
    pub(crate) ratio: Quartiles,
    /// `kept`, `missed`, or `inconclusive` if the rounds disagree about it.
    pub(crate) verdict: &'static str,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Side {
    pub(crate) name: String,
    pub(crate) bytes_per_s: f64,
    pub(crate) bytes_per_s_min: f64,
    pub(crate) bytes_per_s_max: f64,
    /// CPU seconds of the client for a gigabyte, the median over its rounds.
    pub(crate) cpu_s_per_gb: f64,
    #[serde(skip)]
    rates: Vec<f64>,
}

impl Bench for Settings {
    type Outcome = Outcome;

    fn run(self) -> Result<Outcome, Failure> {
        let server = programs::s3_server(self.server.clone())?;
        Ok(self.folder.with_files(|folder| measure(&self, &server, folder))?)
    }
}

/// Starts the server, lets all clients read all objects in turn, stops the server.
fn measure(settings: &Settings, server: &Path, folder: &Path) -> anyhow::Result<Outcome> {
    step("starting the server");
    let server = Server::start(server)?;
    let (mut clients, absent) = clients::found(&server, &settings.python, folder)?;
    let others = clients.len().saturating_sub(1);
    ensure!(
        others >= OTHERS_MIN,
        "{others} other clients are here, {OTHERS_MIN} are needed: {}",
        absent.join("; ")
    );
    let mut kinds = Vec::new();
    for kind in &KINDS {
        step(&format!("{} objects of {} B", kind.objects, kind.bytes));
        kinds.push(compared(kind, &mut clients, settings.rounds)?);
    }
    Ok(Outcome { kinds, absent })
}

/// One round as a warm-up, then those that count.
fn compared(
    kind: &'static Kind,
    clients: &mut [Box<dyn Client>],
    rounds: usize,
) -> anyhow::Result<Comparison> {
    let mut turns: Vec<Vec<Turn>> = clients.iter().map(|_| Vec::new()).collect();
    for client in clients.iter_mut() {
        client.prepare(kind)?;
        client.read_all(kind)?;
    }
    for round in 0..rounds {
        for offset in 0..clients.len() {
            // Another client is the first in each round.
            let index = (round + offset) % clients.len();
            turns[index].push(clients[index].read_all(kind)?);
        }
    }
    let sides = clients.iter().zip(&turns).map(|(client, turns)| side(client.name(), kind, turns));
    compared_sides(kind, sides.collect())
}

#[expect(clippy::cast_precision_loss, reason = "byte counts of a benchmark are far below 2^53")]
fn side(name: &str, kind: &Kind, turns: &[Turn]) -> Side {
    let bytes = kind.total() as f64;
    let rates: Vec<f64> = turns.iter().map(|turn| bytes / turn.wall_s).collect();
    let cpu: Vec<f64> = turns.iter().map(|turn| turn.cpu_s / (bytes / 1e9)).collect();
    let at = |values: &[f64], percent| percentile(values, percent).unwrap_or(f64::NAN);
    Side {
        name: name.to_owned(),
        bytes_per_s: at(&rates, 50),
        bytes_per_s_min: at(&rates, 1),
        bytes_per_s_max: at(&rates, 100),
        cpu_s_per_gb: at(&cpu, 50),
        rates,
    }
}

fn compared_sides(kind: &Kind, mut sides: Vec<Side>) -> anyhow::Result<Comparison> {
    sides.sort_by(|a, b| b.bytes_per_s.total_cmp(&a.bytes_per_s));
    let ours = sides.iter().find(|side| side.name == OURS);
    let best = sides.iter().find(|side| side.name != OURS);
    let (Some(ours), Some(best)) = (ours, best) else { anyhow::bail!("a side is missing") };
    let ratio = Quartiles::of_ratios(&ours.rates, &best.rates)?;
    Ok(Comparison {
        object_bytes: kind.bytes,
        objects: kind.objects,
        requests: kind.requests,
        best_other: best.name.clone(),
        ratio,
        verdict: ratio.verdict(MARK),
        sides,
    })
}

impl Judged for Outcome {
    fn judged(&self) -> Judgement {
        self.kinds.iter().fold(Judgement::default(), |judged, kind| {
            let Comparison { object_bytes, ratio, best_other, .. } = kind;
            let what = format!("objects of {object_bytes} B: {:.2} x {best_other}", ratio.median);
            judged.verdict(what, kind.verdict)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(ours: &[f64], other: &[f64]) -> &'static str {
        let turns = |walls: &[f64]| -> Vec<Turn> {
            walls.iter().map(|wall_s| Turn { wall_s: *wall_s, cpu_s: 1.0 }).collect()
        };
        let kind = &KINDS[0];
        let slow = side("slow", kind, &turns(&[9.0; 4]));
        let sides = vec![slow, side(OURS, kind, &turns(ours)), side("other", kind, &turns(other))];
        let comparison = compared_sides(kind, sides).unwrap();
        assert_eq!(comparison.best_other, "other");
        comparison.verdict
    }

    #[test]
    fn the_promise_is_kept_if_most_rounds_say_so() {
        assert_eq!(verdict(&[1.0; 4], &[1.0; 4]), "kept");
        assert_eq!(verdict(&[1.2; 4], &[1.0; 4]), "missed");
        assert_eq!(verdict(&[1.0, 1.0, 1.3, 1.3], &[1.0; 4]), "inconclusive");
        assert_eq!(verdict(&[0.5, 1.3, 1.3, 0.5], &[1.0; 4]), "inconclusive");
    }
}
