//! The residency stays right for every decision of a policy.

use alloc::{collections::BTreeMap, vec};

use proptest::prelude::*;

use super::*;
use crate::{
    id::{BatchId, Epoch, NodeId, Rank, Step},
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    retention::{
        future_accesses::{NextUse, Use},
        policy::{self, Aim, Setting},
    },
    space::Piece,
    tier::Kind,
};

const CHUNK: Bytes = Bytes(16 * 64);

const SAMPLES: u32 = 60;

fn buffers(chunks: &[u32]) -> Vec<Buffer> {
    let buffer = |chunks_max: &u32| Buffer { kind: Kind::CxlMemory, chunks_max: *chunks_max };
    chunks.iter().map(buffer).collect()
}

struct Stage {
    cache: Cache,
    future: FutureAccesses,
}

impl Stage {
    fn new(kind: policy::Kind, chunks: &[u32], lens: impl IntoIterator<Item = u64>) -> Self {
        let sizes: Arc<[Bytes]> = lens.into_iter().map(Bytes).collect();
        let order = Spec {
            samples: u32::try_from(sizes.len()).unwrap(),
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 3,
            epochs: 9,
            drop_last: false,
            batch_size: 1,
            world: World { nodes: 1, ranks_per_node: 1 },
            start: Position::START,
            further: FurtherDatasets::NONE,
        };
        let buffers = buffers(chunks);
        let capacities = buffers.iter().map(|buffer| buffer.capacity(CHUNK)).collect();
        let setting = Setting {
            order,
            node: NodeId(0),
            sizes: Arc::clone(&sizes),
            capacities,
            aim: Aim::default(),
        };
        let policy = policy::build(kind, &setting);
        let future = FutureAccesses::new(order, NodeId(0), policy.lookahead());
        Self { cache: Cache::new(&buffers, CHUNK, sizes, policy), future }
    }

    /// Reads all samples of an epoch from `first` on; returns those that are read, in order.
    fn read(&mut self, epoch: u32, count: usize) -> Vec<SampleId> {
        self.future.prepare(Epoch(epoch));
        let batch = |step| BatchId { epoch: Epoch(epoch), step: Step(step), rank: Rank(0) };
        let samples = (0..).map_while(|step| self.future.batch(batch(step))?.first().copied());
        let samples: Vec<_> = samples.take(count).collect();
        for (step, sample) in (0..).zip(&samples) {
            let at = self.future.read_of(batch(step), 0);
            self.cache.read(Read { sample: *sample, at }, &self.future);
        }
        samples
    }

    fn tier(&self, sample: SampleId) -> Option<u8> {
        self.cache.place(sample).map(|place| place.tier.0)
    }
}

fn check(cache: &Cache, limits: &[u32]) {
    let mut pieces: Vec<(TierId, Piece)> = Vec::new();
    for (sample, place) in cache.places.iter() {
        pieces.extend(place.pieces.iter().map(|piece| (place.tier, *piece)));
        let stays = cache.due(sample).is_none().then_some(place.tier);
        assert_eq!(cache.residency.tier_of(sample), stays, "invariant 1");
    }
    assert_eq!(cache.len(), cache.residency.kept(), "invariant 1");
    let waiting = cache.places.iter().filter(|(sample, _)| cache.due(*sample).is_some());
    assert_eq!(waiting.count(), cache.ahead_count(), "what waits has a place");
    for (id, tier) in (0..).map(TierId).zip(&cache.tiers) {
        // What is named and not given up is the place of a sample already.
        let kept = tier.pins.pieces().filter(|(_, is_vacated)| *is_vacated);
        pieces.extend(kept.map(|(piece, _)| (id, piece)));
    }
    pieces.sort();
    let apart = pieces.is_sorted_by(|(tier, a), (other, b)| tier != other || !a.overlaps(b));
    assert!(apart, "invariants 1 and 3");
    for (tier, limit) in cache.tiers.iter().zip(limits) {
        assert!(tier.space.chunk_count() <= *limit, "invariant 2");
    }
    for (tier, level) in (0..).map(TierId).zip(cache.levels()) {
        let (waiting, capacity) = (cache.ahead_in(tier), cache.capacity(tier));
        let fits = waiting == Bytes(0) || level.used.0 + waiting.0 <= capacity.0;
        assert!(fits, "what waits takes only room that the residency leaves");
    }
}

#[derive(Debug, Clone)]
enum Op {
    Read(u32),
    Forget(u32),
    Resize(u8, u32),
    Lose(u8, u32),
    GiveUp(u8, u32),
    Pin(u32),
    Unpin(usize),
    FetchAhead(u32),
    Advance,
    Abandon(u32),
    Reserve(u64),
    Arriving(u32),
    Arrived(u32),
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..SAMPLES * 4).prop_map(Op::Read),
        1 => (0..SAMPLES).prop_map(Op::Forget),
        1 => (0_u8..3, 0_u32..5).prop_map(|(tier, chunks)| Op::Resize(tier, chunks)),
        1 => (0_u8..3, 0_u32..4).prop_map(|(tier, chunk)| Op::Lose(tier, chunk)),
        1 => (0_u8..3, 0_u32..4).prop_map(|(tier, chunk)| Op::GiveUp(tier, chunk)),
        3 => (0..SAMPLES).prop_map(Op::Pin),
        2 => (0_usize..100).prop_map(Op::Unpin),
        6 => (0..SAMPLES * 4).prop_map(Op::FetchAhead),
        2 => Just(Op::Advance),
        1 => (0..SAMPLES).prop_map(Op::Abandon),
        1 => (0..CHUNK.0 * 9).prop_map(Op::Reserve),
        2 => (0..SAMPLES).prop_map(Op::Arriving),
        1 => (0..SAMPLES).prop_map(Op::Arrived),
    ]
}

proptest! {
    #[test]
    fn the_books_stay_right(
        ops in prop::collection::vec(any_op(), 1..200),
        lens in prop::collection::vec(1_u64..900, SAMPLES as usize),
        kind in prop::sample::select(&policy::Kind::ALL[..]),
    ) {
        let mut limits = [3, 2, 4];
        let mut named: Vec<InPlace> = Vec::new();
        let mut chunks: BTreeMap<(TierId, ChunkId), u32> = BTreeMap::new();
        let Stage { mut cache, mut future } = Stage::new(kind, &limits, lens);
        for op in ops {
            match op {
                Op::Read(place) => {
                    let (epoch, step) = (Epoch(place / SAMPLES), Step(place % SAMPLES));
                    future.prepare(epoch);
                    let batch = BatchId { epoch, step, rank: Rank(0) };
                    let sample = future.batch(batch).unwrap()[0];
                    cache.read(Read { sample, at: future.read_of(batch, 0) }, &future);
                }
                Op::FetchAhead(place) => {
                    let (epoch, step) = (Epoch(place / SAMPLES), Step(place % SAMPLES));
                    future.prepare(epoch);
                    let batch = BatchId { epoch, step, rank: Rank(0) };
                    let sample = future.batch(batch).unwrap()[0];
                    if cache.place(sample).is_none() {
                        cache.fetch_ahead(sample, Due { batch, index: 0 });
                    }
                }
                Op::Advance => drop(cache.advance()),
                Op::Abandon(sample) => cache.abandon(SampleId(sample)),
                Op::Arriving(sample) => cache.note_arriving(SampleId(sample)),
                Op::Arrived(sample) => drop(cache.note_arrived(SampleId(sample))),
                Op::Reserve(room) => cache.reserve(Bytes(room)),
                Op::Forget(sample) => cache.forget(SampleId(sample)),
                Op::Resize(tier, chunks) => {
                    limits[usize::from(tier)] = chunks;
                    cache.resize(TierId(tier), chunks);
                }
                Op::Lose(tier, chunk) => cache.lose_chunk(TierId(tier), ChunkId(chunk)),
                Op::GiveUp(tier, chunk) => cache.give_up_chunk(TierId(tier), ChunkId(chunk)),
                Op::Pin(sample) => named.extend(cache.pin(SampleId(sample))),
                Op::Unpin(which) if named.is_empty() => prop_assert!(which < 100),
                Op::Unpin(which) => {
                    let in_place = named.swap_remove(which % named.len());
                    cache.unpin(in_place);
                }
            }
            let mut last = BTreeMap::new();
            for change in cache.take_changes() {
                match change {
                    Change::Kept { sample, to }
                    | Change::Demoted { sample, to, .. }
                    | Change::FetchedAhead { sample, to, .. }
                    | Change::Shifted { sample, to, .. } => {
                        last.insert(sample, Some(to));
                    }
                    Change::Evicted { sample, .. }
                    | Change::GaveWay { sample, .. }
                    | Change::Abandoned { sample, .. } => {
                        last.insert(sample, None);
                    }
                    Change::ChunkAdded { tier, chunk } => {
                        *chunks.entry((tier, chunk)).or_default() += 1;
                    }
                    Change::ChunkDropped { tier, chunk } => {
                        prop_assert_eq!(chunks.remove(&(tier, chunk)), Some(1), "dropped once");
                        let names_it = |it: &InPlace| (it.tier, it.chunk) == (tier, chunk);
                        prop_assert!(!named.iter().any(names_it), "invariant 3");
                    }
                }
            }
            let is_told = last.iter().all(|(sample, place)| cache.place(*sample) == *place);
            prop_assert!(is_told, "what was told last is what holds");
            check(&cache, &limits);
        }
        named.drain(..).for_each(|in_place| cache.unpin(in_place));
        for tier in &cache.tiers {
            prop_assert_eq!((tier.pins.leaving(), tier.pins.pieces().count()), (0, 0));
        }
        check(&cache, &limits);
        let used = |tier: TierId| {
            let places = cache.places.iter().filter(|(_, place)| place.tier == tier);
            places.flat_map(|(_, place)| place.pieces.to_vec()).map(|piece| piece.len.0).sum::<u64>()
        };
        for (id, tier) in (0..).map(TierId).zip(&cache.tiers) {
            prop_assert_eq!(tier.space.capacity().0 - tier.space.free().0, used(id), "all came back");
        }
    }
}

#[test]
fn gap_fills_the_fastest_tier_first_and_gives_nothing_up() {
    let mut stage = Stage::new(policy::Kind::Gap, &[1, 1], [512; 6]);
    stage.read(0, 6);
    stage.read(1, 6);
    let mut tiers: Vec<_> = (0..6).map(|sample| stage.tier(SampleId(sample))).collect();
    tiers.sort_unstable();
    assert_eq!(tiers, [None, None, Some(0), Some(0), Some(1), Some(1)]);
}

#[test]
fn fifo_sinks_the_oldest() {
    let mut stage = Stage::new(policy::Kind::Fifo, &[1, 1], [512; 5]);
    let read = stage.read(0, 5);
    let tiers: Vec<_> = read.into_iter().map(|sample| stage.tier(sample)).collect();
    assert_eq!(tiers, [None, Some(1), Some(1), Some(0), Some(0)]);
}

#[test]
fn deepmemory_lets_go_of_what_is_needed_late() {
    let mut stage = Stage::new(policy::Kind::DeepMemory, &[1, 1], [512; 12]);
    let read = stage.read(0, 12);
    stage.future.prepare(Epoch(1));
    // Four samples fit, so what a full buffer gives up is needed within four steps, or dropped.
    for (at, sample) in read.iter().enumerate().filter(|(_, it)| stage.tier(**it) == Some(1)) {
        let place = u32::try_from(at + 2).unwrap();
        let given_up = Use { epoch: Epoch(0), place };
        let NextUse::At(next) = stage.future.next_use(*sample, given_up) else { panic!("{at}") };
        assert!(stage.future.steps_between(given_up, next) <= 4);
    }
    assert!(read[..8].iter().any(|it| stage.tier(*it).is_none()));
}

fn due(step: u32) -> Due {
    Due { batch: BatchId { epoch: Epoch(0), step: Step(step), rank: Rank(0) }, index: 0 }
}

#[test]
fn what_is_needed_first_waits_in_the_fastest_tier_and_moves_up_as_it_gets_room() {
    let Stage { mut cache, .. } = Stage::new(policy::Kind::None, &[1, 1], [512; 12]);
    for step in 0..5 {
        assert_eq!(cache.fetch_ahead(SampleId(step), due(step)), step < 4, "n, then k, then none");
    }
    let tiers = |cache: &Cache| -> Vec<Option<u8>> {
        (0..4).map(|sample| cache.place(SampleId(sample)).map(|place| place.tier.0)).collect()
    };
    assert_eq!(tiers(&cache), [Some(0), Some(0), Some(1), Some(1)]);
    cache.use_up(SampleId(0));
    assert!(cache.advance());
    assert!(!cache.advance());
    assert_eq!(tiers(&cache), [None, Some(0), Some(0), Some(1)]);
    assert!(cache.fetch_ahead(SampleId(4), due(4)), "what is to come enters at the end");
    assert_eq!(cache.place(SampleId(4)).map(|place| place.tier.0), Some(1));
}

#[test]
fn a_sample_waits_in_several_pieces_if_no_hole_and_no_chunk_holds_it() {
    let pieces = |len: u64| -> Vec<Option<usize>> {
        let Stage { mut cache, .. } = Stage::new(policy::Kind::None, &[3], [len; 12]);
        let fetched = (0..).map(SampleId).zip(0..6);
        let fetched = fetched.map(|(sample, step)| {
            let is_fetched = cache.fetch_ahead(sample, due(step));
            assert_eq!(is_fetched, cache.has_place(sample));
            cache.place(sample).map(|place| place.pieces.len())
        });
        let fetched = fetched.collect();
        check(&cache, &[3]);
        fetched
    };
    let one_a_chunk = [Some(1), Some(1), Some(1), Some(2), None, None];
    assert_eq!(pieces(640), one_a_chunk, "the fourth lies in what is left of two chunks");
    assert_eq!(pieces(1280), [Some(2), Some(2), None, None, None, None], "larger than a chunk");
    assert_eq!(pieces(4096), [None; 6], "larger than the tier");
}

#[test]
fn what_moves_with_what_is_read_finds_the_room_where_that_waited() {
    let mut stage = Stage::new(policy::Kind::Fifo, &[1, 1], [512; 12]);
    stage.read(0, 2);
    let batch = |step| BatchId { epoch: Epoch(0), step: Step(step), rank: Rank(0) };
    let [third, fourth] = [2, 3].map(|step| stage.future.batch(batch(step)).unwrap()[0]);
    assert!(stage.cache.fetch_ahead(third, due(2)) && stage.cache.fetch_ahead(fourth, due(3)));
    assert_eq!([third, fourth].map(|it| stage.tier(it)), [Some(1), Some(1)], "the first is full");
    let at = stage.future.read_of(batch(2), 0);
    stage.cache.read(Read { sample: third, at }, &stage.future);
    assert_eq!([third, fourth].map(|it| stage.tier(it)), [Some(0), Some(1)]);
    assert!(stage.cache.due(fourth).is_some(), "what went down took the room of what was read");
}

#[test]
fn what_waits_goes_down_for_what_stays_the_last_needed_first_and_out_if_there_is_no_room() {
    let mut stage = Stage::new(policy::Kind::Pinned, &[1, 1], [512; 12]);
    stage.future.prepare(Epoch(0));
    let batch = |step| BatchId { epoch: Epoch(0), step: Step(step), rank: Rank(0) };
    let samples: Vec<_> = (0..8).map(|step| stage.future.batch(batch(step)).unwrap()[0]).collect();
    let [first, second, fifth, sixth, seventh] = [0, 1, 5, 6, 7].map(|at| samples[at]);
    for (sample, step) in [(fifth, 5), (sixth, 6), (seventh, 7)] {
        assert!(stage.cache.fetch_ahead(sample, due(step)));
    }
    assert_eq!([fifth, sixth, seventh].map(|it| stage.tier(it)), [Some(0), Some(0), Some(1)]);
    stage.cache.take_changes();
    let mut keep = |sample, step| {
        let at = stage.future.read_of(batch(step), 0);
        stage.cache.read(Read { sample, at }, &stage.future);
        stage.cache.take_changes()
    };
    let changes = keep(first, 0);
    let went_down = |change: &Change| match change {
        Change::Shifted { sample, from, to, .. } => Some((*sample, from.tier.0, to.tier.0)),
        _ => None,
    };
    assert_eq!(changes.iter().find_map(went_down), Some((sixth, 0, 1)), "{changes:?}");
    let changes = keep(second, 1);
    let len = Bytes(512);
    assert!(
        changes.contains(&Change::Abandoned { sample: fifth, due: due(5), len }),
        "{changes:?}"
    );
    assert_eq!([first, second].map(|it| stage.tier(it)), [Some(0), Some(0)]);
    assert_eq!([fifth, sixth, seventh].map(|it| stage.tier(it)), [None, Some(1), Some(1)]);
}
