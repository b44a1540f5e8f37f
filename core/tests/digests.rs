//! What the simulator decides, command by command, as one number for each policy and world.
//!
//! A change detector: the code printed these numbers, so they show that its decisions are those of before,
//! not that they are right. What is right is shown elsewhere: no schedule reads less (`exhaustive.rs`), what
//! each policy may keep (`policy/`), every byte in its place (`session/tests.rs`).
//!
//! The numbers are those of the code that planned every epoch within the event that needed it, so they hold
//! what planning ahead, on other threads, must not change. A change that is meant to change decisions
//! replaces them; the failing assertion prints the new ones.

use tierfeed_core::{
    id::NodeId,
    order::{Position, Shuffle, Spec, World},
    retention::policy::{Aim, Kind},
    session::{LookAhead, OnError, Settings, Windows},
    simulator::{Model, simulate},
    tier::{Buffer, Kind as TierKind, Speed},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

const CHUNK: Bytes = Bytes::mib(1);

/// One node that reads everything, and one of three.
const WORLDS: [World; 2] =
    [World { nodes: 1, ranks_per_node: 2 }, World { nodes: 3, ranks_per_node: 2 }];

fn digest(policy: Kind, world: World) -> u64 {
    let size = |i: u64| 20_000 + (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 180_000;
    let sizes: Vec<Bytes> = (0..600).map(|i| Bytes(size(i))).collect();
    let total: u64 = sizes.iter().map(|len| len.0).sum();
    let chunks = |percent: u64| u32::try_from(total * percent / 100 / CHUNK.0).expect("few");
    let tiers = [(TierKind::CxlMemory, 30), (TierKind::Scratch, 10)].map(|(kind, percent)| {
        Buffer { kind, chunks_max: chunks(percent / u64::from(world.nodes.min(2))) }
    });
    let settings = Settings {
        order: Spec {
            samples: 600,
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 42,
            epochs: 9,
            drop_last: false,
            batch_size: 8,
            world,
            start: Position::START,
        },
        node: NodeId(world.nodes - 1),
        sizes: sizes.into(),
        tiers: tiers.to_vec(),
        chunk: CHUNK,
        policy,
        staged_batches: 4,
        arena: Bytes::mib(8),
        on_error: OnError::Fail,
        windows: Windows::default(),
        aim: Aim::default(),
        in_place_tiers: Vec::new(),
        first_room: Bytes(0),
        look_ahead: LookAhead::Off,
    };
    let speed =
        |latency, rate| Speed { latency: Nanoseconds(latency), bandwidth: BytesPerSecond(rate) };
    let model = Model {
        cold_threads: None,
        cold: speed(1_000_000, 100_000_000),
        tiers: vec![speed(350, 20_000_000_000); 2],
        step_time: Nanoseconds(5_000_000),
        pause: None,
    };
    simulate(&settings, &model).digest
}

#[test]
fn decisions_are_those_of_the_code_that_planned_in_time() {
    let found = Kind::ALL.map(|policy| (policy, WORLDS.map(|world| digest(policy, world))));
    assert_eq!(found, EXPECTED, "{found:#x?}");
}

const EXPECTED: [(Kind, [u64; 2]); 12] = [
    (Kind::Gap, [0xf8c0_58c9_66f1_ac6f, 0xba88_c2c3_0e5c_d88d]),
    (Kind::DeepMemory, [0xc269_6240_81e1_e473, 0xb976_0456_ec28_fcec]),
    (Kind::Lobster, [0xde8e_97fc_8491_bce8, 0x1ef3_e74e_bb94_6db5]),
    (Kind::LobsterLazy, [0x6319_dbb4_aa56_307a, 0x2de7_943f_c4f5_49d4]),
    (Kind::NoPfs, [0x4fc9_c967_6a36_0322, 0x2551_de94_90db_61c1]),
    (Kind::Deli, [0x5e87_1321_40b0_393a, 0x17ac_6142_96f4_2d53]),
    (Kind::Pinned, [0x34c4_03ba_6fbf_294c, 0x28ff_e538_5bd0_108b]),
    (Kind::Belady, [0xde8e_97fc_8491_bce8, 0x2cfc_12f0_0d40_83e2]),
    (Kind::Fifo, [0xa1de_37f5_32ab_c468, 0x9edd_dd27_298d_d8bf]),
    (Kind::Lru, [0x5499_6d0f_7bb8_2690, 0x0180_a94e_466b_eeb1]),
    (Kind::PageCache, [0x5c1e_eb7b_8245_4c80, 0x502f_1789_13a9_d611]),
    (Kind::None, [0x2868_a07b_075f_b8ac, 0xfb2b_390e_3847_fe66]),
];
