//! A RAM disk with the photographs: CXL memory as storage, for loaders that read files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use tierfeed_harness::clock::now;

use crate::{figure::Value, stage::Stage};

pub(super) struct RamDisk<'a> {
    pub(super) path: &'a Path,
    /// Seconds that the copy from the slow disk took, once for each turn.
    pub(super) copies_s: Vec<f64>,
}

impl RamDisk<'_> {
    pub(super) fn copy_s(&self) -> f64 {
        Value::of(&self.copies_s).map_or(0.0, |it| it.median)
    }
}

/// Copies the photographs from the slow disk to a RAM disk as often as there are turns, runs `experiment`, and removes
/// the copy.
pub(super) fn on_ram_disk<T>(
    stage: &mut Stage<'_>,
    experiment: impl FnOnce(&mut Stage<'_>, &RamDisk<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let path = place();
    let copies = (0..stage.settings.rounds).map(|_| copy(stage, &path));
    let outcome = copies
        .collect::<anyhow::Result<_>>()
        .and_then(|copies_s| experiment(stage, &RamDisk { path: &path, copies_s }));
    let removed = fs::remove_dir_all(&path);
    let value = outcome?;
    removed.with_context(|| format!("{}: left behind", path.display()))?;
    Ok(value)
}

fn place() -> PathBuf {
    Path::new("/dev/shm").join(tierfeed_harness::leftovers::own_name())
}

fn copy(stage: &Stage<'_>, to: &Path) -> anyhow::Result<f64> {
    stage.disk.forget_cached()?;
    let start = now();
    let mut copy = stage.disk.enter(Path::new("cp"));
    let status = copy.args(["-r", "-T"]).arg(stage.photographs()).arg(to).status()?;
    ensure!(status.success(), "cp to {} failed ({status})", to.display());
    Ok((now() - start).as_secs_f64())
}
