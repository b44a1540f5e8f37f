//! The operations that allocate and free memory: arenas and chunks.

use tierfeed_core::{
    id::{ChunkId, Rank, TierId},
    units::Bytes,
};
use tierfeed_numa_memory::AllocateError;

use crate::{
    plane::{answer::Answer, failure::Cause, population::NewChunk, state::PlaneState},
    tier::{SpaceError, Store},
};

impl PlaneState {
    pub(crate) fn open_arena(&self, answer: Answer, rank: Rank, len: Bytes) {
        let outcome = self.open_arena_blocking(rank, len);
        answer.give(None, outcome.map_err(|source| Cause::Arena { rank, len, source }));
    }

    pub(crate) fn trim_arena(&self, answer: Answer, rank: Rank, offset: Bytes, len: Bytes) {
        self.resize_arena(answer, rank, len, |arena| arena.trim(offset, len));
    }

    pub(crate) fn restore_arena(&self, answer: Answer, rank: Rank, offset: Bytes, len: Bytes) {
        self.resize_arena(answer, rank, len, |arena| arena.restore(offset, len));
    }

    fn resize_arena(
        &self,
        answer: Answer,
        rank: Rank,
        len: Bytes,
        resize: impl FnOnce(&Store) -> Result<(), AllocateError>,
    ) {
        let failed = |source| Cause::Arena { rank, len, source: SpaceError::Memory(source) };
        let arena = self.arena_store(rank).map_err(Cause::from);
        answer.give(None, arena.and_then(|arena| resize(&arena).map_err(failed)));
    }

    /// Adds a chunk with its first slice; the thread of [`super::population`] allocates the rest.
    pub(crate) fn add_chunk(&self, answer: Answer, tier: TierId, chunk: ChunkId) {
        let outcome = self.tier(tier).map_err(Cause::from).and_then(|counted| {
            let kind = counted.tier.kind();
            let added = counted.tier.add_chunk_blocking(chunk, &self.pace);
            let store = added.map_err(|source| Cause::Chunk { kind, chunk, source })?;
            if store.missing().0 > 0 {
                self.population.add(NewChunk { op: answer.op(), kind, chunk, store });
            }
            Ok(())
        });
        answer.give(None, outcome);
    }
}
