//! The orders of MosaicML Streaming: its shuffles, and how it deals samples to nodes and ranks.
//!
//! A run-wide shuffle of the shards fixes which canonical node reads which; each epoch shuffles the
//! shards of a canonical node and the samples of each, or of blocks of them. All shards but the
//! last must have equally many samples: other datasets publish their order.
//!
//! Source: `streaming/base/shuffle/*.py`, `partition/orig.py` of version 0.13;
//! `core/tests/vectors/` proves equality.

use alloc::{vec, vec::Vec};
use core::ops::{Range, RangeInclusive};

use serde::{Deserialize, Serialize};

use super::{Spec, SpecError, pcg64::Pcg64};

/// The parameters of a `StreamingDataset` beside its `shuffle_seed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mosaic {
    pub algorithm: Algorithm,
    /// Samples of every shard but the last.
    #[serde(rename = "shard_samples")]
    pub shard: u32,
    /// `num_canonical_nodes`: a multiple of the nodes.
    pub canonical_nodes: u32,
    /// `shuffle_block_size`, for [`Algorithm::Py1e`] and [`Algorithm::Py1br`].
    #[serde(rename = "shuffle_block")]
    pub block: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Permutes all samples at once, across shards.
    Naive,
    /// Samples within their shard, once.
    Py1s,
    /// Samples within their shard, before and after shards are split over canonical nodes.
    Py2s,
    /// Samples within ranges around their shard; the default of Streaming.
    Py1e,
    /// Samples within blocks of random length.
    Py1br,
}

impl Algorithm {
    pub const ALL: [Self; 5] = [Self::Naive, Self::Py1s, Self::Py2s, Self::Py1e, Self::Py1br];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Py1s => "py1s",
            Self::Py2s => "py2s",
            Self::Py1e => "py1e",
            Self::Py1br => "py1br",
        }
    }
}

/// The smallest value keeps Streaming's ranges of random numbers non-empty.
const BLOCKS: RangeInclusive<u32> = 2..=1 << 31;

/// Consecutive ids, or with [`Algorithm::Py2s`] places in the array of shuffled ones.
type Span = Range<u32>;

impl Mosaic {
    pub(super) fn validate(&self, spec: &Spec) -> Result<(), SpecError> {
        let (canonical, nodes) = (self.canonical_nodes, spec.world.nodes);
        if !canonical.is_multiple_of(nodes) {
            return Err(SpecError::CanonicalNodes { canonical, nodes });
        }
        if spec.drop_last {
            return Err(SpecError::NoDropLast);
        }
        if spec.samples <= canonical {
            return Err(SpecError::FewerThanCanonicalNodes { samples: spec.samples, canonical });
        }
        let max = u32::MAX / canonical * canonical;
        if spec.samples > max {
            return Err(SpecError::TooManySamples { samples: spec.samples, max });
        }
        if !BLOCKS.contains(&self.block) {
            let (min, max) = BLOCKS.into_inner();
            return Err(SpecError::ShuffleBlock { block: self.block, min, max });
        }
        Ok(())
    }

    /// Samples that all ranks read in an epoch, before its end is padded: a canonical node that has
    /// one sample less than the others reads its last one twice.
    pub(super) fn len(&self, samples: u32) -> u64 {
        u64::from(samples.div_ceil(self.canonical_nodes)) * u64::from(self.canonical_nodes)
    }

    /// The order of `epoch`, with room for `spare` more samples: canonical nodes take turns.
    ///
    /// # Source
    ///
    /// `get_partitions_orig`, its `ids` after the first transposition.
    pub(super) fn order(&self, samples: u32, seed: u64, epoch: u32, spare: usize) -> Vec<u32> {
        let ids = self.shuffled(samples, seed, epoch);
        let rows: Vec<_> = (0..self.canonical_nodes).map(|node| self.part(samples, node)).collect();
        let len = usize::try_from(self.len(samples)).expect("fits the memory it is for");
        let mut order = Vec::with_capacity(len + spare);
        for place in 0..samples.div_ceil(self.canonical_nodes) {
            let id = |row: &Span| ids[(row.start + place).min(row.end - 1) as usize];
            order.extend(rows.iter().map(id));
        }
        order
    }

    /// The range of the shuffled ids that a canonical node reads.
    fn part(&self, samples: u32, node: u32) -> Range<u32> {
        let cut = |node: u32| {
            let cut = u64::from(samples) * u64::from(node) / u64::from(self.canonical_nodes);
            u32::try_from(cut).expect("at most the samples")
        };
        cut(node)..cut(node + 1)
    }

    fn shuffled(&self, samples: u32, seed: u64, epoch: u32) -> Vec<u32> {
        let of_epoch = u128::from(seed) + u128::from(epoch);
        let mut rng = Pcg64::new(of_epoch);
        if self.algorithm == Algorithm::Naive {
            let mut ids: Vec<u32> = (0..samples).collect();
            rng.shuffle(&mut ids);
            return ids;
        }
        let mut of_run = Pcg64::new(u128::from(seed));
        let mut spans = self.spans(samples);
        shuffle_spans(&mut of_run, &mut spans);
        let scattered = (self.algorithm == Algorithm::Py2s).then(|| {
            let mut ids: Vec<u32> = (0..samples).collect();
            spans.iter().for_each(|span| of_run.shuffle(&mut ids[places(span)]));
            ids
        });
        let mut parts = self.divide(samples, spans);
        if let Some(scattered) = scattered {
            return py2s(&mut rng, &mut parts, scattered);
        }
        parts.iter_mut().for_each(|part| shuffle_spans(&mut rng, part));
        match self.algorithm {
            Algorithm::Py1e => self.py1e(&mut rng, &parts),
            Algorithm::Py1br => self.py1br(&mut rng, &parts),
            _ => py1s(&mut rng, &parts),
        }
    }

    fn spans(&self, samples: u32) -> Vec<Span> {
        let first = |shard: u32| shard * self.shard;
        let shards = 0..samples.div_ceil(self.shard);
        shards.map(|it| first(it)..first(it).saturating_add(self.shard).min(samples)).collect()
    }

    /// Splits the spans at the boundaries between canonical nodes.
    fn divide(&self, samples: u32, spans: Vec<Span>) -> Vec<Vec<Span>> {
        let mut parts = vec![Vec::new(); self.canonical_nodes as usize];
        let mut spans = spans.into_iter();
        let mut span = 0..0;
        for (node, part) in (0..).zip(&mut parts) {
            let row = self.part(samples, node);
            let mut left = row.end - row.start;
            while left > 0 {
                if span.is_empty() {
                    span = spans.next().expect("spans cover all samples");
                }
                let cut = span.start + left.min(span.end - span.start);
                left -= cut - span.start;
                part.push(span.start..cut);
                span.start = cut;
            }
        }
        parts
    }

    /// Shifts each sample's place by a random amount within its block, and sorts by place.
    fn py1e(&self, rng: &mut Pcg64, parts: &[Vec<Span>]) -> Vec<u32> {
        let mut ids = Vec::new();
        for part in parts {
            let begin = ids.len();
            for span in part {
                let first = ids.len();
                ids.extend(span.clone());
                rng.shuffle(&mut ids[first..]);
            }
            let shifted = self.shifted(rng, part);
            let mut order: Vec<usize> = (0..shifted.len()).collect();
            order.sort_by(|one, other| shifted[*one].total_cmp(&shifted[*other]));
            let sorted: Vec<u32> = order.into_iter().map(|place| ids[begin + place]).collect();
            ids[begin..].copy_from_slice(&sorted);
        }
        ids
    }

    fn shifted(&self, rng: &mut Pcg64, part: &[Span]) -> Vec<f64> {
        let len = part.iter().map(|span| f64::from(span.end - span.start)).sum::<f64>();
        let mut shifted = Vec::new();
        let mut offset = 0.0;
        for span in part {
            let size = f64::from(span.end - span.start);
            let block = f64::from(self.random_block(rng));
            let reach = ((block - size) / 2.0).max(0.0);
            let (low, high) = ((-reach).max(-offset), reach.min(len - offset - size));
            for place in 0..span.end - span.start {
                shifted.push(offset + f64::from(place) + rng.uniform(low, high));
            }
            offset += size;
        }
        shifted
    }

    /// Shuffles blocks of random lengths that start a random amount before the canonical node's part.
    fn py1br(&self, rng: &mut Pcg64, parts: &[Vec<Span>]) -> Vec<u32> {
        let stagger_end = quarters(self.block, 3);
        let staggers: Vec<u32> = parts.iter().map(|_| rng.integer(0, stagger_end)).collect();
        let mut ids: Vec<u32> = Vec::new();
        for (part, stagger) in parts.iter().zip(staggers) {
            let first = i64::try_from(ids.len()).expect("few samples");
            part.iter().for_each(|span| ids.extend(span.clone()));
            let end = i64::try_from(ids.len()).expect("few samples");
            let mut blocks = Vec::new();
            let mut at = first;
            while at < end {
                let start = at - i64::from(stagger);
                let block = start.max(first)..(start + i64::from(self.random_block(rng))).min(end);
                at += block.end - block.start;
                blocks.push(block);
            }
            for block in blocks {
                let place = |it: i64| usize::try_from(it).expect("inside the part");
                rng.shuffle(&mut ids[place(block.start)..place(block.end)]);
            }
        }
        ids
    }

    fn random_block(&self, rng: &mut Pcg64) -> u32 {
        rng.integer(quarters(self.block, 3), quarters(self.block, 5))
    }
}

/// `int(0.25 * count * block)`.
fn quarters(block: u32, count: u32) -> u32 {
    u32::try_from(u64::from(block) * u64::from(count) / 4).expect("validated")
}

fn shuffle_spans(rng: &mut Pcg64, spans: &mut [Span]) {
    let len = u32::try_from(spans.len()).expect("not more than samples");
    for (one, other) in rng.places(len) {
        spans.swap(one as usize, other as usize);
    }
}

fn py1s(rng: &mut Pcg64, parts: &[Vec<Span>]) -> Vec<u32> {
    let mut ids = Vec::new();
    for span in parts.iter().flatten() {
        let first = ids.len();
        ids.extend(span.clone());
        rng.shuffle(&mut ids[first..]);
    }
    ids
}

/// As [`py1s`], on ids that were shuffled within their shards before the shards were split. Here a
/// canonical node's spans and their samples are drawn before the next one's spans.
fn py2s(rng: &mut Pcg64, parts: &mut [Vec<Span>], mut scattered: Vec<u32>) -> Vec<u32> {
    let mut ids = Vec::with_capacity(scattered.len());
    for part in parts {
        shuffle_spans(rng, part);
        for span in part.iter() {
            rng.shuffle(&mut scattered[places(span)]);
            ids.extend_from_slice(&scattered[places(span)]);
        }
    }
    ids
}

fn places(span: &Span) -> Range<usize> {
    span.start as usize..span.end as usize
}
