//! Hit ratios from a simulation that shares no code with this one.
//!
//! # Source
//!
//! One node of 1, 3 or 8, 60,000 reads an epoch and node, samples of equal size, one seed: to within
//! 0.002, printed with three digits. The first epoch is cold, nothing is prefetched.

/// Caches of a node as a share of the dataset, in the order of the tables.
pub(crate) const CACHED: [f64; 6] = [0.05, 0.1, 0.2, 0.296, 0.5, 0.75];

/// Lengths of the runs, in the order of the tables.
pub(crate) const EPOCHS: [u32; 3] = [2, 10, 50];

/// Mean hits by cache, then by epochs of the run.
type Means = [[f64; 3]; 6];

pub(crate) fn mean(policy: &str, nodes: u32, cached: f64, epochs: u32) -> Option<f64> {
    let row = CACHED.iter().position(|it| (it - cached).abs() < 1e-9)?;
    let column = EPOCHS.iter().position(|it| *it == epochs)?;
    match nodes {
        1 => Some(on_one(policy)?[row][column]),
        3 => Some(on_three(policy)?[row][column]),
        8 if epochs == 50 => Some(on_eight(policy)?[row]),
        _ => None,
    }
}

fn on_one(policy: &str) -> Option<&'static Means> {
    Some(match policy {
        "lru" => &LRU_ON_ONE,
        "fifo" => &FIFO_ON_ONE,
        "page-cache" => &PAGE_CACHE_ON_ONE,
        "gap" | "belady" | "pinned" | "nopfs" | "lobster" | "lobster-lazy" => &BEST_ON_ONE,
        _ => return None,
    })
}

fn on_three(policy: &str) -> Option<&'static Means> {
    Some(match policy {
        "lru" => &LRU_ON_THREE,
        "fifo" => &FIFO_ON_THREE,
        "page-cache" => &PAGE_CACHE_ON_THREE,
        "pinned" => &PINNED_ON_THREE,
        "nopfs" => &NOPFS_ON_THREE,
        "lobster" => &LOBSTER_ON_THREE,
        "gap" | "belady" | "lobster-lazy" => &BEST_ON_THREE,
        _ => return None,
    })
}

/// The figures of eight nodes over 50 epochs, by cache.
fn on_eight(policy: &str) -> Option<&'static [f64; 6]> {
    Some(match policy {
        "lru" => &[0.010, 0.041, 0.142, 0.240, 0.441, 0.668],
        "nopfs" => &[0.083, 0.153, 0.276, 0.382, 0.567, 0.744],
        "gap" | "belady" | "lobster-lazy" => &[0.245, 0.358, 0.500, 0.593, 0.721, 0.811],
        _ => return None,
    })
}

const LRU_ON_ONE: Means = [
    [0.001, 0.001, 0.001],
    [0.003, 0.005, 0.005],
    [0.011, 0.019, 0.021],
    [0.025, 0.044, 0.048],
    [0.078, 0.138, 0.151],
    [0.202, 0.363, 0.396],
];

const FIFO_ON_ONE: Means = [
    [0.001, 0.001, 0.001],
    [0.003, 0.005, 0.005],
    [0.012, 0.021, 0.023],
    [0.028, 0.050, 0.054],
    [0.097, 0.174, 0.190],
    [0.285, 0.513, 0.559],
];

/// Two lists with refault, simplified: an order of size rather than a figure.
const PAGE_CACHE_ON_ONE: Means = [
    [0.001, 0.005, 0.029],
    [0.003, 0.023, 0.073],
    [0.011, 0.092, 0.152],
    [0.025, 0.161, 0.214],
    [0.078, 0.284, 0.332],
    [0.202, 0.494, 0.553],
];

const BEST_ON_ONE: Means = [
    [0.025, 0.045, 0.049],
    [0.050, 0.090, 0.098],
    [0.100, 0.180, 0.196],
    [0.148, 0.266, 0.290],
    [0.250, 0.450, 0.490],
    [0.375, 0.675, 0.735],
];

const LRU_ON_THREE: Means = [
    [0.002, 0.003, 0.004],
    [0.008, 0.014, 0.015],
    [0.032, 0.058, 0.063],
    [0.074, 0.132, 0.144],
    [0.163, 0.346, 0.383],
    [0.168, 0.576, 0.672],
];

const FIFO_ON_THREE: Means = [
    [0.002, 0.003, 0.004],
    [0.009, 0.015, 0.016],
    [0.035, 0.063, 0.068],
    [0.083, 0.148, 0.161],
    [0.164, 0.358, 0.397],
    [0.168, 0.580, 0.679],
];

const PAGE_CACHE_ON_THREE: Means = [
    [0.002, 0.007, 0.029],
    [0.008, 0.029, 0.075],
    [0.032, 0.107, 0.160],
    [0.074, 0.194, 0.242],
    [0.163, 0.373, 0.429],
    [0.168, 0.577, 0.678],
];

const PINNED_ON_THREE: Means = [
    [0.025, 0.045, 0.049],
    [0.050, 0.090, 0.098],
    [0.100, 0.180, 0.196],
    [0.149, 0.267, 0.290],
    [0.168, 0.433, 0.487],
    [0.168, 0.609, 0.722],
];

const NOPFS_ON_THREE: Means = [
    [0.075, 0.082, 0.068],
    [0.150, 0.150, 0.130],
    [0.168, 0.270, 0.245],
    [0.168, 0.360, 0.348],
    [0.168, 0.526, 0.550],
    [0.168, 0.661, 0.768],
];

const LOBSTER_ON_THREE: Means = [
    [0.075, 0.135, 0.147],
    [0.150, 0.270, 0.294],
    [0.168, 0.300, 0.327],
    [0.168, 0.300, 0.327],
    [0.168, 0.300, 0.327],
    [0.168, 0.300, 0.327],
];

const BEST_ON_THREE: Means = [
    [0.075, 0.135, 0.147],
    [0.150, 0.270, 0.294],
    [0.168, 0.407, 0.455],
    [0.168, 0.511, 0.575],
    [0.168, 0.629, 0.744],
    [0.168, 0.704, 0.873],
];
