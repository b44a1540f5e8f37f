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
    (Kind::Gap, [0xea1b_152b_79eb_a828, 0x439d_062d_ecc8_c2e8, 0x8cb9_f2b2_08e5_173a]),
    (Kind::DeepMemory, [0x049b_1bb4_6185_18fe, 0x5c71_fdc5_f951_3ab0, 0x6d35_3b58_8884_87fe]),
    (Kind::Lobster, [0x0d76_4650_d751_7530, 0x1b17_d764_2dc7_8670, 0x3080_fad9_9704_05da]),
    (Kind::LobsterLazy, [0xd498_e978_5623_48ed, 0x5351_87af_4696_e2d7, 0x9e85_646a_5648_2a5a]),
    (Kind::NoPfs, [0x8960_c4fb_0075_41a1, 0x4270_9d68_0963_e57a, 0xb061_a4aa_1f05_1e82]),
    (Kind::Deli, [0xf347_c27f_da1a_9e08, 0x15e5_4fd0_b822_7e1a, 0x4f73_7b65_d628_eb05]),
    (Kind::Pinned, [0x67bf_7492_227d_4f84, 0xab41_36bb_960f_2ab9, 0xb050_4b13_f996_5da2]),
    (Kind::Partitioned, [0x0fcb_bee2_94ef_3506, 0xab41_36bb_960f_2ab9, 0xb050_4b13_f996_5da2]),
    (Kind::Belady, [0x0d76_4650_d751_7530, 0x7413_e342_b422_fb6e, 0x3080_fad9_9704_05da]),
    (Kind::Fifo, [0xc62b_bacf_eccd_289b, 0x2537_df5a_53f3_dae2, 0x2d7a_c009_6da1_6a43]),
    (Kind::Lru, [0x4a30_82b6_53fe_d529, 0xdb64_3562_bc8e_c855, 0xddb2_9a9f_3e76_017c]),
    (Kind::PageCache, [0xa15f_fbaf_396d_327e, 0x46d1_8974_5104_3b6b, 0x4515_6351_3fad_f212]),
    (Kind::None, [0xe7c0_014b_24c2_1d15, 0xe531_0fa2_28c7_6ae6, 0xabcc_89a8_27cd_8e3a]),
];

const EXPECTED: [(Kind, [u64; 2]); 13] = [
    (Kind::Gap, [0x9ea1_cb95_ee76_8308, 0xb528_6c53_9bd2_d526]),
    (Kind::DeepMemory, [0x467c_5770_4161_2948, 0x754e_e13b_51ed_aee5]),
    (Kind::Lobster, [0x6c50_05f5_2e85_2bea, 0x2350_6665_908c_b10d]),
    (Kind::LobsterLazy, [0xd725_f4d0_cdfd_d125, 0xbcb1_db11_4965_5894]),
    (Kind::NoPfs, [0x0aab_f86d_90ef_095e, 0x5f97_1db3_0cbc_c778]),
    (Kind::Deli, [0x5dad_9c4b_2b42_c775, 0x160a_a06d_27a5_2d20]),
    (Kind::Pinned, [0xefff_f276_368d_ea28, 0x074b_4805_2889_228f]),
    (Kind::Partitioned, [0x3362_3fcd_70ae_f0d1, 0x074b_4805_2889_228f]),
    (Kind::Belady, [0x6c50_05f5_2e85_2bea, 0xe6ab_e6aa_ee34_8bad]),
    (Kind::Fifo, [0xa0c9_5edc_d9c2_d25f, 0x1c84_eb96_0d4f_b823]),
    (Kind::Lru, [0x1a65_1259_8dd5_cbe2, 0xce1f_13d4_b565_0b1b]),
    (Kind::PageCache, [0x57d9_38f8_f556_42aa, 0xbd3b_de3a_66e5_54f3]),
    (Kind::None, [0x816e_2555_924b_326c, 0xc930_aa06_34cf_abe6]),
];
