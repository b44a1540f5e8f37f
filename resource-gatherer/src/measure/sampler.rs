//! The one loop of all measurements that compute: kernels take turns, each gives its cell one sample after
//! the other, until no cell wants more or the time is over.
//!
//! Kernels take turns so that a drift of the machine (frequency, neighbours, temperature) hits all of them
//! alike instead of the last one.
//!
//! A loop whose every step waits for the one before shows whether a core changed its frequency meanwhile: it
//! takes a fixed number of cycles, so its time is the frequency. It is run before and after each group of
//! cells; where the two differ by more than 3 %, the group is worth nothing and is measured again, once. The
//! loop is judged by the CPU time of the fastest of several short runs instead of by one of 10 ms: in a guest
//! whose CPUs are shared, a long run nearly always meets another guest, a run of half a millisecond seldom
//! does, and the fastest of nine is a matter of the core alone.

use std::hint::black_box;

use tierfeed_core::units::Nanoseconds;

use super::{
    allotment::Allotment,
    cell::{Cell, Sample},
    clock::Clock,
};
use crate::figures::estimate::{Estimate, to_f64};

/// Something that can be run again and again to see how long it takes.
pub(crate) trait Workload {
    /// Names what can be run; the kernels share the buffers of the workload.
    type Kernel: Copy;

    fn run(&mut self, kernel: Self::Kernel);

    /// The sample of the last run, where the workload knows better when that began and ended than the
    /// thread that started it.
    fn corrected(&mut self, sample: Sample) -> Sample {
        sample
    }
}

/// Measures the time of `run`.
///
/// The wall clock is read inside the CPU clock, because the latter is a system call that would
/// otherwise count in samples of a microsecond; what disturbs is read outside both.
pub(crate) fn time(clock: &mut impl Clock, run: impl FnOnce()) -> Sample {
    let stolen = clock.stolen();
    let cpu_start = clock.thread_cpu();
    let start = clock.wall();
    run();
    let end = clock.wall();
    let cpu_end = clock.thread_cpu();
    Sample {
        wall: Nanoseconds(end.0.saturating_sub(start.0)),
        thread_cpu: Nanoseconds(cpu_end.0.saturating_sub(cpu_start.0)),
        stolen: Nanoseconds(clock.stolen().0.saturating_sub(stolen.0)),
    }
}

/// Fills the cells, one sample each in turn, until none wants more or the allotment is over; then each has
/// at least `least` samples, however busy the machine, unless everything shall stop.
pub(crate) fn fill<W: Workload>(
    clock: &mut impl Clock,
    workload: &mut W,
    allotment: Allotment<'_>,
    least: usize,
    cells: &mut [(W::Kernel, Cell)],
) {
    loop {
        let mut has_sampled = false;
        for (kernel, cell) in &mut *cells {
            let goes_on = cell.wants_more() && allotment.goes_on(clock.wall());
            if goes_on || (cell.taken() < least && !allotment.is_stopped()) {
                let sample = time(clock, || workload.run(*kernel));
                cell.record(workload.corrected(sample));
                has_sampled = true;
            }
        }
        if !has_sampled {
            return;
        }
    }
}

#[derive(Debug)]
pub(crate) struct Turns<K> {
    pub(crate) cells: Vec<(K, Cell)>,
    /// The core changed its frequency meanwhile, and again in the second attempt.
    pub(crate) is_unsteady: bool,
}

impl<K> Turns<K> {
    /// The estimate of each cell. No figure converges while the machine changes below it.
    pub(crate) fn estimates(&self) -> impl Iterator<Item = (&K, Option<Estimate>)> {
        let judged = |estimate: Estimate| Estimate {
            drifted: estimate.drifted || self.is_unsteady,
            converged: estimate.converged && !self.is_unsteady,
            ..estimate
        };
        self.cells.iter().map(move |(kernel, cell)| (kernel, cell.estimate().map(judged)))
    }
}

/// [`fill`]s the cells that `make` gives for the time that is left, and once more if the core changed its
/// frequency meanwhile.
pub(crate) fn take_turns<W: Workload, C: Clock>(
    clock: &mut C,
    workload: &mut W,
    allotment: Allotment<'_>,
    least: usize,
    make: impl Fn(Nanoseconds) -> Vec<(W::Kernel, Cell)>,
) -> Turns<W::Kernel> {
    let mut once = |clock: &mut C, left: Nanoseconds| {
        let mut cells = make(left);
        let before = cycles_time(clock);
        fill(clock, workload, allotment, least, &mut cells);
        Turns { cells, is_unsteady: differs(before, cycles_time(clock)) }
    };
    let begun = clock.wall();
    let turns = once(clock, allotment.left(begun));
    let now = clock.wall();
    let took = now.0.saturating_sub(begun.0);
    // A second time that must be cut short is no better than the first.
    if turns.is_unsteady && allotment.left(now).0 >= took {
        let again = once(clock, allotment.left(now));
        if again.cells.iter().all(|(_, cell)| cell.estimate().is_some()) {
            return again;
        }
    }
    turns
}

/// The largest change that counts as none.
const CHANGE_MAX: f64 = 0.03;

/// About half a millisecond at 4 cycles each.
const STEPS: u64 = 400_000;
const RUNS: usize = 9;

fn cycles_time(clock: &mut impl Clock) -> Nanoseconds {
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

    /// Time passes only where the script says so.
    #[derive(Debug, Clone, Default)]
    struct ScriptedClock(Rc<RefCell<(u64, u64)>>);

    impl ScriptedClock {
        fn pass(&self, wall: u64, thread_cpu: u64) {
            let mut now = self.0.borrow_mut();
            *now = (now.0 + wall, now.1 + thread_cpu);
        }
    }

    impl Clock for ScriptedClock {
        fn wall(&mut self) -> Nanoseconds {
            Nanoseconds(self.0.borrow().0)
        }
        fn thread_cpu(&mut self) -> Nanoseconds {
            Nanoseconds(self.0.borrow().1)
        }
    }

    struct Scripted {
        clock: ScriptedClock,
        ran: Vec<char>,
    }

    impl Workload for Scripted {
        type Kernel = char;

        fn run(&mut self, kernel: char) {
            self.ran.push(kernel);
            match kernel {
                'a' => self.clock.pass(100, 100),
                _ => self.clock.pass(300, 200),
            }
        }
    }

    const RULE: StopRule =
        StopRule { half_width: 0.01, samples_min: 3, samples_max: 9, time: Nanoseconds(1 << 40) };

    /// The kernels that ran within `time`, with at least `least` samples of each.
    fn filled(time: u64, least: usize) -> (String, [Option<Estimate>; 2]) {
        let mut clock = ScriptedClock::default();
        let mut workload = Scripted { clock: clock.clone(), ran: Vec::new() };
        let stop = AtomicBool::new(false);
        let allotment = Allotment::new(Nanoseconds(0), Nanoseconds(time), &stop);
        let mut cells = cells();
        fill(&mut clock, &mut workload, allotment, least, &mut cells);
        (workload.ran.into_iter().collect(), cells.map(|(_, cell)| cell.estimate()))
    }

    fn cells() -> [(char, Cell); 2] {
        let more = StopRule { samples_min: 4, ..RULE };
        [('a', Cell::new(RULE, Occupation::Computes)), ('b', Cell::new(more, Occupation::Computes))]
    }

    #[test]
    fn kernels_take_turns() {
        let (ran, estimates) = filled(u64::MAX, 0);
        assert_eq!(ran, "ababababbbbbbb");
        let [a, b] = estimates.map(Option::unwrap);
        assert_eq!((a.median, a.contended), (100.0, false));
        assert_eq!((b.median, b.contended), (200.0, true));
    }

    #[test]
    fn no_sample_begins_after_the_deadline_but_those_that_are_owed() {
        let (ran, [a, b]) = filled(500, 0);
        assert_eq!((ran.as_str(), a.is_some(), b.is_some()), ("aba", true, false));
        assert_eq!(filled(500, 2).0, "ababab");
    }

    #[derive(Debug, Default)]
    struct Machine {
        now: u64,
        /// The time of the guard's next loops; the last entry repeats.
        paces: Vec<u64>,
        reads: usize,
        samples: usize,
    }

    #[derive(Debug, Clone, Default)]
    struct Machinery(Rc<RefCell<Machine>>);

    impl Clock for Machinery {
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

    impl Workload for Machinery {
        type Kernel = ();

        fn run(&mut self, (): ()) {
            let mut machine = self.0.borrow_mut();
            machine.samples += 1;
            machine.now += 100;
            if machine.samples.is_multiple_of(4) && machine.paces.len() > 1 {
                machine.paces.remove(0);
            }
        }
    }

    fn taken(paces: &[u64], time: u64) -> (usize, bool) {
        let mut clock = Machinery::default();
        clock.0.borrow_mut().paces = paces.to_vec();
        let mut workload = clock.clone();
        let stop = AtomicBool::new(false);
        let allotment = Allotment::new(Nanoseconds(0), Nanoseconds(time), &stop);
        let turns = take_turns(&mut clock, &mut workload, allotment, 1, |left| {
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
