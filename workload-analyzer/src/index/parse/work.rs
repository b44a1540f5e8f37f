//! Parses objects on several threads, and puts what comes back in order.
//!
//! The result, and which error is told, do not depend on the timing of the threads.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use super::{Parsed, gathered::Gathered, known::Known, object};
use crate::{
    index::{Index, IndexError, Progress, Stage, choose::Chosen, draft::Samples},
    job::Dataset,
    source::Store,
};

/// Enough to hide round trips, few enough not to trouble a shared file server.
const THREADS_MAX: usize = 16;

/// What the threads share.
pub(super) struct Work<'a> {
    dataset: &'a Dataset,
    store: &'a dyn Store,
    chosen: &'a Chosen,
    known: Known<'a>,
    next: AtomicUsize,
    has_failed: AtomicBool,
}

impl<'a> Work<'a> {
    pub(super) fn new(
        dataset: &'a Dataset,
        store: &'a dyn Store,
        chosen: &'a Chosen,
        previous: Option<&'a Index>,
    ) -> Self {
        let known = Known::of(dataset, previous);
        let (next, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { dataset, store, chosen, known, next, has_failed }
    }

    pub(super) fn run(&self, progress: &mut dyn FnMut(Progress)) -> Result<Samples, IndexError> {
        let objects = self.chosen.listing.objects.len();
        let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = objects.min(cpus * 4).clamp(1, THREADS_MAX);
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::sync_channel(threads);
            for _ in 0..threads {
                let sender = sender.clone();
                scope.spawn(move || self.work(&sender));
            }
            drop(sender);
            let mut gathered = Gathered::default();
            let mut waiting = BTreeMap::new();
            let mut done = 0;
            for (number, parsed) in receiver {
                waiting.insert(number, parsed);
                while let Some(parsed) = waiting.remove(&done) {
                    gathered.push(self.chosen, done, parsed?)?;
                    done += 1;
                }
                let (done, total) = (done as u64, Some(objects as u64));
                progress(Progress { stage: Stage::Reading, done, total });
            }
            Ok(gathered.finish())
        })
    }

    /// Objects are taken in order, so one that is behind a failure is never missed.
    fn work(&self, sender: &mpsc::SyncSender<(usize, Result<Parsed, IndexError>)>) {
        while !self.has_failed.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.chosen.listing.objects.len() {
                return;
            }
            let parsed = self.object(number);
            self.has_failed.fetch_or(parsed.is_err(), Ordering::Relaxed);
            if sender.send((number, parsed)).is_err() {
                return;
            }
        }
    }

    fn object(&self, number: usize) -> Result<Parsed, IndexError> {
        let listed = self.chosen.listing.listed(number);
        if let Some(parsed) = self.known.object(&listed) {
            return Ok(parsed);
        }
        object::parse(self.dataset, self.store, self.chosen, number, &listed)
    }
}
