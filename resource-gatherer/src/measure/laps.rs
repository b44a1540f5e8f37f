//! Cuts operations that end one after the other into laps, and makes each lap a sample of a cell.
//!
//! Several operations are in flight, so single ones overlap; what a lap took for what arrived in it is a
//! rate. The first lap starts the device, opens connections or fills the queue, and is dropped, as the
//! first sample of every cell is.

use tierfeed_core::units::Nanoseconds;

use super::{
    cell::{Cell, Occupation, Sample, StopRule},
    histogram::Histogram,
};
use crate::figures::estimate::{Estimate, to_f64};

/// A sample is the time of this many units (bytes or operations): whole nanoseconds are too coarse for one.
const MANY: u64 = 1 << 30;

#[derive(Debug, Clone, Copy)]
pub(super) enum LapEnd {
    Operations(u64),
    Time(Nanoseconds),
}

#[derive(Debug)]
pub(super) struct Laps {
    pub(super) cell: Cell,
    lap_end: LapEnd,
    start: Nanoseconds,
    operations: u64,
    units: u64,
    open: Histogram,
    /// The latencies of each lap in the cell.
    closed: Vec<Histogram>,
}

impl Laps {
    pub(super) fn new(
        now: Nanoseconds,
        lap_end: LapEnd,
        rule: StopRule,
        occupation: Occupation,
    ) -> Self {
        let (cell, open) = (Cell::new(rule, occupation), Histogram::default());
        Self { cell, lap_end, start: now, operations: 0, units: 0, open, closed: Vec::new() }
    }

    /// Counts an operation of `units` that ended at `now`. Returns whether it was the last of its lap, which
    /// the caller then has to close.
    pub(super) fn counts_last_of_lap(
        &mut self,
        now: Nanoseconds,
        latency: Option<Nanoseconds>,
        units: u64,
    ) -> bool {
        latency.into_iter().for_each(|latency| self.open.record(latency));
        self.operations += 1;
        self.units += units;
        match self.lap_end {
            LapEnd::Operations(count) => self.operations >= count,
            LapEnd::Time(time) => now.0.saturating_sub(self.start.0) >= time.0,
        }
    }

    pub(super) fn close(&mut self, now: Nanoseconds) {
        let took = now.0.saturating_sub(self.start.0);
        let scaled = u128::from(took) * u128::from(MANY) / u128::from(self.units.max(1));
        let wall = Nanoseconds(u64::try_from(scaled).unwrap_or(u64::MAX).max(1));
        self.cell.record_scaled(Sample { wall, ..Sample::default() }, Nanoseconds(took));
        let latencies = std::mem::take(&mut self.open);
        if self.cell.taken() > self.closed.len() {
            self.closed.push(latencies);
        }
        (self.start, self.operations, self.units) = (now, 0, 0);
    }

    /// Units per second; `None` if there is no lap but the first.
    pub(super) fn rate(&self) -> Option<Estimate> {
        self.cell.estimate().map(|time| time.per_second(to_f64(MANY)))
    }

    /// The latencies in the laps that the rate is made of.
    pub(super) fn latencies(&self) -> Histogram {
        let count = self.cell.settled().unwrap_or(self.closed.len());
        let mut all = Histogram::default();
        self.closed.iter().rev().take(count).for_each(|lap| all.absorb(lap));
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::figures::whole;

    const SECOND: u64 = 1_000_000_000;
    const START: u64 = 7;

    /// Plays one operation after another in laps of a 20th of `time`, each operation as long as `period`
    /// says for the time that passed.
    fn play(time: u64, period: impl Fn(u64) -> u64) -> (Laps, u64) {
        let lap = LapEnd::Time(Nanoseconds((time / 20).min(SECOND)));
        let time = Nanoseconds(time);
        let rule = StopRule { half_width: 0.03, samples_min: 10, samples_max: 1_000, time };
        let mut laps = Laps::new(Nanoseconds(START), lap, rule, Occupation::Settles);
        let mut passed = 0;
        while laps.cell.wants_more() {
            let latency = period(passed);
            passed += latency;
            let now = Nanoseconds(START + passed);
            if laps.counts_last_of_lap(now, Some(Nanoseconds(latency)), 1) {
                laps.close(now);
            }
        }
        (laps, passed)
    }

    #[test]
    fn a_constant_rate_ends_after_the_first_lap_and_ten_more() {
        let (laps, passed) = play(60 * SECOND, |_| 1_000_000);
        assert_eq!(passed, 11 * SECOND);
        let rate = laps.rate().unwrap();
        assert!(laps.cell.settled().is_some() && rate.converged);
        assert_eq!((whole(rate), laps.latencies().samples()), (1000, 10_000));
    }

    #[test]
    fn the_fast_start_of_a_device_is_left_out() {
        let period = |passed| if passed < 6 * SECOND { 1_000_000 } else { 4_000_000 };
        let laps = play(60 * SECOND, period).0;
        let rate = laps.rate().unwrap();
        assert!(laps.cell.settled().is_some() && rate.converged, "{rate:?}");
        assert_eq!(whole(rate), 250);
        let latency = laps.latencies().percentiles();
        assert_eq!(latency.p50_ns, latency.p90_ns, "no fast one is among them");
    }

    #[test]
    fn a_rate_that_keeps_falling_is_never_steady_and_ends_with_the_time() {
        let (laps, passed) = play(30 * SECOND, |passed| 1_000_000 + passed / 10_000);
        let rate = laps.rate().unwrap();
        assert!(laps.cell.settled().is_none() && rate.drifted && !rate.converged);
        assert!((30 * SECOND..32 * SECOND).contains(&passed));
        assert!(rate.low < rate.median && rate.median < rate.high);
    }

    #[test]
    fn a_drift_within_the_band_is_no_steady_state() {
        let steady = |rates: [u64; 5]| {
            let time = Nanoseconds(u64::MAX);
            let rule = StopRule { half_width: 0.03, samples_min: 10, samples_max: 100, time };
            let lap = LapEnd::Time(Nanoseconds(SECOND));
            let mut laps = Laps::new(Nanoseconds(0), lap, rule, Occupation::Settles);
            for (second, rate) in (1..).zip([1000].into_iter().chain(rates)) {
                laps.counts_last_of_lap(Nanoseconds(second * SECOND), None, rate);
                laps.close(Nanoseconds(second * SECOND));
            }
            laps.cell.settled().is_some()
        };
        // 2.3 % per lap: the ends lie 4.6 % from the mean, inside the band.
        assert!(!steady([954, 977, 1000, 1023, 1046]));
        assert!(steady([954, 1023, 1000, 977, 1046]), "the same rates, without a trend");
        assert!(!steady([1000, 1000, 1080, 1000, 1000]), "one outside the band");
    }

    #[test]
    fn one_operation_that_outlasts_the_time_is_a_lap() {
        let (laps, passed) = play(SECOND, |_| 4 * SECOND);
        assert_eq!(passed, 8 * SECOND, "the first lap and one more");
        let latency = laps.latencies().percentiles();
        assert_eq!((latency.samples, latency.p50_ns), (1, None));
        assert_eq!(whole(laps.rate().unwrap().divided_by(0.01)), 25);
    }

    #[test]
    fn a_lap_may_be_a_number_of_operations_of_any_length() {
        let time = Nanoseconds(u64::MAX);
        let rule = StopRule { half_width: 0.05, samples_min: 10, samples_max: 100, time };
        let mut laps = Laps::new(Nanoseconds(0), LapEnd::Operations(2), rule, Occupation::Waits);
        for (now, bytes) in [(10, 1000), (900, 1000), (1000, 500), (1400, 500), (1600, 100)] {
            if laps.counts_last_of_lap(Nanoseconds(now), None, bytes) {
                laps.close(Nanoseconds(now));
            }
        }
        let rate = laps.rate().unwrap();
        assert_eq!((rate.samples, rate.median.round()), (1, 2e9), "1000 B in 500 ns");
    }

    proptest! {
        #[test]
        fn the_rate_lies_between_the_slowest_and_the_fastest_operation(
            periods in prop::collection::vec(1_000_000_u64..50_000_000, 1..40),
        ) {
            let count = periods.len() as u64;
            let period = |passed: u64| periods[usize::try_from(passed / 100_000_000 % count).unwrap()];
            let rate = play(4 * SECOND, period).0.rate().unwrap();
            let (least, most) = (periods.iter().min().unwrap(), periods.iter().max().unwrap());
            prop_assert!(1e9 / to_f64(*most) * 0.999 <= rate.low);
            prop_assert!(rate.high <= 1e9 / to_f64(*least) * 1.001);
        }
    }
}
