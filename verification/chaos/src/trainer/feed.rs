//! The batches of one rank, from the agent while there is one.

use std::{collections::VecDeque, path::PathBuf, rc::Rc, time::Duration};

use anyhow::{bail, ensure};
use tierfeed_core::{
    id::{BatchId, Rank},
    order::Spec,
    session::Wait,
};
use tierfeed_handoff::{Client, Hello, LeasedBatch, NextError, Reply, Role};

use crate::record::Origin;

/// An agent that does not answer for this time hangs: the trainer continues without it.
const PATIENCE: Duration = Duration::from_secs(1);

/// As [`PATIENCE`], for the answer to a connection.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// Batches that are read alone between two attempts to connect.
const ALONE_MAX: u32 = 16;

/// A batch and its connection, or the reason why the agent gave none.
pub(super) type Taken = Result<(LeasedBatch, Rc<Client>), Origin>;

pub(super) struct Feed {
    socket: PathBuf,
    rank: Rank,
    order: Spec,
    pub(super) client: Option<Rc<Client>>,
    next: Option<BatchId>,
    asked: VecDeque<BatchId>,
    /// Batches since the last attempt to connect.
    alone: u32,
}

impl Feed {
    pub(super) fn new(socket: PathBuf, rank: Rank, order: Spec) -> Self {
        Self {
            socket,
            rank,
            order,
            client: None,
            next: None,
            asked: VecDeque::new(),
            alone: ALONE_MAX,
        }
    }

    /// The batch, or the reason why the agent gave none.
    pub(super) fn take(&mut self, batch: BatchId) -> anyhow::Result<Taken> {
        if self.client.is_none() && !self.connect_if_due(batch)? {
            return Ok(Err(Origin::Alone));
        }
        self.ask(batch);
        if self.asked.front() != Some(&batch) {
            return Ok(Err(Origin::Full));
        }
        let Some(client) = &self.client else { return Ok(Err(Origin::Alone)) };
        match client.next(PATIENCE) {
            Ok(Reply::Batch(leased)) => {
                ensure!(leased.id == batch, "{:?} instead of {batch:?}", leased.id);
                self.asked.pop_front();
                // An agent that is gone needs no measurements.
                let _ = client.deliver(leased.lease, Wait::default());
                Ok(Ok((leased, Rc::clone(client))))
            }
            Ok(Reply::Refused { batch: refused, .. }) => {
                ensure!(refused == batch, "{refused:?} was refused instead of {batch:?}");
                self.asked.pop_front();
                Ok(Err(Origin::Refused))
            }
            Err(NextError::TimedOut) => Ok(Err(self.disconnect(Origin::Late))),
            Err(NextError::Disconnected(_)) => Ok(Err(self.disconnect(Origin::Alone))),
            Err(error) => bail!("{error}"),
        }
    }

    fn connect_if_due(&mut self, batch: BatchId) -> anyhow::Result<bool> {
        if self.alone < ALONE_MAX {
            self.alone += 1;
            return Ok(false);
        }
        self.alone = 0;
        let hello = Hello::of_rank(self.rank, Role::Trainer);
        let Ok(client) = Client::connect(&self.socket, &hello, CONNECT_PATIENCE) else {
            return Ok(false);
        };
        ensure!(client.briefing().order == self.order, "the agent works by another order");
        self.client = Some(Rc::new(client));
        self.next = Some(batch);
        self.asked.clear();
        Ok(true)
    }

    fn ask(&mut self, batch: BatchId) {
        let Some(client) = &self.client else { return };
        if self.asked.is_empty() {
            self.next = Some(batch);
        }
        let ahead = client.briefing().batches_ahead as usize;
        while self.asked.len() < ahead
            && let Some(next) = self.next
            && client.request(next).is_ok()
        {
            self.asked.push_back(next);
            self.next = self.order.after(next);
        }
    }

    fn disconnect(&mut self, origin: Origin) -> Origin {
        self.client = None;
        self.alone = 0;
        origin
    }
}
