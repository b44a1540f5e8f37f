//! The plan keeps its invariants, meets the bound of cold reads, and comes near that of transfers.

use std::{collections::BTreeSet, vec, vec::Vec};

use proptest::prelude::*;

use super::*;
use crate::{
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    retention::replay::Amount,
};

const LEN: u64 = 640;

fn spec(samples: u32, nodes: u32, epochs: u32) -> Spec {
    Spec {
        samples,
        shuffle: Shuffle::TORCH_DISTRIBUTED,
        seed: 7,
        epochs,
        drop_last: false,
        batch_size: 8,
        world: World { nodes, ranks_per_node: 1 },
        start: Position::START,
        further: FurtherDatasets::NONE,
    }
}

/// Equal samples, and nodes that hold `each` of them in one tier.
fn equal(order: Spec, each: u64) -> Setting {
    Setting {
        order,
        sizes: vec![Bytes(LEN); order.samples as usize].into(),
        capacities: vec![vec![Bytes(each * LEN)]; order.world.nodes as usize],
        ahead: 7,
        round_steps: 1,
    }
}

/// Epochs of a plan without the last one, after which no copy is kept.
fn epochs(setting: Setting) -> Vec<Traffic> {
    let count = setting.order.epochs - 1;
    let mut cluster = Cluster::try_new(setting).unwrap();
    (0..count).map(|_| cluster.epoch().unwrap().clone()).collect()
}

fn cold(traffic: &Traffic) -> u64 {
    traffic.total(|node| node.cold).samples
}

/// The fraction of reads served by the reader's own tiers, in the given epochs.
fn local(epochs: &[Traffic]) -> f64 {
    sum(epochs, NodeTraffic::local) / sum(epochs, NodeTraffic::reads)
}

fn sum(epochs: &[Traffic], part: impl Fn(&NodeTraffic) -> Amount) -> f64 {
    let sum: u64 = epochs.iter().map(|it| it.total(&part).samples).sum();
    f64::from(u32::try_from(sum).unwrap())
}

/// Recomputes what each tier holds and compares.
fn recount(cluster: &Cluster) -> Result<(), TestCaseError> {
    let mut used: Vec<_> =
        cluster.setting.capacities.iter().map(|tiers| vec![0; tiers.len()]).collect();
    let mut uncovered = 0;
    for (sample, size) in (0..).map(SampleId).zip(cluster.setting.sizes.iter()) {
        let held: Vec<_> = cluster.copies.held(sample, cluster.next).collect();
        let nodes: BTreeSet<_> = held.iter().map(|it| it.node).collect();
        prop_assert_eq!(nodes.len(), held.len(), "a node holds a sample once");
        prop_assert!(held.is_empty() || cluster.copies.first(sample).is_some());
        for Held { node, tier } in &held {
            used[node.0 as usize][usize::from(tier.0)] += room_of(*size);
        }
        uncovered += usize::from(held.is_empty());
    }
    prop_assert_eq!(uncovered, cluster.copies.uncovered());
    for (number, (used, capacities)) in used.iter().zip(&cluster.setting.capacities).enumerate() {
        let node = NodeId(u32::try_from(number).unwrap());
        prop_assert_eq!(used.iter().sum::<u64>(), cluster.rooms.used(node));
        let fits = used.iter().zip(capacities).all(|(used, capacity)| *used <= capacity.0);
        prop_assert!(fits, "invariant 2: {:?} in {:?}", used, capacities);
        if let Some(surplus) = cluster.surplus.as_ref().filter(|_| uncovered > 0) {
            prop_assert!(cluster.seconds[number] <= surplus[number], "invariant 5");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_read_is_served_by_one_that_has_the_sample(
        samples in 4_u32..60,
        world in (1_u32..5, 1_u32..3).prop_map(|(nodes, ranks_per_node)| World { nodes, ranks_per_node }),
        (batch_size, round_steps, ahead) in (1_u32..6, 1_u32..4, 1_u32..8),
        drop_last in any::<bool>(),
        start in 0_u32..4,
        seed in any::<u64>(),
        lens in prop::collection::vec(0_u64..2_000, 60),
        capacities in prop::collection::vec(prop::collection::vec(0_u64..20_000, 0..4), 4),
    ) {
        let start = Position { epoch: Epoch(1), samples: start };
        let order = Spec {
            batch_size, seed, start, drop_last: drop_last && samples >= world.ranks() + 4, world,
            ..spec(samples, world.nodes, 6)
        };
        prop_assume!(order.validate().is_ok());
        let setting = Setting {
            order,
            sizes: lens[..samples as usize].iter().copied().map(Bytes).collect(),
            capacities: capacities[..world.nodes as usize]
                .iter()
                .map(|tiers| tiers.iter().copied().map(Bytes).collect())
                .collect(),
            ahead,
            round_steps,
        };
        let mut cluster = Cluster::try_new(setting).unwrap();
        let mut had = BTreeSet::new();
        while cluster.next.0 < order.epochs {
            let mut wrong = Vec::new();
            let (mut reads, mut is_last) = (0, false);
            let traffic = cluster.epoch_seen(&mut |batch, sample, served| {
                let node = NodeId(batch.rank.0 / world.ranks_per_node);
                let is_possible = match served {
                    Served::Tier(_) => had.contains(&(node, sample)),
                    Served::Peer(peer) => peer != node && had.contains(&(peer, sample)),
                    Served::Cold => true,
                };
                if !is_possible {
                    wrong.push((batch, sample, served));
                }
                had.insert((node, sample));
                reads += 1;
                is_last = batch.epoch.0 + 1 == order.epochs;
            }).unwrap();
            prop_assert!(wrong.is_empty(), "invariant 1: {:?}", wrong);
            prop_assert_eq!(traffic.total(NodeTraffic::reads).samples, reads);
            prop_assert!(traffic.distinct.samples <= reads);
            let (sent, received) = (traffic.total(|it| it.sent), traffic.total(|it| it.received));
            prop_assert_eq!(sent, received);
            if !is_last {
                recount(&cluster)?;
            }
        }
        prop_assert!(cluster.epoch().is_none());
    }

    #[test]
    fn what_fits_is_never_read_cold_again(
        (nodes, each) in (1_u32..5, 1_u32..12),
        spare in 0_u64..6,
        (batch_size, round_steps) in (1_u32..5, 1_u32..4),
        seed in any::<u64>(),
        tiers in 1_usize..4,
    ) {
        let order = Spec { seed, batch_size, ..spec(nodes * each, nodes, 7) };
        let mut setting = equal(order, 0);
        let room = u64::from(each) + spare;
        let share = room / tiers as u64;
        let mut capacities = vec![Bytes(share * LEN + LEN / 2); tiers];
        capacities[0].0 += (room - share * tiers as u64) * LEN;
        setting.capacities = vec![capacities; nodes as usize];
        setting.round_steps = round_steps;
        let mut cluster = Cluster::try_new(setting).unwrap();
        for epoch in 0..6 {
            let expected = if epoch == 0 { order.samples } else { 0 };
            prop_assert_eq!(cold(cluster.epoch().unwrap()), u64::from(expected), "invariant 3");
            prop_assert_eq!(cluster.copies.uncovered(), 0);
            recount(&cluster)?;
        }
    }
}

#[test]
fn no_small_job_has_more_cold_reads_than_the_least() {
    for (nodes, each) in (1..=4).flat_map(|nodes| (1..=8 / nodes).map(move |each| (nodes, each))) {
        let samples = nodes * each;
        for (room, seed) in (0..=samples).flat_map(|room| (0..24).map(move |seed| (room, seed))) {
            for (batch_size, round_steps) in [(1, 1), (1, 2), (2, 1), (3, 8)] {
                let order = Spec { seed, batch_size, ..spec(samples, nodes, 6) };
                let setting = Setting { round_steps, ..equal(order, u64::from(room)) };
                let bound = u64::from(samples.saturating_sub(room * nodes));
                for (number, traffic) in epochs(setting).iter().enumerate().skip(1) {
                    assert_eq!(
                        cold(traffic),
                        bound,
                        "invariant 4: {samples} samples, {nodes} nodes of {room}, seed {seed}, \
                         batch {batch_size}, round {round_steps}, epoch {number}"
                    );
                }
            }
        }
    }
}

/// Cold reads as in the table of the limits, to the sample, and beside them hardly more transfers than
/// any plan with as few cold reads must have.
#[test]
fn cold_reads_are_least_and_transfers_nearly_so() {
    let samples = 12_000;
    for (nodes, per_mille) in [
        (1, 296),
        (2, 200),
        (2, 296),
        (2, 500),
        (2, 750),
        (3, 50),
        (3, 100),
        (3, 200),
        (3, 296),
        (3, 334),
        (3, 500),
        (8, 50),
        (8, 100),
        (8, 125),
        (8, 200),
    ] {
        let order = Spec { batch_size: 250, ..spec(samples, nodes, 13) };
        let each = u64::from(samples) * per_mille / 1_000;
        let share = f64::from(u32::try_from(per_mille).unwrap()) / 1_000.0;
        let epochs = epochs(equal(order, each));
        let bound = u64::from(samples).saturating_sub(u64::from(nodes) * each);
        for traffic in &epochs[1..] {
            assert_eq!(cold(traffic), bound, "{nodes} nodes of {share}");
        }
        let (local, most) = (local(&epochs[6..]), 1.0 - least_remote_of_covering(nodes, share));
        assert!(local < most + 0.01, "{nodes} nodes of {share}: {local} local, {most} possible");
        assert!(local > most - 0.02, "{nodes} nodes of {share}: {local} of {most} local");
    }
}

#[test]
fn nodes_send_and_keep_alike() {
    let order = Spec { batch_size: 250, ..spec(12_000, 3, 10) };
    let epochs = epochs(equal(order, 4_000));
    for traffic in &epochs[2..] {
        let sent = traffic.imbalance(|node| node.sent.bytes);
        let kept = traffic.imbalance(|node| node.kept);
        assert!(sent < 1.05, "the busiest sends {sent} times the mean");
        assert!(kept < 1.000_1, "the fullest keeps {kept} times the mean");
    }
}

#[test]
fn a_single_node_pins_what_fits_where_it_lies() {
    let mut setting = equal(spec(1_000, 1, 5), 0);
    setting.capacities = vec![vec![Bytes(100 * LEN), Bytes(300 * LEN)]];
    let epochs = epochs(setting);
    for traffic in &epochs[1..] {
        let node = &traffic.nodes[0];
        assert_eq!(node.tiers.iter().map(|it| it.samples).collect::<Vec<_>>(), [100, 300]);
        assert_eq!(node.written.samples, 0);
    }
}

#[test]
fn the_fastest_tier_holds_what_is_read_soonest() {
    let mut setting = equal(Spec { batch_size: 250, ..spec(12_000, 3, 13) }, 0);
    setting.capacities = vec![vec![Bytes(600 * LEN), Bytes(2_400 * LEN)]; 3];
    let epochs = epochs(setting);
    let [fast, slow] = [0, 1].map(|tier| sum(&epochs[6..], |node| node.tiers[tier]));
    assert!(fast / slow > 1.3 * 600.0 / 2_400.0, "{fast} of the fast tier, {slow} of the slow one");
}

#[test]
fn as_many_epochs_are_looked_into_as_memory_allows() {
    let ahead = |nodes, memory| Setting::ahead_within(Bytes(memory), &spec(1_000, nodes, 9));
    assert_eq!([1, 3, 8].map(|nodes| ahead(nodes, 1_000_000)), [3, 9, 15]);
    assert_eq!(
        [0, 13_000, 15_000, 17_000, 18_999, 19_000].map(|it| ahead(8, it)),
        [1, 1, 1, 2, 2, 3]
    );
    let setting = Setting { ahead: ahead(3, 40_000), ..equal(spec(1_000, 3, 3), 400) };
    assert!(Cluster::try_new(setting).is_ok());
}

#[test]
fn a_setting_that_cannot_be_planned_is_refused() {
    let order = spec(100, 3, 2);
    let refused = |setting| Cluster::try_new(setting).unwrap_err();
    let setting = || equal(order, 10);
    let two = Setting { capacities: vec![Vec::new(); 2], ..setting() };
    assert_eq!(refused(two), SettingError::OtherNodes { given: 2, nodes: 3 });
    let blind = Setting { ahead: 0, ..setting() };
    assert_eq!(refused(blind), SettingError::Ahead { ahead: 0 });
    let short = Setting { sizes: vec![Bytes(1); 99].into(), ..setting() };
    assert_eq!(refused(short), SettingError::OtherSamples { given: 99, samples: 100 });
    let many = Setting { capacities: vec![vec![Bytes(1); 16]; 3], ..setting() };
    assert_eq!(refused(many), SettingError::TooManyTiers { tiers: 16 });
    let published = Spec { shuffle: Shuffle::Published, ..order };
    assert_eq!(Cluster::try_new(equal(published, 10)).unwrap().epoch(), None);
}
