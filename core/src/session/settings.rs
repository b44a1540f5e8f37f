//! What a session is built from.

use alloc::{sync::Arc, vec::Vec};
use core::num::NonZeroU32;

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

/// Batches that each rank may have staged however short memory is: the one that its trainer works with,
/// and the next.
pub const STAGED_MIN: u32 = 2;

/// What happens when a sample cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The batch is refused with the name of the sample.
    Fail,
    /// The batch is handed over without the sample, up to this share of an epoch.
    Skip(SkipShare),
}

/// The share of its samples that a rank may go without in an epoch, in parts per million.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkipShare(pub u32);

impl SkipShare {
    /// The share of a job that names none: 1 %.
    pub const DEFAULT: Self = Self(10_000);

    /// How many of the samples of a dataset a rank may go without in an epoch: at least one, so that a small
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

/// The room of the tiers for samples that are fetched ahead of staging. Room that no sample takes serves
/// that in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookAhead {
    /// None: nothing is fetched ahead.
    Off,
    /// As much as the manager says, by the phases of the training: those of the job file, then those that
    /// were observed.
    Auto,
    /// This much of all tiers together.
    Room(Bytes),
}

/// What a session is built from.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The order of the job.
    pub order: Spec,
    /// The node that the session works for.
    pub node: NodeId,
    /// The length of every sample in tiers and on other nodes, by [`SampleId`].
    pub sizes: Arc<[Bytes]>,
    /// The cache tiers of this node, fastest first.
    pub tiers: Vec<Buffer>,
    /// The unit in which tiers take memory.
    pub chunk: Bytes,
    /// The rule of retention.
    pub policy: policy::Kind,
    /// Batches staged ahead per rank, the one that the trainer works with included.
    pub staged_batches: u32,
    /// The most that a later schedule may make of it; of no effect if that is fewer.
    pub staged_batches_max: u32,
    /// Staging memory of each rank. Below twice the largest batch a trainer that asks ahead is
    /// refused now and then.
    pub arena: Bytes,
    /// What happens when a sample cannot be read.
    pub on_error: OnError,
    /// Operations that are given out at a time.
    pub windows: Windows,
    /// The room for samples that are fetched ahead.
    pub look_ahead: LookAhead,
    /// That room with [`LookAhead::Auto`] when the session begins, by the first schedule of its node.
    pub first_room: Bytes,
    /// What the policy should mind beside the bytes that are read cold.
    pub aim: policy::Aim,
    /// The tiers that trainers map, so that a batch may name samples there; of no effect with a policy
    /// of which it is not known how long a sample stays ([`policy::Kind::stay`]).
    pub in_place_tiers: Vec<TierId>,
    /// What becomes of samples before their batch is handed over; `None` if trainers get them as they are.
    pub transform: Option<Transform>,
}

impl Settings {
    /// Operations that run at a time: each staged sample may be read and copied once, a few chunks and
    /// arenas may be on their way, and what is fetched ahead may fill the window of the cold store beside.
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

    /// Batches that staging memory is meant for.
    #[must_use]
    pub fn staged_max(&self) -> u32 {
        self.staged_batches.max(self.staged_batches_max)
    }

    /// What holds when the session begins.
    #[must_use]
    pub fn first_points(&self) -> SetPoints {
        SetPoints { room: self.first_room, depth: self.staged_batches }
    }

    /// Whether samples may wait in each tier for their use. One that wears out takes them only if the job
    /// says how much may be written there, or how much room they get.
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

    /// The fetches of each rank, if the job has DELI's.
    pub(super) fn fetches(&self) -> Option<RankFetches> {
        let fetches = self.aim.tuning.deli.filter(|_| self.policy == policy::Kind::Deli)?;
        let capacity = self.capacity();
        let ranks = self.order.world.ranks_per_node;
        (self.look_ahead != LookAhead::Off)
            .then(|| fetches.of_rank(capacity, self.mean_len(), ranks))
    }

    /// The room that is kept free when the session begins; `None` if nothing is fetched ahead.
    pub(super) fn room_at_start(&self) -> Option<Bytes> {
        (self.look_ahead != LookAhead::Off).then(|| self.ahead_room().unwrap_or(self.first_room))
    }

    /// The room of the tiers that is kept free of what is retained, as far as the job says it.
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

    /// What a sample takes in a tier, on average.
    fn mean_len(&self) -> Bytes {
        let all = self.sizes.iter().map(|len| Space::rounded(*len).0);
        let all = all.fold(0, u64::saturating_add);
        Bytes(all.div_ceil((self.sizes.len() as u64).max(1)))
    }

    /// With a transform that makes rows of `row` bytes on so many threads. Tiers and other nodes hold samples in
    /// the prepared form if its lengths are given, else as they are stored; what has no prepared form has length 0
    /// there, and none of them holds it. Nothing is read in place: trainers get rows. Nothing is fetched ahead into tiers in the prepared form, which the cold store does not have.
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

    /// With what the samples of each dataset become, of a job with a transform in the stored form.
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

    /// The bytes of the samples of a batch as tiers hold them.
    pub(super) fn demand_of(&self, batch: &Batch) -> Bytes {
        if self.transform.is_none() {
            return batch.payload();
        }
        let samples = batch.entries.iter().filter(|entry| entry.len.is_some());
        Bytes(samples.map(|entry| self.sizes[entry.sample.0 as usize].0).sum())
    }

    /// The layout of a batch, and where its input slots start. One has room for either form.
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

    /// The setting of a policy that decides as the session does.
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
