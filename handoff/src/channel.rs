//! The two rings of a connection and how many entries each can need.
//!
//! A client may have `window` batches *unsettled*: asked for, and neither refused nor given back.
//! So at most `window` replies wait for it. Of what it sends, at most `window` requests, deliveries
//! and releases each wait for the agent: the latter two follow a lease, once, and there are no more
//! leases than unsettled batches. With rings of `window` and four times `window` entries (a power of
//! two) neither side ever meets a full ring unless the other breaks the rules; an agent that meets
//! one closes the connection.

use super::ring::Layout;

/// The smallest window that makes sense: one batch in use, one on its way.
pub const WINDOW_MIN: u32 = 2;

/// The largest window: rings of 320 KiB.
pub const WINDOW_MAX: u32 = 1024;

/// Where the two rings of a connection lie in their shared memory.
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

    /// The bytes of both rings together.
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
