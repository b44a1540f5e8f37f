//! The figures of what a trainer did without its agent, until an agent takes them for its report.

use std::collections::BTreeMap;

use tierfeed_core::{id::Epoch, session::Tally, units::Nanoseconds};

/// At most one tally for each epoch.
#[derive(Debug, Default)]
pub struct Tallies {
    unsent: BTreeMap<Epoch, Tally>,
}

impl Tallies {
    pub fn add(&mut self, tally: Tally) {
        let unsent = self.unsent.entry(tally.epoch).or_insert(Tally::empty(tally.epoch));
        add(unsent, tally);
    }

    /// Takes all figures to send them; those that the agent has no room for are added again.
    pub fn take(&mut self) -> impl Iterator<Item = Tally> + use<> {
        std::mem::take(&mut self.unsent).into_values()
    }

    /// As [`Self::take`], for an agent that has just come: without the waits, which it did not cause.
    pub fn take_for_new_agent(&mut self) -> impl Iterator<Item = Tally> + use<> {
        let none = Nanoseconds(0);
        self.take().map(move |it| Tally { unanswered: none, self_read: none, decoding: none, ..it })
    }
}

fn add(unsent: &mut Tally, more: Tally) {
    unsent.self_read_batches += more.self_read_batches;
    unsent.self_read_samples += more.self_read_samples;
    unsent.self_read_bytes.0 += more.self_read_bytes.0;
    unsent.skipped_samples += more.skipped_samples;
    unsent.unanswered.0 += more.unanswered.0;
    unsent.self_read.0 += more.self_read.0;
    unsent.decoding.0 += more.decoding.0;
    unsent.decode_threads = unsent.decode_threads.max(more.decode_threads);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(epoch: u32, batches: u32) -> Tally {
        let self_read = Nanoseconds(7);
        Tally { self_read_batches: batches, self_read, ..Tally::empty(Epoch(epoch)) }
    }

    #[test]
    fn what_finds_no_room_is_sent_with_the_next_one() {
        let mut tallies = Tallies::default();
        [read(0, 1), read(1, 2), read(0, 4)].into_iter().for_each(|it| tallies.add(it));
        let sent: Vec<_> = tallies.take().collect();
        assert_eq!(sent, [Tally { self_read: Nanoseconds(14), ..read(0, 5) }, read(1, 2)]);
        assert_eq!(tallies.take().count(), 0);
        tallies.add(sent[1]);
        assert_eq!(tallies.take().collect::<Vec<_>>(), [read(1, 2)]);
    }

    #[test]
    fn a_new_agent_hears_what_was_read_before_it_came_but_no_waits() {
        let mut tallies = Tallies::default();
        tallies.add(read(0, 3));
        let sent: Vec<_> = tallies.take_for_new_agent().collect();
        assert_eq!(sent, [Tally { self_read: Nanoseconds(0), ..read(0, 3) }]);
    }

    #[test]
    fn of_decode_threads_the_larger_number_holds() {
        let mut tallies = Tallies::default();
        for decode_threads in [4, 2] {
            tallies.add(Tally { decode_threads, ..read(0, 0) });
        }
        assert!(tallies.take().all(|tally| tally.decode_threads == 4));
    }
}
