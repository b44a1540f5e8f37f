//! The staging memory of all ranks: which batches are being assembled there, ready, or with a trainer.
//!
//! Each rank has an arena of its own ([`RankStaging`]), so that a rank which is slow or absent holds up no
//! other. Where memory is short ([`arena`]) fewer batches are staged and the end of the arena is given back.

mod arena;
mod batch;
mod connections;
mod rank;

use alloc::vec::Vec;

#[cfg(test)]
pub(super) use rank::Arena;
pub(super) use {
    batch::{Claim, StagedBatch},
    rank::{Attached, RankStaging},
};

use super::{Operation, Settings};
use crate::{
    batch::InPlace,
    id::{BatchId, ConnectionId, LeaseId, Rank},
    units::Bytes,
};

#[derive(Debug)]
pub(super) struct Staging {
    first: Rank,
    ranks: Vec<RankStaging>,
}

impl Staging {
    pub(super) fn new(settings: &Settings) -> Self {
        let ranks = || settings.order.world.ranks_of(settings.node);
        Self {
            first: ranks().next().expect("a node has ranks"),
            ranks: ranks().map(|rank| RankStaging::new(rank, settings)).collect(),
        }
    }

    fn index(&self, rank: Rank) -> Option<usize> {
        rank.0.checked_sub(self.first.0).map(|index| index as usize)
    }

    pub(super) fn get(&self, rank: Rank) -> Option<&RankStaging> {
        self.ranks.get(self.index(rank)?)
    }

    pub(super) fn get_mut(&mut self, rank: Rank) -> Option<&mut RankStaging> {
        let index = self.index(rank)?;
        self.ranks.get_mut(index)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Rank, &RankStaging)> {
        self.ranks.iter().map(|staging| (staging.rank(), staging))
    }

    pub(super) fn batch(&self, batch: BatchId) -> Option<&StagedBatch> {
        self.get(batch.rank)?.staged().get(&batch)
    }

    pub(super) fn batch_mut(&mut self, batch: BatchId) -> Option<&mut StagedBatch> {
        self.get_mut(batch.rank)?.batch_mut(batch)
    }

    pub(super) fn batches(&self) -> impl Iterator<Item = &StagedBatch> {
        self.ranks.iter().flat_map(|staging| staging.staged().values())
    }

    pub(super) fn batches_mut(&mut self) -> impl Iterator<Item = &mut StagedBatch> {
        self.ranks.iter_mut().flat_map(RankStaging::batches_mut)
    }

    pub(super) fn next(&self, staged_max: u32) -> Option<BatchId> {
        self.ranks.iter().filter_map(|staging| staging.next(staged_max)).min()
    }

    /// For each rank whose arena is open, the next batch to be staged if no trainer asks for another.
    pub(super) fn cursors(&self) -> impl Iterator<Item = (Rank, Option<BatchId>)> + '_ {
        let open = self.iter().filter(|(_, staging)| staging.is_open());
        open.map(|(rank, staging)| (rank, staging.cursor()))
    }

    pub(super) fn has_connection(&self, connection: ConnectionId) -> bool {
        self.ranks.iter().any(|staging| staging.has_connection(connection))
    }

    pub(super) fn leased(
        &mut self,
        connection: ConnectionId,
        lease: LeaseId,
    ) -> Option<&mut StagedBatch> {
        let claims = [Claim::Leased(connection, lease), Claim::Held(connection, lease)];
        self.batches_mut().find(|staged| claims.contains(&staged.claim))
    }

    /// For each rank that asks for batches, the last request of the trainer that is farthest behind.
    pub(super) fn requested(&self) -> impl Iterator<Item = BatchId> + '_ {
        self.ranks.iter().filter_map(RankStaging::requested)
    }

    /// As [`RankStaging::limit`], on all ranks.
    pub(super) fn limit(&mut self, batches: Option<u32>) {
        self.ranks.iter_mut().for_each(|staging| staging.limit(batches));
    }

    /// Takes back the batches that `connection` asked for or has. Returns the ranks whose last trainer
    /// left.
    pub(super) fn detach(&mut self, connection: ConnectionId) -> Vec<Rank> {
        let left = self.ranks.iter_mut().filter_map(|staging| {
            let is_last = staging.detach(connection);
            is_last.then_some(staging.rank())
        });
        left.collect()
    }

    /// Closes the arenas whose trainers left and in which nothing is in flight. Returns their ranks.
    pub(super) fn close_idle(&mut self) -> Vec<Rank> {
        let closed = self.ranks.iter_mut().filter_map(|staging| {
            let is_closed = staging.close_if_idle();
            is_closed.then_some(staging.rank())
        });
        closed.collect()
    }

    pub(super) fn resize_arenas(&mut self) -> Vec<Operation> {
        self.ranks.iter_mut().flat_map(RankStaging::resize_arena).collect()
    }

    /// The places that no batch names any more since the last call.
    pub(super) fn take_unpinned(&mut self) -> Vec<InPlace> {
        self.ranks.iter_mut().flat_map(RankStaging::take_unpinned).collect()
    }

    /// Whether a batch was dropped since the last call, so that operations of it may be cancelled.
    pub(super) fn take_dropped(&mut self) -> bool {
        // All ranks are asked: each forgets what it answered.
        let dropping = self.ranks.iter_mut().filter_map(|it| it.take_dropped().then_some(()));
        dropping.count() > 0
    }

    pub(super) fn wasted(&self) -> Bytes {
        Bytes(self.ranks.iter().map(|staging| staging.wasted().0).sum())
    }
}
