//! Cold bytes and stalls over the steps of a run, summed into the columns of a picture.
//!
//! 1. Each step is in one column, so the sums of the columns are those of the run.
//! 2. The size of a curve is constant, except for one number for each epoch.

use tierfeed_core::{
    id::{Epoch, Step},
    order::Spec,
    simulator::StepOutcome,
};

/// The most columns; more would be narrower than a line.
pub const COLUMNS_MAX: u64 = 240;

/// Cold bytes and stalls of a run by column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Curve {
    columns: Vec<Column>,
    /// The first step of each epoch, and the number of steps.
    starts: Vec<u64>,
}

/// The sums over consecutive steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Column {
    /// The number of steps; those of several nodes count once each.
    pub steps: u64,
    /// Bytes read from the cold store.
    pub cold: u64,
    /// Stall in nanoseconds.
    pub stall: u64,
}

impl Curve {
    /// An empty curve for a run of `order`.
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

    /// Adds a step.
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
