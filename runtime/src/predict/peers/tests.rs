//! Dump and sums agree with the plan of the core.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use tierfeed_core::{
    id::{NodeId, Rank, Step},
    order::{FurtherDatasets, Position, Spec, World},
    retention::policy,
    session::{LookAhead, OnError, Windows},
    tier::{self, Buffer},
};

use super::*;

const LEN: u64 = 4096;

/// Three nodes that hold half of the dataset together.
fn settings() -> Settings {
    let order = Spec {
        samples: 1_536,
        shuffle: Shuffle::TORCH_DISTRIBUTED,
        seed: 3,
        epochs: 5,
        drop_last: false,
        batch_size: 16,
        world: World { nodes: 3, ranks_per_node: 2 },
        start: Position::START,
        further: FurtherDatasets::NONE,
    };
    Settings {
        order,
        node: NodeId(0),
        sizes: vec![Bytes(LEN); order.samples as usize].into(),
        tiers: vec![Buffer { kind: tier::Kind::MainMemory, chunks_max: 1 }],
        chunk: Bytes::mib(1),
        policy: policy::Kind::Gap,
        staged_batches: 3,
        staged_batches_max: 0,
        arena: Bytes::mib(1),
        on_error: OnError::Fail,
        windows: Windows::default(),
        aim: tierfeed_core::retention::policy::Aim::default(),
        in_place_tiers: Vec::new(),
        transform: None,
        first_room: Bytes(0),
        look_ahead: LookAhead::Off,
    }
}

#[test]
fn figures_stand_beside_their_limits_and_add_up() {
    let shared = SharedCachePlan::of(&settings()).unwrap();
    let [first, kept @ .., last] = shared.epochs.as_slice() else { panic!("five epochs") };
    assert_eq!(first.figures.cold_read_bytes, 1_536 * LEN);
    for epoch in kept.iter().chain([last]) {
        assert_eq!(epoch.figures.minimal_cold_bytes, 768 * LEN);
        assert_eq!(epoch.figures.cold_read_bytes, epoch.figures.minimal_cold_bytes);
        let served = epoch.figures.tier_read_bytes["main-memory"] + epoch.figures.peer_read_bytes;
        assert_eq!(served + epoch.figures.cold_read_bytes, epoch.figures.demand_bytes);
        let sent: u64 = epoch.by_node.iter().map(|node| node.sent_bytes).sum();
        assert_eq!(sent, epoch.figures.peer_read_bytes);
        assert!(epoch.by_node.iter().all(|node| node.kept_bytes == 256 * LEN));
    }
    let cold: u64 = shared.epochs.iter().map(|epoch| epoch.figures.cold_read_bytes).sum();
    assert_eq!(shared.total.cold_read_bytes, cold);
    assert_eq!(shared.total.minimal_cold_bytes, (1_536 + 4 * 768) * LEN);
    let best = shared.total.best_local_ratio.unwrap();
    assert!((0.4..0.43).contains(&best), "a sixth of the dataset each: {best}");
    let json = serde_json::to_value(&shared).unwrap();
    assert_eq!(json["epochs"][1]["by_node"][2]["cold_read_bytes"].as_u64().unwrap() % LEN, 0);
    let text = shared.to_string();
    assert_eq!(text.lines().count(), 2 + 5 + 1, "{text}");
}

#[test]
fn an_order_that_deals_alike_has_no_limit_of_chance() {
    let order = Spec { shuffle: Shuffle::Sequential, ..settings().order };
    let shared = SharedCachePlan::of(&Settings { order, ..settings() }).unwrap();
    assert_eq!(shared.total.best_local_ratio, None);
    assert_eq!(shared.total.peer_read_bytes, 0, "each node reads its own samples again");
}

#[test]
fn every_read_is_written_with_its_place() {
    let (settings, mut text) = (settings(), Vec::new());
    dump(&settings, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let mut lines = text.lines().skip(1);
    for epoch in &SharedCachePlan::of(&settings).unwrap().epochs {
        let order = settings.order.epoch(tierfeed_core::id::Epoch(epoch.epoch)).unwrap();
        let mut places: BTreeMap<&str, u64> = BTreeMap::new();
        for (step, rank) in (0..16).flat_map(|step| (0..6).map(move |rank| (step, rank))) {
            let line = lines.next().unwrap();
            let head = format!("{} {step} {rank} ", epoch.epoch);
            let reads = line.strip_prefix(&head).unwrap_or_else(|| panic!("{head}: {line}"));
            let mut samples = order.batch(Rank(rank), Step(step));
            for read in reads.split(',') {
                let (sample, place) = read.split_once(':').unwrap();
                assert_eq!(sample, samples.next().unwrap().0.to_string());
                *places.entry(place).or_default() += LEN;
            }
            assert_eq!(samples.next(), None);
        }
        let read = |place: &str| places.get(place).copied().unwrap_or(0);
        assert_eq!(read("cold"), epoch.figures.cold_read_bytes);
        assert_eq!(read("main-memory"), epoch.figures.tier_read_bytes["main-memory"]);
        for node in &epoch.by_node {
            assert_eq!(read(&format!("node-{}", node.node)), node.sent_bytes);
        }
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_plan() {
    struct Pipe(usize);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let ended = dump(&settings(), &mut Pipe(10_000));
    assert!(
        matches!(ended, Err(DumpError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe)
    );
}
