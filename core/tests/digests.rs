//! What the simulator decides, command by command, as one number for each policy and world.
//!
//! A change detector: the code printed these numbers, so they show that its decisions are those of before,
//! not that they are right. What is right is shown elsewhere: no schedule reads less (`exhaustive.rs`), what
//! each policy may keep (`policy/`), every byte in its place (`session/tests.rs`).
//!
//! The numbers are those of the code that planned every epoch within the event that needed it, so they hold
//! what planning ahead, on other threads, must not change. A change that is meant to change decisions
//! replaces them; the failing assertion prints the new ones.

use std::num::NonZeroU32;

use tierfeed_core::{
    id::{NodeId, TierId},
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    retention::policy::{Aim, Kind},
    session::{LookAhead, OnError, Settings, Windows},
    simulator::{Model, Pause, simulate},
    tier::{Buffer, Kind as TierKind, Speed},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

const CHUNK: Bytes = Bytes::mib(1);

/// One node that reads everything, and one of three.
const WORLDS: [World; 2] =
    [World { nodes: 1, ranks_per_node: 2 }, World { nodes: 3, ranks_per_node: 2 }];

/// The settings of a job that caches 40 % of its dataset.
fn settings(policy: Kind, world: World) -> Settings {
    let size = |i: u64| 20_000 + (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 180_000;
    let sizes: Vec<Bytes> = (0..600).map(|i| Bytes(size(i))).collect();
    let total: u64 = sizes.iter().map(|len| len.0).sum();
    let chunks = |percent: u64| u32::try_from(total * percent / 100 / CHUNK.0).expect("few");
    let tiers = [(TierKind::CxlMemory, 30), (TierKind::Scratch, 10)].map(|(kind, percent)| {
        Buffer { kind, chunks_max: chunks(percent / u64::from(world.nodes.min(2))) }
    });
    Settings {
        order: Spec {
            samples: 600,
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 42,
            epochs: 9,
            drop_last: false,
            batch_size: 8,
            world,
            start: Position::START,
            further: FurtherDatasets::NONE,
        },
        node: NodeId(world.nodes - 1),
        sizes: sizes.into(),
        tiers: tiers.to_vec(),
        chunk: CHUNK,
        policy,
        staged_batches: 4,
        staged_batches_max: 0,
        arena: Bytes::mib(8),
        on_error: OnError::Fail,
        windows: Windows::default(),
        aim: Aim::default(),
        in_place_tiers: Vec::new(),
        transform: None,
        first_room: Bytes(0),
        look_ahead: LookAhead::Off,
    }
}

fn model(tiers: usize) -> Model {
    let speed =
        |latency, rate| Speed { latency: Nanoseconds(latency), bandwidth: BytesPerSecond(rate) };
    Model {
        cold_threads: None,
        cold: speed(1_000_000, 100_000_000),
        tiers: vec![speed(350, 20_000_000_000); tiers],
        step_time: Nanoseconds(5_000_000),
        pause: None,
        transforms: None,
    }
}

fn digest(policy: Kind, world: World) -> u64 {
    simulate(&settings(policy, world), &model(2)).digest
}

/// What is fetched ahead of its use: by a training without pauses, by one with pauses and room kept free for
/// it, and by one that reads samples of the first tier in place and has a disk as its last.
fn digests_ahead(policy: Kind) -> [u64; 3] {
    // More may wait than two of these windows.
    let cold = NonZeroU32::new(16).expect("it is not zero");
    let windows = Windows { cold, ..Windows::default() };
    let ahead = |world, look_ahead| Settings { look_ahead, windows, ..settings(policy, world) };
    let steady = ahead(WORLDS[0], LookAhead::Auto);
    let paused = ahead(WORLDS[1], LookAhead::Room(Bytes::mib(4)));
    let mut in_place = ahead(WORLDS[0], LookAhead::Auto);
    in_place.tiers.push(Buffer { kind: TierKind::Storage, chunks_max: 6 });
    in_place.in_place_tiers = vec![TierId(0)];
    let every = NonZeroU32::new(9).expect("it is not zero");
    let pause = Some(Pause { every, time: Nanoseconds(120_000_000) });
    [
        simulate(&steady, &model(2)).digest,
        simulate(&paused, &Model { pause, ..model(2) }).digest,
        simulate(&in_place, &Model { pause, ..model(3) }).digest,
    ]
}

#[test]
fn decisions_are_those_of_the_code_that_planned_in_time() {
    let found = Kind::ALL.map(|policy| (policy, WORLDS.map(|world| digest(policy, world))));
    assert_eq!(found, EXPECTED, "{found:#x?}");
}

#[test]
fn decisions_with_look_ahead_are_those_of_the_code_that_feeds_the_cold_store() {
    let found = Kind::ALL.map(|policy| (policy, digests_ahead(policy)));
    assert_eq!(found, AHEAD, "{found:#x?}");
}

const AHEAD: [(Kind, [u64; 3]); 13] = [
    (Kind::Gap, [0x81cb_9bbc_86a6_fa9e, 0xf64c_8f36_c678_946d, 0x1510_512f_e352_84b7]),
    (Kind::DeepMemory, [0x2232_734f_77eb_cd05, 0x9314_a3d0_b617_b4df, 0xb206_e55a_ada7_026a]),
    (Kind::Lobster, [0x02b7_9db2_19b8_3847, 0x9645_25d2_4164_cb4b, 0x1a8f_17cc_b35e_d219]),
    (Kind::LobsterLazy, [0x34c2_3819_1f3d_2cc5, 0xe54d_b768_9286_4355, 0x32b7_a235_64de_9883]),
    (Kind::NoPfs, [0xca17_379e_e65a_62c9, 0x8a75_47b6_50d6_97b3, 0xdd77_df4d_e93b_2765]),
    (Kind::Deli, [0x18d1_ac10_9c66_cd89, 0x4ef3_f740_d315_d3c3, 0x5814_c58d_f052_d577]),
    (Kind::Pinned, [0x31c0_c1f9_a27e_90ee, 0x7101_f145_a534_1431, 0x51c8_e589_5bb8_64e5]),
    (Kind::Partitioned, [0x8078_80c9_70c8_5f74, 0x7101_f145_a534_1431, 0x51c8_e589_5bb8_64e5]),
    (Kind::Belady, [0x02b7_9db2_19b8_3847, 0xae31_b81a_fe64_2336, 0x1a8f_17cc_b35e_d219]),
    (Kind::Fifo, [0xbb0e_953b_d41b_20f7, 0x08ce_068a_2110_7380, 0x6289_5059_6e56_8215]),
    (Kind::Lru, [0x4774_cfac_2baa_2f8a, 0x62e5_7f47_7707_615e, 0xf394_d35e_7f9a_3c69]),
    (Kind::PageCache, [0xe3f6_26c5_e835_dc38, 0xe1a8_ca38_1b3f_4756, 0x2ba1_d61d_68a6_ff88]),
    (Kind::None, [0x3b10_a80b_7759_f955, 0x4237_320d_ae53_b931, 0x004a_c9d6_5e4b_033d]),
];

const EXPECTED: [(Kind, [u64; 2]); 13] = [
    (Kind::Gap, [0xf8c0_58c9_66f1_ac6f, 0xba88_c2c3_0e5c_d88d]),
    (Kind::DeepMemory, [0xc269_6240_81e1_e473, 0xb976_0456_ec28_fcec]),
    (Kind::Lobster, [0xde8e_97fc_8491_bce8, 0x1ef3_e74e_bb94_6db5]),
    (Kind::LobsterLazy, [0x6319_dbb4_aa56_307a, 0x2de7_943f_c4f5_49d4]),
    (Kind::NoPfs, [0x4fc9_c967_6a36_0322, 0x2551_de94_90db_61c1]),
    (Kind::Deli, [0x5e87_1321_40b0_393a, 0x17ac_6142_96f4_2d53]),
    (Kind::Pinned, [0x34c4_03ba_6fbf_294c, 0x28ff_e538_5bd0_108b]),
    (Kind::Partitioned, [0xdcf1_48c7_ce61_05c7, 0x28ff_e538_5bd0_108b]),
    (Kind::Belady, [0xde8e_97fc_8491_bce8, 0x2cfc_12f0_0d40_83e2]),
    (Kind::Fifo, [0xa1de_37f5_32ab_c468, 0x9edd_dd27_298d_d8bf]),
    (Kind::Lru, [0x5499_6d0f_7bb8_2690, 0x0180_a94e_466b_eeb1]),
    (Kind::PageCache, [0x5c1e_eb7b_8245_4c80, 0x502f_1789_13a9_d611]),
    (Kind::None, [0x2868_a07b_075f_b8ac, 0xfb2b_390e_3847_fe66]),
];
