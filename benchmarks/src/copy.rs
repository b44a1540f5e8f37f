//! `tierfeed-bench copy`: samples from tier to tier through the data plane, beside plain copies of the
//! same bytes by as many threads, turn by turn.
//!
//! Our side is everything that a demotion takes in the agent: its command, its queue, its thread, its answer,
//! and the checksum where the settings verify. The other side is, between memory, one `memcpy` for each
//! sample, between memory that was allocated in the same way; to and from a directory, one `pwrite` or
//! `pread` for each, into a file that has its blocks already.

mod plain;
mod side;

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{Args, builder::RangedU64ValueParser};
use serde::Serialize;
use tierfeed_core::units::Bytes;
use tierfeed_harness::{
    bench::{Bench, Folder},
    failure::Failure,
    files,
    judgement::{Judged, Judgement},
    output::step,
    statistics::{Quartiles, percentile},
};
use tierfeed_prefetcher::plane::Verify;

use self::side::{Plane, Route};

/// The promised share of memcpy's rate between tiers in memory.
pub(crate) const PROMISE: f64 = 0.9;

#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// What each turn copies: the chunk of every tier. Six times as much memory is taken.
    #[arg(long, value_name = "SIZE", default_value = "512 MiB")]
    pub(crate) chunk: Bytes,
    /// Turns of each side, at least 3.
    #[arg(long, value_name = "NUMBER", default_value_t = 7,
          value_parser = RangedU64ValueParser::<usize>::new().range(3..=1000))]
    pub(crate) rounds: usize,
    /// Threads of each side.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,2")]
    pub(crate) threads: Vec<NonZeroUsize>,
    /// A RAM disk for the scratch tier.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub(crate) scratch: PathBuf,
    #[command(flatten)]
    pub(crate) folder: Folder,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) chunk_bytes: u64,
    pub(crate) rounds: usize,
    pub(crate) rows: Vec<Row>,
}

/// A route with one sample size and number of threads.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) route: &'static str,
    pub(crate) sample_bytes: u64,
    pub(crate) threads: usize,
    /// Whether the data plane compares every sample with its checksum on the way.
    pub(crate) checked: bool,
    pub(crate) plain_bytes_per_s: f64,
    pub(crate) tierfeed_bytes_per_s: f64,
    /// Of the turns: above 1 ours is faster.
    #[serde(flatten)]
    pub(crate) ratio: Quartiles,
    /// `kept`, `missed` or `inconclusive`; `measured` where nothing is promised.
    pub(crate) verdict: &'static str,
}

impl Judged for Outcome {
    fn judged(&self) -> Judgement {
        self.rows.iter().fold(Judgement::default(), |judged, row| {
            let Row { route, sample_bytes, threads, ratio, .. } = row;
            let ratio = ratio.median;
            let what = format!("{route}, {sample_bytes} B, {threads} threads: {ratio:.2} x");
            judged.verdict(what, row.verdict)
        })
    }
}

impl Bench for Settings {
    type Outcome = Outcome;

    fn run(self) -> Result<Outcome, Failure> {
        let rows = self.folder.with_files(|folder| {
            files::in_folder(&self.scratch, |scratch| rows(&self, Folders { folder, scratch }))
        })?;
        Ok(Outcome { chunk_bytes: self.chunk.0, rounds: self.rounds, rows })
    }
}

/// The folders of one run, on the disk and on the RAM disk.
#[derive(Debug, Clone, Copy)]
struct Folders<'a> {
    folder: &'a Path,
    scratch: &'a Path,
}

fn rows(settings: &Settings, folders: Folders<'_>) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for verify in [Verify::Shared, Verify::Always] {
        for &threads in &settings.threads {
            let plane = Plane::start(settings, folders, threads, verify)?;
            let plain = plain::Plain::new(settings.chunk, threads)?;
            for route in Route::ALL {
                // A directory is always verified: once is enough.
                if !route.is_in_memory() && verify == Verify::Always {
                    continue;
                }
                for sample in sizes(settings.chunk, route) {
                    step(&format!("{} of {sample}, {threads} threads", route.name()));
                    let ours = plane.prepare(route, sample)?;
                    let theirs = plain.prepare(folders, route, sample)?;
                    let (rates, plain_rates) = turns(settings.rounds, &ours, &theirs)?;
                    rows.push(Row::of(route, sample, threads, verify, &rates, &plain_rates)?);
                }
            }
        }
    }
    Ok(rows)
}

/// Samples of `ImageNet` and of larger images, and in memory also the whole chunk.
fn sizes(chunk: Bytes, route: Route) -> Vec<Bytes> {
    let mut sizes = vec![Bytes(100 << 10), Bytes(1 << 20)];
    if route.is_in_memory() {
        sizes.push(chunk);
    }
    sizes.retain(|size| *size <= chunk);
    sizes
}

/// The rates of both sides, whose turns alternate.
fn turns(
    rounds: usize,
    ours: &side::Turns<'_>,
    theirs: &plain::Turns<'_>,
) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let (mut rates, mut plain_rates) = (Vec::new(), Vec::new());
    // The first turn of each side is left out: its memory is not in the caches and the TLB.
    for round in 0..=rounds {
        let (their_rate, rate) = (theirs.turn()?, ours.turn()?);
        if round > 0 {
            plain_rates.push(their_rate);
            rates.push(rate);
        }
    }
    Ok((rates, plain_rates))
}

impl Row {
    fn of(
        route: Route,
        sample: Bytes,
        threads: NonZeroUsize,
        verify: Verify,
        rates: &[f64],
        plain_rates: &[f64],
    ) -> anyhow::Result<Self> {
        let ratio = Quartiles::of_ratios(rates, plain_rates)?;
        let median = |rates: &[f64]| percentile(rates, 50).context("no round was run");
        let verdict = if route.is_in_memory() { ratio.verdict(PROMISE) } else { "measured" };
        Ok(Self {
            route: route.name(),
            sample_bytes: sample.0,
            threads: threads.get(),
            checked: verify == Verify::Always || !route.is_in_memory(),
            plain_bytes_per_s: median(plain_rates)?,
            tierfeed_bytes_per_s: median(rates)?,
            ratio,
            verdict,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_run_and_gives_a_rate() {
        let (folder, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let settings = Settings {
            folder: Folder { parent: Some(folder.path().to_owned()) },
            scratch: scratch.path().to_owned(),
            chunk: Bytes::mib(4),
            rounds: 3,
            threads: vec![NonZeroUsize::MIN],
        };
        let outcome = settings.run().unwrap();
        // In memory two directions with three sizes, twice; the others with two sizes, once.
        let in_memory = outcome.rows.iter().filter(|row| row.verdict != "measured").count();
        assert_eq!((in_memory, outcome.rows.len()), (12, 20));
        let is_rate = |rate: f64| rate.is_finite() && rate > 0.0;
        for row in &outcome.rows {
            assert!(is_rate(row.plain_bytes_per_s) && is_rate(row.tierfeed_bytes_per_s), "{row:?}");
        }
    }
}
