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
    order::{Position, Shuffle, Spec, World},
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
    }
}

fn digest(policy: Kind, world: World) -> u64 {
    simulate(&settings(policy, world), &model(2)).digest
}

/// What is fetched ahead of its use: by a training without pauses, by one with pauses and room kept free for
/// it, and by one that reads samples of the first tier in place and has a disk as its last.
fn digests_ahead(policy: Kind) -> [u64; 3] {
    let ahead = |world, look_ahead| Settings { look_ahead, ..settings(policy, world) };
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
fn decisions_with_look_ahead_are_those_of_the_code_that_kept_it_in_trees() {
    let found = Kind::ALL.map(|policy| (policy, digests_ahead(policy)));
    assert_eq!(found, AHEAD, "{found:#x?}");
}

const AHEAD: [(Kind, [u64; 3]); 12] = [
    (Kind::Gap, [0xc56b_6b14_b8c9_81d3, 0xc54e_92bc_943f_a5ff, 0xcff2_bd86_93fd_cb86]),
    (Kind::DeepMemory, [0x02b9_ca1b_3bf2_afc0, 0x8dda_9994_2729_3494, 0x327d_4699_2f0d_c7d9]),
    (Kind::Lobster, [0xc779_db67_21b5_f959, 0x3517_063f_2b85_1176, 0x6baa_38ee_3e68_6d14]),
    (Kind::LobsterLazy, [0x3132_1fde_f9e4_5b58, 0x5ce1_2129_e7c6_6859, 0x9c23_837c_5794_045e]),
    (Kind::NoPfs, [0x318a_d165_007d_cc27, 0x291e_ec62_ccba_ceae, 0x184d_2386_a365_0761]),
    (Kind::Deli, [0x858e_a5ed_5da5_10e5, 0x4f4a_a5c0_9202_76cb, 0x9ce4_1956_c16b_81f3]),
    (Kind::Pinned, [0x025f_527f_dc36_efb1, 0x1475_dca3_eeaf_4a0e, 0x1c93_2331_0743_ce25]),
    (Kind::Belady, [0xc779_db67_21b5_f959, 0xd8a7_914e_9744_2c39, 0x6baa_38ee_3e68_6d14]),
    (Kind::Fifo, [0x62cd_7b89_a1b7_ba01, 0x96dc_e618_4400_c479, 0x38db_e80d_630b_f9f2]),
    (Kind::Lru, [0xfd75_65cc_34cf_1faf, 0x4a24_04c2_5dea_ef02, 0x5e46_3301_f29b_55ef]),
    (Kind::PageCache, [0xfe5f_7876_26c8_27a7, 0x5255_8e9f_66f9_8ec3, 0xf58c_1f63_e50b_00b8]),
    (Kind::None, [0xe76c_ff84_fb7b_5879, 0x5231_40ec_f69c_c17e, 0xa24e_fe47_ca69_ea33]),
];

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
