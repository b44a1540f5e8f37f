//! A cache that keeps what was read until it is full, and then gives up what it has had longest: as the
//! policy `deli` of the core, and as a cache of numbers for the model of prefetching.
//!
//! Nothing is assumed: the miss rate follows from the partition and from the size.

use std::collections::VecDeque;

use tierfeed_core::{
    id::NodeId,
    order::Spec,
    retention::{
        policy,
        replay::{Amount, Replay},
    },
    space::Space,
    units::Bytes,
};

use super::{NODES, Row, Workload, measured, partition, setting::Setting};

/// As many as DELI's trials.
const TRIALS: u64 = 3;

/// A cache of samples.
#[derive(Debug, Clone)]
pub struct Fifo {
    queue: VecDeque<u32>,
    is_held: Vec<bool>,
    capacity: usize,
}

impl Fifo {
    /// An empty one for samples below `samples`, without a limit if `capacity` is `None`.
    #[must_use]
    pub fn new(samples: u32, capacity: Option<u32>) -> Self {
        Self {
            queue: VecDeque::new(),
            is_held: vec![false; samples as usize],
            capacity: capacity.map_or(usize::MAX, |it| it as usize),
        }
    }

    /// Whether it has `sample`.
    #[must_use]
    pub fn contains(&self, sample: u32) -> bool {
        self.is_held.get(sample as usize).is_some_and(|it| *it)
    }

    /// Takes `sample`, unless it has it, and gives up the oldest if it is full.
    pub fn insert(&mut self, sample: u32) {
        let Some(is_held) = self.is_held.get_mut(sample as usize) else { return };
        if *is_held || self.capacity == 0 {
            return;
        }
        *is_held = true;
        if self.queue.len() == self.capacity
            && let Some(oldest) = self.queue.pop_front()
        {
            self.is_held[oldest as usize] = false;
        }
        self.queue.push_back(sample);
    }
}

/// The miss rate of the last of `epochs` with the policy `deli`, averaged over `nodes` and trials, if a
/// node's cache has room for `capacity` samples.
#[must_use]
pub fn miss_rate(samples: u32, nodes: u32, capacity: Option<u32>, epochs: u32) -> f64 {
    let trial = |seed| {
        let order = partition::order(samples, nodes, seed, epochs);
        let is_valid = order.validate().is_ok();
        (0..nodes).filter(move |_| is_valid).filter_map(move |node| last_of(order, node, capacity))
    };
    measured::mean((0..TRIALS).flat_map(trial)).unwrap_or_default()
}

/// The share that `node` misses in the last epoch.
fn last_of(order: Spec, node: u32, capacity: Option<u32>) -> Option<f64> {
    let len = Space::rounded(Bytes(1));
    let room = Bytes(len.0 * u64::from(capacity.unwrap_or(order.samples)));
    let setting = policy::Setting {
        order,
        node: NodeId(node),
        sizes: vec![len; order.samples as usize].into(),
        capacities: vec![room],
        aim: policy::Aim::default(),
    };
    let mut replay = Replay::new(policy::Kind::Deli, &setting);
    let last = std::iter::from_fn(|| replay.epoch()).last()?;
    let count = |amount: Amount| u32::try_from(amount.samples).map_or(f64::NAN, f64::from);
    Some(count(last.cold) / count(last.total()))
}

/// The second epochs of the measurements with a cache alone; batches make no difference to it.
pub(super) fn rows(workload: Workload, measured: &[measured::Row]) -> Vec<Row> {
    let any_batch: Vec<_> = measured
        .iter()
        .map(|row| measured::Row { setting: Setting { batch: 0, ..row.setting }, ..row.clone() })
        .collect();
    let means = measured::Means::of(&any_batch);
    let seconds = means.groups().filter(|(_, epoch, _)| *epoch == 2);
    let row = |(setting, epoch, rows): (Setting, u32, &[&measured::Row])| {
        let modelled = miss_rate(workload.samples(), NODES, setting.cache, epoch);
        row_of(workload, "cache alone", setting, epoch, rows, modelled)
    };
    seconds.filter_map(row).collect()
}

/// A row of what was measured and modelled, if a miss rate was measured.
pub(super) fn row_of(
    workload: Workload,
    series: &'static str,
    setting: Setting,
    epoch: u32,
    rows: &[&measured::Row],
    modelled: f64,
) -> Option<Row> {
    let rates = || rows.iter().filter_map(|row| row.miss_rate);
    Some(Row {
        workload: workload.name,
        series,
        setting,
        epoch,
        measured: measured::mean(rates())?,
        measured_min: rates().fold(f64::INFINITY, f64::min),
        measured_max: rates().fold(0.0, f64::max),
        modelled,
        fitted: false,
    })
}
