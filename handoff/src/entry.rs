//! Encodes and decodes the 64 bytes of a ring entry.
//!
//! Word 0 holds the kind of the entry and, for a refusal or a release, the reason; the meaning of
//! the others depends on the kind. Entries come from memory that the other side can write, so
//! decoding checks every number that a type here cannot represent; the reader of an arena checks
//! whether an offset lies inside.

use tierfeed_core::{
    id::{BatchId, Epoch, LeaseId, Rank, Step},
    session::{Refusal, Tally, Wait},
    units::{Bytes, Nanoseconds},
};

use super::{
    refusal::{self, Encoded},
    ring::Entry,
};

const REQUEST: u32 = 1;
const RELEASE: u32 = 2;
const LEASE: u32 = 3;
const REFUSED: u32 = 4;
const DELIVERED: u32 = 5;
const TALLIED: u32 = 6;

/// Values of the upper half of the first word of a release.
const USED: u32 = 0;
const COPIED: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Submission {
    Request(BatchId),
    /// The trainer starts to use a batch, after this wait on the clock of the host.
    Delivered(LeaseId, Wait),
    Release(LeaseId, ReleaseKind),
    /// Figures of what the trainer did without the agent.
    Tallied(Tally),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseKind {
    Used,
    /// The trainer holds so many batches that it got a copy of this one.
    Copied,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Completion {
    Lease(Ready),
    Refused { batch: BatchId, refusal: Refusal },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) lease: LeaseId,
    pub(super) batch: BatchId,
    /// Counted from the start of the arena.
    pub(super) offset: Bytes,
    pub(super) len: Bytes,
    /// Counted from the start of the batch.
    pub(super) table_offset: Bytes,
    pub(super) rows: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a ring entry of kind {kind:#x}, which this version does not know")]
pub(super) struct UnknownEntry {
    kind: u64,
}

impl Submission {
    pub(super) fn encode(self) -> Entry {
        match self {
            Self::Request(batch) => {
                let [steps, rank] = batch_words(batch, 0);
                [pair(REQUEST, 0), 0, steps, rank, 0, 0, 0, 0]
            }
            Self::Delivered(lease, Wait { since, until }) => {
                [pair(DELIVERED, 0), lease.0, 0, 0, since.0, until.0, 0, 0]
            }
            Self::Tallied(tally) => [
                pair(TALLIED, tally.decode_threads),
                pair(tally.epoch.0, tally.self_read_batches),
                pair(tally.self_read_samples, tally.skipped_samples),
                tally.self_read_bytes.0,
                tally.unanswered.0,
                tally.self_read.0,
                tally.decoding.0,
                0,
            ],
            Self::Release(lease, release_kind) => {
                let code = match release_kind {
                    ReleaseKind::Used => USED,
                    ReleaseKind::Copied => COPIED,
                };
                [pair(RELEASE, code), lease.0, 0, 0, 0, 0, 0, 0]
            }
        }
    }

    pub(super) fn decode(entry: Entry) -> Result<Self, UnknownEntry> {
        match halves(entry[0]) {
            (REQUEST, 0) => Ok(Self::Request(batch_of(entry).0)),
            (DELIVERED, 0) => {
                let (since, until) = (Nanoseconds(entry[4]), Nanoseconds(entry[5]));
                Ok(Self::Delivered(LeaseId(entry[1]), Wait { since, until }))
            }
            (TALLIED, decode_threads) => Ok(Self::Tallied(tally_of(entry, decode_threads))),
            (RELEASE, USED) => Ok(Self::Release(LeaseId(entry[1]), ReleaseKind::Used)),
            (RELEASE, COPIED) => Ok(Self::Release(LeaseId(entry[1]), ReleaseKind::Copied)),
            _ => Err(UnknownEntry { kind: entry[0] }),
        }
    }
}

impl Completion {
    pub(super) fn encode(self) -> Entry {
        match self {
            Self::Lease(ready) => {
                let [steps, rank] = batch_words(ready.batch, ready.rows);
                let Ready { lease, offset, len, table_offset, .. } = ready;
                [pair(LEASE, 0), lease.0, steps, rank, offset.0, len.0, table_offset.0, 0]
            }
            Self::Refused { batch, refusal } => {
                let [steps, rank] = batch_words(batch, 0);
                let Encoded { code, words } = refusal::encode(refusal);
                [pair(REFUSED, code), 0, steps, rank, words[0], words[1], 0, 0]
            }
        }
    }

    pub(super) fn decode(entry: Entry) -> Result<Self, UnknownEntry> {
        let (batch, rows) = batch_of(entry);
        match halves(entry[0]) {
            (LEASE, 0) => Ok(Self::Lease(Ready {
                lease: LeaseId(entry[1]),
                batch,
                offset: Bytes(entry[4]),
                len: Bytes(entry[5]),
                table_offset: Bytes(entry[6]),
                rows,
            })),
            (REFUSED, code) => {
                let refusal = refusal::decode(Encoded { code, words: [entry[4], entry[5]] })
                    .ok_or(UnknownEntry { kind: entry[0] })?;
                Ok(Self::Refused { batch, refusal })
            }
            _ => Err(UnknownEntry { kind: entry[0] }),
        }
    }
}

/// Encodes words 2 and 3 of every entry that names a batch.
fn batch_words(batch: BatchId, rows: u32) -> [u64; 2] {
    [pair(batch.epoch.0, batch.step.0), pair(batch.rank.0, rows)]
}

fn batch_of(entry: Entry) -> (BatchId, u32) {
    let (epoch, step) = halves(entry[2]);
    let (rank, rows) = halves(entry[3]);
    (BatchId { epoch: Epoch(epoch), step: Step(step), rank: Rank(rank) }, rows)
}

fn tally_of(entry: Entry, decode_threads: u32) -> Tally {
    let (epoch, self_read_batches) = halves(entry[1]);
    let (self_read_samples, skipped_samples) = halves(entry[2]);
    Tally {
        epoch: Epoch(epoch),
        self_read_batches,
        self_read_samples,
        self_read_bytes: Bytes(entry[3]),
        skipped_samples,
        unanswered: Nanoseconds(entry[4]),
        self_read: Nanoseconds(entry[5]),
        decoding: Nanoseconds(entry[6]),
        decode_threads,
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | (u64::from(high) << 32)
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves of a word are what is wanted")]
pub(super) fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::refusal::tests::any_refusal;
    use super::*;

    fn any_batch() -> impl Strategy<Value = BatchId> {
        any::<(u32, u32, u32)>().prop_map(|(epoch, step, rank)| BatchId {
            epoch: Epoch(epoch),
            step: Step(step),
            rank: Rank(rank),
        })
    }

    proptest! {
        #[test]
        fn a_submission_reads_back_as_it_was_written(
            batch in any_batch(), lease in any::<u64>(), entry in any::<Entry>(), threads in any::<u32>(),
        ) {
            let release = |release_kind| Submission::Release(LeaseId(lease), release_kind);
            let releases = [ReleaseKind::Used, ReleaseKind::Copied].map(release);
            let wait = Wait { since: Nanoseconds(entry[4]), until: Nanoseconds(entry[5]) };
            let others = [
                Submission::Request(batch),
                Submission::Delivered(LeaseId(lease), wait),
                Submission::Tallied(tally_of(entry, threads)),
            ];
            for submission in others.into_iter().chain(releases) {
                prop_assert_eq!(Submission::decode(submission.encode()), Ok(submission));
            }
        }

        #[test]
        fn a_lease_reads_back_as_it_was_written(
            batch in any_batch(),
            words in any::<(u64, u64, u64, u64)>(),
            rows in any::<u32>(),
        ) {
            let (lease, offset, len, table_offset) = words;
            let completion = Completion::Lease(Ready {
                lease: LeaseId(lease),
                batch,
                offset: Bytes(offset),
                len: Bytes(len),
                table_offset: Bytes(table_offset),
                rows,
            });
            prop_assert_eq!(Completion::decode(completion.encode()), Ok(completion));
        }

        #[test]
        fn a_refusal_reads_back_as_it_was_written(batch in any_batch(), refusal in any_refusal()) {
            let completion = Completion::Refused { batch, refusal };
            prop_assert_eq!(Completion::decode(completion.encode()), Ok(completion));
        }

        #[test]
        fn no_entry_makes_decoding_panic(entry in any::<Entry>(), kind in 0_u32..7, code in 0_u32..8) {
            let mut shaped = entry;
            shaped[0] = pair(kind, code);
            for entry in [entry, shaped] {
                let _ = (Submission::decode(entry), Completion::decode(entry));
            }
        }
    }

    #[test]
    fn an_unknown_kind_is_refused() {
        assert!(Submission::decode([pair(RELEASE, 2), 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(Submission::decode([pair(LEASE, 0), 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(Completion::decode([pair(REQUEST, 0), 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(Completion::decode([pair(REFUSED, 9), 0, 0, 0, 0, 0, 0, 0]).is_err());
    }
}
