//! The books stay right whatever a policy asks for.

use alloc::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{policy, space::Piece, tier::Kind};

const CHUNK: Bytes = Bytes(16 * 64);

/// A future in which every sample is read again in `id` steps, or never if `id` is a multiple of 7.
#[derive(Debug)]
struct ById;

impl Outlook for ById {
    fn next_use(&self, sample: SampleId) -> Option<u32> {
        self.is_used_again(sample).then_some(sample.0)
    }

    fn is_used_again(&self, sample: SampleId) -> bool {
        !sample.0.is_multiple_of(7)
    }
}

fn buffers(chunks: &[u32]) -> Vec<Buffer> {
    let buffer = |chunks_max: &u32| Buffer { kind: Kind::CxlMemory, chunks_max: *chunks_max };
    chunks.iter().map(buffer).collect()
}

fn build(kind: policy::Kind) -> alloc::boxed::Box<dyn Policy> {
    policy::build(kind, Bytes(64))
}

fn check(cache: &Cache, limits: &[u32]) {
    let mut pieces: Vec<(TierId, Piece)> = Vec::new();
    for (sample, resident) in &cache.residents {
        pieces.extend(resident.place.pieces.iter().map(|piece| (resident.place.tier, *piece)));
        let tier = &cache.tiers[usize::from(resident.place.tier.0)];
        assert_eq!(tier.queue.get(&resident.ticket), Some(sample));
    }
    pieces.sort();
    let apart = pieces.is_sorted_by(|(tier, a), (other, b)| tier != other || !a.overlaps(b));
    assert!(apart, "invariant 1");
    for (tier, limit) in cache.tiers.iter().zip(limits) {
        assert!(tier.space.chunk_count() <= *limit, "invariant 2");
    }
}

#[derive(Debug, Clone)]
enum Op {
    Admit(u32, u64),
    Forget(u32),
    Resize(u8, u32),
    Lose(u8, u32),
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0_u32..60, 1_u64..900).prop_map(|(sample, len)| Op::Admit(sample, len)),
        1 => (0_u32..60).prop_map(Op::Forget),
        1 => (0_u8..3, 0_u32..5).prop_map(|(tier, chunks)| Op::Resize(tier, chunks)),
        1 => (0_u8..3, 0_u32..4).prop_map(|(tier, chunk)| Op::Lose(tier, chunk)),
    ]
}

proptest! {
    #[test]
    fn the_books_stay_right(
        ops in prop::collection::vec(any_op(), 1..120),
        policy in prop::sample::select(&policy::Kind::ALL[..]),
    ) {
        let mut limits = [3, 2, 4];
        let mut cache = Cache::new(&buffers(&limits), CHUNK);
        let policy = build(policy);
        for op in ops {
            match op {
                Op::Admit(sample, len) if cache.place(SampleId(sample)).is_none() => {
                    let place = cache.admit(SampleId(sample), Bytes(len), &*policy, &ById);
                    prop_assert_eq!(place.as_ref(), cache.place(SampleId(sample)));
                }
                Op::Admit(..) => {}
                Op::Forget(sample) => cache.forget(SampleId(sample)),
                Op::Resize(tier, chunks) => {
                    limits[usize::from(tier)] = chunks;
                    cache.resize(TierId(tier), chunks, &*policy, &ById);
                }
                Op::Lose(tier, chunk) => cache.lose_chunk(TierId(tier), ChunkId(chunk)),
            }
            let mut gone = BTreeSet::new();
            for change in cache.take_changes() {
                match change {
                    Change::Demoted { from, to, .. } => prop_assert!(from.tier < to.tier, "invariant 3"),
                    Change::Evicted { sample } => {
                        gone.insert(sample);
                    }
                    Change::ChunkAdded { .. } | Change::ChunkDropped { .. } => {}
                }
            }
            prop_assert!(gone.iter().all(|sample| cache.place(*sample).is_none()));
            check(&cache, &limits);
        }
    }
}

#[test]
fn gap_fills_the_fastest_tier_first_and_gives_nothing_up() {
    let mut cache = Cache::new(&buffers(&[1, 1]), CHUNK);
    let policy = build(policy::Kind::Gap);
    let mut admit = |sample| cache.admit(SampleId(sample), Bytes(512), &*policy, &ById);
    let tiers: Vec<_> = [1, 2, 3, 4, 5].map(|it| admit(it).map(|place| place.tier.0)).to_vec();
    assert_eq!(tiers, [Some(0), Some(0), Some(1), Some(1), None]);
    assert_eq!(cache.len(), 4);
}

#[test]
fn fifo_sinks_the_oldest() {
    let mut cache = Cache::new(&buffers(&[1, 1]), CHUNK);
    let policy = build(policy::Kind::Fifo);
    for sample in 1..=5 {
        cache.admit(SampleId(sample), Bytes(512), &*policy, &ById).unwrap();
    }
    let tier = |sample| cache.place(SampleId(sample)).map(|place| place.tier.0);
    assert_eq!([1, 2, 3, 4, 5].map(tier), [None, Some(1), Some(1), Some(0), Some(0)]);
}

#[test]
fn deepmemory_lets_go_of_what_is_needed_late() {
    let mut cache = Cache::new(&buffers(&[1, 1]), CHUNK);
    let policy = build(policy::Kind::DeepMemory);
    for sample in [50, 1, 51, 2] {
        cache.admit(SampleId(sample), Bytes(512), &*policy, &ById).unwrap();
    }
    let tier = |sample| cache.place(SampleId(sample)).map(|place| place.tier.0);
    assert_eq!([50, 1, 51, 2].map(tier), [None, Some(1), Some(0), Some(0)]);
}
