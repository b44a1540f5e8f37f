//! A batch in the form that a dataset hands out, over memory that its tensors share.
//!
//! | form | one tensor of bytes | copied if |
//! |---|---|---|
//! | array | all samples behind each other, which have one length | that length is no multiple of 64 |
//! | rows | the batch, samples at multiples of 64 bytes, with where each starts and how long it is | – |
//!
//! A batch is copied in either form if samples of it lie in memory of a tier, or if TensorFlow keeps so
//! many batches that the agent has no room for another one.

use std::{io, sync::Arc};

use tierfeed_client::{ColdBatch, Connection, Memory, PrivatePages, to_usize};
use tierfeed_core::{
    batch::SAMPLE_ALIGN,
    session::Wait,
    units::{Bytes, Nanoseconds},
};
use tierfeed_handoff::{LeasedBatch, Row as LeasedRow, monotonic_now};

use crate::c_api::{Code, Failure};

const UNLABELLED: i64 = -1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Behind each other: every sample has this length.
    Array(usize),
    /// At multiples of 64 bytes.
    Rows,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) sample: u32,
    pub(crate) label: i64,
    /// From the start of the memory.
    pub(crate) start: usize,
    pub(crate) len: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Staged {
    pub(crate) memory: Arc<Memory>,
    pub(crate) rows: Arc<[Row]>,
    /// The values of the fields that each row has beside it, row by row.
    pub(crate) fields: Arc<[Vec<u8>]>,
    pub(crate) skipped: u32,
}

/// A batch for a call, with the ticket under which its delivery is reported.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) staged: Staged,
    pub(crate) ticket: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copied {
    No,
    /// Its samples do not lie in staging memory as the form needs them.
    ForItsForm,
    /// TensorFlow keeps as many batches as the agent stages.
    ForRoom,
}

impl Form {
    fn room(self, len: usize) -> usize {
        match self {
            Self::Array(len) => len,
            Self::Rows => len.next_multiple_of(to_usize(Bytes(SAMPLE_ALIGN))),
        }
    }

    fn is_of(self, rows: &[Row]) -> bool {
        match self {
            Self::Rows => true,
            Self::Array(len) => {
                let mut rows = rows.iter().enumerate();
                rows.all(|(at, row)| row.len == len && row.start == at * len)
            }
        }
    }
}

impl Staged {
    pub(crate) fn of_lease(
        form: Form,
        connection: &Arc<Connection>,
        leased: LeasedBatch,
        wanted_since: impl FnOnce() -> Option<Nanoseconds>,
    ) -> Result<(Self, Copied), Failure> {
        let lease = connection.lease(&leased);
        let is_exhausted = connection.is_exhausted(0);
        let rows = Row::present(&leased.rows);
        let skipped = missing(&leased.rows, &rows);
        let is_in_place = leased.rows.iter().any(|row| row.shared_tier.is_some());
        if !is_exhausted && !is_in_place && form.is_of(&rows) {
            let memory = Memory::leased(lease, leased.arena, leased.offset, leased.len);
            return Ok((
                Self { memory: Arc::new(memory), rows, fields: Arc::default(), skipped },
                Copied::No,
            ));
        }
        let copied = Self::copied(form, &leased.rows, |row, target| {
            leased.read(row, target).map_err(|error| no_memory(&io::Error::other(error)))
        })?;
        // The report counts a batch that was delivered, and this lease ends before the pipeline takes the copy.
        let now = monotonic_now();
        lease.deliver(Wait { since: wanted_since().unwrap_or(now), until: now });
        if is_exhausted {
            lease.note_copied();
            return Ok((copied, Copied::ForRoom));
        }
        Ok((copied, Copied::ForItsForm))
    }

    /// A batch that this process has read.
    pub(crate) fn of_cold(form: Form, cold: ColdBatch) -> Result<Self, Failure> {
        let ColdBatch { rows: all, mut pages, .. } = cold;
        let rows = Row::present(&all);
        if !form.is_of(&rows) {
            return Self::copied(form, &all, |row, target| {
                let read = pages.range(row.offset, Bytes(target.len() as u64));
                target.copy_from_slice(read);
                Ok(())
            });
        }
        let (memory, skipped) = (Arc::new(pages.into_memory()), missing(&all, &rows));
        Ok(Self { memory, rows, fields: Arc::default(), skipped })
    }

    /// A copy in pages of this process. `read` fills the memory of one sample.
    pub(crate) fn copied(
        form: Form,
        all: &[LeasedRow],
        mut read: impl FnMut(&LeasedRow, &mut [u8]) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let present = || all.iter().filter_map(|row| Some((row, row.len?)));
        let room = present().map(|(_, len)| form.room(to_usize(len)) as u64);
        let total = Bytes(room.fold(0, u64::saturating_add));
        let mut pages = PrivatePages::map(total).map_err(|error| no_memory(&error))?;
        let (mut rows, mut end) = (Vec::with_capacity(all.len()), 0);
        for (row, len) in present() {
            read(row, pages.range(Bytes(end as u64), len))?;
            rows.push(Row { start: end, ..Row::of(row, len) });
            end += form.room(to_usize(len));
        }
        let skipped = missing(all, &rows);
        let memory = Arc::new(pages.into_memory());
        Ok(Self { memory, rows: rows.into(), fields: Arc::default(), skipped })
    }

    pub(crate) fn nbytes(&self) -> Bytes {
        Bytes(self.rows.iter().map(|row| row.len as u64).sum())
    }

    /// Where the last sample ends.
    pub(crate) fn end(&self) -> usize {
        self.rows.last().map_or(0, |row| row.start + row.len)
    }
}

impl Row {
    fn present(rows: &[LeasedRow]) -> Arc<[Self]> {
        rows.iter().filter_map(|row| Some(Self::of(row, row.len?))).collect()
    }

    fn of(row: &LeasedRow, len: Bytes) -> Self {
        Self {
            sample: row.sample.0,
            label: row.label.unwrap_or(UNLABELLED),
            start: to_usize(row.offset),
            len: to_usize(len),
        }
    }
}

fn missing(all: &[LeasedRow], present: &[Row]) -> u32 {
    u32::try_from(all.len() - present.len()).unwrap_or(u32::MAX)
}

pub(crate) fn no_memory(error: &io::Error) -> Failure {
    Failure::new(Code::ResourceExhausted, format!("no memory for a copy of a batch: {error}"))
}
