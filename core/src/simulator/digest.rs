//! One number for all commands of a run: equal plans have equal digests.

use core::hash::{Hash, Hasher};

use crate::session::{Answer, Command, Memory, Operation};

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
                Operation::Promote { sample, from, to, .. } => {
                    (7_isize, op, sample, from, to).hash(hasher);
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

/// FNV-1a with 64 bits over little-endian words, so that machines of any width and byte order agree.
#[derive(Debug)]
struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv1a {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u16(&mut self, value: u16) {
        self.write(&value.to_le_bytes());
    }

    fn write_u32(&mut self, value: u32) {
        self.write(&value.to_le_bytes());
    }

    fn write_u64(&mut self, value: u64) {
        self.write(&value.to_le_bytes());
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value.cast_unsigned() as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
