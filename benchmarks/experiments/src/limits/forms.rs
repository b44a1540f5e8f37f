//! The hit ratio of each policy, averaged over a run that starts with empty caches, in closed form or as a
//! fluid limit.
//!
//! Samples are of equal size and each epoch is a fresh permutation, dealt to the nodes at random; nodes
//! do not read from each other. `cached` is the cache of one node as a share of the dataset, and
//! q = 1 / nodes the chance that a sample falls to a node in an epoch.

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Run {
    /// Nodes that share an epoch.
    pub(crate) nodes: u32,
    /// The cache of one of them, as a share of the dataset.
    pub(crate) cached: f64,
    /// Epochs, the cold first one included.
    pub(crate) epochs: u32,
}

impl Run {
    fn q(self) -> f64 {
        1.0 / f64::from(self.nodes)
    }

    /// The share of the dataset that a node uses with the next use `gap` epochs away, in an epoch.
    fn supply(self, gap: u32) -> f64 {
        self.q().powi(2) * (1.0 - self.q()).powf(f64::from(gap) - 1.0)
    }

    /// The mean over all epochs of `hits`, which gives the hits of an epoch as a share of the node's reads.
    fn mean(self, hits: impl Fn(u32) -> f64) -> f64 {
        (0..self.epochs).map(hits).sum::<f64>() / f64::from(self.epochs)
    }
}

/// The hit ratio that no policy can exceed in a run of so many epochs.
///
/// # Source
///
/// What is kept from a use in epoch s to the next in epoch e takes its place at the boundaries from s
/// to e, and each boundary has room for `cached`. Intervals of equal worth under such a limit are
/// chosen best in the order of their starts, giving up those that end last whenever a boundary is
/// too full (Carlisle and Lloyd, "On the k-coloring of intervals", Discrete Applied Mathematics 59,
/// 1995, doi:10.1016/0166-218X(95)80003-M); here the intervals of one (s, e) are a fluid. It can be
/// attained: what is kept without regard to its place in the epoch fills a node's cache, between two
/// boundaries, in between what it fills at them.
pub(crate) fn best(run: Run) -> f64 {
    let epochs = run.epochs as usize;
    let mut kept_until = vec![0.0; epochs];
    let mut hits = 0.0;
    for epoch in 0..epochs {
        hits += kept_until[epoch];
        for (end, gap) in (epoch + 1..epochs).zip(1..) {
            kept_until[end] += run.supply(gap);
        }
        let mut surplus = kept_until[epoch + 1..].iter().sum::<f64>() - run.cached;
        for kept in kept_until[epoch + 1..].iter_mut().rev() {
            let given_up = surplus.clamp(0.0, *kept);
            *kept -= given_up;
            surplus -= given_up;
        }
    }
    hits / (run.q() * f64::from(run.epochs))
}

/// The hit ratio that no policy can exceed in the long run, and how it is reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Steady {
    pub(crate) hits: f64,
    /// The longest gap, in epochs, of which anything is kept.
    pub(crate) gap: u32,
}

/// The limit of [`best`] for many epochs: the shortest gaps are kept, as many as fit.
pub(crate) fn steady(nodes: u32, cached: f64) -> Steady {
    let run = Run { nodes, cached, epochs: 1 };
    let (mut hits, mut room) = (0.0, cached);
    let mut gap = 1;
    loop {
        let taken = run.supply(gap) * f64::from(gap);
        // Everything fits: the rest of the gaps are too rare to be told apart.
        if taken >= room || run.supply(gap) < 1e-12 {
            hits += (room / f64::from(gap)).min(run.supply(gap));
            return Steady { hits: hits / run.q(), gap };
        }
        hits += run.supply(gap);
        room -= taken;
        gap += 1;
    }
}

/// The first samples that a node reads stay: its cache fills with samples that are new to it.
pub(crate) fn pinned(run: Run) -> f64 {
    run.mean(|epoch| run.cached.min(1.0 - (1.0 - run.q()).powf(f64::from(epoch))))
}

/// Only samples that a node uses again in the next epoch are kept.
///
/// # Source
///
/// The eager rule of Lobster (doi:10.1145/3545008.3545090) drops a sample whose reuse distance exceeds
/// 2I - h, I being the iterations of an epoch and h the current one: that is what the next epoch does
/// not use. On one node this never happens and the rule, which then evicts the farthest, is optimal.
pub(crate) fn next_epoch_only(run: Run) -> f64 {
    run.mean(|epoch| if epoch == 0 { 0.0 } else { run.cached.min(run.supply(1)) / run.q() })
}

/// The samples that a node uses most often in the whole run stay from their first use on.
///
/// # Source
///
/// NoPFS (doi:10.1145/3458817.3476181): the uses of a sample by a node are binomial. A sample used n
/// times and kept hits n - 1 times.
pub(crate) fn most_frequent(run: Run) -> f64 {
    let epochs = run.epochs;
    let (mut hits, mut room) = (0.0, run.cached);
    for uses in (2..=epochs).rev() {
        let share = binomial(epochs, uses, run.q()).min(room);
        hits += share * f64::from(uses - 1);
        room -= share;
    }
    hits / (run.q() * f64::from(epochs))
}

fn binomial(trials: u32, successes: u32, chance: f64) -> f64 {
    let ways: f64 =
        (0..successes).map(|it| f64::from(trials - it) / f64::from(successes - it)).product();
    let failures = f64::from(trials - successes);
    ways * chance.powf(f64::from(successes)) * (1.0 - chance).powf(failures)
}

/// Least recently used.
///
/// # Source
///
/// A sample used at V of one epoch and next at W of the k-th after it is still there if fewer than
/// `cached` other samples were used in between: 1 - (1-qV)(1-q)^(k-1)(1-qW) of the dataset, V and W
/// evenly spread. Gaps beyond the epochs that have passed do not exist yet.
pub(crate) fn lru(run: Run) -> f64 {
    let q = run.q();
    let hits_of = |gap: u32| {
        let missed = (1.0 - q).powf(f64::from(gap) - 1.0);
        q * missed * chance_below(run.cached, missed, q)
    };
    let by_gap: Vec<f64> = (1..run.epochs).map(hits_of).collect();
    run.mean(|epoch| by_gap[..epoch as usize].iter().sum())
}

/// Cuts of each evenly spread place in [`chance_below`], and of an epoch in [`fifo`].
const CUTS: u32 = 2000;

/// The chance that 1 - (1-qV) `missed` (1-qW) stays below `cached`, by the middle of each cut of V.
fn chance_below(cached: f64, missed: f64, q: f64) -> f64 {
    let middles = (0..CUTS).map(|cut| (f64::from(cut) + 0.5) / f64::from(CUTS));
    let chance = |v: f64| {
        let rest = (1.0 - cached) / (missed * (1.0 - q * v));
        ((1.0 - rest) / q).clamp(0.0, 1.0)
    };
    middles.map(chance).sum::<f64>() / f64::from(CUTS)
}

/// First in, first out: a hit does not renew a place.
///
/// # Source
///
/// What a node uses at some point of an epoch was in the cache when the epoch began with the chance
/// that the cache was filled to, independent of the other uses of the epoch; it is still there unless the
/// misses since have evicted it.
pub(crate) fn fifo(run: Run) -> f64 {
    let cut = run.q() / f64::from(CUTS);
    let (mut filled, mut hits) = (0.0_f64, 0.0);
    for _ in 0..run.epochs {
        let mut misses = 0.0;
        for _ in 0..CUTS {
            let pushed_out = (filled + misses - run.cached).max(0.0);
            let hit = (filled - pushed_out).max(0.0);
            hits += hit * cut;
            misses += (1.0 - hit) * cut;
        }
        filled = run.cached.min(filled + misses);
    }
    hits / (run.q() * f64::from(run.epochs))
}

#[cfg(test)]
mod tests;
