//! Decides how long one thing is measured, and which clock its samples are read by.
//!
//! 1. The first sample is dropped: it pays for page faults, cold caches and slow clocks.
//! 2. Sampling goes on until the 95 % interval of the median is as narrow as asked, at least
//!    `samples_min` samples and at most `samples_max` or the time of the cell.
//! 3. A sample is accepted if its thread ran for at least 98 % of it (of several threads: each for at
//!    least 95 %) and the hypervisor stole at most 1 %. While at least half of the samples are accepted,
//!    only these count, by the wall clock.
//! 4. Otherwise the cell is contended, which is decided after 20 samples, or when there will be no more.
//!    Then all samples count: of one thread by its CPU time, of several by the wall clock, because the
//!    slowest of them decides and its CPU time says nothing about the waiting of the others. CPU time
//!    takes lost time slices out, not what other programs do to caches and memory channels.
//! 5. Kernels that wait for a device have no share to judge; they count by the wall clock, always.
//! 6. Where the medians of the first and the last third differ by more than twice the asked half width,
//!    the machine changed meanwhile. The older two thirds are dropped then and sampling goes on, once;
//!    samples that drift again say so and do not count as converged. Devices drift by themselves (caches
//!    fill, flash is tidied up), so their samples are all kept, and say so at once.
//! 7. Of a device whose rate must settle first, the samples of the steady end count: all from the first
//!    that no later one left. The rate is steady if the last five samples lie within 5 % of their mean and
//!    the line through them rises or falls by at most 2 % of it per sample (fio's `steadystate=iops_slope`,
//!    and SNIA's Solid State Storage Performance Test Specification). If the time ends before, all samples
//!    count, and say so. Flash that is written to, disks in a cloud with burst credits, and drives with
//!    caches start fast and settle late; an average over both is the rate of nothing.
//!
//! On a shared host the best of many wall-clock samples of a 100 ns chase read 200 ns; CPU time read
//! 97 to 105 ns over the same samples. That is why rule 4 exists.

use tierfeed_core::units::Nanoseconds;

use crate::figures::estimate::{self, Estimate, to_f64};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StopRule {
    /// Half the width of the interval as a share of the median.
    pub(crate) half_width: f64,
    /// Below this many samples no interval is trusted.
    pub(crate) samples_min: usize,
    /// With this many samples the cell ends.
    pub(crate) samples_max: usize,
    /// After this much time in samples the cell ends.
    pub(crate) time: Nanoseconds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occupation {
    /// One thread computes; time without the CPU is a disturbance.
    Computes,
    ComputesTogether,
    /// The kernel waits for a device or for other threads.
    Waits,
    /// The kernel waits for a device whose rate must settle first.
    Settles,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sample {
    /// From start to end; of several threads, from the first start to the last end.
    pub(crate) wall: Nanoseconds,
    /// The part of it for which the thread ran; of several threads, the least share of any of them.
    pub(crate) thread_cpu: Nanoseconds,
    /// How long the hypervisor kept the CPU from running.
    pub(crate) stolen: Nanoseconds,
}

#[derive(Debug, Clone)]
pub(crate) struct Cell {
    rule: StopRule,
    occupation: Occupation,
    has_dropped_first: bool,
    has_started_again: bool,
    is_done: bool,
    spent_ns: u64,
    all: Vec<Sample>,
    accepted_count: usize,
}

impl Cell {
    pub(crate) fn new(rule: StopRule, occupation: Occupation) -> Self {
        Self {
            rule,
            occupation,
            has_dropped_first: false,
            has_started_again: false,
            is_done: false,
            spent_ns: 0,
            all: Vec::new(),
            accepted_count: 0,
        }
    }

    pub(crate) fn record(&mut self, sample: Sample) {
        self.record_scaled(sample, sample.wall);
    }

    /// Adds a sample that took `took`, but is scaled to another amount of work than was done.
    pub(crate) fn record_scaled(&mut self, sample: Sample, took: Nanoseconds) {
        self.spent_ns = self.spent_ns.saturating_add(took.0);
        if !self.has_dropped_first {
            self.has_dropped_first = true;
            return;
        }
        self.accepted_count += usize::from(self.accepts(sample));
        self.all.push(sample);
        self.is_done = self.is_enough();
        if self.is_done && self.may_start_again() && self.drifts() {
            self.start_again();
        }
    }

    pub(crate) fn wants_more(&self) -> bool {
        !self.is_done
    }

    /// The number of samples, including those that are not accepted.
    pub(crate) fn taken(&self) -> usize {
        self.all.len()
    }

    /// The number of latest samples that make the steady end; `None` before the rate has settled.
    pub(crate) fn settled(&self) -> Option<usize> {
        let rates: Vec<f64> = self.all.iter().map(|it| 1.0 / to_f64(it.wall.0.max(1))).collect();
        let last = rates.last_chunk::<STEADY_COUNT>()?;
        let mean = last.iter().sum::<f64>() / 5.0;
        let is_near = |rate: &f64| (rate - mean).abs() <= DEVIATION_MAX * mean;
        let is_steady = last.iter().all(is_near) && slope(last).abs() <= SLOPE_MAX * mean;
        let first = rates.iter().rposition(|rate| !is_near(rate)).map_or(0, |index| index + 1);
        is_steady.then_some(rates.len() - first)
    }

    /// The time of all samples together, including the first.
    pub(crate) fn spent(&self) -> Nanoseconds {
        Nanoseconds(self.spent_ns)
    }

    pub(crate) fn is_out_of_time(&self) -> bool {
        self.spent_ns >= self.rule.time.0
    }

    /// `None` before the second sample, because the first is dropped.
    pub(crate) fn estimate(&self) -> Option<Estimate> {
        let drifted = self.drifts();
        let converged = self.has_converged() && !drifted;
        let contended = self.is_contended();
        let estimate = estimate::of_values(&self.values())?;
        Some(Estimate { converged, contended, drifted, ..estimate })
    }

    fn is_enough(&self) -> bool {
        self.all.len() >= self.rule.samples_max
            || self.is_out_of_time()
            || (self.is_worth_a_look() && self.has_converged())
    }

    fn may_start_again(&self) -> bool {
        let waits = matches!(self.occupation, Occupation::Waits | Occupation::Settles);
        !self.has_started_again && !self.is_out_of_time() && !waits
    }

    /// Rule 6. What is left keeps its order, so the same question can be asked again.
    fn start_again(&mut self) {
        let dropped = self.all.len() - self.all.len() / 3;
        self.all.drain(..dropped);
        self.accepted_count = self.all.iter().filter(|sample| self.accepts(**sample)).count();
        self.has_started_again = true;
        self.is_done = false;
    }

    fn values(&self) -> Vec<u64> {
        let wall = |sample: &Sample| sample.wall.0.max(1);
        match (self.is_contended(), self.occupation) {
            (_, Occupation::Settles) => {
                let dropped = self.all.len() - self.settled().unwrap_or(self.all.len());
                self.all[dropped..].iter().map(wall).collect()
            }
            (false, _) => {
                self.all.iter().filter(|sample| self.accepts(**sample)).map(wall).collect()
            }
            (true, Occupation::ComputesTogether) => self.all.iter().map(wall).collect(),
            (true, _) => self.all.iter().map(|sample| sample.thread_cpu.0.max(1)).collect(),
        }
    }

    fn has_converged(&self) -> bool {
        if self.is_contended() && self.all.len() < CONTENDED_MIN {
            return false;
        }
        let values = self.values();
        let count = match self.occupation {
            Occupation::Settles => self.settled().map_or(0, |_| self.all.len()),
            _ => values.len(),
        };
        count >= self.rule.samples_min
            && estimate::of_values(&values).is_some_and(|estimate| {
                estimate::relative_half_width(&estimate) <= self.rule.half_width
            })
    }

    fn drifts(&self) -> bool {
        if self.occupation == Occupation::Settles {
            return self.all.len() >= STEADY_COUNT && self.settled().is_none();
        }
        let values = self.values();
        let third = values.len() / 3;
        if third < THIRD_MIN {
            return false;
        }
        let (first, last) = (&values[..third], &values[values.len() - third..]);
        let medians = (estimate::median(first), estimate::median(last), estimate::median(&values));
        let (Some(first), Some(last), Some(all)) = medians else { return false };
        (first - last).abs() > 2.0 * self.rule.half_width * all
    }

    /// Sorting thousands of samples after each one would take longer than they do.
    fn is_worth_a_look(&self) -> bool {
        self.all.len() <= 128 || self.all.len().is_multiple_of(64)
    }

    fn is_contended(&self) -> bool {
        self.accepted_count * 2 < self.all.len()
    }

    fn accepts(&self, sample: Sample) -> bool {
        let share_min = match self.occupation {
            Occupation::Computes => 0.98,
            Occupation::ComputesTogether => 0.95,
            Occupation::Waits | Occupation::Settles => return true,
        };
        to_f64(sample.thread_cpu.0) >= share_min * to_f64(sample.wall.0)
            && to_f64(sample.stolen.0) <= STOLEN_MAX * to_f64(sample.wall.0)
    }
}

/// The share of a sample that the hypervisor may steal.
const STOLEN_MAX: f64 = 0.01;

/// Before this many samples it is not known whether most of them are disturbed.
const CONTENDED_MIN: usize = 20;

/// Fewer samples have no median worth comparing.
const THIRD_MIN: usize = 3;

/// The number of samples that have to agree before a rate is steady.
const STEADY_COUNT: usize = 5;

/// The largest deviation of each from their mean, as a share of it.
const DEVIATION_MAX: f64 = 0.05;

/// The largest slope per sample, as a share of the mean.
const SLOPE_MAX: f64 = 0.02;

/// The slope of the least-squares line, per sample: the abscissae are -2..=2, whose squares sum to 10.
fn slope(values: &[f64; STEADY_COUNT]) -> f64 {
    let [a, b, _, d, e] = values;
    (2.0 * (e - a) + (d - b)) / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: StopRule = StopRule {
        half_width: 0.02,
        samples_min: 10,
        samples_max: 100,
        time: Nanoseconds(1_000_000),
    };

    fn sample(wall: u64, thread_cpu: u64) -> Sample {
        Sample { wall: Nanoseconds(wall), thread_cpu: Nanoseconds(thread_cpu), ..Sample::default() }
    }

    fn filled(rule: StopRule, mut next: impl FnMut(usize) -> Sample) -> Cell {
        let mut cell = Cell::new(rule, Occupation::Computes);
        let mut index = 0;
        while cell.wants_more() {
            cell.record(next(index));
            index += 1;
        }
        cell
    }

    #[test]
    fn the_first_sample_does_not_count() {
        let cell = filled(RULE, |i| if i == 0 { sample(90_000, 90_000) } else { sample(100, 100) });
        let estimate = cell.estimate().unwrap();
        assert_eq!((estimate.median, estimate.high, estimate.samples), (100.0, 100.0, 10));
        assert!(estimate.converged && !estimate.contended);
    }

    #[test]
    fn steady_samples_end_at_the_minimum() {
        assert_eq!(filled(RULE, |_| sample(100, 100)).all.len(), RULE.samples_min);
    }

    #[test]
    fn scattered_samples_go_on_to_the_maximum_and_say_so() {
        let cell = filled(RULE, |i| if i % 2 == 0 { sample(100, 100) } else { sample(200, 200) });
        assert_eq!(cell.all.len(), RULE.samples_max);
        assert!(!cell.estimate().unwrap().converged);
    }

    #[test]
    fn the_time_of_the_cell_ends_it() {
        let cell = filled(RULE, |i| {
            if i % 2 == 0 { sample(99_000, 99_000) } else { sample(150_000, 150_000) }
        });
        assert!(cell.spent_ns >= RULE.time.0 && cell.all.len() < 10);
        let estimate = cell.estimate().unwrap();
        assert!(!estimate.converged && estimate.samples == cell.all.len());
    }

    #[test]
    fn one_sample_is_taken_whatever_the_budget() {
        let rule = StopRule { time: Nanoseconds(0), ..RULE };
        assert_eq!(filled(rule, |_| sample(100, 100)).estimate().unwrap().samples, 1);
    }

    #[test]
    fn a_few_disturbed_samples_are_left_out() {
        let cell = filled(RULE, |i| if i % 3 == 0 { sample(170, 100) } else { sample(100, 99) });
        let estimate = cell.estimate().unwrap();
        assert!(!estimate.contended);
        assert_eq!((estimate.median, estimate.high), (100.0, 100.0));
        assert!(estimate.samples >= RULE.samples_min && estimate.samples < cell.all.len());
    }

    #[test]
    fn mostly_disturbed_samples_count_by_cpu_time() {
        let cell = filled(RULE, |i| if i % 3 == 0 { sample(100, 100) } else { sample(250, 101) });
        let estimate = cell.estimate().unwrap();
        assert!(estimate.contended && estimate.converged);
        assert!(estimate.high <= 101.0);
    }

    #[test]
    fn a_share_of_98_percent_is_undisturbed_and_97_is_not() {
        assert!(!filled(RULE, |_| sample(1000, 980)).estimate().unwrap().contended);
        assert!(filled(RULE, |_| sample(1000, 979)).estimate().unwrap().contended);
    }

    #[test]
    fn time_that_the_hypervisor_steals_is_a_disturbance() {
        let stolen = |stolen| Sample { stolen: Nanoseconds(stolen), ..sample(10_000, 10_000) };
        assert!(!filled(RULE, |_| stolen(100)).estimate().unwrap().contended);
        assert!(filled(RULE, |_| stolen(101)).estimate().unwrap().contended);
    }

    #[test]
    fn contention_is_not_believed_before_the_twentieth_sample() {
        let cell = filled(RULE, |_| sample(250, 100));
        assert_eq!(cell.all.len(), CONTENDED_MIN);
        let mut calms = 0;
        let cell = filled(RULE, |i| {
            calms += usize::from(i > 8);
            if i <= 8 { sample(250, 100) } else { sample(100, 100) }
        });
        let estimate = cell.estimate().unwrap();
        assert!(
            !estimate.contended && estimate.converged,
            "{calms} calm samples of {:?}",
            cell.all
        );
    }

    #[test]
    fn threads_that_compute_together_keep_the_wall_clock_and_are_flagged() {
        let fill = |thread_cpu| {
            let mut cell = Cell::new(RULE, Occupation::ComputesTogether);
            while cell.wants_more() {
                cell.record(sample(1000, thread_cpu));
            }
            cell.estimate().unwrap()
        };
        assert_eq!((fill(950).median, fill(950).contended), (1000.0, false));
        assert_eq!((fill(949).median, fill(949).contended), (1000.0, true));
    }

    #[test]
    fn a_machine_that_changed_once_is_measured_as_it_is_now() {
        let cell = filled(RULE, |i| if i < 8 { sample(100, 100) } else { sample(104, 104) });
        let wide = StopRule { half_width: 0.019, ..RULE };
        let again = filled(wide, |i| match i {
            0..8 => sample(100, 100),
            _ => sample(104, 104),
        });
        assert!(!cell.has_started_again, "4 % is twice the target, not more");
        assert!(again.has_started_again);
        let estimate = again.estimate().unwrap();
        assert_eq!((estimate.median, estimate.drifted, estimate.converged), (104.0, false, true));
    }

    #[test]
    fn samples_that_drift_on_and_on_are_flagged() {
        let rule = StopRule { half_width: 0.05, ..RULE };
        let drifting = |i: usize| {
            let time = 1000 + 12 * u64::try_from(i).unwrap();
            sample(time, time)
        };
        let estimate = filled(rule, drifting).estimate().unwrap();
        assert!(!estimate.drifted, "{estimate:?}");
        let faster = |i: usize| {
            let time = 1000 + 20 * u64::try_from(i).unwrap();
            sample(time, time)
        };
        let estimate = filled(StopRule { samples_max: 30, ..rule }, faster).estimate().unwrap();
        assert!(estimate.drifted && !estimate.converged, "{estimate:?}");
    }

    #[test]
    fn no_sample_of_a_device_is_dropped() {
        let rule = StopRule { half_width: 0.05, samples_max: 30, ..RULE };
        let mut cell = Cell::new(rule, Occupation::Waits);
        while cell.wants_more() {
            let time = 1000 + 40 * u64::try_from(cell.all.len()).unwrap();
            cell.record(sample(time, 0));
        }
        let estimate = cell.estimate().unwrap();
        assert!(estimate.drifted && estimate.samples == 30, "{estimate:?}");
    }

    #[test]
    fn waiting_for_a_device_is_no_disturbance() {
        let mut cell = Cell::new(RULE, Occupation::Waits);
        while cell.wants_more() {
            cell.record(sample(50_000, 4_000));
        }
        let estimate = cell.estimate().unwrap();
        assert_eq!((estimate.median, estimate.contended), (50_000.0, false));
    }

    proptest::proptest! {
        #[test]
        fn a_cell_ends_by_its_rule_and_by_nothing_else(
            walls in proptest::collection::vec((50_u64..200, 0_u64..=100), 400),
            half_width in 0.001_f64..0.2,
            time in 0_u64..40_000,
        ) {
            let rule = StopRule { half_width, time: Nanoseconds(time), ..RULE };
            let cell = filled(rule, |i| {
                let (wall, share) = walls[i % walls.len()];
                sample(wall, wall * share / 100)
            });
            let estimate = cell.estimate().unwrap();
            proptest::prop_assert!(estimate.samples <= cell.all.len());
            proptest::prop_assert!(cell.all.len() <= rule.samples_max);
            proptest::prop_assert!(estimate.low <= estimate.median && estimate.median <= estimate.high);
            let narrow = estimate::relative_half_width(&estimate) <= half_width;
            proptest::prop_assert!(
                (estimate.samples >= rule.samples_min && narrow)
                    || cell.is_out_of_time()
                    || cell.all.len() == rule.samples_max
            );
            proptest::prop_assert!(!estimate.converged || (narrow && !estimate.drifted));
        }

        #[test]
        fn noise_of_two_percent_moves_the_median_by_less(seed in proptest::collection::vec(980_u64..=1020, 101)) {
            let cell = filled(RULE, |i| sample(seed[i % 101], seed[i % 101]));
            let median = cell.estimate().unwrap().median;
            proptest::prop_assert!((980.0..=1020.0).contains(&median));
        }
    }
}
