//! Asks for the size and time of every file, on several threads where there are many.
//!
//! A `stat` on a network file system is one round trip and no work, so there are more threads than
//! CPUs. The result, and which error is told, do not depend on their timing.

use std::{
    collections::BTreeMap,
    fs,
    num::NonZeroUsize,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use super::{IndexError, Progress, Stage, layout::Layout};

/// Objects that a thread takes at a time.
const BLOCK: usize = 1_024;

/// Enough to hide round trips, few enough not to trouble a shared file server.
const THREADS_MAX: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) size: u64,
    pub(super) mtime_ns: i64,
}

/// When a file was last written, as [`super::Extent::object_mtime_ns`] has it.
pub fn mtime_ns(metadata: &fs::Metadata) -> i64 {
    metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec())
}

/// Measures all objects, in their order.
pub(super) fn objects(
    layout: &Layout,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Measured>, IndexError> {
    let blocks = layout.objects.len().div_ceil(BLOCK);
    let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = blocks.min(cpus * 4).clamp(1, THREADS_MAX);
    let next_block = AtomicUsize::new(0);
    let has_failed = AtomicBool::new(false);
    let mut measured = BTreeMap::new();
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel(threads);
        for _ in 0..threads {
            let (sender, next_block, has_failed) = (sender.clone(), &next_block, &has_failed);
            scope.spawn(move || {
                // Blocks are taken in order, so one that is behind a failure is never missed.
                while !has_failed.load(Ordering::Relaxed) {
                    let number = next_block.fetch_add(1, Ordering::Relaxed);
                    if number >= blocks {
                        break;
                    }
                    let block = block(layout, number);
                    has_failed.fetch_or(block.is_err(), Ordering::Relaxed);
                    if sender.send((number, block)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let total = layout.objects.len() as u64;
        let mut done = 0;
        for (number, block) in receiver {
            done += block.as_ref().map_or(0, Vec::len) as u64;
            measured.insert(number, block);
            progress(Progress { stage: Stage::Measuring, done, total: Some(total) });
        }
    });
    let mut all = Vec::with_capacity(layout.objects.len());
    for block in measured.into_values() {
        all.extend(block?);
    }
    Ok(all)
}

fn block(layout: &Layout, number: usize) -> Result<Vec<Measured>, IndexError> {
    let first = number * BLOCK;
    let last = layout.objects.len().min(first + BLOCK);
    (first..last).map(|object| file(layout.path_of(object))).collect()
}

fn file(path: PathBuf) -> Result<Measured, IndexError> {
    match fs::metadata(&path) {
        Err(source) => Err(IndexError::Unreadable { path, source }),
        Ok(metadata) if !metadata.is_file() => Err(IndexError::NotAFile { path }),
        Ok(metadata) => Ok(Measured { size: metadata.len(), mtime_ns: mtime_ns(&metadata) }),
    }
}
