//! The requests of one connection: each is here from the moment it is sent until its answer is taken or goes back, and
//! nowhere else.
//!
//! A request cannot be called back. One that is abandoned stays until its answer comes, which then goes back at once.
//! There are at most as many entries as the window of the connection allows (`tierfeed_handoff::Limits`).

use std::collections::{BTreeMap, BTreeSet};

/// The requests for batches, by their place in the order.
#[derive(Debug)]
pub struct Requests<Place, Answer> {
    requests: BTreeMap<Place, Request<Answer>>,
}

#[derive(Debug)]
enum Request<Answer> {
    InFlight,
    /// In flight, and its answer is not wanted any more.
    Abandoned,
    /// Not taken yet.
    Answered(Answer),
}

impl<Place, Answer> Default for Requests<Place, Answer> {
    fn default() -> Self {
        Self { requests: BTreeMap::new() }
    }
}

impl<Place: Copy + Ord, Answer> Requests<Place, Answer> {
    pub fn is_in_flight(&self, place: Place) -> bool {
        matches!(self.requests.get(&place), Some(Request::InFlight))
    }

    /// Whether the batch is in flight or answered, and wanted.
    pub fn is_requested(&self, place: Place) -> bool {
        matches!(self.requests.get(&place), Some(Request::InFlight | Request::Answered(_)))
    }

    /// Whether there is a request in any state.
    pub fn is_known(&self, place: Place) -> bool {
        self.requests.contains_key(&place)
    }

    /// The requests that are wanted, with whether the answer is there.
    pub fn wanted(&self) -> impl Iterator<Item = (Place, bool)> {
        self.requests.iter().filter_map(|(place, request)| match request {
            Request::InFlight => Some((*place, false)),
            Request::Answered(_) => Some((*place, true)),
            Request::Abandoned => None,
        })
    }

    /// Requests of all states.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Notes a request that was sent.
    pub fn sent(&mut self, place: Place) {
        self.requests.entry(place).or_insert(Request::InFlight);
    }

    /// Wants the answer of a request, also if it was abandoned; false if there is none, so that it must be sent.
    pub fn want(&mut self, place: Place) -> bool {
        let request = self.requests.get_mut(&place);
        if let Some(request @ Request::Abandoned) = request {
            *request = Request::InFlight;
            return true;
        }
        request.is_some()
    }

    /// Ends a request in flight whose answer is handed out at once.
    pub fn end(&mut self, place: Place) {
        if !matches!(self.requests.get(&place), Some(Request::Answered(_))) {
            self.requests.remove(&place);
        }
    }

    /// Returns the answer, to be dropped, if the request is not wanted.
    pub fn answer(&mut self, place: Place, answer: Answer) -> Option<Answer> {
        if let Some(request @ Request::InFlight) = self.requests.get_mut(&place) {
            *request = Request::Answered(answer);
            return None;
        }
        self.end(place);
        Some(answer)
    }

    pub fn take(&mut self, place: Place) -> Option<Answer> {
        match self.requests.remove(&place)? {
            Request::Answered(answer) => Some(answer),
            pending => {
                self.requests.insert(place, pending);
                None
            }
        }
    }

    /// Gives up a request. Returns the answer, to be dropped, if it has come.
    pub fn abandon(&mut self, place: Place) -> Option<Answer> {
        let answer = self.take(place);
        if let Some(request) = self.requests.get_mut(&place) {
            *request = Request::Abandoned;
        }
        answer
    }

    /// Gives up all requests but those for `places`. Returns their answers, to be dropped.
    pub fn keep_only(&mut self, places: impl IntoIterator<Item = Place>) -> Vec<Answer> {
        let wanted: BTreeSet<_> = places.into_iter().collect();
        let known: BTreeSet<_> = self.requests.keys().copied().collect();
        (&known - &wanted).into_iter().filter_map(|place| self.abandon(place)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent() -> Requests<u32, &'static str> {
        let mut requests = Requests::default();
        (0..3).for_each(|place| requests.sent(place));
        requests
    }

    #[test]
    fn an_answer_is_handed_out_once() {
        let mut requests = sent();
        assert_eq!(requests.take(1), None, "it has not come");
        assert_eq!(requests.answer(1, "batch"), None);
        assert!(requests.is_requested(1) && !requests.is_in_flight(1) && requests.want(1));
        assert_eq!((requests.take(1), requests.take(1)), (Some("batch"), None));
        assert!(!requests.is_requested(1) && !requests.want(1) && requests.len() == 2);
    }

    #[test]
    fn the_answer_of_an_abandoned_request_goes_back_unless_it_is_wanted_again() {
        let mut requests = sent();
        assert_eq!((requests.abandon(0), requests.abandon(1)), (None, None));
        assert!(!requests.is_requested(0) && requests.len() == 3, "it cannot be called back");
        assert_eq!(requests.answer(0, "late"), Some("late"));
        assert!(!requests.is_known(0));
        assert!(requests.want(1), "it is not sent twice");
        assert_eq!((requests.answer(1, "batch"), requests.take(1)), (None, Some("batch")));
        assert_eq!(requests.answer(7, "not asked for"), Some("not asked for"));
    }

    #[test]
    fn what_is_not_kept_goes_back_now_or_when_it_comes() {
        let mut requests = sent();
        requests.answer(1, "early");
        assert_eq!(requests.keep_only([0]), ["early"]);
        assert_eq!(requests.answer(2, "late"), Some("late"));
        assert_eq!(requests.wanted().collect::<Vec<_>>(), [(0, false)]);
    }
}
