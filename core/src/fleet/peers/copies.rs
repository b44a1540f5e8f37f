//! Which nodes hold a copy of a sample, and which node reads it in each of the epochs to come.
//!
//! A second copy is only worth its room until its node reads it, and the readers are known: a
//! second copy that is recorded for an epoch lies on the node that reads the sample in that epoch.
//! So a nibble is enough for a copy.
//!
//! 1. A node holds at most one copy of a sample.
//! 2. A sample with a second copy has a first.

use alloc::{vec, vec::Vec};

use crate::{
    id::{Epoch, NodeId, Rank, SampleId, Step, TierId},
    order::{EpochOrder, Spec},
};

/// More nodes or tiers do not fit into the 16 bits of a first copy.
pub(super) const NODES_MAX: usize = 4_095;
pub(super) const TIERS_MAX: usize = 15;
/// Later epochs for which a second copy can be recorded.
pub(super) const AHEAD_MAX: u32 = 15;

/// Bytes for each sample, and for each sample and epoch of look-ahead.
pub(super) const BYTES_PER_SAMPLE: u64 = 13;
pub(super) const BYTES_PER_EPOCH: u64 = 2;

const NO_NODE: u16 = u16::MAX;
const NODE_BITS: u32 = 12;

/// The location of a copy of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) node: NodeId,
    pub(super) tier: TierId,
}

/// Epochs until a node reads a sample again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Gap(u8);

impl Gap {
    /// Beyond the epochs that are known.
    pub(super) const FAR: Self = Self(u8::MAX);
    /// Read in the next epoch.
    pub(super) const NEXT: Self = Self(1);

    fn after(self, now: Epoch) -> Epoch {
        Epoch(now.0 + u32::from(self.0))
    }
}

/// All copies: 2 bytes a sample, 2 for each epoch of readers, the current one included, 8 if second
/// copies are possible, and a bit.
#[derive(Debug)]
pub(super) struct Copies {
    slots: usize,
    /// The first reader in an epoch, by sample and epoch.
    readers: Vec<u16>,
    /// By sample: the node in the low bits, the tier above it.
    first: Vec<u16>,
    /// By sample: a nibble for each epoch, which is the tier plus 1, or 0.
    second: Vec<u64>,
    seen: Vec<u64>,
    uncovered: usize,
}

impl Copies {
    pub(super) fn new(samples: u32, ahead: u32, seconds: Seconds) -> Self {
        let (samples, slots) = (samples as usize, ahead as usize + 1);
        let second = match seconds {
            Seconds::Possible => vec![0; samples],
            Seconds::Impossible => Vec::new(),
        };
        Self {
            slots,
            readers: vec![NO_NODE; samples * slots],
            first: vec![NO_NODE; samples],
            second,
            seen: vec![0; samples.div_ceil(64)],
            uncovered: samples,
        }
    }

    /// Records the readers of each sample in `epoch`, or none if the order is not known.
    pub(super) fn learn(&mut self, epoch: Epoch, order: Option<&EpochOrder>, spec: &Spec) {
        let slot = self.slot(epoch);
        self.readers.iter_mut().skip(slot).step_by(self.slots).for_each(|it| *it = NO_NODE);
        let Some(order) = order else { return };
        for step in (0..spec.steps_in(epoch)).map(Step) {
            for rank in (0..spec.world.ranks()).map(Rank) {
                let node = name(rank.0 / spec.world.ranks_per_node);
                for sample in order.batch(rank, step) {
                    let reader = &mut self.readers[sample.0 as usize * self.slots + slot];
                    if *reader == NO_NODE {
                        *reader = node;
                    }
                }
            }
        }
    }

    /// Clears the record of reads, for a new epoch.
    pub(super) fn start(&mut self) {
        self.seen.fill(0);
    }

    /// Whether the sample is read for the first time in the epoch.
    pub(super) fn is_first_read(&mut self, sample: SampleId) -> bool {
        let (word, bit) = (sample.0 as usize / 64, 1 << (sample.0 % 64));
        let is_first = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_first
    }

    /// The number of samples without a copy.
    pub(super) fn uncovered(&self) -> usize {
        self.uncovered
    }

    pub(super) fn first(&self, sample: SampleId) -> Option<Held> {
        let first = self.first[sample.0 as usize];
        if first == NO_NODE {
            return None;
        }
        let node = NodeId(u32::from(first) & ((1 << NODE_BITS) - 1));
        let tier = u8::try_from(first >> NODE_BITS).expect("four bits");
        Some(Held { node, tier: TierId(tier) })
    }

    pub(super) fn set_first(&mut self, sample: SampleId, held: Option<Held>) {
        let first = &mut self.first[sample.0 as usize];
        self.uncovered += usize::from(*first != NO_NODE);
        *first =
            held.map_or(NO_NODE, |held| u16::from(held.tier.0) << NODE_BITS | name(held.node.0));
        self.uncovered -= usize::from(*first != NO_NODE);
    }

    /// The second copy for the read in `epoch`.
    pub(super) fn second(&self, sample: SampleId, epoch: Epoch) -> Option<Held> {
        let nibbles = self.second.get(sample.0 as usize).copied().unwrap_or(0);
        let nibble = nibbles >> (4 * self.slot(epoch)) & 0xf;
        let tier = u8::try_from(nibble).expect("four bits").checked_sub(1)?;
        Some(Held { node: self.reader(sample, epoch)?, tier: TierId(tier) })
    }

    /// Records a second copy for the read in `gap` epochs.
    pub(super) fn add_second(&mut self, sample: SampleId, now: Epoch, gap: Gap, tier: TierId) {
        let shift = 4 * self.slot(gap.after(now));
        self.second[sample.0 as usize] |= (u64::from(tier.0) + 1) << shift;
    }

    /// Removes the record of the second copy for `epoch`.
    pub(super) fn take_second(&mut self, sample: SampleId, epoch: Epoch) -> Option<Held> {
        let held = self.second(sample, epoch)?;
        self.second[sample.0 as usize] &= !(0xf << (4 * self.slot(epoch)));
        Some(held)
    }

    /// Removes the record of the second copy that is read soonest after `now`.
    pub(super) fn take_soonest_second(&mut self, sample: SampleId, now: Epoch) -> Option<Held> {
        if self.second.get(sample.0 as usize).is_none_or(|nibbles| *nibbles == 0) {
            return None;
        }
        self.ahead(now).find_map(|epoch| self.take_second(sample, epoch))
    }

    /// All copies; second copies for epochs before `now` no longer count.
    pub(super) fn held(&self, sample: SampleId, now: Epoch) -> impl Iterator<Item = Held> + '_ {
        let nibbles = self.second.get(sample.0 as usize).copied().unwrap_or(0);
        let epochs = if nibbles == 0 { 0 } else { self.slots };
        let seconds = (now.0..).take(epochs).filter_map(move |it| self.second(sample, Epoch(it)));
        self.first(sample).into_iter().chain(seconds)
    }

    /// When `node` reads the sample again after `now`.
    pub(super) fn gap(&self, sample: SampleId, node: NodeId, now: Epoch) -> Gap {
        let node = name(node.0);
        let first = sample.0 as usize * self.slots;
        let readers = &self.readers[first..first + self.slots];
        // Iterates without a division for each epoch: this is the inner loop of a plan.
        let now = self.slot(now);
        let slots = (now + 1..self.slots).chain(0..now);
        let gap = (1..).zip(slots).find(|(_, slot)| readers[*slot] == node);
        gap.map_or(Gap::FAR, |(gap, _)| Gap(gap))
    }

    fn reader(&self, sample: SampleId, epoch: Epoch) -> Option<NodeId> {
        let reader = self.readers[sample.0 as usize * self.slots + self.slot(epoch)];
        (reader != NO_NODE).then_some(NodeId(u32::from(reader)))
    }

    /// The epochs after `now` whose readers are known.
    fn ahead(&self, now: Epoch) -> impl Iterator<Item = Epoch> + use<> {
        (now.0 + 1..).take(self.slots - 1).map(Epoch)
    }

    fn slot(&self, epoch: Epoch) -> usize {
        epoch.0 as usize % self.slots
    }
}

/// Whether a sample may lie on several nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seconds {
    /// The nodes hold more than the dataset.
    Possible,
    /// A second copy would take the room of another sample's first copy.
    Impossible,
}

fn name(node: u32) -> u16 {
    u16::try_from(node).expect("nodes were counted")
}
