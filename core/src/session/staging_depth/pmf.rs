//! Distributions of times on a grid, in floating point with additions and products only, which give the
//! same result on every machine.

use alloc::{vec, vec::Vec};

use crate::{
    latency_quantiles::{LatencyQuantiles, PerMillion},
    units::Nanoseconds,
};

/// The cells of a distribution; times beyond count as late for good.
const CELLS: usize = 1024;

/// A sum of many reads is made on a grid that is finer by this factor, so that rounding does not add up.
const FINER: usize = 4;

/// The parts of a band of equally likely times.
const BAND_PARTS: u32 = 16;

/// Shares below this are not carried on.
const SHARE_MIN: f64 = 1e-13;

/// The difference of two rounds below which a queue is settled.
const SETTLED: f64 = 1e-7;

#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    step_time: Nanoseconds,
    cells_per_step: usize,
}

impl Grid {
    /// The grid reaches twice as far as `steps`, a power of two of at most 512.
    pub(super) fn new(step_time: Nanoseconds, steps: u32) -> Self {
        Self { step_time, cells_per_step: CELLS / (2 * steps as usize) }
    }

    /// The time of `reads` reads, one after the other.
    pub(super) fn sum_of(
        &self,
        reads: u32,
        latency: &LatencyQuantiles,
        transfer: Nanoseconds,
    ) -> Pmf {
        let fine = Self { cells_per_step: self.cells_per_step * FINER, ..*self };
        let mut square = fine.one_read(latency, transfer);
        let mut sum = Pmf::of_cells(CELLS * FINER, fine.cells_per_step);
        sum.shares[0] = 1.0;
        let mut left = reads;
        while left > 0 {
            if left % 2 == 1 {
                sum = sum.and_then(&square);
            }
            left /= 2;
            if left > 0 {
                square = square.and_then(&square);
            }
        }
        sum.coarser(FINER)
    }

    fn one_read(&self, latency: &LatencyQuantiles, transfer: Nanoseconds) -> Pmf {
        let mut masses = Pmf::of_cells(CELLS * FINER, self.cells_per_step);
        for band in latency.bands().filter(|band| band.share.0 > 0) {
            let share = f64::from(band.share.0) / f64::from(PerMillion::ALL.0);
            let part = share / f64::from(2 * BAND_PARTS);
            let width = band.to.0 - band.from.0;
            for edge in 0..=BAND_PARTS {
                let weight = if edge == 0 || edge == BAND_PARTS { part } else { 2.0 * part };
                let way = u128::from(width) * u128::from(edge) / u128::from(BAND_PARTS);
                let way = u64::try_from(way).expect("no more than the width");
                let time = band.from.0.saturating_add(way).saturating_add(transfer.0);
                masses.add(self.cell(Nanoseconds(time)), weight);
            }
        }
        masses
    }

    #[expect(clippy::cast_precision_loss, reason = "a cell is far coarser than what is lost")]
    fn cell(&self, time: Nanoseconds) -> f64 {
        time.0 as f64 / self.step_time.0.max(1) as f64 * self.cells_per_step as f64
    }
}

/// A distribution of times: the share of each cell, and of the times beyond them all.
#[derive(Debug, Clone)]
pub(super) struct Pmf {
    shares: Vec<f64>,
    late: f64,
    cells_per_step: usize,
}

impl Pmf {
    pub(super) fn at_once(grid: &Grid) -> Self {
        let mut masses = Self::of_cells(CELLS, grid.cells_per_step);
        masses.shares[0] = 1.0;
        masses
    }

    fn of_cells(cells: usize, cells_per_step: usize) -> Self {
        Self { shares: vec![0.0; cells], late: 0.0, cells_per_step }
    }

    /// Splits a share between the two cells next to `at`, so that its mean stays.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "times are not negative, and what lies beyond the cells was sorted out before"
    )]
    fn add(&mut self, at: f64, share: f64) {
        let last = self.shares.len() - 1;
        if at >= last as f64 {
            self.late += share;
            return;
        }
        let cell = at as usize;
        let upper = at - cell as f64;
        self.shares[cell] += share * (1.0 - upper);
        self.shares[cell + 1] += share * upper;
    }

    /// The sum of two times.
    pub(super) fn and_then(&self, other: &Self) -> Self {
        let cells = self.shares.len();
        let mut both = Self::of_cells(cells, self.cells_per_step);
        let is_worth_it = |share: &f64| *share >= SHARE_MIN;
        let start = other.shares.iter().position(is_worth_it).unwrap_or(cells);
        let end = other.shares.iter().rposition(is_worth_it).map_or(start, |cell| cell + 1);
        let second = &other.shares[start..end];
        let sums = second.iter().scan(0.0, |sum, share| {
            *sum += share;
            Some(*sum)
        });
        let up_to: Vec<f64> = sums.collect();
        let mut kept = 0.0;
        for (cell, share) in self.shares.iter().enumerate().filter(|(_, it)| is_worth_it(it)) {
            let reached = second.len().min(cells.saturating_sub(cell + start));
            let targets = both.shares[cell..].iter_mut().skip(start);
            for (target, second) in targets.zip(&second[..reached]) {
                *target += share * second;
            }
            kept += share * reached.checked_sub(1).map_or(0.0, |last| up_to[last]);
        }
        both.late = 1.0 - kept;
        both
    }

    /// The time that is left after `time` has passed.
    #[expect(clippy::cast_precision_loss, reason = "a thousand cells")]
    pub(super) fn after(&self, time: Nanoseconds, grid: &Grid) -> Self {
        let passed = grid.cell(time);
        let mut left = Self::of_cells(self.shares.len(), self.cells_per_step);
        left.late = self.late;
        for (cell, share) in self.shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            left.add(f64::max(cell as f64 - passed, 0.0), *share);
        }
        left
    }

    pub(super) fn is_close_to(&self, other: &Self) -> bool {
        let pairs = self.shares.iter().zip(&other.shares);
        pairs.map(|(one, two)| (one - two).abs()).sum::<f64>() < SETTLED
    }

    /// The share of cases in which `lanes` independent times all end within `steps`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a probability times a million"
    )]
    pub(super) fn all_within(&self, steps: u32, lanes: u32) -> PerMillion {
        let end = self.cells_per_step * steps as usize;
        let one: f64 = self.shares[..end.min(CELLS)].iter().sum();
        let all = power(one.min(1.0), lanes);
        // Sums of a thousand shares are off by less than this.
        PerMillion(((all + 1e-10) * f64::from(PerMillion::ALL.0)) as u32)
    }

    /// The maximum of `count` independent times.
    pub(super) fn slowest_of(&self, count: u32) -> Self {
        let mut slowest = Self::of_cells(self.shares.len(), self.cells_per_step);
        let (mut up_to, mut before) = (0.0, 0.0);
        for (cell, share) in self.shares.iter().enumerate() {
            up_to = f64::min(up_to + share, 1.0);
            let all = power(up_to, count);
            slowest.shares[cell] = all - before;
            before = all;
        }
        slowest.late = 1.0 - before;
        slowest
    }

    fn coarser(&self, by: usize) -> Self {
        let mut coarse = Self::of_cells(self.shares.len() / by, self.cells_per_step / by);
        coarse.late = self.late;
        for (cell, share) in self.shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            #[expect(clippy::cast_precision_loss, reason = "a few thousand cells")]
            coarse.add(cell as f64 / by as f64, *share);
        }
        coarse
    }
}

fn power(base: f64, exponent: u32) -> f64 {
    let (mut all, mut square, mut left) = (1.0, base, exponent);
    while left > 0 {
        if left % 2 == 1 {
            all *= square;
        }
        square *= square;
        left /= 2;
    }
    all
}
