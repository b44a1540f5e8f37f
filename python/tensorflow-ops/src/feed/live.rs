//! The batches that tensors refer to: a call for one of them shares it, and each is reported once, when the
//! pipeline takes it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use tierfeed_client::Memory;
use tierfeed_core::{
    id::BatchId,
    units::{Bytes, Nanoseconds},
};

use crate::batch::{Answer, Row, Staged};

#[derive(Default)]
pub(super) struct Live {
    next: i64,
    batches: BTreeMap<i64, Entry>,
}

pub(super) struct Entry {
    pub(super) batch: BatchId,
    pub(super) memory: Weak<Memory>,
    pub(super) rows: Arc<[Row]>,
    fields: Arc<[Vec<u8>]>,
    pub(super) nbytes: Bytes,
    pub(super) skipped: u32,
    /// `None` once it was reported.
    delivery: Option<Delivery>,
}

pub(super) enum Delivery {
    Leased,
    /// From the agent, as a copy; the agent was told.
    Copied,
    /// From the cold store, by this process.
    Read {
        took: Nanoseconds,
    },
}

impl Live {
    /// A batch that is in memory still.
    pub(super) fn find(&self, batch: BatchId) -> Option<Answer> {
        let mut found = self.batches.iter().filter(|(_, entry)| entry.batch == batch);
        found.find_map(|(ticket, entry)| {
            let (memory, rows) = (entry.memory.upgrade()?, Arc::clone(&entry.rows));
            let fields = Arc::clone(&entry.fields);
            let staged = Staged { memory, rows, fields, skipped: entry.skipped };
            Some(Answer { staged, ticket: *ticket })
        })
    }

    pub(super) fn add(&mut self, batch: BatchId, staged: Staged, delivery: Delivery) -> Answer {
        self.batches.retain(|_, entry| entry.memory.strong_count() > 0);
        let ticket = self.next;
        self.next += 1;
        let entry = Entry {
            batch,
            memory: Arc::downgrade(&staged.memory),
            rows: Arc::clone(&staged.rows),
            fields: Arc::clone(&staged.fields),
            nbytes: staged.nbytes(),
            skipped: staged.skipped,
            delivery: Some(delivery),
        };
        self.batches.insert(ticket, entry);
        Answer { staged, ticket }
    }

    /// The report about a batch that the pipeline takes; `None` if it was reported before.
    pub(super) fn take_delivery(&mut self, ticket: i64) -> Option<(Delivery, &Entry)> {
        let entry = self.batches.get_mut(&ticket)?;
        Some((entry.delivery.take()?, entry))
    }
}
