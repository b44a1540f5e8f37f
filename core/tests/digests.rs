//! What the simulator decides, command by command, as one number for each policy and world.
//!
//! A change detector: the code printed these numbers, so they show that its decisions are those of before,
//! not that they are right. What is right is shown elsewhere: no schedule reads less (`exhaustive.rs`), what
//! each policy may keep (`policy/`), every byte in its place (`session/tests.rs`).
//!
//! The numbers are those of the code that planned every epoch within the event that needed it, so they hold
//! what planning ahead, on other threads, must not change; ranks take turns in them. A change that is meant
//! to change decisions replaces them; the failing assertion prints the new ones.

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
    (Kind::Gap, [0xee6f_7ce7_b9bb_6bcc, 0x13f3_d2f4_9eba_d36a, 0xd3bf_dbd7_514c_ebf5]),
    (Kind::DeepMemory, [0xb5f2_5f6b_ff2a_ca06, 0xa384_f1e6_529c_6a9a, 0xf88a_9755_9383_2d68]),
    (Kind::Lobster, [0x0dc3_0e1d_0ebf_fdba, 0x66c6_9dc5_5597_0571, 0xa751_effd_3e2d_8d9a]),
    (Kind::LobsterLazy, [0x6176_742d_7cf0_fdc3, 0xec0a_026b_bf97_523d, 0xb389_7201_450f_1a8b]),
    (Kind::NoPfs, [0x6c72_4fbd_166e_29a5, 0xd2c8_968c_3e66_028a, 0x876e_187e_bec6_6174]),
    (Kind::Deli, [0x925e_4555_8af2_8a5d, 0x72a2_e2bf_af7d_8d8d, 0x13d1_3b23_bd63_0c74]),
    (Kind::Pinned, [0xf1bb_0bfa_d76c_146a, 0x88ae_2126_607e_b806, 0x90bd_0869_1996_c2cf]),
    (Kind::Partitioned, [0x2624_5104_31c2_51d8, 0x88ae_2126_607e_b806, 0x90bd_0869_1996_c2cf]),
    (Kind::Belady, [0x0dc3_0e1d_0ebf_fdba, 0xf44d_3cf7_e230_4bf8, 0xa751_effd_3e2d_8d9a]),
    (Kind::Fifo, [0x7b62_4c4c_ab74_efdb, 0x625a_292b_10f4_5123, 0x8f87_84ab_12d0_f452]),
    (Kind::Lru, [0x823a_4346_a3a1_f420, 0x5c16_2c18_5474_b5a0, 0xbbb1_8d9d_7436_b35b]),
    (Kind::PageCache, [0x3cb6_e5bc_a155_317e, 0x9fe6_1192_df2a_f29b, 0xe7b8_72c3_f2ea_d5ff]),
    (Kind::None, [0x3e8f_190c_9238_0a41, 0x675c_d3f4_d2a8_a39b, 0xfbb9_57ba_672a_e87c]),
];

const EXPECTED: [(Kind, [u64; 2]); 13] = [
    (Kind::Gap, [0xbcad_81c9_424b_d650, 0xb5a4_9032_825a_57fc]),
    (Kind::DeepMemory, [0xbc0c_9708_2400_d245, 0xfbdc_fa7c_2416_dfb0]),
    (Kind::Lobster, [0xb74e_e45e_4314_666b, 0x5e78_42df_3dc2_e1b1]),
    (Kind::LobsterLazy, [0x4007_6c30_65fb_201d, 0x8f0d_9541_19e3_a40b]),
    (Kind::NoPfs, [0xa818_634f_688d_5c2a, 0x1edf_acd8_290b_5a80]),
    (Kind::Deli, [0xf1a0_d187_7540_2074, 0x9426_f946_52e6_b546]),
    (Kind::Pinned, [0xe661_9c4f_1d44_e5d8, 0x0d32_51e3_e81d_10f3]),
    (Kind::Partitioned, [0x3cd8_cb0a_53a0_153d, 0x0d32_51e3_e81d_10f3]),
    (Kind::Belady, [0xb74e_e45e_4314_666b, 0x5702_0621_f102_49a8]),
    (Kind::Fifo, [0x0efe_1102_63af_c92f, 0xf0bc_d1ff_a1eb_5fee]),
    (Kind::Lru, [0x107b_167c_55ed_6762, 0x2233_a6df_dd60_f0d6]),
    (Kind::PageCache, [0x5136_bf5c_9fd4_067a, 0xc40c_3a3e_4b95_6546]),
    (Kind::None, [0x332e_55ee_d92a_d144, 0x0eef_5e80_cd06_4aaa]),
];
