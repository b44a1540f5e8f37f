use alloc::{collections::BTreeMap, string::String, vec};

use proptest::prelude::*;

use super::{
    revision::Held,
    schedule::{Device, Figures, FoundTier, LinkWindows, Location, Role, ScheduledTier},
    *,
};
use crate::{
    id::Epoch,
    order::{FurtherDatasets, Position, Shuffle, World},
    retention::in_place::SpeedOrigin,
    session::{Cycle, ObservedLink, Supply},
    tier::Kind,
    units::{Bytes, BytesPerSecond},
};

const CHUNK: Bytes = Bytes::mib(1);
const LOST_AFTER: Nanoseconds = Nanoseconds(100);

fn fleet_of(nodes: u32) -> Fleet {
    let order = Spec {
        samples: 100,
        shuffle: Shuffle::TORCH_DISTRIBUTED,
        seed: 7,
        epochs: 2,
        drop_last: false,
        batch_size: 4,
        world: World { nodes, ranks_per_node: 2 },
        start: Position::START,
        further: FurtherDatasets::NONE,
    };
    Fleet::new(Settings { order, policy: policy::Kind::Gap, lost_after: LOST_AFTER })
}

fn offer(cxl_chunks: u64) -> Offer {
    let tier = |kind, budget| FoundTier {
        kind,
        origin: Origin::Real,
        location: Location::Memory,
        device: Device::Own,
        budget,
        beside: Bytes(0),
        figures: Figures::none(),
        pace: SpeedOrigin::Own,
        reads: None,
        writes: None,
    };
    let cxl = tier(Kind::CxlMemory, Bytes(cxl_chunks * CHUNK.0 + 17));
    Offer {
        tiers: vec![tier(Kind::MainMemory, Bytes::mib(64)), cxl],
        cold: Figures::none(),
        transform: None,
    }
}

fn schedule() -> Schedule {
    let tier = |offered| ScheduledTier {
        offered,
        role: Role::RetentionAndLookAhead,
        cache: CHUNK,
        staging: Bytes(0),
        copy_threads: 2,
        direct: None,
        reason: String::new(),
    };
    Schedule {
        generation: 0,
        first_epoch: Epoch(0),
        tiers: vec![tier(0), tier(1)],
        chunk: CHUNK,
        arena: CHUNK,
        depth: 4,
        depth_max: 4,
        depth_reason: String::new(),
        windows: LinkWindows { cold: 8, cold_max: 256, cold_threads: 4, tier: 32 },
        look_ahead: Bytes(0),
        reason: String::new(),
        transform: None,
    }
}

fn agent(node: u32, home: u64, incarnation: u64) -> Registration {
    Registration { node: NodeId(node), home, incarnation, offer: offer(5) }
}

fn join(fleet: &mut Fleet, node: u32, home: u64, process: u64) -> Result<(u32, u32), Refusal> {
    let now = Nanoseconds(0);
    let assigned = fleet.handle_registration(agent(node, home, process), schedule(), now)?;
    Ok((assigned.node.0, assigned.generation))
}

fn report(fleet: &mut Fleet, node: u32, process: u64, now: u64) -> Direction {
    fleet.handle_progress(NodeId(node), process, Progress::default(), Nanoseconds(now))
}

#[test]
fn nodes_keep_the_numbers_they_come_with_and_get_the_job_s_schedule() {
    let mut fleet = fleet_of(3);
    assert_eq!(join(&mut fleet, 1, 10, 1), Ok((1, 0)));
    assert_eq!(join(&mut fleet, 2, 11, 2), Ok((2, 0)));
    let now = Nanoseconds(0);
    let assigned = fleet.handle_registration(agent(0, 12, 3), schedule(), now).unwrap();
    assert_eq!(assigned.node, NodeId(0));
    assert_eq!(assigned.order, fleet.settings().order.fingerprint());
    assert_eq!(assigned.schedule, schedule());
}

#[test]
fn more_nodes_than_the_world_are_refused() {
    let mut fleet = fleet_of(1);
    let outside = Refusal::NoSuchNode { node: NodeId(1), nodes: 1 };
    assert_eq!(join(&mut fleet, 1, 12, 3), Err(outside));
}

#[test]
fn a_second_agent_for_a_live_node_is_refused_until_the_first_is_lost() {
    let mut fleet = fleet_of(1);
    join(&mut fleet, 0, 10, 1).unwrap();
    let duplicate = Err(Refusal::DuplicateNode { node: NodeId(0) });
    assert_eq!(join(&mut fleet, 0, 11, 2), duplicate);
    fleet.handle_tick(Nanoseconds(LOST_AFTER.0 + 1));
    assert_eq!(join(&mut fleet, 0, 11, 2), Ok((0, 1)));
}

#[test]
fn a_restarted_agent_gets_its_number_and_schedule_back_and_the_old_process_is_superseded() {
    let mut fleet = fleet_of(2);
    join(&mut fleet, 0, 10, 1).unwrap();
    let now = Nanoseconds(5);
    let again = fleet.handle_registration(agent(0, 10, 2), schedule(), now).unwrap();
    assert_eq!((again.node, again.generation), (NodeId(0), 1));
    assert_eq!(again.schedule.generation, 1, "another schedule, made of what it offers now");
    assert_eq!(report(&mut fleet, 0, 1, 6), Direction::Superseded);
    assert_eq!(report(&mut fleet, 0, 2, 6), Direction::Continue);
}

#[test]
fn a_registration_that_is_repeated_changes_nothing() {
    let mut fleet = fleet_of(1);
    join(&mut fleet, 0, 10, 1).unwrap();
    fleet.handle_memory_asked(NodeId(0), 1, 2, Nanoseconds(0)).unwrap();
    let other = Schedule { depth: 9, ..schedule() };
    let again = fleet.handle_registration(agent(0, 10, 1), other, Nanoseconds(0)).unwrap();
    assert_eq!((again.generation, again.schedule), (0, schedule()), "what it works by stands");
    assert_eq!(fleet.nodes[&NodeId(0)].lent.lent(), 2);
}

/// Trainers that consume 2,500 chunks in a second, then pause for one, beside a cold store of 1,300.
fn observed(planned: u32) -> Observed {
    let second = Nanoseconds(1_000_000_000);
    let cycle = Cycle { consumed: Bytes(2_500 * CHUNK.0), busy: second, idle: second };
    let supply = Supply {
        epoch: Bytes(100_000 * CHUNK.0),
        capacity: Bytes(2_000 * CHUNK.0),
        staged: Bytes(0),
        hits: 20_000,
        cold: BytesPerSecond(1_300 * CHUNK.0),
    };
    let (cold, tiers) = (ObservedLink::default(), vec![]);
    let (cycle, supply) = (Some(cycle), Some(supply));
    let transforms = Default::default();
    Observed { planned: Epoch(planned), cold, tiers, transforms, load: None, cycle, supply }
}

#[test]
fn a_node_revises_its_schedule_once_and_says_so_until_the_fleet_knows() {
    let mut fleet = fleet_of(1);
    join(&mut fleet, 0, 10, 1).unwrap();
    let first = fleet.nodes().next().unwrap().1.schedule.clone();
    let mut held = Held::of(&first, Epoch(0));
    let next = held.next(&first, 2, &observed(0)).unwrap();
    assert_eq!((next.generation, next.first_epoch), (1, Epoch(1)));
    assert!(next.look_ahead > Bytes(1_000 * CHUNK.0) && !next.reason.is_empty());
    assert_eq!(first.tiers, next.tiers, "they stand");
    assert_eq!(held.next(&next, 2, &observed(0)), None);
    let node = NodeId(0);
    for _ in 0..2 {
        fleet.handle_schedule(node, next.clone());
    }
    assert_eq!(fleet.poll_notice(), Some(Notice::Revised { node }));
    assert_eq!(fleet.poll_notice(), None);
    assert_eq!(fleet.nodes().next().unwrap().1.schedule, next);
}

#[test]
fn after_the_last_epoch_is_planned_no_schedule_changes() {
    let mut fleet = fleet_of(1);
    join(&mut fleet, 0, 10, 1).unwrap();
    let first = fleet.nodes().next().unwrap().1.schedule.clone();
    assert_eq!(Held::of(&first, Epoch(0)).next(&first, 2, &observed(1)), None, "of two epochs");
}

#[test]
fn silence_is_noticed_once_and_speech_ends_it() {
    let mut fleet = fleet_of(1);
    join(&mut fleet, 0, 10, 1).unwrap();
    fleet.handle_tick(LOST_AFTER);
    assert_eq!(fleet.poll_notice(), None);
    fleet.handle_tick(Nanoseconds(150));
    fleet.handle_tick(Nanoseconds(160));
    let lost = Notice::NodeLost { node: NodeId(0), silent: Nanoseconds(150) };
    assert_eq!(fleet.poll_notice(), Some(lost));
    assert_eq!(fleet.poll_notice(), None);
    assert_eq!(report(&mut fleet, 0, 1, 170), Direction::Continue);
    assert_eq!(fleet.poll_notice(), Some(Notice::NodeBack { node: NodeId(0) }));
}

#[test]
fn a_drain_reaches_every_node_and_ends_with_the_last() {
    let mut fleet = fleet_of(2);
    join(&mut fleet, 0, 10, 1).unwrap();
    join(&mut fleet, 1, 11, 2).unwrap();
    fleet.handle_drain();
    assert_eq!(report(&mut fleet, 0, 1, 1), Direction::Drain);
    fleet.handle_drained(NodeId(0), 1, Progress::default());
    assert_eq!(fleet.poll_notice(), None);
    assert_eq!(join(&mut fleet, 0, 12, 3), Err(Refusal::Draining));
    fleet.handle_drained(NodeId(1), 2, Progress::default());
    assert_eq!(fleet.poll_notice(), Some(Notice::Over));
    fleet.handle_tick(Nanoseconds(1000));
    assert_eq!(fleet.poll_notice(), None, "a drained node is not lost");
}

#[test]
fn a_drain_does_not_wait_for_lost_nodes() {
    let mut fleet = fleet_of(1);
    join(&mut fleet, 0, 10, 1).unwrap();
    fleet.handle_drain();
    fleet.handle_tick(Nanoseconds(150));
    assert!(matches!(fleet.poll_notice(), Some(Notice::NodeLost { .. })));
    assert_eq!(fleet.poll_notice(), Some(Notice::Over));
}

#[test]
fn an_agent_that_the_manager_forgot_is_told_to_register() {
    let mut fleet = fleet_of(1);
    assert_eq!(report(&mut fleet, 0, 1, 0), Direction::Unknown);
    let denied = fleet.handle_memory_asked(NodeId(0), 1, 1, Nanoseconds(0));
    assert_eq!(denied, Err(Denial::Unknown));
}

#[test]
fn memory_is_lent_all_or_none_and_never_twice() {
    let mut fleet = fleet_of(1);
    join(&mut fleet, 0, 10, 1).unwrap();
    let now = Nanoseconds(0);
    assert_eq!(fleet.handle_memory_asked(NodeId(0), 1, 4, now), Ok(()));
    let denied = fleet.handle_memory_asked(NodeId(0), 1, 2, now);
    assert_eq!(denied, Err(Denial::TooFew { asked: 2, free: 1 }));
    assert_eq!(fleet.handle_memory_returned(NodeId(0), 1, 4, now), Ok(()));
    let denied = fleet.handle_memory_returned(NodeId(0), 1, 1, now);
    assert_eq!(denied, Err(Denial::NotLent { returned: 1, lent: 0 }));
}

#[derive(Debug, Clone)]
enum Op {
    Join { node: u32, process: u64 },
    Report { node: u32, process: u64 },
    Ask { node: u32, process: u64, chunks: u32 },
    Return { node: u32, process: u64, chunks: u32 },
    Wait { time: u64 },
    Drain,
    Drained { node: u32, process: u64 },
}

fn any_op() -> impl Strategy<Value = Op> {
    let node = || 0_u32..4;
    let process = || 0_u64..8;
    prop_oneof![
        6 => (0_u32..5, process())
            .prop_map(|(node, process)| Op::Join { node, process }),
        4 => (node(), process()).prop_map(|(node, process)| Op::Report { node, process }),
        4 => (node(), process(), 0_u32..5)
            .prop_map(|(node, process, chunks)| Op::Ask { node, process, chunks }),
        2 => (node(), process(), 0_u32..5)
            .prop_map(|(node, process, chunks)| Op::Return { node, process, chunks }),
        3 => (0_u64..150).prop_map(|time| Op::Wait { time }),
        1 => Just(Op::Drain),
        1 => (node(), process()).prop_map(|(node, process)| Op::Drained { node, process }),
    ]
}

/// A reference model of numbers, generations and memory, kept beside the fleet.
#[derive(Default)]
struct Model {
    nodes: BTreeMap<u32, (u64, u32)>,
    generations: BTreeMap<u32, u32>,
    lost: BTreeMap<u32, bool>,
}

impl Model {
    fn joined(&mut self, node: u32, process: u64, generation: u32) {
        let is_same = self.nodes.get(&node).is_some_and(|(known, _)| *known == process);
        let next = match self.generations.get(&node) {
            Some(known) if is_same => *known,
            Some(known) => known + 1,
            None => 0,
        };
        assert_eq!(generation, next, "invariant 2");
        self.generations.insert(node, generation);
        if !is_same {
            self.nodes.insert(node, (process, 0));
            self.lost.insert(node, false);
        }
    }
}

fn play(fleet: &mut Fleet, model: &mut Model, op: &Op, now: &mut Nanoseconds) {
    match *op {
        Op::Join { node, process } => {
            let home = process / 2;
            let agent = agent(node, home, process);
            if let Ok(assigned) = fleet.handle_registration(agent, schedule(), *now) {
                assert!(node < 3 && node == assigned.node.0, "invariant 1");
                model.joined(assigned.node.0, process, assigned.generation);
            }
        }
        Op::Report { node, process } => {
            let direction = fleet.handle_progress(NodeId(node), process, Progress::default(), *now);
            let known = model.nodes.get(&node).map(|(known, _)| *known);
            let is_ours = matches!(direction, Direction::Continue | Direction::Drain);
            assert_eq!(is_ours, known == Some(process));
        }
        Op::Ask { node, process, chunks } => {
            let granted = fleet.handle_memory_asked(NodeId(node), process, chunks, *now);
            if granted.is_ok() {
                let (_, lent) = model.nodes.get_mut(&node).unwrap();
                *lent += chunks;
                assert!(*lent <= 5, "invariant 3");
            }
        }
        Op::Return { node, process, chunks } => {
            if fleet.handle_memory_returned(NodeId(node), process, chunks, *now).is_ok() {
                let (_, lent) = model.nodes.get_mut(&node).unwrap();
                *lent = lent.checked_sub(chunks).expect("invariant 3");
            }
        }
        Op::Wait { time } => {
            now.0 += time;
            fleet.handle_tick(*now);
        }
        Op::Drain => fleet.handle_drain(),
        Op::Drained { node, process } => {
            fleet.handle_drained(NodeId(node), process, Progress::default());
            if let Some((known, lent)) = model.nodes.get_mut(&node)
                && *known == process
            {
                *lent = 0;
            }
        }
    }
    while let Some(notice) = fleet.poll_notice() {
        match notice {
            Notice::NodeLost { node, .. } => {
                let was_lost = model.lost.insert(node.0, true);
                assert_eq!(was_lost, Some(false), "invariant 4");
            }
            Notice::NodeBack { node } => {
                let was_lost = model.lost.insert(node.0, false);
                assert_eq!(was_lost, Some(true), "invariant 4");
            }
            Notice::Revised { node } => panic!("{node:?} observed nothing"),
            Notice::Over => assert!(fleet.is_draining()),
        }
    }
}

proptest! {
    #[test]
    fn the_invariants_hold_for_all_messages(ops in prop::collection::vec(any_op(), 1..120)) {
        let mut fleet = fleet_of(3);
        let mut model = Model::default();
        let mut now = Nanoseconds(0);
        for op in &ops {
            play(&mut fleet, &mut model, op, &mut now);
            for (id, node) in fleet.nodes() {
                let (process, lent) = model.nodes[&id.0];
                prop_assert_eq!((node.incarnation, node.lent.lent()), (process, lent));
                let tiers: u32 = node.lent.lent() + node.lent.free();
                prop_assert_eq!(tiers, 5);
            }
        }
    }
}
