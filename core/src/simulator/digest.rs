//! One number for all commands of a run: equal plans have equal digests.

use core::hash::{Hash, Hasher};

use crate::{
    fnv1a::Fnv1a,
    session::{Answer, Command, Memory, Operation, Promotion},
};

/// Hashes the commands of a run in their order. The number before each kind of command is a part of the
/// digests that tests hold, and does not change.
#[derive(Debug, Default)]
pub(super) struct Digest(Fnv1a);

impl Digest {
    pub(super) fn add(&mut self, command: &Command) {
        let hasher = &mut self.0;
        match command {
            Command::Start { op, operation } => match operation {
                Operation::OpenArena { rank, len } => (0_isize, op, rank, len).hash(hasher),
                Operation::TrimArena { rank, offset, len } => {
                    (2_isize, op, rank, offset, len).hash(hasher);
                }
                Operation::RestoreArena { rank, offset, len } => {
                    (3_isize, op, rank, offset, len).hash(hasher);
                }
                Operation::AddChunk { tier, chunk } => (4_isize, op, tier, chunk).hash(hasher),
                Operation::Fetch { sample, to, retention } => {
                    (6_isize, op, sample, to, retention).hash(hasher);
                }
                Operation::Receive { sample, from, to } => {
                    (15_isize, op, sample, from, to).hash(hasher);
                }
                Operation::Promote { parts } => {
                    for Promotion { sample, from, to, .. } in parts {
                        (7_isize, op, sample, from, to).hash(hasher);
                    }
                }
                Operation::Transform { sample, epoch, from, form, prepared, to } => {
                    (16_isize, op, sample, epoch, from, form, prepared, to).hash(hasher);
                }
                Operation::Prefetch { sample, len, to } => {
                    (13_isize, op, sample, len, to).hash(hasher);
                }
                Operation::Advance { sample, from, len, to } => {
                    (14_isize, op, sample, from, len, to).hash(hasher);
                }
                Operation::Demote { sample, from, len, to } => {
                    (8_isize, op, sample, from, len, to).hash(hasher);
                }
            },
            Command::Free(Memory::Arena(rank)) => (1_isize, rank).hash(hasher),
            Command::Free(Memory::Chunk(tier, chunk)) => (5_isize, tier, chunk).hash(hasher),
            Command::Answer(answer) => match answer {
                Answer::Admit { connection, rank } => (9_isize, connection, rank).hash(hasher),
                Answer::Reject { connection, rank } => (10_isize, connection, rank).hash(hasher),
                Answer::Lease { connection, lease, offset, batch } => {
                    (11_isize, connection, lease, offset, batch).hash(hasher);
                }
                Answer::Refuse { connection, batch, reason } => {
                    (12_isize, connection, batch, reason).hash(hasher);
                }
            },
        }
    }

    pub(super) fn finish(&self) -> u64 {
        self.0.finish()
    }
}
