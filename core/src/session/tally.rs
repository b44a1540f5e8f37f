//! What a trainer measures and counts itself, because the agent does not see it.

use crate::{
    id::Epoch,
    units::{Bytes, Nanoseconds},
};

/// A stretch of time in which a trainer waited for a batch, on the session's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wait {
    /// The time at which the training wanted the batch.
    pub since: Nanoseconds,
    /// The time at which it had the batch; never before `since`.
    pub until: Nanoseconds,
}

impl Wait {
    /// A wait that would begin before the clock did is cut.
    #[must_use]
    pub const fn ending(until: Nanoseconds, len: Nanoseconds) -> Self {
        Self { since: Nanoseconds(until.0.saturating_sub(len.0)), until }
    }

    #[must_use]
    pub const fn len(self) -> Nanoseconds {
        Nanoseconds(self.until.0.saturating_sub(self.since.0))
    }

    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len().0 == 0
    }
}

/// The work of a trainer without the agent since its last tally.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub epoch: Epoch,
    pub self_read_batches: u32,
    pub self_read_samples: u32,
    pub self_read_bytes: Bytes,
    /// Samples that the trainer left out, in a job that skips, because it could not read or decode them.
    pub skipped_samples: u32,
    /// The time that it waited for an answer of the agent that was no batch, or did not come.
    pub unanswered: Nanoseconds,
    /// The time that the training waited while the trainer read batches itself.
    pub self_read: Nanoseconds,
    /// The time that the training waited while samples were decoded, transformed and collated.
    pub decoding: Nanoseconds,
    /// 0 if the training's own thread decodes.
    pub decode_threads: u32,
}

impl Tally {
    #[must_use]
    pub fn empty(epoch: Epoch) -> Self {
        Self { epoch, ..Self::default() }
    }

    #[must_use]
    pub const fn waited(&self) -> Nanoseconds {
        let sum = self.unanswered.0.saturating_add(self.self_read.0);
        Nanoseconds(sum.saturating_add(self.decoding.0))
    }

    /// The same with waits that are together no longer than `limit`: a trainer cannot have waited for more
    /// time than has passed.
    #[must_use]
    pub fn within(self, limit: Nanoseconds) -> Self {
        let mut left = limit.0;
        let mut take = |wanted: Nanoseconds| {
            let part = wanted.0.min(left);
            left -= part;
            Nanoseconds(part)
        };
        let (unanswered, self_read) = (take(self.unanswered), take(self.self_read));
        Self { unanswered, self_read, decoding: take(self.decoding), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_does_not_begin_before_the_clock_did() {
        let wait = Wait::ending(Nanoseconds(7), Nanoseconds(9));
        assert_eq!((wait.since, wait.len()), (Nanoseconds(0), Nanoseconds(7)));
        assert!(Wait::ending(Nanoseconds(7), Nanoseconds(0)).is_empty());
        assert_eq!(Wait { since: Nanoseconds(9), until: Nanoseconds(7) }.len(), Nanoseconds(0));
    }

    #[test]
    fn a_tally_is_believed_up_to_the_time_there_was() {
        let tally = Tally {
            unanswered: Nanoseconds(5),
            self_read: Nanoseconds(u64::MAX),
            decoding: Nanoseconds(3),
            ..Tally::empty(Epoch(0))
        };
        assert_eq!(tally.waited(), Nanoseconds(u64::MAX));
        let cut = tally.within(Nanoseconds(20));
        assert_eq!(
            (cut.unanswered, cut.self_read, cut.decoding.0),
            (Nanoseconds(5), Nanoseconds(15), 0)
        );
        assert_eq!(cut.within(Nanoseconds(20)), cut);
    }
}
