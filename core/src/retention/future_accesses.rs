//! The future accesses of one node: what its ranks read, a few epochs at a time.
//!
//! Permuting an epoch takes long, so it is a job for another thread ([`Expansion`]), started ahead
//! of need by [`FutureAccesses::expand`]. A caller without other threads uses
//! [`FutureAccesses::prepare`].
//!
//! It holds the current epoch of the node, the previous one for a slow rank, the epochs that a
//! policy looks into from the next one, and [`STRAYS_MAX`] epochs for ranks that are elsewhere.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. [`FutureAccesses::next_use`] is the first read of the sample on this node after the given
//!    one, in the order (epoch, step, rank), if one of the epochs held contains it.
//! 2. At most [`FutureAccesses::epochs_max`] epochs are held.
//! 3. The result does not depend on the order in which expansions end.

mod expansion;
mod positions;

use alloc::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    vec::Vec,
};
use core::cell::OnceCell;

pub use self::expansion::{Expanded, Expansion};
use self::{
    expansion::Source,
    positions::{Positions, place_of},
};
use crate::{
    id::{BatchId, Epoch, NodeId, Rank, SampleId},
    order::{NodeOrder, Shuffle, Spec},
};

/// Epochs by which a rank may lag behind another without counting as elsewhere: it matters where
/// epochs are shorter than the staging depth.
pub const DRIFT_MAX: u32 = 8;

/// Epochs that are held for ranks that are elsewhere.
pub const STRAYS_MAX: usize = 2;

pub type Orders = BTreeMap<Epoch, Arc<NodeOrder>>;

/// Whether a policy asks for [`FutureAccesses::next_use`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextUses {
    /// An epoch is held only together with the positions of its samples.
    Asked,
    /// No positions are computed.
    Unasked,
}

/// A read of a sample on a node; ordered as ranks in lock-step read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Use {
    /// The epoch of the read.
    pub epoch: Epoch,
    /// The position among the node's reads in that epoch, as if every batch were full.
    pub place: u32,
}

/// When a sample is read next on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextUse {
    At(Use),
    /// Not in the epochs looked into; perhaps in a later one.
    Later,
    /// Not again in this job.
    Never,
}

/// The effect of an order that a trainer published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publication {
    /// It is the order from now on, or was already.
    New,
    /// It replaces another order from now on.
    Changed,
    /// It cannot be an order of this job.
    Impossible,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// All epochs that the policy looks into.
    View,
    Epoch,
}

impl Reach {
    fn epochs(self) -> usize {
        match self {
            Self::View => usize::MAX,
            Self::Epoch => 1,
        }
    }
}

/// The orders of the epochs in use, and of some later ones.
#[derive(Debug)]
pub struct FutureAccesses {
    spec: Spec,
    node: NodeId,
    ahead: u32,
    next_uses: NextUses,
    /// The current epoch of the node.
    main: Epoch,
    computed: Orders,
    published: BTreeMap<(Rank, Epoch), Arc<Vec<SampleId>>>,
    places: BTreeMap<Epoch, OnceCell<Positions>>,
    begun: BTreeMap<Epoch, Begun>,
    /// Epochs that are held for ranks that are elsewhere, oldest first.
    strays: VecDeque<Epoch>,
    dropped: Vec<Dropped>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begun {
    Current,
    Outdated,
}

#[derive(Debug)]
pub enum Dropped {
    Order(Arc<NodeOrder>),
    Published(Arc<Vec<SampleId>>),
    Positions(DroppedPlaces),
}

#[derive(Debug)]
#[expect(dead_code, reason = "it is kept to be dropped elsewhere")]
pub struct DroppedPlaces(OnceCell<Positions>);

impl FutureAccesses {
    /// A policy sees an epoch and `ahead` more.
    #[must_use]
    pub fn new(spec: Spec, node: NodeId, ahead: u32) -> Self {
        Self {
            spec,
            node,
            ahead,
            next_uses: NextUses::Unasked,
            main: spec.start.epoch,
            computed: BTreeMap::new(),
            published: BTreeMap::new(),
            places: BTreeMap::new(),
            begun: BTreeMap::new(),
            strays: VecDeque::new(),
            dropped: Vec::new(),
        }
    }

    #[must_use]
    pub fn with_next_uses(self, next_uses: NextUses) -> Self {
        Self { next_uses, ..self }
    }

    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    #[must_use]
    pub fn epochs_max(&self) -> usize {
        self.ahead as usize + 3 + STRAYS_MAX
    }

    /// Whether the order of an epoch is held, or is the trainer's to publish.
    #[must_use]
    pub fn holds(&self, epoch: Epoch) -> bool {
        self.spec.shuffle == Shuffle::Published || self.computed.contains_key(&epoch)
    }

    /// The epochs that are looked into from `epoch`, itself included.
    fn view(&self, epoch: Epoch) -> impl Iterator<Item = Epoch> + use<> {
        let last = epoch.0.saturating_add(self.ahead).min(self.spec.epochs - 1);
        (epoch.0..=last).map(Epoch)
    }

    /// Computes `epoch` and the epochs looked into from it. Takes as long as all these expansions.
    pub fn prepare(&mut self, epoch: Epoch) {
        if epoch > self.main || self.main.0 - epoch.0 > 1 {
            self.follow(epoch);
        }
        for expansion in self.expand(epoch, Reach::View) {
            self.expanded(expansion.run());
        }
        self.take_dropped();
    }

    /// The expansions that decisions about `epoch` need and that have not been started. Their
    /// results go to [`Self::expanded`].
    pub fn expand(&mut self, epoch: Epoch, reach: Reach) -> Vec<Expansion> {
        let epochs = self.view(epoch).take(reach.epochs());
        epochs.filter_map(|epoch| self.expansion_of(epoch)).collect()
    }

    /// Whether all results that [`Self::expand`] asks for are there.
    #[must_use]
    pub fn is_expanded(&self, epoch: Epoch, reach: Reach) -> bool {
        self.view(epoch).take(reach.epochs()).all(|epoch| !self.is_missing(epoch))
    }

    /// Has no effect if the input of the expansion has changed since.
    pub fn expanded(&mut self, expanded: Expanded) {
        let Expanded { epoch, order, places } = expanded;
        if self.begun.remove(&epoch) != Some(Begun::Current) {
            return;
        }
        if let Some(order) = order {
            self.computed.insert(epoch, order);
        }
        let places = places.map_or_else(OnceCell::new, OnceCell::from);
        self.places.insert(epoch, places);
        self.note_stray(epoch);
        self.trim();
    }

    pub fn follow(&mut self, epoch: Epoch) {
        self.main = epoch;
        self.trim();
    }

    /// The memory that was dropped since the last call, so that another thread can free it.
    pub fn take_dropped(&mut self) -> Vec<Dropped> {
        core::mem::take(&mut self.dropped)
    }

    /// The orders of the epochs looked into from `epoch`, as far as they are held.
    #[must_use]
    pub fn orders_from(&self, epoch: Epoch) -> Orders {
        let held = |epoch| Some((epoch, Arc::clone(self.computed.get(&epoch)?)));
        self.view(epoch).filter_map(held).collect()
    }

    fn is_missing(&self, epoch: Epoch) -> bool {
        let has_places = self.places.get(&epoch).map(|places| places.get().is_some());
        if self.spec.shuffle == Shuffle::Published {
            // An order that no trainer has published yet cannot be computed.
            return self.next_uses == NextUses::Asked && has_places == Some(false);
        }
        let lacks_places = self.next_uses == NextUses::Asked && has_places != Some(true);
        !self.computed.contains_key(&epoch) || lacks_places
    }

    fn expansion_of(&mut self, epoch: Epoch) -> Option<Expansion> {
        if !self.is_missing(epoch) || self.begun.contains_key(&epoch) {
            return None;
        }
        self.begun.insert(epoch, Begun::Current);
        let source = match self.spec.shuffle {
            Shuffle::Published => {
                let of_epoch = self.published.iter().filter(|((_, of), _)| *of == epoch);
                Source::Published(of_epoch.map(|((rank, _), it)| (*rank, Arc::clone(it))).collect())
            }
            _ => Source::Spec(self.computed.get(&epoch).cloned()),
        };
        Some(Expansion {
            spec: self.spec,
            node: self.node,
            epoch,
            source,
            next_uses: self.next_uses,
        })
    }

    /// Whether the epoch is held for itself, not as a stray.
    fn is_near(&self, epoch: Epoch) -> bool {
        let last = self.main.0.saturating_add(1).saturating_add(self.ahead);
        (self.main.0.saturating_sub(1)..=last).contains(&epoch.0)
    }

    fn note_stray(&mut self, epoch: Epoch) {
        let is_stray = self.spec.shuffle != Shuffle::Published && !self.is_near(epoch);
        if is_stray && !self.strays.contains(&epoch) {
            self.strays.push_back(epoch);
        }
    }

    /// Drops the epochs that are neither near nor among the latest strays.
    fn trim(&mut self) {
        if self.spec.shuffle == Shuffle::Published {
            return;
        }
        let mut strays = core::mem::take(&mut self.strays);
        strays.retain(|stray| !self.is_near(*stray) && self.computed.contains_key(stray));
        let far = self.computed.keys().copied().filter(|epoch| !self.is_near(*epoch));
        let unlisted: Vec<_> = far.filter(|epoch| !strays.contains(epoch)).collect();
        let surplus = strays.len().saturating_sub(STRAYS_MAX);
        let surplus: Vec<_> = strays.drain(..surplus).chain(unlisted).collect();
        self.strays = strays;
        for epoch in surplus {
            let order = self.computed.remove(&epoch).map(Dropped::Order);
            let places = self.places.remove(&epoch);
            let places = places.map(|places| Dropped::Positions(DroppedPlaces(places)));
            self.dropped.extend(order.into_iter().chain(places));
        }
    }

    /// Takes the order that a trainer of this node published, if it is valid: every sample exists,
    /// and the epoch is not longer than the job says. The last few epochs of each rank are kept.
    /// An order that is published again changes nothing: every process that a trainer starts
    /// publishes it.
    pub fn publish(
        &mut self,
        rank: Rank,
        epoch: Epoch,
        samples: Arc<Vec<SampleId>>,
    ) -> Publication {
        let fits = self.spec.shuffle == Shuffle::Published
            && self.spec.world.ranks_of(self.node).any(|other| other == rank)
            && epoch.0 < self.spec.epochs
            && samples.len() <= self.spec.samples_per_rank_in(epoch) as usize
            && samples.iter().max().is_none_or(|last| last.0 < self.spec.samples);
        if !fits {
            return Publication::Impossible;
        }
        if self.published.get(&(rank, epoch)) == Some(&samples) {
            self.dropped.push(Dropped::Published(samples));
            return Publication::New;
        }
        let before = self.published.insert((rank, epoch), samples);
        let is_other = before.is_some();
        let before = before.map(Dropped::Published);
        let places = self.places.insert(epoch, OnceCell::new());
        let places = places.map(|places| Dropped::Positions(DroppedPlaces(places)));
        self.dropped.extend(before.into_iter().chain(places));
        self.begun.entry(epoch).and_modify(|begun| *begun = Begun::Outdated);
        let of_rank = (rank, Epoch(0))..=(rank, Epoch(u32::MAX));
        if self.published.range(of_rank.clone()).count() > self.epochs_max() {
            let oldest = self.published.range(of_rank).next().map(|(key, _)| *key);
            let oldest = oldest.and_then(|key| self.published.remove(&key));
            self.dropped.extend(oldest.map(Dropped::Published));
        }
        while self.places.len() > self.epochs_max() {
            let oldest = self.places.pop_first().map(|(_, places)| places);
            let oldest = oldest.map(|places| Dropped::Positions(DroppedPlaces(places)));
            self.dropped.extend(oldest);
        }
        if is_other { Publication::Changed } else { Publication::New }
    }

    /// The samples of a batch, or `None` if the order of its epoch is not known yet.
    #[must_use]
    pub fn batch(&self, batch: BatchId) -> Option<&[SampleId]> {
        if self.spec.shuffle == Shuffle::Published {
            let samples = self.published.get(&(batch.rank, batch.epoch))?;
            let size = self.spec.batch_size as usize;
            return Some(samples.chunks(size).nth(batch.step.0 as usize).unwrap_or_default());
        }
        let local_rank = self.local(batch.rank)?;
        self.computed.get(&batch.epoch).map(|order| order.batch(local_rank, batch.step))
    }

    /// `None` if trainers publish the order, or the epoch is not held.
    #[must_use]
    pub fn epoch(&self, epoch: Epoch) -> Option<&NodeOrder> {
        self.computed.get(&epoch).map(|order| &**order)
    }

    #[must_use]
    pub fn read_of(&self, batch: BatchId, index: usize) -> Use {
        let place = place_of(&self.spec, self.node, batch, index);
        Use { epoch: batch.epoch, place }
    }

    /// Steps from a read to a later one, also across epochs.
    #[must_use]
    pub fn steps_between(&self, from: Use, to: Use) -> u32 {
        let per_step =
            self.spec.batch_size_max().saturating_mul(self.spec.world.ranks_per_node).max(1);
        let step = |it: Use| u64::from(it.place / per_step);
        let epochs: u64 = (from.epoch.0..to.epoch.0)
            .map(|epoch| u64::from(self.spec.steps_in(Epoch(epoch))))
            .sum();
        u32::try_from((epochs + step(to)).saturating_sub(step(from))).unwrap_or(u32::MAX)
    }

    #[must_use]
    pub fn next_use(&self, sample: SampleId, now: Use) -> NextUse {
        let last = now.epoch.0.saturating_add(self.ahead).min(self.spec.epochs - 1);
        for epoch in (now.epoch.0..=last).map(Epoch) {
            let Some(places) = self.places.get(&epoch) else { continue };
            let places = places.get_or_init(|| self.places_of(epoch));
            let after = (epoch == now.epoch).then_some(now.place);
            if let Some(place) = places.after(sample, after) {
                return NextUse::At(Use { epoch, place });
            }
        }
        let is_all_known = self.spec.shuffle != Shuffle::Published && last + 1 == self.spec.epochs;
        let is_over = now.epoch.0 + 1 >= self.spec.epochs;
        if is_all_known || is_over { NextUse::Never } else { NextUse::Later }
    }

    fn local(&self, rank: Rank) -> Option<u32> {
        positions::local(&self.spec, self.node, rank)
    }

    fn places_of(&self, epoch: Epoch) -> Positions {
        Positions::of(&self.spec, self.node, epoch, &|batch| self.batch(batch).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;
