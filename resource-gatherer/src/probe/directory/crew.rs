//! Reads blocks at random places with several threads at once.
//!
//! The threads are started once and told to begin each time, so no sample holds the start of a thread.
//! They end when the crew is dropped, also if only some of them could be started.

use std::{
    io,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{Builder, Scope},
};

use tierfeed_core::units::Bytes;

use super::RANDOM_READ_THREADS;
use crate::probe::{
    direct_file::{AlignedBuffer, DirectFile},
    random::SplitMix64,
    sampler::Workload,
};

/// The length of a random read.
pub(super) const RANDOM_BLOCK: usize = 4096;

/// Threads that wait for the word to read.
pub(super) struct Crew<'file> {
    file: &'file DirectFile,
    begin: Vec<SyncSender<()>>,
    ended: Receiver<io::Result<()>>,
}

impl<'file> Crew<'file> {
    /// Starts the threads. Each will make `reads` reads of the first `len` bytes per run.
    pub(super) fn start<'scope>(
        scope: &'scope Scope<'scope, 'file>,
        file: &'file DirectFile,
        len: Bytes,
        reads: u32,
    ) -> io::Result<Self> {
        let (end, ended) = sync_channel(RANDOM_READ_THREADS as usize);
        let mut begin = Vec::new();
        for seed in 0..u64::from(RANDOM_READ_THREADS) {
            let (sender, receiver) = sync_channel::<()>(1);
            let end = end.clone();
            let mut random = SplitMix64(seed);
            let mut block = AlignedBuffer::new(RANDOM_BLOCK);
            let serve = move || {
                for () in receiver {
                    let outcome = (0..reads).try_for_each(|_| {
                        file.read(block.as_mut_slice(), random_offset(&mut random, len))
                    });
                    if end.send(outcome).is_err() {
                        return;
                    }
                }
            };
            Builder::new().name("tierfeed-reader".to_owned()).spawn_scoped(scope, serve)?;
            begin.push(sender);
        }
        Ok(Self { file, begin, ended })
    }
}

impl Workload for Crew<'_> {
    type Kernel = ();
    type Error = io::Error;

    fn prepare(&mut self, (): ()) -> io::Result<()> {
        self.file.forget_cache()
    }

    fn run(&mut self, (): ()) -> io::Result<()> {
        for begin in &self.begin {
            begin.send(()).map_err(|_| io::ErrorKind::BrokenPipe)?;
        }
        for _ in &self.begin {
            self.ended.recv().map_err(|_| io::ErrorKind::BrokenPipe)??;
        }
        Ok(())
    }
}

/// The start of one of the blocks of the first `len` bytes, which hold at least one.
pub(super) fn random_offset(random: &mut SplitMix64, len: Bytes) -> u64 {
    let block = RANDOM_BLOCK as u64;
    random.below(len.0 / block) * block
}
