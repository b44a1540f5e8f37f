//! DELI's prefetching as a small simulation: queue, threshold, fetches in flight, and a cache.
//!
//! 1. A trainer draws a batch of numbers, reads their samples one after the other, then computes. Before each
//!    number is drawn, the next `fetch` numbers are requested if at most `threshold` are left in the queue.
//! 2. A fetch works on what is not in the cache when it is requested, takes a time for its start and one for
//!    each sample, and puts all of them into the cache at its end, in order.
//! 3. Fetches in flight together share the node: each goes at most at full speed, all of them together at
//!    [`Pace::parallel`] times that.
//! 4. A sample that is not in the cache when it is read takes the time of a miss, and is not put there.
//!
//! # Source
//!
//! DELI, sections III-B and IV.

use super::{
    NODES, Row, Workload,
    fifo::{self, Fifo},
    measured::Means,
    pace::Pace,
    partition,
    setting::Setting,
};

/// The miss rate of each epoch of the first node.
#[must_use]
pub fn miss_rates(
    pace: &Pace,
    setting: Setting,
    samples: u32,
    nodes: u32,
    epochs: u32,
) -> Vec<f64> {
    let parts = partition::epochs_of(samples, nodes, 0, epochs);
    let mut node = Node {
        pace,
        setting,
        cache: Fifo::new(samples, setting.cache),
        fetches: Vec::new(),
        now_s: 0.0,
        served_s: 0.0,
    };
    parts.first().map_or_else(Vec::new, |epochs| epochs.iter().map(|it| node.epoch(it)).collect())
}

/// One row for each configuration and epoch that was measured.
pub(super) fn rows(
    workload: Workload,
    pace: &Pace,
    series: &'static str,
    means: &Means<'_>,
) -> Vec<Row> {
    let mut found = Vec::new();
    let mut last = None;
    for (setting, epoch, rows) in means.groups() {
        // Groups are sorted by setting, so both epochs come from one simulation.
        if last.as_ref().is_none_or(|(known, _)| *known != setting) {
            last = Some((setting, miss_rates(pace, setting, workload.samples(), NODES, 2)));
        }
        let rates = last.as_ref().map_or(&[][..], |(_, rates)| rates.as_slice());
        let modelled = epoch.checked_sub(1).and_then(|at| rates.get(at as usize));
        let row = modelled.and_then(|it| fifo::row_of(workload, series, setting, epoch, rows, *it));
        let fitted = series == "fetch size" && Pace::is_fitted_to(setting, epoch);
        found.extend(row.map(|row| Row { fitted, ..row }));
    }
    found
}

/// A node that trains.
struct Node<'a> {
    pace: &'a Pace,
    setting: Setting,
    cache: Fifo,
    fetches: Vec<Fetch>,
    /// The time of the trainer, in seconds.
    now_s: f64,
    /// The time up to which fetches were served, in seconds.
    served_s: f64,
}

/// A fetch in flight.
struct Fetch {
    /// The time that it would still take alone, in seconds.
    left_s: f64,
    samples: Vec<u32>,
}

impl Node<'_> {
    /// Trains an epoch and returns the share of its samples that was missed.
    fn epoch(&mut self, order: &[u32]) -> f64 {
        let mut requests = order.chunks(self.setting.fetch.max(1) as usize);
        let (mut queued, mut missed) = (0, 0_u32);
        for batch in order.chunks(self.setting.batch.max(1) as usize) {
            for _ in batch {
                if queued <= self.setting.threshold as usize
                    && let Some(samples) = requests.next()
                {
                    queued += samples.len();
                    self.request(samples);
                }
                queued -= 1;
            }
            missed += batch.iter().map(|sample| u32::from(self.read(*sample))).sum::<u32>();
            for _ in batch {
                self.now_s += self.pace.compute_s;
            }
            self.serve();
        }
        let len = u32::try_from(order.len()).expect("an epoch is counted in 32 bits");
        f64::from(missed) / f64::from(len.max(1))
    }

    fn request(&mut self, samples: &[u32]) {
        let missing = samples.iter().copied().filter(|sample| !self.cache.contains(*sample));
        let samples: Vec<_> = missing.collect();
        if !samples.is_empty() {
            self.fetches.push(Fetch { left_s: self.pace.fetch_s(samples.len()), samples });
        }
    }

    /// Returns whether the sample was missed.
    fn read(&mut self, sample: u32) -> bool {
        self.serve();
        let is_missed = !self.cache.contains(sample);
        self.now_s += if is_missed { self.pace.miss_s } else { self.pace.hit_s };
        is_missed
    }

    /// Serves the fetches up to the time of the trainer.
    fn serve(&mut self) {
        while self.served_s < self.now_s && !self.fetches.is_empty() {
            let count = f64::from(u32::try_from(self.fetches.len()).unwrap_or(u32::MAX));
            let rate = (self.pace.parallel / count).min(1.0);
            let first = self.fetches.iter().map(|it| it.left_s).fold(f64::INFINITY, f64::min);
            let left_s = self.now_s - self.served_s;
            let is_done = first / rate <= left_s;
            let work_s = if is_done { first } else { left_s * rate };
            for fetch in &mut self.fetches {
                fetch.left_s -= work_s;
            }
            self.served_s += work_s / rate;
            if is_done {
                self.land();
            }
        }
        self.served_s = self.served_s.max(self.now_s);
    }

    /// Puts the samples of completed fetches into the cache. The first to complete has exactly 0 s left.
    fn land(&mut self) {
        let (done, going) =
            std::mem::take(&mut self.fetches).into_iter().partition(|it: &Fetch| it.left_s <= 0.0);
        self.fetches = going;
        for sample in Vec::from_iter(done).iter().flat_map(|it: &Fetch| &it.samples) {
            self.cache.insert(*sample);
        }
    }
}
