//! What trainers are answered: each connection gets one answer to each request, in the order of its requests.

use alloc::collections::{BTreeMap, VecDeque};

use super::{
    Answer, Progress, Refusal,
    progress::Unserved,
    staging::{Claim, Staging},
};
use crate::{
    id::{BatchId, ConnectionId, LeaseId},
    units::Nanoseconds,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    batch: BatchId,
    asked: Nanoseconds,
    /// `Some` once it is known that the request will get no batch.
    refusal: Option<Refusal>,
}

/// Requests that wait for their answers, and answers that wait to be given out.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// In the order in which each connection made them.
    requests: BTreeMap<ConnectionId, VecDeque<Request>>,
    /// The time at which everything was ready that a connection was answered so far.
    ready_at: BTreeMap<ConnectionId, Nanoseconds>,
    leases: u64,
    ready: VecDeque<Answer>,
}

impl Answers {
    pub(super) fn next(&mut self) -> Option<Answer> {
        self.ready.pop_front()
    }

    /// For a connection that made no request: it is admitted or rejected.
    pub(super) fn push(&mut self, answer: Answer) {
        self.ready.push_back(answer);
    }

    /// `refusal` is set if the request will get no batch.
    pub(super) fn request(
        &mut self,
        connection: ConnectionId,
        batch: BatchId,
        refusal: Option<Refusal>,
        now: Nanoseconds,
    ) {
        let request = Request { batch, asked: now, refusal };
        self.requests.entry(connection).or_default().push_back(request);
    }

    /// Refuses a request that has no batch yet.
    pub(super) fn refuse(
        &mut self,
        connection: ConnectionId,
        batch: BatchId,
        reason: Refusal,
        now: Nanoseconds,
    ) {
        let mut requests = self.requests.get_mut(&connection).into_iter().flatten();
        let request = requests.find(|it| it.batch == batch && it.refusal.is_none());
        if let Some(request) = request {
            request.refusal = Some(reason);
            self.ready_at.insert(connection, now);
        }
    }

    pub(super) fn forget(&mut self, connection: ConnectionId) {
        self.requests.remove(&connection);
        self.ready_at.remove(&connection);
    }

    /// Gives a connection the answers that are ready, in the order of its requests.
    pub(super) fn answer(
        &mut self,
        connection: ConnectionId,
        staging: &mut Staging,
        progress: &mut Progress,
        now: Nanoseconds,
    ) {
        while let Some(&Request { batch, asked, refusal }) =
            self.requests.get(&connection).and_then(|requests| requests.front())
        {
            let answer = match refusal {
                Some(reason) => Answer::Refuse { connection, batch, reason },
                None => match self.hand_over(connection, batch, staging) {
                    Some(answer) => answer,
                    None => return,
                },
            };
            if let Answer::Refuse { reason, .. } = answer {
                progress.refused(Unserved { batch, refusal: reason, asked, at: now });
            }
            self.ready.push_back(answer);
            self.requests.get_mut(&connection).and_then(VecDeque::pop_front);
        }
        self.requests.remove(&connection);
    }

    /// The lease of a batch if it is complete, or the refusal if a sample of it is missing.
    fn hand_over(
        &mut self,
        connection: ConnectionId,
        batch: BatchId,
        staging: &mut Staging,
    ) -> Option<Answer> {
        let staging = staging.get_mut(batch.rank)?;
        let staged = staging.batch_mut(batch).filter(|staged| staged.pending == 0)?;
        let ready_at = self.ready_at.entry(connection).or_default();
        staged.timeline.predecessors_ready(*ready_at);
        *ready_at = staged.timeline.ready().max(*ready_at);
        if let Some(reason) = staged.refusal {
            staging.vacate(batch);
            return Some(Answer::Refuse { connection, batch, reason });
        }
        self.leases += 1;
        let lease = LeaseId(self.leases);
        staged.claim = Claim::Leased(connection, lease);
        let (offset, batch) = (staged.piece.offset, staged.batch.clone());
        Some(Answer::Lease { connection, lease, offset, batch })
    }
}
