//! Whose turn it is: deadlines that pass on, commands that are given out, arrivals that are called off.

use alloc::{collections::BTreeSet, vec::Vec};

use super::{Kind, State};
use crate::{
    id::OpId,
    session::{Command, Session, pace::Need, staging::Taker},
};

impl Session {
    /// Gives operations, and what they wait for in turn, the deadline of a batch that waits for them.
    pub(super) fn hasten(&mut self, ops: &[OpId], need: Need) {
        let mut left = Vec::new();
        for op in ops {
            self.hasten_one(*op, need, &mut left);
        }
        while let Some(op) = left.pop() {
            self.hasten_one(op, need, &mut left);
        }
    }

    /// Adds to `left` what has to be hastened with it.
    fn hasten_one(&mut self, op: OpId, need: Need, left: &mut Vec<OpId>) {
        let Some(work) = self.works.get_mut(op) else { return };
        let Some(before) = work.need else {
            // Between tiers no batch is in a hurry, but what comes before may be.
            left.extend(&work.waits_for);
            return;
        };
        if before == need || self.paces.expected(before) <= self.paces.expected(need) {
            return;
        }
        work.need = Some(need);
        left.extend(&work.waits_for);
        if let (State::InLine, Some(link)) = (work.state, work.kind.link()) {
            self.line.hasten(link, op, before, need);
        }
    }

    /// The command whose turn it is, if a link has room.
    pub(in crate::session) fn next_in_line(&mut self) -> Option<Command> {
        let paces = &self.paces;
        let (op, given) = self.line.next(|need| paces.expected(need))?;
        let work = self.works.get_mut(op).expect("what stands in line has not ended");
        work.state = State::Running(given);
        work.command.take()
    }

    /// Takes back the arrivals of dropped batches that were not given out, unless a copy of them is to
    /// be kept, so that their room is free for what was asked for instead.
    pub(in crate::session) fn call_off(&mut self) {
        if !self.ranks.values().any(|staging| staging.has_leftovers) {
            return;
        }
        let sources: BTreeSet<OpId> =
            self.works.iter().filter_map(|(_, work)| work.source).collect();
        let arrivals: Vec<OpId> =
            self.works.iter().map(|(op, _)| op).filter(|op| !sources.contains(op)).collect();
        for op in arrivals {
            self.call_off_one(op);
        }
        self.ranks.values_mut().for_each(|staging| staging.has_leftovers = false);
    }

    fn call_off_one(&mut self, op: OpId) {
        let Some(work) = self.works.get(op) else { return };
        let (Kind::Arrive { batch, .. } | Kind::Show { batch, .. }) = work.kind else { return };
        let staged = self.ranks.get(&batch.rank).and_then(|it| it.staged.get(&batch));
        if staged.is_none_or(|staged| staged.taker != Taker::Dropped) {
            return;
        }
        let was_waiting = match (work.state, work.kind.link(), work.need) {
            (State::InLine, Some(link), Some(need)) => self.line.call_off(link, op, need),
            (state, ..) => state == State::Blocked,
        };
        if was_waiting {
            let kind = self.works.remove(op).expect("it was just looked at").kind;
            if let Some(staged) = self.staged_of(&kind) {
                staged.is_stale = true;
            }
            let runnable = self.leave(op, &kind);
            self.run(runnable);
        }
    }
}
