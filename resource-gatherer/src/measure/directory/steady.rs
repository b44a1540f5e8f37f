//! Decides when the rate of a device has settled, and what it is.
//!
//! 1. The time is cut into windows. The first is the ramp and is dropped.
//! 2. A rate is steady if the last five windows lie within 5 % of their mean and the line through them
//!    rises or falls by at most 2 % of it per window.
//! 3. What is reported are the windows of the steady end: all from the first that no later one left. If
//!    the time ends before, it is all windows, and it says so.
//!
//! Flash that is written to, disks in a cloud with burst credits, and drives with caches start fast and
//! settle late; an average over both is the rate of nothing.
//!
//! # Source
//!
//! fio's `steadystate=iops_slope`, and SNIA's Solid State Storage Performance Test Specification.

use std::ops::ControlFlow;

use tierfeed_core::units::Nanoseconds;

use crate::{
    figures::{
        Percentiles,
        estimate::{self, Estimate, relative_half_width, to_f64},
    },
    measure::histogram::Histogram,
};

/// How many windows have to agree.
const STEADY_COUNT: usize = 5;
/// How far each may lie from their mean.
const DEVIATION_MAX: f64 = 0.05;
/// How much of the mean they may rise or fall per window.
const SLOPE_MAX: f64 = 0.02;
/// With fewer windows no interval is trusted.
const WINDOWS_MIN: usize = 10;
/// How narrow the interval of the rate shall be.
pub(super) const HALF_WIDTH: f64 = 0.03;
const WINDOW_MAX: Nanoseconds = Nanoseconds(1_000_000_000);

/// Operations of one job, cut into windows.
#[derive(Debug)]
pub(super) struct Windows {
    window: Nanoseconds,
    end: Nanoseconds,
    start: Nanoseconds,
    current: Histogram,
    has_ramped: bool,
    closed: Vec<Window>,
}

#[derive(Debug)]
struct Window {
    duration: Nanoseconds,
    latencies: Histogram,
}

/// What a job came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settled {
    /// Operations per second.
    pub(super) rate: Estimate,
    pub(super) latency: Percentiles,
    /// The median latency with its interval, also where there are too few samples to publish it.
    pub(super) median_latency: Estimate,
    pub(super) is_steady: bool,
}

impl Windows {
    /// For a job that starts at `now` and may take `time`.
    pub(super) fn new(now: Nanoseconds, time: Nanoseconds) -> Self {
        Self {
            window: Nanoseconds((time.0 / 20).clamp(1, WINDOW_MAX.0)),
            end: Nanoseconds(now.0.saturating_add(time.0)),
            start: now,
            current: Histogram::default(),
            has_ramped: false,
            closed: Vec::new(),
        }
    }

    /// Counts an operation that ended at `now`. Breaks if the job may end.
    pub(super) fn record(&mut self, now: Nanoseconds, latency: Nanoseconds) -> ControlFlow<()> {
        self.current.record(latency);
        let duration = Nanoseconds(now.0.saturating_sub(self.start.0));
        if duration < self.window {
            return ControlFlow::Continue(());
        }
        let latencies = std::mem::take(&mut self.current);
        self.start = now;
        if self.has_ramped {
            self.closed.push(Window { duration, latencies });
        }
        self.has_ramped = true;
        let is_enough = self.closed.len() >= WINDOWS_MIN && self.is_settled();
        let is_over = now >= self.end && !self.closed.is_empty();
        if is_enough || is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Whether a window was closed by the last operation.
    pub(super) fn is_at_start(&self) -> bool {
        self.current.samples() == 0
    }

    /// What the windows say; `None` if there is none but the ramp.
    pub(super) fn settle(&self) -> Option<Settled> {
        let steady = self.steady_end();
        let windows = steady.unwrap_or(&self.closed);
        let mut latencies = Histogram::default();
        windows.iter().for_each(|window| latencies.absorb(&window.latencies));
        let rate = rate(windows)?;
        let is_steady = steady.is_some();
        let converged = is_steady && relative_half_width(&rate) <= HALF_WIDTH;
        Some(Settled {
            rate: Estimate { converged, ..rate },
            latency: latencies.percentiles(),
            median_latency: latencies.median(HALF_WIDTH)?,
            is_steady,
        })
    }

    fn is_settled(&self) -> bool {
        let steady = self.steady_end().and_then(rate);
        steady.is_some_and(|rate| relative_half_width(&rate) <= HALF_WIDTH)
    }

    /// Invariants 2 and 3.
    fn steady_end(&self) -> Option<&[Window]> {
        let rates: Vec<f64> = self.closed.iter().map(Window::rate).collect();
        let last = rates.last_chunk::<STEADY_COUNT>()?;
        let mean = mean(last);
        let is_near = |rate: &f64| (rate - mean).abs() <= DEVIATION_MAX * mean;
        let is_steady = last.iter().all(is_near) && slope(last).abs() <= SLOPE_MAX * mean;
        let first = rates.iter().rposition(|rate| !is_near(rate)).map_or(0, |index| index + 1);
        is_steady.then(|| &self.closed[first..])
    }
}

impl Window {
    fn rate(&self) -> f64 {
        to_f64(self.latencies.samples()) * 1e9 / to_f64(self.duration.0)
    }
}

/// The times of a million operations are taken as samples: whole nanoseconds are too coarse for one.
fn rate(windows: &[Window]) -> Option<Estimate> {
    const MANY: u64 = 1_000_000;
    let times: Vec<u64> = windows
        .iter()
        .map(|it| it.duration.0.saturating_mul(MANY) / it.latencies.samples().max(1))
        .collect();
    estimate::of_values(&times).map(|time| time.per_second(to_f64(MANY)))
}

fn mean(values: &[f64; STEADY_COUNT]) -> f64 {
    values.iter().sum::<f64>() / 5.0
}

/// Of the least-squares line, per window: the abscissae are -2..=2, whose squares sum to 10.
fn slope(values: &[f64; STEADY_COUNT]) -> f64 {
    let [a, b, _, d, e] = values;
    (2.0 * (e - a) + (d - b)) / 10.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::figures::whole;

    const SECOND: u64 = 1_000_000_000;
    const START: u64 = 7;

    /// Plays one operation after another, each as long as `period` says for the time that passed.
    fn play(time: u64, period: impl Fn(u64) -> u64) -> (Windows, u64) {
        let mut windows = Windows::new(Nanoseconds(START), Nanoseconds(time));
        let mut passed = 0;
        loop {
            let latency = period(passed);
            passed += latency;
            if windows.record(Nanoseconds(START + passed), Nanoseconds(latency)).is_break() {
                return (windows, passed);
            }
        }
    }

    #[test]
    fn a_constant_rate_ends_after_the_ramp_and_ten_windows() {
        let (windows, passed) = play(60 * SECOND, |_| 1_000_000);
        assert_eq!(passed, 11 * SECOND);
        let settled = windows.settle().unwrap();
        assert!(settled.is_steady && settled.rate.converged);
        assert_eq!(whole(settled.rate), 1000);
        assert_eq!(settled.latency.samples, 10_000);
    }

    #[test]
    fn the_fast_start_of_a_device_is_left_out() {
        let period = |passed| if passed < 6 * SECOND { 1_000_000 } else { 4_000_000 };
        let settled = play(60 * SECOND, period).0.settle().unwrap();
        assert!(settled.is_steady && settled.rate.converged, "{settled:?}");
        assert_eq!(whole(settled.rate), 250);
        assert_eq!(settled.latency.p50_ns, settled.latency.p90_ns, "no fast one is among them");
    }

    #[test]
    fn a_rate_that_keeps_falling_is_never_steady_and_ends_with_the_time() {
        let (windows, passed) = play(30 * SECOND, |passed| 1_000_000 + passed / 10_000);
        let settled = windows.settle().unwrap();
        assert!(!settled.is_steady && !settled.rate.converged);
        assert!((30 * SECOND..32 * SECOND).contains(&passed));
        assert!(settled.rate.low < settled.rate.median && settled.rate.median < settled.rate.high);
    }

    #[test]
    fn a_drift_within_the_band_is_no_steady_state() {
        // 2.3 % per window: the ends lie 4.6 % from the mean, inside the band.
        let rates = [954.0, 977.0, 1000.0, 1023.0, 1046.0];
        assert!(rates.iter().all(|rate| (rate - mean(&rates)).abs() <= DEVIATION_MAX * 1000.0));
        let window = |rate: f64| Window {
            duration: Nanoseconds(SECOND),
            latencies: (0..whole(Estimate::stated(rate))).fold(
                Histogram::default(),
                |mut all, _| {
                    all.record(Nanoseconds(1000));
                    all
                },
            ),
        };
        let steady = |rates: [f64; 5]| {
            let mut windows = Windows::new(Nanoseconds(0), Nanoseconds(SECOND));
            windows.closed = rates.into_iter().map(window).collect();
            windows.settle().unwrap().is_steady
        };
        assert!(!steady(rates));
        assert!(steady([954.0, 1023.0, 1000.0, 977.0, 1046.0]), "the same rates, without a trend");
        assert!(!steady([1000.0, 1000.0, 1080.0, 1000.0, 1000.0]), "one outside the band");
    }

    #[test]
    fn one_operation_that_outlasts_the_time_is_a_window() {
        let (windows, passed) = play(SECOND, |_| 4 * SECOND);
        assert_eq!(passed, 8 * SECOND, "the ramp and one window");
        let settled = windows.settle().unwrap();
        assert_eq!((settled.latency.samples, settled.latency.p50_ns), (1, None));
        assert_eq!(whole(settled.rate.divided_by(0.01)), 25);
    }

    #[test]
    fn nothing_is_said_of_the_ramp_alone() {
        let mut windows = Windows::new(Nanoseconds(0), Nanoseconds(SECOND));
        assert!(windows.record(Nanoseconds(2 * SECOND), Nanoseconds(1)).is_continue());
        assert!(windows.settle().is_none());
    }

    proptest! {
        #[test]
        fn the_rate_lies_between_the_slowest_and_the_fastest_window(
            periods in prop::collection::vec(1_000_000_u64..50_000_000, 1..40),
        ) {
            let count = periods.len() as u64;
            let period = |passed: u64| periods[usize::try_from(passed / 100_000_000 % count).unwrap()];
            let (windows, _) = play(4 * SECOND, period);
            let settled = windows.settle().unwrap();
            let rates: Vec<f64> = windows.closed.iter().map(Window::rate).collect();
            let fastest = rates.iter().copied().fold(0.0, f64::max);
            let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
            prop_assert!(slowest * 0.999 <= settled.rate.low && settled.rate.high <= fastest * 1.001);
        }
    }
}
