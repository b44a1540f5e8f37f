//! `tierfeed-bench copy`: samples from tier to tier through the data plane, beside plain copies of the
//! same bytes by as many threads, turn by turn.
//!
//! Our side is everything that a demotion takes in the agent: its command, its queue, its thread, its answer,
//! and the checksum where the settings verify. The other side is, between memory, one `memcpy` for each
//! sample, between memory that was allocated in the same way; to and from a directory, one `pwrite` or
//! `pread` for each, into a file that has its blocks already.

mod plain;
mod side;
mod table;

use std::{num::NonZeroUsize, path::PathBuf};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use tierfeed_core::units::Bytes;
use tierfeed_harness::{files, judgement::Judgement, statistics::percentile};
use tierfeed_prefetcher::plane::Verify;

use self::side::{Plane, Route};

pub use self::table::table;

/// The promised share of memcpy's rate between tiers in memory.
pub const PROMISE: f64 = 0.9;

/// The largest interquartile range, as a share of the median, that allows a verdict.
const SPREAD_MAX: f64 = 0.25;

#[derive(Debug, Clone)]
pub struct Settings {
    pub folder: PathBuf,
    pub scratch: PathBuf,
    /// The chunk of each tier, which each turn copies as a whole.
    pub chunk: Bytes,
    pub rounds: usize,
    pub threads: Vec<NonZeroUsize>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub chunk_bytes: u64,
    pub rounds: usize,
    pub rows: Vec<Row>,
}

/// A route with one sample size and number of threads.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub route: &'static str,
    pub sample_bytes: u64,
    pub threads: usize,
    /// Whether the data plane compares every sample with its checksum on the way.
    pub checked: bool,
    pub plain_bytes_per_s: f64,
    pub tierfeed_bytes_per_s: f64,
    /// The median of the ratios of the turns: above 1 ours is faster.
    pub ratio: f64,
    pub ratio_low: f64,
    pub ratio_high: f64,
    /// `kept`, `missed` or `inconclusive`; `measured` where nothing is promised.
    pub verdict: &'static str,
}

impl Outcome {
    #[must_use]
    pub fn judged(&self) -> Judgement {
        self.rows.iter().fold(Judgement::default(), |judged, row| {
            let Row { route, sample_bytes, threads, ratio, .. } = row;
            let what = format!("{route}, {sample_bytes} B, {threads} threads: {ratio:.2} x");
            judged.verdict(what, row.verdict)
        })
    }
}

/// # Errors
///
/// If memory or a directory cannot be had, or a copy fails.
pub fn run(settings: &Settings, progress: &mut dyn FnMut(&str)) -> anyhow::Result<Outcome> {
    ensure!(settings.rounds >= 3, "{} rounds; at least 3 are needed", settings.rounds);
    let (folder, scratch) = (&settings.folder, &settings.scratch);
    let rows = files::in_folder(folder, |folder| {
        files::in_folder(scratch, |scratch| {
            let inside = Settings {
                folder: folder.to_owned(),
                scratch: scratch.to_owned(),
                ..settings.clone()
            };
            rows(&inside, progress)
        })
    })?;
    Ok(Outcome { chunk_bytes: settings.chunk.0, rounds: settings.rounds, rows })
}

fn rows(settings: &Settings, progress: &mut dyn FnMut(&str)) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for verify in [Verify::Shared, Verify::Always] {
        for &threads in &settings.threads {
            let plane = Plane::start(settings, threads, verify)?;
            let plain = plain::Plain::new(settings.chunk, threads)?;
            for route in Route::ALL {
                // A directory is always verified: once is enough.
                if !route.is_in_memory() && verify == Verify::Always {
                    continue;
                }
                for sample in sizes(settings.chunk, route) {
                    progress(&format!("{} of {sample}, {threads} threads", route.name()));
                    rows.push(row(settings, &plane, &plain, route, sample, threads, verify)?);
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

fn row(
    settings: &Settings,
    plane: &Plane,
    plain: &plain::Plain,
    route: Route,
    sample: Bytes,
    threads: NonZeroUsize,
    verify: Verify,
) -> anyhow::Result<Row> {
    let ours = plane.prepare(route, sample)?;
    let theirs = plain.prepare(settings, route, sample)?;
    let (mut plain_rates, mut rates) = (Vec::new(), Vec::new());
    // The first turn of each side is left out: its memory is not in the caches and the TLB.
    for round in 0..=settings.rounds {
        let (their_rate, rate) = (theirs.turn()?, ours.turn()?);
        if round > 0 {
            plain_rates.push(their_rate);
            rates.push(rate);
        }
    }
    let ratios: Vec<f64> = rates.iter().zip(&plain_rates).map(|(ours, it)| ours / it).collect();
    let at = |values: &[f64], percent| percentile(values, percent).context("no round was run");
    let (ratio, low, high) = (at(&ratios, 50)?, at(&ratios, 25)?, at(&ratios, 75)?);
    Ok(Row {
        route: route.name(),
        sample_bytes: sample.0,
        threads: threads.get(),
        checked: verify == Verify::Always || !route.is_in_memory(),
        plain_bytes_per_s: at(&plain_rates, 50)?,
        tierfeed_bytes_per_s: at(&rates, 50)?,
        ratio,
        ratio_low: low,
        ratio_high: high,
        verdict: verdict(route, ratio, low, high),
    })
}

fn verdict(route: Route, ratio: f64, low: f64, high: f64) -> &'static str {
    match () {
        () if !route.is_in_memory() => "measured",
        // All but a quarter of the turns are on one side of the mark, however far they lie apart.
        () if low >= PROMISE => "kept",
        () if high < PROMISE => "missed",
        () if high - low > SPREAD_MAX * ratio => "inconclusive",
        () if ratio >= PROMISE => "kept",
        () => "missed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_on_both_sides_of_the_mark_by_far_says_nothing() {
        assert_eq!(verdict(Route::MemoryToMemory, 1.0, 0.95, 1.5), "kept");
        assert_eq!(verdict(Route::MemoryToMemory, 0.7, 0.3, 0.85), "missed");
        assert_eq!(verdict(Route::MemoryToMemory, 0.95, 0.8, 1.1), "inconclusive");
        assert_eq!(verdict(Route::MemoryToMemory, 0.92, 0.88, 0.95), "kept");
        assert_eq!(verdict(Route::MemoryToMemory, 0.89, 0.86, 0.92), "missed");
        assert_eq!(verdict(Route::MemoryToStorage, 0.1, 0.1, 0.1), "measured");
    }

    #[test]
    fn every_route_is_run_and_gives_a_rate() {
        let (folder, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let settings = Settings {
            folder: folder.path().to_owned(),
            scratch: scratch.path().to_owned(),
            chunk: Bytes::mib(4),
            rounds: 3,
            threads: vec![NonZeroUsize::MIN],
        };
        let outcome = run(&settings, &mut |_| ()).unwrap();
        // In memory two directions with three sizes, twice; the others with two sizes, once.
        let in_memory = outcome.rows.iter().filter(|row| row.verdict != "measured").count();
        assert_eq!((in_memory, outcome.rows.len()), (12, 20));
        let is_rate = |rate: f64| rate.is_finite() && rate > 0.0;
        for row in &outcome.rows {
            assert!(is_rate(row.plain_bytes_per_s) && is_rate(row.tierfeed_bytes_per_s), "{row:?}");
        }
        assert!(table(&outcome).lines().count() > 20);
    }
}
