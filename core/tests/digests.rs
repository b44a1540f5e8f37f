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
        cold_burst: Nanoseconds(0),
        cold: speed(1_000_000, 100_000_000),
        tiers: vec![speed(350, 20_000_000_000); tiers],
        step_time: Nanoseconds(5_000_000),
        pause: None,
        transforms: None,
        head_start: Nanoseconds(0),
    }
}

fn digest(policy: Kind, world: World) -> u64 {
    simulate(&settings(policy, world), &model(2)).digest
}

/// Digests of runs that fetch ahead: a training without pauses, one with pauses and room kept free, and one
/// that reads samples of the first tier in place and has a disk as its last.
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
    (Kind::Gap, [0xc854_7080_c47d_d35e, 0x88ee_7539_0b8c_b6ed, 0x4b00_ef3c_709a_0077]),
    (Kind::DeepMemory, [0xba5c_d82a_48c5_6685, 0xb235_e15d_389c_3e1f, 0xd082_c62b_653e_c9aa]),
    (Kind::Lobster, [0xa12a_b8c1_c724_7f07, 0x5640_e042_d2ce_4d4b, 0x7efb_e934_65be_4119]),
    (Kind::LobsterLazy, [0x4071_fe5a_2410_2805, 0xc6b0_4612_6556_8755, 0x534a_282c_c32c_5183]),
    (Kind::NoPfs, [0xa194_219a_4802_df09, 0x72fb_3e8b_a792_8ab3, 0x4d57_8459_27c1_0a25]),
    (Kind::Deli, [0xd7cd_3d2f_2a8c_76c9, 0x51f0_c9db_0d94_3943, 0x578d_7f05_d240_c5f7]),
    (Kind::Pinned, [0x732a_8eed_73bc_daae, 0x4556_edfc_5fb6_7731, 0x194a_4d0f_6392_d965]),
    (Kind::Partitioned, [0xcbde_4754_75d9_5cb4, 0x4556_edfc_5fb6_7731, 0x194a_4d0f_6392_d965]),
    (Kind::Belady, [0xa12a_b8c1_c724_7f07, 0x86dd_cad4_35f9_2636, 0x7efb_e934_65be_4119]),
    (Kind::Fifo, [0xc269_3866_346c_10b7, 0x471f_b705_3e0b_1a80, 0xcc0d_7097_ad51_fbd5]),
    (Kind::Lru, [0xf0c2_79c8_0af8_17ca, 0x114f_0cd0_68dc_1f1e, 0x8a30_b1e8_56f3_bea9]),
    (Kind::PageCache, [0x3ef3_02ae_8901_35f8, 0x3fe7_154a_b8a8_7296, 0x4f4c_2e2e_c5a5_b848]),
    (Kind::None, [0xe7c0_014b_24c2_1d15, 0x24e6_c636_6700_1f31, 0xfc2e_196d_3917_6bbd]),
];

const EXPECTED: [(Kind, [u64; 2]); 13] = [
    (Kind::Gap, [0x94d9_900d_e016_396f, 0xae76_90c1_fc80_eb0d]),
    (Kind::DeepMemory, [0x6fe5_4339_4b75_4833, 0x8e80_9b12_7ecf_47ec]),
    (Kind::Lobster, [0x1076_9d7a_b3a8_8968, 0x35a7_cd30_6c29_4ef5]),
    (Kind::LobsterLazy, [0x5de7_a244_7b69_9ffa, 0xca0c_2a58_af10_95d4]),
    (Kind::NoPfs, [0xd975_6760_405d_d462, 0xe413_70ba_e620_e781]),
    (Kind::Deli, [0x851f_f094_0dba_8ffa, 0x96c1_05ca_5f02_a293]),
    (Kind::Pinned, [0xa53e_cae1_77ff_558c, 0xa0b9_b72a_866e_950b]),
    (Kind::Partitioned, [0xe7d7_cded_7788_ff47, 0xa0b9_b72a_866e_950b]),
    (Kind::Belady, [0x1076_9d7a_b3a8_8968, 0xbc60_2bee_61b2_b4e2]),
    (Kind::Fifo, [0x19c7_9128_d601_54e8, 0xe1ec_bcc3_c604_82ff]),
    (Kind::Lru, [0x1654_2c1a_9511_5010, 0x133b_48b2_8770_9871]),
    (Kind::PageCache, [0xa369_81af_87ab_9800, 0x4ea1_d33b_c77a_6911]),
    (Kind::None, [0x816e_2555_924b_326c, 0xc930_aa06_34cf_abe6]),
];
