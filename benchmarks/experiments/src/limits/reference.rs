//! Hit ratios, and shares of samples that are ready, from a simulation that shares no code with this one.
//!
//! # Source
//!
//! One node of 1, 3 or 8, 60,000 reads an epoch and node, samples of equal size, one seed: to within
//! 0.002, printed with three digits. The first epoch is cold, nothing is prefetched. The page cache there is two lists
//! with refault, simplified: an order of size rather than a figure.

/// Caches of a node as a share of the dataset.
pub(crate) const CACHED: [f64; 6] = [0.05, 0.1, 0.2, 0.296, 0.5, 0.75];
/// Lengths of the runs, in the order of the columns.
pub(crate) const EPOCHS: [u32; 3] = [2, 10, 50];

/// What is ready by cache, bandwidth and schedule, 50 epochs long and with staging inside the cache.
const READY: &str = include_str!("ready.csv");

/// Mean hits by nodes, policies, cache and epochs of the run.
const HITS: &str = include_str!("hits.csv");

pub(crate) fn mean(policy: &str, nodes: u32, cached: f64, epochs: u32) -> Option<f64> {
    let column = EPOCHS.iter().position(|it| *it == epochs)?;
    HITS.lines().skip(1).find_map(|line| {
        let mut cells = line.split(',');
        let is_of = cells.next()?.parse() == Ok(nodes)
            && cells.next()?.split(' ').any(|it| it == policy)
            && is_near(cells.next()?.parse().ok()?, cached);
        is_of.then(|| cells.nth(column)?.parse().ok()).flatten()
    })
}

/// With the schedule of this number.
pub(crate) fn ready(schedule: usize, cached: f64, bandwidth: f64) -> Option<f64> {
    READY.lines().skip(1).find_map(|line| {
        let mut cells = line.split(',').map_while(|it| it.parse().ok());
        let is_of = is_near(cells.next()?, cached) && is_near(cells.next()?, bandwidth);
        is_of.then(|| cells.nth(schedule)).flatten()
    })
}

fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-9
}
