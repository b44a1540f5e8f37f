//! The change of anything that counts between two snapshots.

use tierfeed_core::units::Nanoseconds;

use super::float;

#[derive(Debug, Clone, Copy)]
pub(super) struct Change<'a, T> {
    /// `None` without an earlier snapshot, or if another process counted then.
    pub(super) before: Option<&'a T>,
    pub(super) now: &'a T,
    pub(super) passed: Option<Nanoseconds>,
}

impl<T> Change<'_, T> {
    /// How fast a figure grew; `None` if that is not known.
    pub(super) fn rate(&self, of: impl Fn(&T) -> u64) -> Option<f64> {
        let grew = of(self.now).checked_sub(of(self.before?))?;
        let passed = self.passed.filter(|passed| passed.0 > 0)?;
        Some(float(grew) / (float(passed.0) / 1e9))
    }

    /// The growth of a time as a share of the time that passed.
    pub(super) fn share(&self, of: impl Fn(&T) -> Nanoseconds) -> Option<f64> {
        Some(self.rate(|it| of(it).0)? / 1e9)
    }
}

/// A share in percent; 0 if `whole` is 0.
pub(super) fn percent(part: f64, whole: f64) -> String {
    let share = if whole > 0.0 { part / whole } else { 0.0 };
    format!("{:.1} %", share * 100.0)
}
