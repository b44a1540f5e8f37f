//! How late and how slowly a server answers, as if it were far away.
//!
//! A request has its first byte after the latency. The pieces of its body follow at the rate of its connection, and
//! all bodies together share a line, piece by piece. Times add up exactly: each piece is due at a time that follows
//! from the one before, however late the thread woke up that sent that.

use std::{sync::Mutex, thread, time::Duration};

use tokio::{task, time::Instant};

use super::locked;

/// The least size of a piece, in bytes.
const PIECE_MIN: u64 = 16 << 10;
/// A piece takes about so long at the rate of a connection, so that waits are few.
const PIECE_TIME: Duration = Duration::from_millis(4);
/// What is made up for: a thread that woke up late, but not a client that does not read.
const LATE_MAX: Duration = Duration::from_millis(10);

/// How far away a server is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pace {
    /// From a request to the first byte of its answer.
    pub latency: Duration,
    /// Rate of a connection, in bytes per second; unlimited if `None`.
    pub connection_bytes_per_s: Option<u64>,
    /// Rate of all connections together, in bytes per second; unlimited if `None`.
    pub bytes_per_s: Option<u64>,
}

/// A distance with the line that all answers share.
#[derive(Debug)]
pub(super) struct Far {
    pace: Pace,
    start: Instant,
    line: Mutex<Line>,
}

/// An answer on its way.
pub(super) struct Answer<'a> {
    far: &'a Far,
    connection: Line,
    /// When the piece before was due, since the start.
    due: Duration,
}

/// A line that one piece after the other crosses.
#[derive(Debug)]
struct Line {
    bytes_per_s: Option<u64>,
    /// Since the start.
    free_at: Duration,
}

impl Far {
    pub(super) fn new(pace: Pace) -> Self {
        let line = Mutex::new(Line::new(pace.bytes_per_s));
        Self { pace, start: Instant::now(), line }
    }

    /// Waits until a request that arrives now has its first byte, and returns when that was due.
    pub(super) async fn first_byte(&self) -> Instant {
        let due = Instant::now() + self.pace.latency;
        wait_until(due).await;
        due
    }

    pub(super) fn answer(&self, first_byte: Instant) -> Answer<'_> {
        let connection = Line::new(self.pace.connection_bytes_per_s);
        Answer { far: self, connection, due: first_byte - self.start }
    }
}

impl Answer<'_> {
    /// The size of the pieces in which a body is sent, in bytes.
    pub(super) fn piece(&self) -> usize {
        let rate = self.far.pace.connection_bytes_per_s.or(self.far.pace.bytes_per_s);
        let bytes = rate.map_or(u64::MAX, |rate| {
            u64::try_from(u128::from(rate) * PIECE_TIME.as_nanos() / 1_000_000_000)
                .unwrap_or(u64::MAX)
        });
        usize::try_from(bytes.max(PIECE_MIN)).unwrap_or(usize::MAX)
    }

    /// Waits until the next piece has arrived.
    pub(super) async fn wait_for(&mut self, bytes: usize) {
        let asked = self.due.max((Instant::now() - self.far.start).saturating_sub(LATE_MAX));
        let sent = self.connection.cross(bytes, asked);
        self.due = sent.max(locked(&self.far.line).cross(bytes, asked));
        wait_until(self.far.start + self.due).await;
    }
}

impl Line {
    const fn new(bytes_per_s: Option<u64>) -> Self {
        Self { bytes_per_s, free_at: Duration::ZERO }
    }

    /// When a piece that is there at some time has crossed.
    fn cross(&mut self, bytes: usize, at: Duration) -> Duration {
        let Some(rate) = self.bytes_per_s else { return at };
        let ns = bytes as u128 * 1_000_000_000 / u128::from(rate.max(1));
        let takes = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        self.free_at = self.free_at.max(at) + takes;
        self.free_at
    }
}

/// Timers of the runtime are of whole milliseconds, so a thread waits.
#[expect(clippy::disallowed_methods, reason = "the time is what is waited for")]
async fn wait_until(due: Instant) {
    let left = due - Instant::now();
    if !left.is_zero() {
        task::spawn_blocking(move || thread::sleep(left)).await.expect("a sleep does not panic");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn pieces_cross_a_line_one_after_the_other_and_an_idle_line_saves_nothing_up() {
        let mut line = Line::new(Some(1_000_000));
        assert_eq!(line.cross(5_000, ms(10)), ms(15));
        assert_eq!(line.cross(5_000, ms(12)), ms(20), "it waits for the piece before");
        assert_eq!(line.cross(5_000, ms(100)), ms(105));
        assert_eq!(Line::new(None).cross(5_000, ms(10)), ms(10));
    }

    #[test]
    fn sixteen_connections_get_the_rate_of_all_and_one_gets_its_own() {
        let rate = |connections: u64| {
            let mut all = Line::new(Some(800_000));
            let mut own: Vec<_> =
                (0..connections).map(|_| (Line::new(Some(100_000)), ms(0))).collect();
            for _ in 0..50 {
                for (line, due) in &mut own {
                    *due = line.cross(1_000, *due).max(all.cross(1_000, *due));
                }
            }
            let end = own.iter().map(|(_, due)| *due).max().unwrap_or_default();
            u128::from(50 * connections) * 1_000_000 / end.as_millis()
        };
        assert_eq!(rate(1), 100_000);
        assert_eq!(rate(16), 800_000);
    }

    #[test]
    fn pieces_are_as_large_as_a_connection_sends_in_some_milliseconds() {
        let piece = |rate| {
            Far::new(Pace { connection_bytes_per_s: rate, ..Pace::default() })
                .answer(Instant::now())
                .piece()
        };
        assert_eq!(piece(Some(50_000_000)), 200_000);
        assert_eq!(piece(Some(50_000)), 16 << 10);
    }
}
