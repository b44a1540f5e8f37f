//! The two rings of a connection and how many entries each can need.
//!
//! A client may have `window` batches *unsettled*: requested, and neither refused nor released. So
//! at most `window` replies wait for it. Of the entries that it sends, at most `window` requests,
//! deliveries and releases each wait for the agent: each lease has at most one delivery and one
//! release, and there are no more leases than unsettled batches. With rings of `window` and four
//! times `window` entries (a power of two) a ring is full only if the other side breaks the rules;
//! an agent that finds a full ring closes the connection.

use super::ring::Layout;

/// The smallest useful window: one batch in use, one on its way.
pub const WINDOW_MIN: u32 = 2;

/// The largest window; its rings take 320 KiB.
pub const WINDOW_MAX: u32 = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Channel {
    /// Requests, deliveries and releases, client to agent.
    pub(super) submissions: Layout,
    /// Leases and refusals, agent to client.
    pub(super) completions: Layout,
}

impl Channel {
    /// The rings for `window` unsettled batches, or `None` if the window is no power of two between
    /// [`WINDOW_MIN`] and [`WINDOW_MAX`].
    pub(super) const fn new(window: u32) -> Option<Self> {
        if !window.is_power_of_two() || window < WINDOW_MIN || window > WINDOW_MAX {
            return None;
        }
        let submissions = Layout::new(0, 4 * window);
        let completions = Layout::new(submissions.end(), window);
        Some(Self { submissions, completions })
    }

    pub(super) const fn len(self) -> u64 {
        self.completions.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_lie_behind_each_other_and_do_not_overlap() {
        let channel = Channel::new(256).unwrap();
        assert_eq!(channel.submissions.end(), 128 + 1024 * 64);
        assert_eq!(channel.len(), channel.submissions.end() + 128 + 256 * 64);
    }

    #[test]
    fn a_window_that_is_no_power_of_two_or_out_of_range_has_no_rings() {
        for window in [0, 1, 3, 100, 2048, u32::MAX] {
            assert_eq!(Channel::new(window), None, "{window}");
        }
    }
}
