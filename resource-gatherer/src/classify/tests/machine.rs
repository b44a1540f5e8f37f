//! Machines as their figures: an inventory, and a pair for each initiator and target.
//!
//! Measured with Intel MLC or stated in an HMAT by others; the project's reference lists the sources.

use fastrand::Rng;

use crate::{
    figures::{Bandwidth, Pair, Traffic, estimate::Estimate},
    inventory::Inventory,
    sysroot::Sysroot,
    tests_support::FakeSysroot,
};

/// The half-width of the intervals of a probe that converged.
const HALF_WIDTH: f64 = 0.01;

/// From an initiator to each node: latency in nanoseconds, and GB/s where they are known.
type Row = Vec<(f64, Option<f64>)>;

pub(super) struct Machine {
    pub(super) name: &'static str,
    pub(super) inventory: Inventory,
    /// One row for each initiator, by its number.
    rows: Vec<Row>,
    /// The best initiator of each node.
    best: Vec<usize>,
    /// The expected tiers of the whole host.
    pub(super) tiers: Vec<Vec<u32>>,
    /// The expected tiers as each initiator sees them.
    pub(super) views: Vec<Vec<Vec<u32>>>,
}

impl Machine {
    pub(super) fn all() -> Vec<Self> {
        vec![Self::epyc(), Self::azure(), Self::hmat(), Self::huawei()]
    }

    /// Two EPYC 9224, two nodes a socket, and a Samsung device with 128 GB on the first socket.
    pub(super) fn epyc() -> Self {
        let (near, sibling) = ((107.5, Some(99.8)), (117.1, Some(99.8)));
        let (far, cxl, cxl_far) = ((200.7, Some(76.6)), (279.4, Some(17.6)), (363.8, Some(17.6)));
        let views = |mine: [u32; 2], other: [u32; 2]| vec![mine.to_vec(), other.to_vec(), vec![4]];
        Self {
            name: "2 x EPYC 9224 + Samsung",
            inventory: inventory(4, true),
            rows: vec![
                vec![near, sibling, far, far, cxl],
                vec![sibling, near, far, far, cxl],
                vec![far, far, near, sibling, cxl_far],
                vec![far, far, sibling, near, cxl_far],
            ],
            best: vec![0, 1, 2, 3, 0],
            tiers: vec![vec![0, 1, 2, 3], vec![4]],
            views: vec![
                views([0, 1], [2, 3]),
                views([0, 1], [2, 3]),
                views([2, 3], [0, 1]),
                views([2, 3], [0, 1]),
            ],
        }
    }

    /// A machine of Azure with two sockets and a CXL device on the first.
    pub(super) fn azure() -> Self {
        let (near, far) = ((130.2, Some(79.8)), (231.2, Some(60.1)));
        let (cxl, cxl_far) = ((265.7, Some(31.3)), (368.7, Some(27.3)));
        Self::two_sockets("Azure", [near, far, cxl, cxl_far])
    }

    /// The machine that QEMU plays, by its HMAT.
    pub(super) fn hmat() -> Self {
        let (near, far) = ((100.0, Some(80.0)), (150.0, Some(40.0)));
        let (memory, memory_far) = ((300.0, Some(20.0)), (400.0, Some(15.0)));
        let machine = Self::two_sockets("QEMU HMAT", [near, far, memory, memory_far]);
        Self { inventory: inventory(2, false), ..machine }
    }

    /// Huawei 2288H V7 with a CXL device, whose bandwidths are not published.
    pub(super) fn huawei() -> Self {
        Self::two_sockets("Huawei 2288H V7", [117.4, 184.3, 391.0, 561.7].map(|ns| (ns, None)))
    }

    fn two_sockets(name: &'static str, [near, far, cxl, cxl_far]: [(f64, Option<f64>); 4]) -> Self {
        Self {
            name,
            inventory: inventory(2, true),
            rows: vec![vec![near, far, cxl], vec![far, near, cxl_far]],
            best: vec![0, 1, 0],
            tiers: vec![vec![0, 1], vec![2]],
            views: vec![vec![vec![0], vec![1], vec![2]], vec![vec![1], vec![0], vec![2]]],
        }
    }

    pub(super) fn pairs(&self) -> Vec<Pair> {
        self.pairs_with(&mut |value| value)
    }

    /// A report of a probe whose figures are off by a normal error of this share.
    pub(super) fn noisy_pairs(&self, share: f64, random: &mut Rng) -> Vec<Pair> {
        self.pairs_with(&mut |value| value * (1.0 + share * normal(random)).max(0.1))
    }

    fn pairs_with(&self, figure: &mut dyn FnMut(f64) -> f64) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for (initiator, row) in self.rows.iter().enumerate() {
            for (target, (latency_ns, gb_per_s)) in row.iter().enumerate() {
                let mut pair = pair(initiator, target, self.best[target] == initiator);
                pair.idle_latency_ns = Some(estimate(figure(*latency_ns)));
                if let Some(rate) = gb_per_s {
                    pair.bandwidth.push(bandwidth(Traffic::Read, figure(rate * 1e9)));
                    pair.bandwidth.push(bandwidth(Traffic::Copy, figure(rate * 1e9)));
                }
                pairs.push(pair);
            }
        }
        pairs
    }
}

pub(super) fn pair(initiator: usize, target: usize, is_best: bool) -> Pair {
    let number = |index: usize| u32::try_from(index).unwrap();
    Pair { initiator: number(initiator), target: number(target), is_best, ..Pair::default() }
}

pub(super) fn bandwidth(traffic: Traffic, bytes_per_s: f64) -> Bandwidth {
    Bandwidth { traffic, threads: 4, bytes_per_s: estimate(bytes_per_s) }
}

pub(super) fn estimate(value: f64) -> Estimate {
    let (low, high) = (value * (1.0 - HALF_WIDTH), value * (1.0 + HALF_WIDTH));
    Estimate { low, high, samples: 20, converged: true, ..Estimate::stated(value) }
}

/// Nodes with CPUs, followed by one without: a CXL device, or memory of a kind that the kernel does not know.
fn inventory(with_cpus: u32, is_cxl: bool) -> Inventory {
    let fake = FakeSysroot::bare();
    let ids: Vec<u32> = (0..=with_cpus).collect();
    let row: Vec<u8> = ids.iter().map(|_| 20).collect();
    fake.nodes(&ids, &ids.iter().map(|_| &row[..]).collect::<Vec<_>>());
    for id in &ids {
        let cpus = if *id < with_cpus { id.to_string() } else { String::new() };
        fake.node(*id, &cpus, 4096);
    }
    if is_cxl {
        let device = "sys/devices/platform/ACPI0017:00/root0/region0/dax_region0/dax0.0";
        fake.write(&format!("{device}/target_node"), &format!("{with_cpus}\n"));
        let from = device.replace("sys/", "../../../");
        fake.link("sys/bus/dax/devices/dax0.0", &from);
    } else {
        fake.rate(with_cpus, "access1", 0, [300, 20_480]);
    }
    Inventory::read(Sysroot(fake.path())).unwrap()
}

/// Box and Muller: normal with a mean of 0 and a deviation of 1.
fn normal(random: &mut Rng) -> f64 {
    // The logarithm of 0 would be infinite.
    let (first, second) = (1.0 - random.f64(), random.f64());
    (-2.0 * first.ln()).sqrt() * (std::f64::consts::TAU * second).cos()
}
