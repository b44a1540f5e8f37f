//! Deals the sequence of an epoch to the ranks.

use alloc::{vec, vec::Vec};

use super::{Shuffle, Spec, World};
use crate::id::{Epoch, NodeId, Rank, SampleId, Step};

/// One epoch of a computed order: 4 bytes a sample, shared by all ranks.
#[derive(Debug, Clone)]
pub struct EpochOrder {
    /// What the ranks read, in turns, padded or truncated to whole rounds of all ranks.
    dealt: Vec<u32>,
    per_rank: u32,
    spec: Spec,
}

impl EpochOrder {
    pub(super) fn of(spec: Spec, epoch: Epoch) -> Option<Self> {
        let ranks = spec.world.ranks() as usize;
        let mut dealt = spec.shuffle.sequence(&spec, epoch, ranks)?;
        dealt.drain(..spec.first_place(epoch) as usize);
        let per_rank = spec.samples_per_rank_in(epoch);
        let wanted = per_rank as usize * ranks;
        match spec.shuffle {
            Shuffle::Mosaic(_) => pad_nodes(&mut dealt, wanted, spec.world),
            _ => pad_round(&mut dealt, wanted),
        }
        dealt.truncate(wanted);
        Some(Self { dealt, per_rank, spec })
    }

    /// The samples of one batch, in the order in which the rank reads them.
    ///
    /// # Source
    ///
    /// PyTorch's `DistributedSampler.__iter__`: the sequence, padded by repeating itself or truncated, of
    /// which rank `r` of `w` reads every `w`-th from `r`. For [`Shuffle::Mosaic`]
    /// `get_partitions_orig`: nodes take turns, and the ranks of each.
    pub fn batch(&self, rank: Rank, step: Step) -> impl Iterator<Item = SampleId> + '_ {
        let first = step.0.saturating_mul(self.spec.batch_size);
        let last = first.saturating_add(self.spec.batch_size).min(self.per_rank);
        let (ranks, turn) = (self.spec.world.ranks() as usize, self.turn(rank));
        let sample = move |position: u32| self.dealt[position as usize * ranks + turn];
        (first..last).map(move |position| SampleId(sample(position)))
    }

    /// What the ranks of a node read in the epoch, rank by rank.
    pub(super) fn of_node(&self, node: NodeId) -> Vec<SampleId> {
        let (per_rank, ranks) = (self.per_rank as usize, self.spec.world.ranks() as usize);
        let turns: Vec<_> = self.spec.world.ranks_of(node).map(|rank| self.turn(rank)).collect();
        let mut samples = vec![SampleId(0); per_rank * turns.len()];
        for (position, round) in self.dealt.chunks_exact(ranks).enumerate() {
            for (local_rank, turn) in turns.iter().enumerate() {
                samples[local_rank * per_rank + position] = SampleId(round[*turn]);
            }
        }
        samples
    }

    /// The rank's place in a round.
    fn turn(&self, rank: Rank) -> usize {
        let World { nodes, ranks_per_node } = self.spec.world;
        let turn = match self.spec.shuffle {
            Shuffle::Mosaic(_) => rank.0 % ranks_per_node * nodes + rank.0 / ranks_per_node,
            _ => rank.0,
        };
        turn as usize
    }
}

/// Repeats the sequence from its start.
fn pad_round(dealt: &mut Vec<u32>, wanted: usize) {
    let len = dealt.len();
    for place in len..wanted {
        dealt.push(dealt[place % len]);
    }
}

/// Repeats the end of what each node reads, so that no rank gets a sample that it has just read. A
/// node with too few samples for that repeats from its start.
///
/// # Source
///
/// `get_partitions_orig`, its `last`.
fn pad_nodes(dealt: &mut Vec<u32>, wanted: usize, world: World) {
    let (nodes, ranks) = (world.nodes as usize, world.ranks_per_node as usize);
    let (here, missing) = (dealt.len() / nodes, (wanted - dealt.len()) / nodes);
    for place in 0..missing {
        let again = match (here + 1).checked_sub(ranks + missing) {
            Some(first) => first + place,
            None => place % here,
        };
        for node in 0..nodes {
            dealt.push(dealt[again * nodes + node]);
        }
    }
}
