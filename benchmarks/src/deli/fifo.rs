//! A cache that keeps what was read until it is full, and then gives up what it has had longest.
//!
//! Nothing is assumed: the miss rate follows from the partition and from the size.

use std::collections::VecDeque;

use super::{NODES, Row, Workload, fetching::Setting, measured, partition};

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

/// The miss rate of the last of `epochs`, averaged over `nodes` and trials, if every sample that a node
/// reads goes into its cache.
#[must_use]
pub fn miss_rate(samples: u32, nodes: u32, capacity: Option<u32>, epochs: u32) -> f64 {
    let trials = (0..TRIALS).flat_map(|seed| partition::epochs_of(samples, nodes, seed, epochs));
    let last = trials.map(|epochs| {
        let mut cache = Fifo::new(samples, capacity);
        epochs.iter().map(|epoch| share_missed(&mut cache, epoch)).last().unwrap_or_default()
    });
    measured::mean(last).unwrap_or_default()
}

fn share_missed(cache: &mut Fifo, epoch: &[u32]) -> f64 {
    let missed = epoch.iter().map(|sample| {
        let is_missed = !cache.contains(*sample);
        cache.insert(*sample);
        f64::from(u8::from(is_missed))
    });
    measured::mean(missed).unwrap_or_default()
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
