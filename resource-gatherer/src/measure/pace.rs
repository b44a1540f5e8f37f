//! Notices that a core runs at another frequency than before.
//!
//! A loop whose every step waits for the one before takes a fixed number of cycles, so its time is the
//! frequency. It is run before and after each group of cells; where the two differ by more than 3 %,
//! the group is worth nothing and is measured again, once.
//!
//! The loop is judged by the CPU time of the fastest of several short runs instead of by one of 10 ms:
//! in a guest whose CPUs are shared, a long run nearly always meets somebody, a run of half a
//! millisecond seldom does, and the fastest of nine is a matter of the core alone.

use std::{convert::Infallible, hint::black_box};

use tierfeed_core::units::Nanoseconds;

use super::{
    allotment::Allotment,
    cell::Cell,
    clock::Clock,
    sampler::{Sampler, Workload},
};
use crate::figures::estimate::{Estimate, to_f64};

/// The largest change that counts as none.
const CHANGE_MAX: f64 = 0.03;

/// About half a millisecond at 4 cycles each.
const STEPS: u64 = 400_000;
const RUNS: usize = 9;

/// Cells with what was done to get them.
#[derive(Debug)]
pub(crate) struct Turns<K> {
    /// The cells.
    pub(crate) cells: Vec<(K, Cell)>,
    /// The core changed its frequency meanwhile, also the second time.
    pub(crate) is_unsteady: bool,
}

impl<K> Turns<K> {
    /// What each cell says. No figure converges while the machine changes below it.
    pub(crate) fn estimates(&self) -> impl Iterator<Item = (&K, Option<Estimate>)> {
        let judged = |estimate: Estimate| Estimate {
            drifted: estimate.drifted || self.is_unsteady,
            converged: estimate.converged && !self.is_unsteady,
            ..estimate
        };
        self.cells.iter().map(move |(kernel, cell)| (kernel, cell.estimate().map(judged)))
    }
}

/// Fills the cells that `make` gives, each with at least `least` samples however busy the machine, and once more if the core changed its frequency meanwhile.
pub(crate) fn take_turns<W, C>(
    sampler: &mut Sampler<'_, C>,
    workload: &mut W,
    allotment: Allotment<'_>,
    least: usize,
    make: impl Fn(Nanoseconds) -> Vec<(W::Kernel, Cell)>,
) -> Turns<W::Kernel>
where
    W: Workload<Error = Infallible>,
    C: Clock,
{
    let begun = sampler.clock().wall();
    let left = allotment.left(begun);
    let mut turns = once(sampler, workload, (allotment, least), make(left));
    let now = sampler.clock().wall();
    let took = Nanoseconds(now.0.saturating_sub(begun.0));
    // A second time that must be cut short is no better than the first.
    if turns.is_unsteady && allotment.left(now) >= took {
        let again = once(sampler, workload, (allotment, least), make(allotment.left(now)));
        if again.cells.iter().all(|(_, cell)| cell.estimate().is_some()) {
            turns = again;
        }
    }
    turns
}

fn once<W, C>(
    sampler: &mut Sampler<'_, C>,
    workload: &mut W,
    (allotment, least): (Allotment<'_>, usize),
    mut cells: Vec<(W::Kernel, Cell)>,
) -> Turns<W::Kernel>
where
    W: Workload<Error = Infallible>,
    C: Clock,
{
    let before = pace(sampler.clock());
    let Ok(()) = sampler.fill_while(workload, &mut cells, &|now| allotment.goes_on(now));
    for (kernel, cell) in &mut cells {
        while cell.taken() < least && !allotment.is_stopped() {
            let Ok(sample) = sampler.sample(workload, *kernel);
            cell.record(sample);
        }
    }
    let after = pace(sampler.clock());
    Turns { cells, is_unsteady: differs(before, after) }
}

/// The CPU time of the fixed number of cycles.
fn pace(clock: &mut impl Clock) -> Nanoseconds {
    let run = |_| {
        let start = clock.thread_cpu();
        black_box(chained(black_box(1)));
        clock.thread_cpu().0.saturating_sub(start.0)
    };
    Nanoseconds((0..RUNS).map(run).min().unwrap_or(0))
}

/// A multiplication and an addition per step, each of which needs the one before: registers only, and
/// nothing that a compiler could compute ahead.
fn chained(mut value: u64) -> u64 {
    for _ in 0..STEPS {
        value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(value >> 33);
    }
    value
}

fn differs(before: Nanoseconds, after: Nanoseconds) -> bool {
    to_f64(before.0.abs_diff(after.0)) > CHANGE_MAX * to_f64(before.0)
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc, sync::atomic::AtomicBool};

    use super::*;
    use crate::measure::cell::{Occupation, StopRule};

    #[derive(Debug, Default)]
    struct Machine {
        now: u64,
        /// What the next loops of the guard take; the last goes on.
        paces: Vec<u64>,
        reads: usize,
        samples: usize,
    }

    #[derive(Debug, Clone, Default)]
    struct Scripted(Rc<RefCell<Machine>>);

    impl Clock for Scripted {
        fn wall(&mut self) -> Nanoseconds {
            Nanoseconds(self.0.borrow().now)
        }
        /// Each guard reads this clock twice a run, and so do samples, which are even.
        fn thread_cpu(&mut self) -> Nanoseconds {
            let mut machine = self.0.borrow_mut();
            machine.reads += 1;
            if machine.reads.is_multiple_of(2) {
                machine.now += machine.paces[0];
            }
            Nanoseconds(machine.now)
        }
    }

    impl Workload for Scripted {
        type Kernel = ();
        type Error = Infallible;

        fn prepare(&mut self, (): ()) -> Result<(), Infallible> {
            Ok(())
        }

        fn run(&mut self, (): ()) -> Result<(), Infallible> {
            let mut machine = self.0.borrow_mut();
            machine.samples += 1;
            machine.now += 100;
            if machine.samples.is_multiple_of(4) && machine.paces.len() > 1 {
                machine.paces.remove(0);
            }
            Ok(())
        }
    }

    fn taken(paces: &[u64], time: u64) -> (usize, bool) {
        let mut clock = Scripted::default();
        clock.0.borrow_mut().paces = paces.to_vec();
        let mut workload = clock.clone();
        let stop = AtomicBool::new(false);
        let allotment = Allotment::new(Nanoseconds(0), Nanoseconds(time), &stop);
        let turns =
            take_turns(&mut Sampler::new(&mut clock), &mut workload, allotment, 1, |left| {
                let rule = StopRule { half_width: 1.0, samples_min: 3, samples_max: 3, time: left };
                vec![((), Cell::new(rule, Occupation::Waits))]
            });
        let ((), estimate) = turns.estimates().next().unwrap();
        assert_eq!(estimate.unwrap().drifted, turns.is_unsteady);
        assert!(!(estimate.unwrap().converged && turns.is_unsteady));
        (workload.0.borrow().samples, turns.is_unsteady)
    }

    #[test]
    fn a_steady_core_is_measured_once() {
        assert_eq!(taken(&[1000], u64::MAX), (4, false));
        assert_eq!(taken(&[1000, 1030], u64::MAX), (4, false));
    }

    #[test]
    fn a_group_during_which_the_frequency_changed_is_measured_again() {
        assert_eq!(taken(&[1000, 1031], u64::MAX), (8, false));
    }

    #[test]
    fn a_frequency_that_changes_again_is_told() {
        assert_eq!(taken(&[1000, 1100, 1300], u64::MAX), (8, true));
    }

    #[test]
    fn without_time_the_first_measurement_stands_and_is_flagged() {
        assert_eq!(taken(&[1000, 1100], 25_000), (4, true));
    }

    #[test]
    fn a_cell_that_was_begun_gets_a_sample_whatever_the_time() {
        assert_eq!(taken(&[1000], 0), (2, false));
    }

    #[test]
    fn the_loop_takes_time_in_proportion_to_its_steps() {
        assert_ne!(chained(1), chained(2));
    }
}
