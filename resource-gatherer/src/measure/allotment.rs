//! Decides until when a part of the probe may go on.
//!
//! A probe has one end. Each part gets a share of what is left when it begins, so what a part does not
//! need goes to those after it, and what it overruns is missing there.

use std::sync::atomic::{AtomicBool, Ordering};

use tierfeed_core::units::Nanoseconds;

/// Time until a fixed end, unless everything shall stop before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allotment<'a> {
    end: Nanoseconds,
    stop: &'a AtomicBool,
}

impl<'a> Allotment<'a> {
    /// `time` from `now` on, or until `stop` is set.
    pub(crate) fn new(now: Nanoseconds, time: Nanoseconds, stop: &'a AtomicBool) -> Self {
        Self { end: Nanoseconds(now.0.saturating_add(time.0)), stop }
    }

    /// 0 once everything shall stop.
    pub(crate) fn left(&self, now: Nanoseconds) -> Nanoseconds {
        if self.is_stopped() {
            Nanoseconds(0)
        } else {
            Nanoseconds(self.end.0.saturating_sub(now.0))
        }
    }

    pub(crate) fn goes_on(&self, now: Nanoseconds) -> bool {
        self.left(now).0 > 0
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// `part` of `whole` parts of what is left.
    pub(crate) fn share(&self, now: Nanoseconds, part: u64, whole: u64) -> Self {
        let share = u128::from(self.left(now).0) * u128::from(part) / u128::from(whole.max(1));
        let share = u64::try_from(share).unwrap_or(u64::MAX).min(self.left(now).0);
        Self::new(now, Nanoseconds(share), self.stop)
    }

    /// The same with another end, if that is earlier.
    pub(crate) fn at_most(&self, now: Nanoseconds, time: Nanoseconds) -> Self {
        let end = self.end.0.min(now.0.saturating_add(time.0));
        Self { end: Nanoseconds(end), ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_part_leaves_goes_to_the_next() {
        let stop = AtomicBool::new(false);
        let all = Allotment::new(Nanoseconds(100), Nanoseconds(900), &stop);
        assert_eq!(all.share(Nanoseconds(100), 1, 3).left(Nanoseconds(100)), Nanoseconds(300));
        assert_eq!(all.share(Nanoseconds(200), 1, 2).left(Nanoseconds(200)), Nanoseconds(400));
        assert_eq!(all.share(Nanoseconds(900), 5, 1).left(Nanoseconds(900)), Nanoseconds(100));
        assert!(all.goes_on(Nanoseconds(999)) && !all.goes_on(Nanoseconds(1000)));
        assert_eq!(all.at_most(Nanoseconds(900), Nanoseconds(7)).left(Nanoseconds(900)).0, 7);
        assert_eq!(all.at_most(Nanoseconds(900), Nanoseconds(700)).left(Nanoseconds(900)).0, 100);
    }

    #[test]
    fn a_stop_ends_every_part() {
        let stop = AtomicBool::new(false);
        let part =
            Allotment::new(Nanoseconds(0), Nanoseconds(9), &stop).share(Nanoseconds(0), 1, 2);
        assert!(part.goes_on(Nanoseconds(0)));
        stop.store(true, Ordering::Relaxed);
        assert!(!part.goes_on(Nanoseconds(0)));
    }
}
