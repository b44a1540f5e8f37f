//! Deals the sequence of an epoch to the ranks.

use alloc::{vec, vec::Vec};

use super::{NodeOrder, Section, Shuffle, Spec, World, node_order::NodeSection};
use crate::id::{Epoch, NodeId, Rank, SampleId, Step};

/// One epoch of a computed order: 4 bytes a sample, shared by all ranks.
#[derive(Debug, Clone)]
pub struct EpochOrder {
    sections: Vec<DealtSection>,
    world: World,
}

/// The reads of one dataset by all ranks.
#[derive(Debug, Clone)]
struct DealtSection {
    /// The samples in turns of the ranks, padded or truncated to whole rounds of all ranks.
    dealt: Vec<u32>,
    per_rank: u32,
    section: Section,
}

impl EpochOrder {
    pub(super) fn of(spec: &Spec, epoch: Epoch) -> Option<Self> {
        let sections = spec.sections(epoch).map(|section| DealtSection::of(section, epoch));
        Some(Self { sections: sections.collect::<Option<_>>()?, world: spec.world })
    }

    /// The samples of one batch, in the order in which the rank reads them.
    ///
    /// # Source
    ///
    /// PyTorch's `DistributedSampler.__iter__`: the sequence, padded by repeating itself or truncated, of
    /// which rank `r` of `w` reads every `w`-th from `r`. For [`Shuffle::Mosaic`]
    /// `get_partitions_orig`: nodes take turns, and the ranks of each.
    pub fn batch(&self, rank: Rank, step: Step) -> impl Iterator<Item = SampleId> + '_ {
        let begins = |it: &&DealtSection| it.section.first_step <= step;
        let section = self.sections.iter().rev().find(begins);
        section.into_iter().flat_map(move |it| it.batch(rank, step))
    }

    pub(super) fn of_node(&self, node: NodeId) -> NodeOrder {
        let per_rank = self.sections.iter().map(|section| section.per_rank as usize).sum::<usize>();
        let mut samples = vec![SampleId(0); per_rank * self.world.ranks_per_node as usize];
        let (mut sections, mut first) = (Vec::with_capacity(self.sections.len()), 0);
        for section in &self.sections {
            let ranks = self.world.ranks() as usize;
            let turns: Vec<_> = self.world.ranks_of(node).map(|rank| section.turn(rank)).collect();
            for (position, round) in section.dealt.chunks_exact(ranks).enumerate() {
                for (local_rank, turn) in turns.iter().enumerate() {
                    samples[local_rank * per_rank + first + position] =
                        section.numbered(round[*turn]);
                }
            }
            let Section { order, first_step, .. } = section.section;
            let end = first + section.per_rank as usize;
            let batch_size = order.batch_size as usize;
            sections.push(NodeSection { first_step, first, end, batch_size });
            first = end;
        }
        NodeOrder::new(samples, per_rank, sections)
    }
}

impl DealtSection {
    fn of(section: Section, epoch: Epoch) -> Option<Self> {
        let spec = section.order;
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
        Some(Self { dealt, per_rank, section })
    }

    fn batch(&self, rank: Rank, step: Step) -> impl Iterator<Item = SampleId> + '_ {
        let batch_size = self.section.order.batch_size;
        let first = (step.0 - self.section.first_step.0).saturating_mul(batch_size);
        let last = first.saturating_add(batch_size).min(self.per_rank);
        let (ranks, turn) = (self.section.order.world.ranks() as usize, self.turn(rank));
        let sample = move |position: u32| self.dealt[position as usize * ranks + turn];
        (first..last).map(move |position| self.numbered(sample(position)))
    }

    fn numbered(&self, sample: u32) -> SampleId {
        SampleId(sample + self.section.first_sample.0)
    }

    fn turn(&self, rank: Rank) -> usize {
        let World { nodes, ranks_per_node } = self.section.order.world;
        let turn = match self.section.order.shuffle {
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
