//! Runs kernels and gives each of its cells its samples.
//!
//! The kernels of one workload take turns, so that a drift of the machine (frequency, neighbours,
//! temperature) hits all of them alike instead of the last one.

use tierfeed_core::units::Nanoseconds;

use super::{
    cell::{Cell, Sample},
    clock::Clock,
};

/// Something that can be run again and again to see how long it takes.
pub trait Workload {
    /// Names what can be run; the kernels share the buffers or the file of the workload.
    type Kernel: Copy;
    /// How a run can fail.
    type Error;

    /// Does what must be done before a run and shall not be timed.
    ///
    /// # Errors
    ///
    /// Whatever keeps the kernel from being run.
    fn prepare(&mut self, kernel: Self::Kernel) -> Result<(), Self::Error>;

    /// Does what is timed.
    ///
    /// # Errors
    ///
    /// Whatever kept the kernel from ending.
    fn run(&mut self, kernel: Self::Kernel) -> Result<(), Self::Error>;

    /// The sample of the last run, where the workload knows better when that began and ended than the
    /// thread that started it.
    fn corrected(&mut self, sample: Sample) -> Sample {
        sample
    }
}

/// Runs workloads by a clock.
#[derive(Debug)]
pub struct Sampler<'clock, C> {
    clock: &'clock mut C,
}

impl<'clock, C: Clock> Sampler<'clock, C> {
    /// A sampler that reads `clock`.
    pub fn new(clock: &'clock mut C) -> Self {
        Self { clock }
    }

    /// The clock that samples are read by.
    pub(crate) fn clock(&mut self) -> &mut C {
        self.clock
    }

    /// Fills the cells, one sample each in turn, until none wants more.
    ///
    /// # Errors
    ///
    /// The first error of the workload; the samples so far stay in the cells.
    pub fn fill<W: Workload>(
        &mut self,
        workload: &mut W,
        cells: &mut [(W::Kernel, Cell)],
    ) -> Result<(), W::Error> {
        self.fill_while(workload, cells, &|_| true)
    }

    /// As [`Self::fill`], as long as `goes_on` says so of the time before each sample.
    ///
    /// # Errors
    ///
    /// The first error of the workload; the samples so far stay in the cells.
    pub fn fill_while<W: Workload>(
        &mut self,
        workload: &mut W,
        cells: &mut [(W::Kernel, Cell)],
        goes_on: &dyn Fn(Nanoseconds) -> bool,
    ) -> Result<(), W::Error> {
        loop {
            let mut has_sampled = false;
            for (kernel, cell) in cells.iter_mut().filter(|(_, cell)| cell.wants_more()) {
                if !goes_on(self.clock.wall()) {
                    return Ok(());
                }
                cell.record(self.sample(workload, *kernel)?);
                has_sampled = true;
            }
            if !has_sampled {
                return Ok(());
            }
        }
    }

    /// One sample of a kernel.
    ///
    /// # Errors
    ///
    /// The error of the workload.
    pub fn sample<W: Workload>(
        &mut self,
        workload: &mut W,
        kernel: W::Kernel,
    ) -> Result<Sample, W::Error> {
        workload.prepare(kernel)?;
        let sample = self.time(|| workload.run(kernel))?;
        Ok(workload.corrected(sample))
    }

    /// How long `run` takes.
    ///
    /// The wall clock is read inside the CPU clock, because the latter is a system call that would
    /// otherwise count in samples of a microsecond; what disturbs is read outside both.
    ///
    /// # Errors
    ///
    /// The error of `run`.
    pub fn time<E>(&mut self, run: impl FnOnce() -> Result<(), E>) -> Result<Sample, E> {
        let (stolen, preemptions) = (self.clock.stolen(), self.clock.preemptions());
        let cpu_start = self.clock.thread_cpu();
        let start = self.clock.wall();
        let outcome = run();
        let end = self.clock.wall();
        let cpu_end = self.clock.thread_cpu();
        let preemptions = self.clock.preemptions().saturating_sub(preemptions);
        let stolen = self.clock.stolen().0.saturating_sub(stolen.0);
        outcome?;
        Ok(Sample {
            wall: Nanoseconds(end.0.saturating_sub(start.0)),
            thread_cpu: Nanoseconds(cpu_end.0.saturating_sub(cpu_start.0)),
            preemptions,
            stolen: Nanoseconds(stolen),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

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
        fails_after: usize,
    }

    impl Workload for Scripted {
        type Kernel = char;
        type Error = &'static str;

        fn prepare(&mut self, _: char) -> Result<(), &'static str> {
            self.clock.pass(1_000_000, 1_000_000);
            Ok(())
        }

        fn run(&mut self, kernel: char) -> Result<(), &'static str> {
            if self.ran.len() == self.fails_after {
                return Err("broken");
            }
            self.ran.push(kernel);
            match kernel {
                'a' => self.clock.pass(100, 100),
                _ => self.clock.pass(300, 200),
            }
            Ok(())
        }
    }

    const RULE: StopRule =
        StopRule { half_width: 0.01, samples_min: 3, samples_max: 9, time: Nanoseconds(1 << 40) };

    fn scripted(fails_after: usize) -> (ScriptedClock, Scripted) {
        let clock = ScriptedClock::default();
        (clock.clone(), Scripted { clock, ran: Vec::new(), fails_after })
    }

    fn cells() -> [(char, Cell); 2] {
        let more = StopRule { samples_min: 4, ..RULE };
        [('a', Cell::new(RULE, Occupation::Computes)), ('b', Cell::new(more, Occupation::Computes))]
    }

    #[test]
    fn kernels_take_turns_and_preparation_is_not_timed() {
        let (mut clock, mut workload) = scripted(usize::MAX);
        let mut cells = cells();
        Sampler::new(&mut clock).fill(&mut workload, &mut cells).unwrap();
        assert_eq!(workload.ran.iter().collect::<String>(), "ababababbbbbbb");
        let [a, b] = cells.map(|(_, cell)| cell.estimate().unwrap());
        assert_eq!((a.median, a.contended), (100.0, false));
        assert_eq!((b.median, b.contended), (200.0, true));
    }

    #[test]
    fn no_sample_begins_after_the_deadline() {
        let (mut clock, mut workload) = scripted(usize::MAX);
        let mut cells = cells();
        let goes_on = |now: Nanoseconds| now.0 < 3_000_000;
        Sampler::new(&mut clock).fill_while(&mut workload, &mut cells, &goes_on).unwrap();
        assert_eq!(workload.ran.iter().collect::<String>(), "aba");
        assert!(cells[0].1.estimate().is_some() && cells[1].1.estimate().is_none());
    }

    #[test]
    fn a_failing_kernel_ends_the_run() {
        let (mut clock, mut workload) = scripted(3);
        let outcome = Sampler::new(&mut clock).fill(&mut workload, &mut cells());
        assert_eq!(outcome, Err("broken"));
    }
}
