//! How often the rules are right about real machines when the figures are noisy.
//!
//! Right is: the groups and their order, both exactly.

use super::{
    machine::Machine,
    machines::{host_tiers, seen},
    *,
};

const ROUNDS: u32 = 1000;

/// The share of rounds that were right: for the whole host and for each initiator.
#[derive(Debug)]
struct Shares {
    host: f64,
    initiators: Vec<f64>,
}

fn shares(machine: &Machine, noise: f64) -> Shares {
    let mut random = fastrand::Rng::with_seed(0x7469_6572);
    let mut host = 0;
    let mut initiators = vec![0; machine.views.len()];
    for _ in 0..ROUNDS {
        let pairs = machine.noisy_pairs(noise, &mut random);
        host += u32::from(host_tiers(machine, &pairs, &Constraints::default()) == machine.tiers);
        for (count, (seen, right)) in initiators
            .iter_mut()
            .zip(seen(machine, &pairs, &Constraints::default()).iter().zip(&machine.views))
        {
            *count += u32::from(seen == right);
        }
    }
    let share = |count: u32| f64::from(count) / f64::from(ROUNDS);
    Shares { host: share(host), initiators: initiators.into_iter().map(share).collect() }
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
