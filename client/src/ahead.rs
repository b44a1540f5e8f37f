//! Which batches are requested ahead of the one that training takes.
//!
//! The agent stages ahead by itself; requests ahead only hide the round trip. So they are made for several batches at a
//! time, and most batches are taken without waking the agent.

use crate::requests::Requests;

/// Epoch and step of a batch; a feed reads for one rank.
pub type EpochStep = (u32, u32);

/// The place after one in an epoch of so many steps.
pub fn following((epoch, step): EpochStep, steps: u32) -> EpochStep {
    if step + 1 < steps { (epoch, step + 1) } else { (epoch + 1, 0) }
}

/// The places after `place` and before `end_epoch` that are requested with it: together as many as the agent stages.
pub fn window(
    place: EpochStep,
    end_epoch: u32,
    batches_ahead: u32,
    steps_in: impl Fn(u32) -> u32,
) -> Vec<EpochStep> {
    let after = |place: &EpochStep| {
        Some(following(*place, steps_in(place.0))).filter(|following| following.0 < end_epoch)
    };
    let places = std::iter::successors(after(&place), after);
    places.take((batches_ahead as usize).saturating_sub(1)).collect()
}

impl<Answer> Requests<EpochStep, Answer> {
    /// The place that comes into a whole window as `taken` leaves it; `None` if its epoch of so many steps ends before.
    pub fn next_ahead(
        &self,
        (epoch, step): EpochStep,
        batches_ahead: u32,
        steps: u32,
    ) -> Option<EpochStep> {
        let at = |ahead: u32| (epoch, step.saturating_add(ahead));
        let (last, next) = (at(batches_ahead.saturating_sub(1)), at(batches_ahead));
        let is_due = next.1 < steps && self.is_requested(last) && !self.is_known(next);
        is_due.then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_goes_on_in_the_next_epoch_and_not_beyond_the_end() {
        let steps_in = |epoch| [3, 1, 3][epoch as usize];
        assert_eq!(window((0, 0), 3, 3, steps_in), [(0, 1), (0, 2)]);
        assert_eq!(window((0, 1), 3, 5, steps_in), [(0, 2), (1, 0), (2, 0), (2, 1)]);
        assert_eq!(window((0, 1), 1, 5, steps_in), [(0, 2)]);
        assert_eq!(window((2, 2), 3, 5, steps_in), []);
        assert_eq!(window((0, 0), 3, 1, steps_in), []);
    }

    #[test]
    fn one_more_is_requested_where_the_window_is_whole_and_the_epoch_goes_on() {
        let mut requests = Requests::<EpochStep, ()>::default();
        (1..4).for_each(|step| requests.sent((0, step)));
        assert_eq!(requests.next_ahead((0, 0), 4, 9), Some((0, 4)));
        assert_eq!(requests.next_ahead((0, 0), 4, 4), None, "the epoch ends before");
        assert_eq!(requests.next_ahead((0, 1), 4, 9), None, "the slow path requests the others");
        requests.sent((0, 4));
        assert_eq!(requests.next_ahead((0, 0), 4, 9), None);
    }
}
