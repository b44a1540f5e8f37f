//! `tierfeed-bench import`: the size of the native module that a trainer loads, and the time of its import,
//! beside another build of it.
//!
//! Each load is in an interpreter of its own, in alternating turns. The size is what the kernel maps of the
//! file, so debug information does not count.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use tierfeed_harness::{judgement::Judgement, statistics::percentile};

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

#[derive(Debug, Clone)]
pub struct Settings {
    /// A Python of the version that the modules are for.
    pub python: PathBuf,
    pub module: PathBuf,
    pub before: Option<PathBuf>,
    pub rounds: usize,
}

#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub now: Loaded,
    pub before: Option<Loaded>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Loaded {
    pub path: PathBuf,
    /// Bytes that the kernel maps of it, in 10^6.
    pub mapped_mb: f64,
    pub load_ms: f64,
}

#[derive(Deserialize)]
struct Load {
    mapped_bytes: u32,
    took_s: f64,
}

impl Outcome {
    #[must_use]
    pub fn judged(&self) -> Judgement {
        Judgement::default()
            .at_most("MB that are mapped of the module", self.now.mapped_mb, MAPPED_MB_MAX)
            .at_most("ms to import it", self.now.load_ms, LOAD_MS_MAX)
    }
}

/// # Errors
///
/// If Python cannot be started, or a module cannot be loaded.
pub fn run(settings: &Settings) -> anyhow::Result<Outcome> {
    let paths = std::iter::once(&settings.module).chain(&settings.before);
    let paths: Vec<_> = paths.map(|path| absolute(path)).collect::<anyhow::Result<_>>()?;
    let mut loads: Vec<Vec<Load>> = paths.iter().map(|_| Vec::new()).collect();
    for _ in 0..settings.rounds {
        for (path, loads) in paths.iter().zip(&mut loads) {
            loads.push(load(&settings.python, path)?);
        }
    }
    let mut loaded = paths.into_iter().zip(loads).map(|(path, loads)| summary(path, &loads));
    let now = loaded.next().context("the module is one of the two")?;
    Ok(Outcome { now, before: loaded.next() })
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    path.canonicalize().with_context(|| path.display().to_string())
}

fn load(python: &Path, module: &Path) -> anyhow::Result<Load> {
    let output = Command::new(python).arg("-c").arg(LOAD).arg(module).output();
    let output = output.with_context(|| python.display().to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} cannot be loaded: {said}", module.display());
    serde_json::from_slice(&output.stdout)
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

/// # Panics
///
/// Never: writing to a string cannot fail.
#[must_use]
pub fn table(outcome: &Outcome) -> String {
    let mut text = String::new();
    let mut line = |it: String| writeln!(text, "{it}").expect("writing to a string cannot fail");
    line(format!("{:<8}{:>10}{:>10}  module", "", "MB", "ms"));
    let row = |name: &str, it: &Loaded| {
        format!("{name:<8}{:>10.2}{:>10.2}  {}", it.mapped_mb, it.load_ms, it.path.display())
    };
    line(row("now", &outcome.now));
    if let Some(before) = &outcome.before {
        line(row("before", before));
        let (size, time) =
            (outcome.now.mapped_mb / before.mapped_mb, outcome.now.load_ms / before.load_ms);
        line(format!("{:<8}{size:>10.2}{time:>10.2}", "ratio"));
    }
    text
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
        assert!(table(&outcome).contains("m.so"));
    }
}
