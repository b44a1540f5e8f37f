//! What a session is built from.

use alloc::{sync::Arc, vec::Vec};
use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::{Form, Handed, Row, SetPoints, Transform, Windows};
use crate::{
    batch::{Batch, Input},
    id::{BatchId, NodeId, SampleId, TierId},
    order::Spec,
    retention::policy::{self, RankFetches},
    space::Space,
    tier::Buffer,
    units::Bytes,
};

/// Batches that each rank may have staged however short memory is: the one that its trainer works with, and
/// the next.
pub const STAGED_MIN: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The batch is refused with the name of the sample.
    Fail,
    /// The batch is handed over without the sample, up to this share of an epoch.
    Skip(SkipShare),
}

/// The share of its samples that a rank may go without in an epoch, in parts per million.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkipShare(pub u32);

impl SkipShare {
    /// The default of a job: 1 %.
    pub const DEFAULT: Self = Self(10_000);

    /// The most samples of a dataset that a rank may go without in an epoch: at least one, so that a small
    /// dataset may have a bad sample too, and never all that it reads.
    #[must_use]
    pub const fn most(self, samples: u32, ranks: u32) -> u32 {
        let of_rank = samples / if ranks == 0 { 1 } else { ranks };
        let share = of_rank as u64 * self.0 as u64 / 1_000_000;
        let most = if share == 0 { 1 } else { share };
        let all_but_one = of_rank.saturating_sub(1);
        if most < all_but_one as u64 {
            #[expect(clippy::cast_possible_truncation, reason = "it is less than a u32")]
            let most = most as u32;
            return most;
        }
        all_but_one
    }
}

/// The room of the tiers for samples that are fetched ahead of staging. Room that no sample takes is used
/// for them in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookAhead {
    Off,
    /// As much as the manager says, by the phases of the training: those of the job file, then the observed
    /// ones.
    Auto,
    /// In all tiers together.
    Room(Bytes),
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub order: Spec,
    pub node: NodeId,
    /// The length of every sample in tiers and on other nodes, by [`SampleId`].
    pub sizes: Arc<[Bytes]>,
    /// The cache tiers of this node, fastest first.
    pub tiers: Vec<Buffer>,
    pub chunk: Bytes,
    pub policy: policy::Kind,
    /// Batches staged ahead per rank, the one that the trainer works with included.
    pub staged_batches: u32,
    /// The limit for later schedules; of no effect if it is less than `staged_batches`.
    pub staged_batches_max: u32,
    /// The staging memory of each rank. If it is less than twice the largest batch, a trainer that asks
    /// ahead is refused now and then.
    pub arena: Bytes,
    pub on_error: OnError,
    pub windows: Windows,
    pub look_ahead: LookAhead,
    /// The room with [`LookAhead::Auto`] when the session begins, by the first schedule of its node.
    pub first_room: Bytes,
    pub aim: policy::Aim,
    /// The tiers that trainers map, so that a batch may name samples there. They have no effect with a
    /// policy for which it is not known how long a sample stays ([`policy::Kind::stay`]).
    pub in_place_tiers: Vec<TierId>,
    /// `None` if trainers get samples as they are.
    pub transform: Option<Transform>,
}

impl Settings {
    /// The most operations that run at a time: each staged sample may be read and copied once, a few chunks
    /// and arenas may be on their way, and fetches ahead may fill the window of the cold store beside.
    #[must_use]
    pub fn operations_max(&self) -> usize {
        let samples = u64::from(self.order.batch_size_max())
            .saturating_mul(u64::from(self.staged_max()))
            .saturating_mul(u64::from(self.order.world.ranks_per_node));
        let ahead = match self.look_ahead {
            LookAhead::Off => 0,
            LookAhead::Auto | LookAhead::Room(_) => u64::from(self.windows.cold_max().get()),
        };
        let all = samples.saturating_mul(2).saturating_add(64).saturating_add(ahead);
        usize::try_from(all).unwrap_or(usize::MAX)
    }

    /// The number of batches that staging memory is laid out for.
    #[must_use]
    pub fn staged_max(&self) -> u32 {
        self.staged_batches.max(self.staged_batches_max)
    }

    /// The set points when the session begins.
    #[must_use]
    pub fn first_points(&self) -> SetPoints {
        SetPoints { room: self.first_room, depth: self.staged_batches }
    }

    /// Whether samples may wait in each tier for their use. A tier that wears out takes them only if the
    /// job says how much may be written there, or how much room they get.
    pub(super) fn ahead_tiers(&self) -> Vec<bool> {
        let wears = self.aim.wears.iter().enumerate();
        let spared = |(tier, wears): (usize, &bool)| {
            let budget = self.aim.writes_per_epoch.get(tier).copied().flatten();
            let is_left_to_us = self.look_ahead == LookAhead::Auto && self.fetches().is_none();
            *wears && budget.is_none() && is_left_to_us
        };
        let mut takes: Vec<bool> = wears.map(|it| !spared(it)).collect();
        takes.resize(self.tiers.len(), true);
        for (tier, takes) in (0..=u8::MAX).map(TierId).zip(&mut takes) {
            *takes &= !self.aim.bypasses(self.policy, tier);
        }
        takes
    }

    /// `None` unless the policy has fetches of its own.
    pub(super) fn fetches(&self) -> Option<RankFetches> {
        let fetches = self.aim.fetches(self.policy)?;
        let capacity = self.capacity();
        let ranks = self.order.world.ranks_per_node;
        (self.look_ahead != LookAhead::Off)
            .then(|| fetches.of_rank(capacity, self.mean_len(), ranks))
    }

    /// The room that is kept free when the session begins; `None` if nothing is fetched ahead.
    pub(super) fn room_at_start(&self) -> Option<Bytes> {
        (self.look_ahead != LookAhead::Off).then(|| self.ahead_room().unwrap_or(self.first_room))
    }

    /// The room that the job itself sets; `None` if it sets none.
    pub(super) fn ahead_room(&self) -> Option<Bytes> {
        let ranks = self.order.world.ranks_per_node;
        match (self.fetches(), self.look_ahead) {
            (Some(fetches), _) => Some(fetches.room(self.mean_len(), ranks).min(self.capacity())),
            (None, LookAhead::Room(room)) => Some(room),
            (None, LookAhead::Off | LookAhead::Auto) => None,
        }
    }

    fn capacity(&self) -> Bytes {
        let capacities = self.tiers.iter().map(|tier| tier.capacity(self.chunk).0);
        Bytes(capacities.fold(0, u64::saturating_add))
    }

    fn mean_len(&self) -> Bytes {
        let all = self.sizes.iter().map(|len| Space::rounded(*len).0);
        let all = all.fold(0, u64::saturating_add);
        Bytes(all.div_ceil((self.sizes.len() as u64).max(1)))
    }

    /// Adds a transform that makes rows of `row` bytes on `threads` threads. Tiers and other nodes hold
    /// samples in the prepared form if its lengths are given, else in the stored form. A sample without a
    /// prepared form has length 0 there, and no tier or node holds it. Nothing is read in place: trainers
    /// get rows. In the prepared form, nothing is fetched ahead into tiers, because the cold store does not
    /// have it.
    #[must_use]
    pub fn with_transform(
        self,
        row: Bytes,
        threads: NonZeroU32,
        prepared: Option<Arc<[Bytes]>>,
    ) -> Self {
        let stored = Arc::clone(self.stored());
        let (cached, sizes) = match prepared {
            None => (Form::Stored, Arc::clone(&stored)),
            Some(lens) => (Form::Prepared, lens),
        };
        let (look_ahead, first_room) = match cached {
            Form::Stored => (self.look_ahead, self.first_room),
            Form::Prepared => (LookAhead::Off, Bytes(0)),
        };
        let rows = alloc::vec![Some(Row { len: row, handed: Handed::Row })];
        let transform = Some(Transform { rows, threads, cached, stored });
        Self { sizes, transform, in_place_tiers: Vec::new(), look_ahead, first_room, ..self }
    }

    /// For a job with a transform in the stored form: sets the row of each dataset.
    #[must_use]
    pub fn with_rows(self, rows: Vec<Option<Row>>) -> Self {
        let with = |transform| Transform { rows, ..transform };
        Self { transform: self.transform.map(with), ..self }
    }

    /// The length of every sample in the cold store.
    #[must_use]
    pub fn stored(&self) -> &Arc<[Bytes]> {
        self.transform.as_ref().map_or(&self.sizes, |transform| &transform.stored)
    }

    /// In the form that tiers hold.
    pub(super) fn demand_of(&self, batch: &Batch) -> Bytes {
        if self.transform.is_none() {
            return batch.payload();
        }
        let samples = batch.entries.iter().filter(|entry| entry.len.is_some());
        Bytes(samples.map(|entry| self.sizes[entry.sample.0 as usize].0).sum())
    }

    /// The layout of a batch, and the starts of its input slots. Each slot has room for either form.
    pub(super) fn lay_out(&self, id: BatchId, samples: &[SampleId]) -> (Batch, Vec<Bytes>) {
        let sizes = samples.iter().map(|sample| (*sample, self.sizes[sample.0 as usize]));
        let transform = self.transform.as_ref();
        let row = transform.and_then(|it| Some((it, it.row_of(self.order.dataset_of_batch(id))?)));
        match row {
            None => (Batch::lay_out(id, sizes), Vec::new()),
            Some((Transform { stored, .. }, Row { len, handed })) => {
                let input = |(sample, len): (SampleId, Bytes)| {
                    let stored = stored[sample.0 as usize];
                    let handed = (handed == Handed::RowAndStored).then_some(stored);
                    Input { sample, room: len.max(stored), stored: handed }
                };
                Batch::lay_out_rows(id, len, sizes.map(input))
            }
        }
    }

    /// For a policy that decides as the session does.
    #[must_use]
    pub fn policy_setting(&self) -> policy::Setting {
        policy::Setting {
            order: self.order,
            node: self.node,
            sizes: Arc::clone(&self.sizes),
            capacities: self.tiers.iter().map(|tier| tier.capacity(self.chunk)).collect(),
            aim: self.aim.clone(),
        }
    }
}
