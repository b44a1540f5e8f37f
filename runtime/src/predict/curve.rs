//! Cold bytes and stalls along a run, in as many columns as a picture can show.
//!
//! 1. The columns of a curve hold every step once, so their sums are those of the run.
//! 2. What a curve takes does not grow with the run, but for one number for each epoch.

use tierfeed_core::{
    id::{Epoch, Step},
    order::Spec,
    simulator::StepOutcome,
};

/// More would be finer than lines are wide.
pub const COLUMNS_MAX: u64 = 240;

/// What the steps of a run did, summed by column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Curve {
    columns: Vec<Column>,
    /// The step of the run with which each epoch starts, and where the last one ends.
    starts: Vec<u64>,
}

/// Consecutive steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Column {
    /// Steps in it, those of several nodes counted once each.
    pub steps: u64,
    /// Bytes that they read cold.
    pub cold: u64,
    /// Nanoseconds for which they waited.
    pub stall: u64,
}

impl Curve {
    /// A curve for a run of `order` on which nothing has happened.
    #[must_use]
    pub fn new(order: &Spec) -> Self {
        let mut starts = vec![0_u64];
        for epoch in 0..order.epochs {
            let end = starts.last().copied().unwrap_or(0);
            starts.push(end + u64::from(order.steps_in(Epoch(epoch))));
        }
        let steps = starts.last().copied().unwrap_or(0);
        let columns = usize::try_from(steps.min(COLUMNS_MAX)).unwrap_or(0);
        Self { columns: vec![Column::default(); columns], starts }
    }

    /// Takes note of a step.
    pub fn add(&mut self, step: &StepOutcome) {
        let Some(at) = self.column(step.epoch, step.step) else { return };
        let column = &mut self.columns[at];
        column.steps += 1;
        column.cold = column.cold.saturating_add(step.cold().0);
        column.stall = column.stall.saturating_add(step.stall.0);
    }

    /// The columns from the first step to the last, each as wide as the others.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Steps of the run.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The steps with which epochs start.
    pub fn epochs(&self) -> impl Iterator<Item = u64> + '_ {
        self.starts[..self.starts.len() - 1].iter().copied()
    }

    fn column(&self, epoch: Epoch, step: Step) -> Option<usize> {
        let place = self.starts.get(epoch.0 as usize)? + u64::from(step.0);
        let column = u128::from(place) * self.columns.len() as u128 / u128::from(self.steps());
        usize::try_from(column).ok().filter(|column| *column < self.columns.len())
    }
}
