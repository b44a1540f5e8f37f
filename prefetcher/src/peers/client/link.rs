//! Measures the rate and the round trip of a peer, from which its window follows.

use std::time::Duration;

use tierfeed_core::{
    fleet::standing,
    units::{BytesPerSecond, Nanoseconds, float},
};
use tokio::time::Instant;

/// The least window: two of the largest requests, so that one travels while the bytes of another come.
const WINDOW_MIN: u64 = 32 << 20;

/// The largest window: 100 Gbit/s at 10 ms.
const WINDOW_MAX: u64 = 128 << 20;

/// A rate is measured over at least this time in which bytes were expected.
const MEASURED_OVER: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(crate) struct Link {
    in_flight: u64,
    /// Since when bytes are expected without a pause, or since the last measurement.
    busy_since: Option<Instant>,
    busy: Duration,
    arrived: u64,
    /// Bytes a second.
    rate: Option<f64>,
    measurements: u32,
    /// Seconds.
    round_trip: Option<f64>,
}

impl Link {
    /// Bytes that were asked for and have neither arrived nor been given up.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// The most bytes that may be in flight. Twice the product of rate and round trip, because the rate that
    /// was measured may be the one that an earlier window allowed.
    pub(crate) fn window(&self) -> u64 {
        let product = self.rate.unwrap_or(0.0) * self.round_trip.unwrap_or(0.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is clamped"
        )]
        let twice = (2.0 * product) as u64;
        twice.clamp(WINDOW_MIN, WINDOW_MAX)
    }

    pub(crate) fn asked(&mut self, bytes: u64, now: Instant) {
        if self.in_flight == 0 {
            self.busy_since = Some(now);
        }
        self.in_flight += bytes;
    }

    pub(crate) fn arrived(&mut self, bytes: u64, now: Instant) {
        self.arrived += bytes;
        let busy = self.busy + self.busy_since.map_or(Duration::ZERO, |since| now - since);
        if busy >= MEASURED_OVER {
            let rate = float(self.arrived) / busy.as_secs_f64();
            let before = self.rate.filter(|_| self.measurements > 0).unwrap_or(rate);
            self.rate = Some(before + (rate - before) / 4.0);
            self.measurements = self.measurements.saturating_add(1);
            (self.arrived, self.busy) = (0, Duration::ZERO);
            self.busy_since = self.busy_since.map(|_| now);
        }
    }

    /// Ends the wait for bytes, which arrived or were given up.
    pub(crate) fn settled(&mut self, bytes: u64, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        if self.in_flight == 0
            && let Some(since) = self.busy_since.take()
        {
            self.busy += now - since;
        }
    }

    /// Takes the time to the answer of a request that was alone on its connection.
    pub(crate) fn answered_after(&mut self, time: Duration) {
        let time = time.as_secs_f64();
        // A shorter one holds at once, a longer one may be the peer's delay.
        let before = self.round_trip.unwrap_or(time);
        self.round_trip = Some(time.min(before + (time - before) / 8.0));
    }

    /// Starts the measurement of the rate again; the old rate holds until the first new one.
    pub(crate) fn measure_anew(&mut self) {
        (self.measurements, self.arrived, self.busy) = (0, 0, Duration::ZERO);
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^63")]
    pub(crate) fn measured(&self) -> standing::Link {
        standing::Link {
            rate: self.rate.map(|rate| BytesPerSecond(rate as u64)),
            measurements: self.measurements,
            round_trip: self.round_trip.map(|seconds| Nanoseconds((seconds * 1e9) as u64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_twice_what_the_link_holds_within_its_limits() {
        let (mut link, start) = (Link::default(), Instant::now());
        assert_eq!(link.window(), WINDOW_MIN);
        link.answered_after(Duration::from_millis(40));
        link.asked(100_000_000, start);
        link.arrived(100_000_000, start + Duration::from_millis(100));
        link.settled(100_000_000, start + Duration::from_millis(100));
        assert_eq!(link.measured().rate.unwrap().0, 1_000_000_000);
        assert_eq!(link.window(), 80_000_000);
        link.answered_after(Duration::from_secs(1));
        assert!(link.window() > 80_000_000, "a longer round trip counts in time");
        (0..100).for_each(|_| link.answered_after(Duration::from_secs(1)));
        assert_eq!(link.window(), WINDOW_MAX);
    }

    #[test]
    fn a_rate_that_is_measured_anew_does_not_count_in_the_next() {
        let (mut link, mut now) = (Link::default(), Instant::now());
        let mut arrive = |link: &mut Link, bytes| {
            link.asked(bytes, now);
            now += Duration::from_millis(100);
            link.arrived(bytes, now);
            link.settled(bytes, now);
        };
        (0..3).for_each(|_| arrive(&mut link, 10_000));
        assert_eq!((link.measured().rate.unwrap().0, link.measured().measurements), (100_000, 3));
        link.measure_anew();
        assert_eq!((link.measured().rate.unwrap().0, link.measured().measurements), (100_000, 0));
        arrive(&mut link, 10_000_000);
        assert_eq!(
            (link.measured().rate.unwrap().0, link.measured().measurements),
            (100_000_000, 1)
        );
    }

    #[test]
    fn time_without_a_request_lowers_no_rate() {
        let (mut link, mut now) = (Link::default(), Instant::now());
        for _ in 0..10 {
            link.asked(10_000_000, now);
            now += Duration::from_millis(10);
            link.arrived(10_000_000, now);
            link.settled(10_000_000, now);
            now += Duration::from_secs(1);
        }
        assert_eq!(link.measured().rate.unwrap().0, 1_000_000_000);
    }
}
