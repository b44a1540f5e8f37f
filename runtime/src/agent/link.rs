//! The agent's line to its manager: a task of its own, so that a slow or dead manager delays nothing.
//!
//! Losing the manager changes nothing on this node: the loss is logged once, reports are left out
//! until it is back, requests for memory are answered here. A manager that was started again knows no
//! agents; this one registers again and tells what it has lent.

use std::time::Duration;

use tierfeed_core::{
    fleet::{Direction, Progress, Registration},
    id::NodeId,
    units::Nanoseconds,
};
use tierfeed_numa_memory::drill;
use tierfeed_resource_gatherer::Available;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{
    clock::Clock,
    rpc::client::{CallError, Client, Loan},
};

/// Messages on their way, in each direction.
const MESSAGES_MAX: usize = 64;

const BACKOFF_MIN: Nanoseconds = Nanoseconds(1_000_000_000);
const BACKOFF_MAX: Nanoseconds = Nanoseconds(30_000_000_000);

/// The end of the call under way and the last report may take this long together.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) enum ToManager {
    Report(Progress, Option<Box<Available>>),
    Ask(u32),
    Return(u32),
}

#[derive(Debug)]
pub(super) enum FromManager {
    /// Whether to go on.
    Direction(Direction),
    /// Whether memory may be lent. A manager that is gone agrees to everything.
    Loan(Result<(), String>),
}

/// The loop's end of the line.
#[derive(Debug)]
pub(super) struct Link {
    sender: mpsc::Sender<ToManager>,
    receiver: mpsc::Receiver<FromManager>,
    task: JoinHandle<Line>,
}

impl Link {
    pub(super) fn start(client: Client, agent: Registration, clock: Clock) -> Self {
        let (sender, inbox) = mpsc::channel(MESSAGES_MAX);
        let (outbox, receiver) = mpsc::channel(MESSAGES_MAX);
        let line = Line { client, node: agent.node, agent, clock, lent: 0, told: 0, lost: None };
        Self { sender, receiver, task: tokio::spawn(line.run(inbox, outbox)) }
    }

    /// Sends if the line is free. A report that is left out is followed by the next.
    pub(super) fn try_send(&self, message: ToManager) -> Result<(), ToManager> {
        self.sender.try_send(message).map_err(mpsc::error::TrySendError::into_inner)
    }

    /// The next answer; waits for ever if the line is closed.
    pub(super) async fn next(&mut self) -> FromManager {
        match self.receiver.recv().await {
            Some(message) => message,
            None => std::future::pending().await,
        }
    }

    /// Says that the agent ends, and waits a moment for the manager to hear it.
    pub(super) async fn end(self, progress: &Progress) {
        drop(self.sender);
        drop(self.receiver);
        let mut task = self.task;
        let farewell = async {
            match (&mut task).await {
                Ok(line) => line.say_drained(progress).await,
                Err(error) => tracing::warn!(%error, "the line to the manager failed"),
            }
        };
        if tokio::time::timeout(FAREWELL, farewell).await.is_err() {
            tracing::warn!("the manager did not hear the farewell in time");
            task.abort();
        }
    }
}

#[derive(Debug)]
struct Lost {
    retry_at: Nanoseconds,
    backoff: Nanoseconds,
    /// What the last call said.
    reason: String,
}

#[derive(Debug)]
struct Line {
    client: Client,
    agent: Registration,
    node: NodeId,
    clock: Clock,
    /// Chunks that workloads of this node hold.
    lent: u32,
    /// Chunks that the manager knows of; what was lent or came back while it was gone is told later.
    told: u32,
    lost: Option<Lost>,
}

impl Line {
    async fn run(
        mut self,
        mut inbox: mpsc::Receiver<ToManager>,
        outbox: mpsc::Sender<FromManager>,
    ) -> Self {
        while let Some(message) = inbox.recv().await {
            drill::pass("link");
            let answer = match message {
                ToManager::Report(progress, available) => {
                    self.report(&progress, available.as_deref()).await
                }
                ToManager::Ask(chunks) => Some(FromManager::Loan(self.ask(chunks).await)),
                ToManager::Return(chunks) => {
                    self.give_back(chunks).await;
                    None
                }
            };
            if let Some(answer) = answer
                && outbox.send(answer).await.is_err()
            {
                break;
            }
        }
        self
    }

    async fn report(
        &mut self,
        progress: &Progress,
        available: Option<&Available>,
    ) -> Option<FromManager> {
        if self.is_resting() {
            return None;
        }
        let (node, incarnation) = (self.node, self.agent.incarnation);
        let answer = self.client.report(node, incarnation, progress, available).await;
        match self.heard(answer)? {
            Ok(Direction::Unknown) => self.register_again().await,
            Ok(direction) => {
                self.settle().await;
                Some(FromManager::Direction(direction))
            }
            Err(error) => {
                tracing::warn!(%error, "the manager refuses a report");
                None
            }
        }
    }

    async fn register_again(&mut self) -> Option<FromManager> {
        let agent = self.agent.clone();
        let answer = self.client.register(&agent).await;
        match self.heard(answer)? {
            Ok(_) => {
                tracing::info!("registered with the manager again");
                self.told = 0;
                self.settle().await;
                None
            }
            Err(error) => {
                tracing::warn!(%error, "the manager does not take this agent again");
                Some(FromManager::Direction(Direction::Superseded))
            }
        }
    }

    async fn ask(&mut self, chunks: u32) -> Result<(), String> {
        let outcome = if self.is_resting() { Ok(()) } else { self.tell(Loan::Ask(chunks)).await };
        if outcome.is_ok() {
            self.lent += chunks;
        }
        outcome
    }

    async fn give_back(&mut self, chunks: u32) {
        self.lent = self.lent.saturating_sub(chunks);
        self.settle().await;
    }

    /// Tells the manager what it has missed. It only counts along: what is lent is lent.
    async fn settle(&mut self) {
        let change = if self.told > self.lent {
            Loan::Return(self.told - self.lent)
        } else {
            Loan::Ask(self.lent - self.told)
        };
        if self.told == self.lent || self.is_resting() {
            return;
        }
        if let Err(error) = self.tell(change).await {
            tracing::debug!(%error, "the manager counts loans in another way");
            self.told = self.lent;
        }
    }

    /// Tells the manager of a loan. One that is gone agrees to everything, and is told later.
    async fn tell(&mut self, loan: Loan) -> Result<(), String> {
        let (node, incarnation) = (self.node, self.agent.incarnation);
        let answer = self.client.memory(node, incarnation, loan).await;
        match self.heard(answer) {
            None => Ok(()),
            Some(Err(error)) => Err(error.to_string()),
            Some(Ok(())) => {
                self.told = match loan {
                    Loan::Ask(chunks) => self.told.saturating_add(chunks),
                    Loan::Return(chunks) => self.told.saturating_sub(chunks),
                };
                Ok(())
            }
        }
    }

    async fn say_drained(mut self, progress: &Progress) {
        if self.lost.is_some() {
            return;
        }
        let (node, incarnation) = (self.node, self.agent.incarnation);
        if let Err(error) = self.client.drained(node, incarnation, progress).await {
            tracing::warn!(%error, "the manager did not hear the farewell");
        }
    }

    /// Notes whether the manager is there: `None` if it is not.
    fn heard<T>(&mut self, answer: Result<T, CallError>) -> Option<Result<T, CallError>> {
        match answer {
            Err(error) if error.is_loss() => {
                self.lose(&error);
                None
            }
            answer => {
                if self.lost.take().is_some() {
                    tracing::info!("the manager is back");
                }
                Some(answer)
            }
        }
    }

    /// Says why, and again when it is for another reason: another manager may answer in its place.
    fn lose(&mut self, error: &CallError) {
        let reason = error.to_string();
        let backoff = match &self.lost {
            None => {
                tracing::warn!(%error, "the manager is lost; this node goes on without it");
                BACKOFF_MIN
            }
            Some(lost) => {
                if lost.reason != reason {
                    tracing::warn!(%error, "the manager is still lost");
                }
                Nanoseconds(lost.backoff.0.saturating_mul(2)).min(BACKOFF_MAX)
            }
        };
        let retry_at = Nanoseconds(self.clock.now().0 + backoff.0);
        self.lost = Some(Lost { retry_at, backoff, reason });
    }

    fn is_resting(&self) -> bool {
        self.lost.as_ref().is_some_and(|lost| self.clock.now() < lost.retry_at)
    }
}
