//! The batches that calls wait for, and how each is to come.

use std::collections::BTreeMap;

use tierfeed_core::{id::BatchId, session::Refusal, units::Nanoseconds};

use crate::{batch::Answer, c_api::Failure};

/// There are as many calls as TensorFlow makes in parallel.
#[derive(Default)]
pub(super) struct Requests {
    wanted: BTreeMap<BatchId, Wanted>,
    /// The requests to the agent, whose answers are handed out as they come.
    sent: tierfeed_client::Requests<BatchId, ()>,
    /// When the agent answered last.
    heard: Nanoseconds,
}

struct Wanted {
    /// Calls that wait.
    calls: u32,
    /// When it was requested.
    since: Nanoseconds,
    way: Way,
    answer: Option<Result<Answer, Failure>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    FromAgent,
    /// It has to be read from the cold store.
    Read,
    /// The agent could not hand over a sample: the agent, or one more attempt, says why.
    Refused(Refusal),
    Reading,
}

impl Requests {
    pub(super) fn enter(&mut self, batch: BatchId, now: Nanoseconds) {
        self.sent.want(batch);
        let first = Wanted { calls: 0, since: now, way: Way::FromAgent, answer: None };
        self.wanted.entry(batch).or_insert(first).calls += 1;
    }

    /// The answer for a call, which ends the call.
    pub(super) fn take(&mut self, batch: BatchId) -> Option<Result<Answer, Failure>> {
        let wanted = self.wanted.get_mut(&batch)?;
        let answer = wanted.answer.clone()?;
        wanted.calls -= 1;
        if wanted.calls == 0 {
            self.wanted.remove(&batch);
        }
        Some(answer)
    }

    pub(super) fn answer(&mut self, batch: BatchId, answer: Result<Answer, Failure>) {
        if let Some(wanted) = self.wanted.get_mut(&batch) {
            wanted.answer = Some(answer);
        }
    }

    /// Whether a call waits for a batch that has no answer.
    pub(super) fn is_wanted(&self, batch: BatchId) -> bool {
        self.wanted.get(&batch).is_some_and(|it| it.answer.is_none())
    }

    /// Notes the answer of the agent, which may come when no call waits for it any more.
    pub(super) fn heard(&mut self, batch: BatchId, now: Nanoseconds) {
        self.sent.end(batch);
        self.agent_waits(now);
    }

    /// Notes that the agent lives, and answers later.
    pub(super) fn agent_waits(&mut self, now: Nanoseconds) {
        self.heard = now;
    }

    pub(super) fn next_to_send(&self) -> Option<BatchId> {
        self.open().find(|(batch, _)| !self.sent.is_known(**batch)).map(|(batch, _)| *batch)
    }

    pub(super) fn sent(&mut self, batch: BatchId, now: Nanoseconds) {
        self.sent.sent(batch);
        if let Some(wanted) = self.wanted.get_mut(&batch) {
            wanted.since = now;
        }
    }

    pub(super) fn is_any_in_flight(&self) -> bool {
        !self.sent.is_empty()
    }

    /// The batch that the agent owes for the longest time, and the time for which it has answered nothing
    /// since that was requested.
    pub(super) fn silent_for(&self, now: Nanoseconds) -> Option<(BatchId, Nanoseconds)> {
        let in_flight = self.open().filter(|(batch, _)| self.sent.is_in_flight(**batch));
        let (batch, oldest) = in_flight.min_by_key(|(_, it)| it.since)?;
        Some((*batch, Nanoseconds(now.0.saturating_sub(oldest.since.max(self.heard).0))))
    }

    /// Lets a batch be read because the agent does not answer; the answer may still come.
    pub(super) fn abandon(&mut self, batch: BatchId) {
        self.sent.abandon(batch);
        self.read(batch, Way::Read);
    }

    pub(super) fn read_unsent(&mut self) {
        while let Some(batch) = self.next_to_send() {
            self.read(batch, Way::Read);
        }
    }

    /// Lets all batches without an answer be read, because no answer will come any more.
    pub(super) fn read_all(&mut self) {
        self.sent = tierfeed_client::Requests::default();
        self.read_unsent();
    }

    /// Returns the refusal of the agent, if it could not read a sample.
    pub(super) fn begin_to_read(&mut self, batch: BatchId) -> Option<Refusal> {
        let wanted = self.wanted.get_mut(&batch)?;
        match std::mem::replace(&mut wanted.way, Way::Reading) {
            Way::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    pub(super) fn is_to_read(&self, batch: BatchId) -> bool {
        let wanted = self.wanted.get(&batch);
        wanted.is_some_and(|it| matches!(it.way, Way::Read | Way::Refused(_)))
    }

    /// A batch does not come from the agent, unless a call reads it already.
    pub(super) fn read(&mut self, batch: BatchId, way: Way) {
        if let Some(wanted) = self.wanted.get_mut(&batch).filter(|it| it.way != Way::Reading) {
            wanted.way = way;
        }
    }

    /// What no call reads, and what has no answer.
    fn open(&self) -> impl Iterator<Item = (&BatchId, &Wanted)> {
        self.wanted.iter().filter(|(_, it)| it.answer.is_none() && it.way == Way::FromAgent)
    }
}

#[cfg(test)]
mod tests {
    use tierfeed_core::id::{Epoch, Rank, Step};

    use super::*;
    use crate::{
        batch::{Form, Staged},
        c_api::Code,
    };

    const NOW: Nanoseconds = Nanoseconds(0);

    fn batch(step: u32) -> BatchId {
        BatchId { epoch: Epoch(0), step: Step(step), rank: Rank(0) }
    }

    fn answer(ticket: i64) -> Result<Answer, Failure> {
        Staged::copied(Form::Rows, &[], |_, _| Ok(())).map(|staged| Answer { staged, ticket })
    }

    fn ticket(answer: Option<Result<Answer, Failure>>) -> Option<i64> {
        answer.map(|it| it.expect("a batch").ticket)
    }

    #[test]
    fn calls_for_one_batch_share_its_answer_and_the_last_one_ends_it() {
        let mut requests = Requests::default();
        requests.enter(batch(0), NOW);
        requests.enter(batch(0), NOW);
        assert_eq!(requests.next_to_send(), Some(batch(0)));
        requests.sent(batch(0), NOW);
        assert!(requests.next_to_send().is_none() && requests.take(batch(0)).is_none());
        requests.heard(batch(0), NOW);
        requests.answer(batch(0), answer(7));
        assert_eq!(ticket(requests.take(batch(0))), Some(7));
        assert_eq!(ticket(requests.take(batch(0))), Some(7));
        assert!(requests.take(batch(0)).is_none() && !requests.is_any_in_flight());
    }

    #[test]
    fn a_batch_that_was_read_instead_is_in_flight_until_its_answer_comes() {
        let mut requests = Requests::default();
        requests.enter(batch(0), NOW);
        requests.sent(batch(0), NOW);
        requests.abandon(batch(0));
        assert!(requests.is_to_read(batch(0)));
        assert_eq!(requests.begin_to_read(batch(0)), None);
        assert!(!requests.is_to_read(batch(0)), "one call reads it");
        requests.enter(batch(1), NOW);
        requests.enter(batch(0), NOW);
        assert_eq!(requests.next_to_send(), Some(batch(1)), "no batch is requested twice");
        requests.answer(batch(0), answer(3));
        assert_eq!(ticket(requests.take(batch(0))), Some(3));
        assert_eq!(ticket(requests.take(batch(0))), Some(3));
        assert!(requests.is_any_in_flight() && !requests.is_wanted(batch(0)));
        requests.heard(batch(0), NOW);
        assert!(!requests.is_any_in_flight());
    }

    #[test]
    fn nothing_waits_for_an_agent_that_is_gone() {
        let mut requests = Requests::default();
        for step in 0..3 {
            requests.enter(batch(step), NOW);
        }
        requests.sent(batch(0), NOW);
        requests.sent(batch(1), NOW);
        requests.answer(batch(1), Err(Failure::new(Code::Internal, "wrong")));
        requests.read_all();
        assert!(requests.is_to_read(batch(0)) && requests.is_to_read(batch(2)));
        assert!(!requests.is_any_in_flight());
        assert!(requests.take(batch(1)).is_some_and(|answer| answer.is_err()));
    }

    #[test]
    fn an_agent_that_answers_is_not_silent_however_old_its_oldest_request_is() {
        let mut requests = Requests::default();
        let second = |count: u64| Nanoseconds(count * 1_000_000_000);
        assert_eq!(requests.silent_for(second(1)), None);
        requests.enter(batch(0), second(1));
        requests.enter(batch(1), second(2));
        requests.sent(batch(0), second(3));
        requests.sent(batch(1), second(4));
        assert_eq!(requests.silent_for(second(50)), Some((batch(0), second(47))));
        requests.heard(batch(1), second(60));
        requests.answer(batch(1), answer(1));
        assert_eq!(requests.silent_for(second(65)), Some((batch(0), second(5))));
    }
}
