//! Tells from the kernel's count of stalled time whether others wait for memory.
//!
//! A hog that takes memory makes tasks wait, itself first: the kernel must free pages for it. So a
//! second in which it took something only tells it to pause, and what happens in the pause tells
//! whether others suffer. The ten-second average of the kernel would tell neither in time.

use tierfeed_core::units::Nanoseconds;

use super::decision::Strain;

/// How long stalled time is watched before it is judged.
const WINDOW: Nanoseconds = Nanoseconds(1_000_000_000);

/// The share of a window, in per cent, from which on tasks count as waiting.
const STALLED_PERCENT: u64 = 10;

/// After memory was given back for others, none is taken for this long.
const PAUSE: Nanoseconds = Nanoseconds(10_000_000_000);

/// Judges windows of stalled time.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    window: Option<Window>,
    /// Until when nothing is taken.
    pause_until: Nanoseconds,
}

#[derive(Debug)]
struct Window {
    start: Nanoseconds,
    stalled_us: u64,
    hog_took: bool,
}

impl Gauge {
    /// Notes that the hog takes memory now.
    pub(crate) fn note_taking(&mut self) {
        if let Some(window) = &mut self.window {
            window.hog_took = true;
        }
    }

    /// Judges by the total stalled time at `now`; `None` on kernels that do not count it.
    pub(crate) fn read(&mut self, now: Nanoseconds, stalled_us: Option<u64>) -> Strain {
        let Some(stalled_us) = stalled_us else { return Strain::None };
        let window = self.window.get_or_insert(Window { start: now, stalled_us, hog_took: false });
        let elapsed = now.0.saturating_sub(window.start.0);
        let mut strain = if now < self.pause_until { Strain::Recent } else { Strain::None };
        if elapsed >= WINDOW.0 {
            let waited_ns = stalled_us.saturating_sub(window.stalled_us).saturating_mul(1_000);
            if waited_ns.saturating_mul(100) >= elapsed.saturating_mul(STALLED_PERCENT) {
                let others = !window.hog_took;
                strain = if others { Strain::Others } else { Strain::Recent };
                // One window and a bit decides about a pause of the hog itself.
                let pause = if others { PAUSE.0 } else { WINDOW.0 + WINDOW.0 / 2 };
                self.pause_until = self.pause_until.max(Nanoseconds(now.0 + pause));
            }
            self.window = Some(Window { start: now, stalled_us, hog_took: false });
        }
        strain
    }
}

/// The microseconds in which some task waited for memory, from a file of `/proc/pressure`.
pub(crate) fn stalled_us(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split_whitespace().find_map(|field| field.strip_prefix("total="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads every 100 ms of `seconds`, in which tasks wait `percent` of the time, and returns what was
    /// judged other than nothing.
    fn judged(
        gauge: &mut Gauge,
        from_s: u64,
        seconds: u64,
        percent: u64,
        takes: bool,
    ) -> Vec<Strain> {
        let looks = (from_s * 10..(from_s + seconds) * 10).map(|tenth| {
            let strain =
                gauge.read(Nanoseconds(tenth * 100_000_000), Some(tenth * 1_000 * percent));
            if takes {
                gauge.note_taking();
            }
            strain
        });
        looks.filter(|it| *it != Strain::None).collect()
    }

    #[test]
    fn calm_is_calm() {
        assert_eq!(judged(&mut Gauge::default(), 0, 30, 9, false), []);
        assert_eq!(judged(&mut Gauge::default(), 0, 30, 9, true), []);
    }

    #[test]
    fn stalls_without_taking_are_those_of_others_once_a_second() {
        let judged = judged(&mut Gauge::default(), 0, 5, 10, false);
        assert_eq!(judged.iter().filter(|it| **it == Strain::Others).count(), 4);
        assert_eq!(judged.first(), Some(&Strain::Others));
    }

    #[test]
    fn after_others_waited_nothing_is_taken_for_ten_seconds() {
        let mut gauge = Gauge::default();
        gauge.read(Nanoseconds(0), Some(0));
        let second = |s: u64| Nanoseconds(s * 1_000_000_000);
        assert_eq!(gauge.read(second(1), Some(500_000)), Strain::Others);
        assert_eq!(gauge.read(second(10), Some(500_000)), Strain::Recent);
        assert_eq!(gauge.read(second(11), Some(500_000)), Strain::None);
    }

    #[test]
    fn stalls_while_taking_pause_the_hog_until_it_is_known_whose_they_are() {
        let mut gauge = Gauge::default();
        let taking = judged(&mut gauge, 0, 2, 50, true);
        assert!(!taking.is_empty() && taking.iter().all(|it| *it == Strain::Recent), "{taking:?}");
        let mut pausing = gauge;
        // The pause is a clean window: the stalls go on, so they are those of others.
        let later = judged(&mut pausing, 2, 3, 50, false);
        assert!(later.contains(&Strain::Others), "{later:?}");
    }

    #[test]
    fn a_kernel_that_does_not_count_says_nothing() {
        assert_eq!(Gauge::default().read(Nanoseconds(0), None), Strain::None);
    }

    #[test]
    fn the_total_of_some_is_read() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=123\nfull avg10=0.00 total=45\n";
        assert_eq!(stalled_us(text), Some(123));
        assert_eq!(stalled_us("full total=45\n"), None);
    }
}
