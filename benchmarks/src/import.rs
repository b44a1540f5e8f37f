//! `tierfeed-bench import`: the size of the native module that a trainer loads, and the time of its import,
//! beside another build of it.
//!
//! Each load is in an interpreter of its own, in alternating turns. The size is what the kernel maps of the
//! file, so debug information does not count.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use clap::{Args, builder::RangedU64ValueParser};
use serde::{Deserialize, Serialize};
use tierfeed_harness::{
    bench::Bench,
    failure::Failure,
    judgement::{Judged, Judgement},
    statistics::percentile,
};

use crate::processes::said;

/// Prints the bytes that are mapped of a module, and the seconds that its import took.
const LOAD: &str = "\
import importlib.util, json, sys, time
path = sys.argv[1]
start = time.perf_counter()
spec = importlib.util.spec_from_file_location('_native', path)
spec.loader.exec_module(importlib.util.module_from_spec(spec))
took = time.perf_counter() - start
mapped = 0
for line in open('/proc/self/maps'):
    if line.rstrip().endswith(path):
        start, _, end = line.split()[0].partition('-')
        mapped += int(end, 16) - int(start, 16)
print(json.dumps({'mapped_bytes': mapped, 'took_s': took}))
";

/// The promise for the module of an optimised build.
const MAPPED_MB_MAX: f64 = 8.0;
/// The promise for an import with the file in the page cache.
const LOAD_MS_MAX: f64 = 50.0;

#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
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
          value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) rounds: usize,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) now: Loaded,
    pub(crate) before: Option<Loaded>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Loaded {
    pub(crate) path: PathBuf,
    /// Bytes that the kernel maps of it, in 10^6.
    pub(crate) mapped_mb: f64,
    pub(crate) load_ms: f64,
}

#[derive(Deserialize)]
struct Load {
    mapped_bytes: u32,
    took_s: f64,
}

impl Judged for Outcome {
    fn judged(&self) -> Judgement {
        Judgement::default()
            .at_most("MB that are mapped of the module", self.now.mapped_mb, MAPPED_MB_MAX)
            .at_most("ms to import it", self.now.load_ms, LOAD_MS_MAX)
    }
}

impl Bench for Settings {
    type Outcome = Outcome;

    fn run(self) -> Result<Outcome, Failure> {
        let paths = std::iter::once(&self.module).chain(&self.before);
        let paths: Vec<_> = paths.map(|path| absolute(path)).collect::<anyhow::Result<_>>()?;
        let mut loads: Vec<Vec<Load>> = paths.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.rounds {
            for (path, loads) in paths.iter().zip(&mut loads) {
                loads.push(load(&self.python, path)?);
            }
        }
        let mut loaded = paths.into_iter().zip(loads).map(|(path, loads)| summary(path, &loads));
        let now = loaded.next().context("the module is one of the two")?;
        Ok(Outcome { now, before: loaded.next() })
    }
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    path.canonicalize().with_context(|| path.display().to_string())
}

fn load(python: &Path, module: &Path) -> anyhow::Result<Load> {
    let load = said(Command::new(python).arg("-c").arg(LOAD).arg(module));
    serde_json::from_str(&load.with_context(|| format!("loading {}", module.display()))?)
        .context("the interpreter printed another document than expected")
}

fn summary(path: PathBuf, loads: &[Load]) -> Loaded {
    let times: Vec<f64> = loads.iter().map(|load| 1e3 * load.took_s).collect();
    let mapped = loads.iter().map(|load| load.mapped_bytes).max().unwrap_or(0);
    Loaded {
        path,
        mapped_mb: f64::from(mapped) / 1e6,
        load_ms: percentile(&times, 50).unwrap_or(f64::NAN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_described_by_its_median_load() {
        let load = |took_s| Load { mapped_bytes: 2_000_000, took_s };
        let loaded = summary("m.so".into(), &[load(0.003), load(0.001), load(0.002)]);
        assert!((loaded.load_ms - 2.0).abs() < 1e-9 && (loaded.mapped_mb - 2.0).abs() < 1e-9);
        let outcome = Outcome { now: loaded, before: None };
        assert_eq!(outcome.judged(), Judgement::default());
    }
}
