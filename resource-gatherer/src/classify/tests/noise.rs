//! How often the rules are right about real machines when the figures are noisy.
//!
//! Right is: the groups and their order, both exactly.

use std::collections::BTreeMap;

use super::{
    machine::Machine,
    machines::{host_tiers, seen},
    *,
};
use crate::{
    classify::{
        kernel::{Performance, Role},
        view::peak,
    },
    figures::{Pair, whole},
    measure::random::SplitMix64,
};

const ROUNDS: u32 = 1000;

/// The share of rounds that were right: for the whole host, for each initiator, for the kernel's rule.
#[derive(Debug)]
struct Shares {
    host: f64,
    initiators: Vec<f64>,
    kernel: f64,
}

fn shares(machine: &Machine, noise: f64) -> Shares {
    let mut random = SplitMix64(0x7469_6572);
    let (mut host, mut kernel) = (0, 0);
    let mut initiators = vec![0; machine.views.len()];
    for _ in 0..ROUNDS {
        let pairs = machine.noisy_pairs(noise, &mut random);
        host += u32::from(host_tiers(machine, &pairs, &Constraints::default()) == machine.tiers);
        kernel += u32::from(kernel_tiers(machine, &pairs) == machine.tiers);
        for (count, (seen, right)) in initiators
            .iter_mut()
            .zip(seen(machine, &pairs, &Constraints::default()).iter().zip(&machine.views))
        {
            *count += u32::from(seen == right);
        }
    }
    let share = |count: u32| f64::from(count) / f64::from(ROUNDS);
    Shares {
        host: share(host),
        initiators: initiators.into_iter().map(share).collect(),
        kernel: share(kernel),
    }
}

/// The groups that the kernel would make: nodes in one chunk of 128, in the order of the chunks. It
/// takes figures as they are, so nothing is too different here to be trusted.
fn kernel_tiers(machine: &Machine, pairs: &[Pair]) -> Vec<Vec<u32>> {
    let performance = |node: u32| {
        let pair = view::best_pair(pairs, node).unwrap();
        let rate = peak(pair, crate::figures::Traffic::Read, None);
        let rate = rate.map_or(1 << 30, |rate| whole(rate) >> 20);
        let latency_ns = whole(pair.idle_latency_ns.unwrap());
        Performance {
            read_latency_ns: latency_ns,
            write_latency_ns: latency_ns,
            read_mib_per_s: rate,
            write_mib_per_s: rate,
        }
    };
    let mut tiers: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    let reference = (Role::Dram, Some(performance(0)));
    for node in machine.inventory.memory_nodes() {
        let nodes = [reference, (Role::CpuLess, Some(performance(node.id)))];
        let distance = kernel::abstract_distances(&nodes)[1];
        tiers.entry(kernel::tier(distance)).or_default().push(node.id);
    }
    tiers.into_values().collect()
}

#[test]
fn five_percent_of_noise_leave_97_of_100_classifications_right() {
    for noise in [0.02, 0.05, 0.08] {
        for machine in Machine::all() {
            let shares = shares(&machine, noise);
            println!("noise {:.0} %, {}: {shares:?}", noise * 100.0, machine.name);
            let all = shares.initiators.iter().copied().chain([shares.host]);
            let worst = all.reduce(f64::min).unwrap();
            let least = if noise < 0.06 { 0.97 } else { 0.75 };
            assert!(worst >= least, "noise {noise}, {}: {shares:?}", machine.name);
        }
    }
}

#[test]
fn the_chunks_of_the_kernel_take_noise_for_tiers() {
    let shares = shares(&Machine::epyc(), 0.05);
    assert!(shares.kernel < 0.75 && shares.host > shares.kernel + 0.2, "{shares:?}");
}

#[test]
fn the_kernel_is_right_where_nothing_is_noisy() {
    for machine in Machine::all() {
        assert_eq!(kernel_tiers(&machine, &machine.pairs()), machine.tiers, "{}", machine.name);
    }
}
