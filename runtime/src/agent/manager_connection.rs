//! The agent's connection to its manager: a task of its own, so that a slow or dead manager delays nothing.
//!
//! A lost manager changes nothing on this node: the loss is logged once, reports are skipped until it is
//! back, and requests for memory are granted locally. A restarted manager knows no agents; this agent
//! registers again and reports what it has lent.

use std::time::Duration;

use tierfeed_core::{
    fleet::{
        Direction, Progress, Registration,
        members::{PeerReport, Peers},
        schedule::Schedule,
    },
    id::NodeId,
    session::Observed,
    units::Nanoseconds,
};
use tierfeed_numa_memory::failpoint;
use tierfeed_resource_gatherer::Available;
use tokio::{sync::mpsc, task::JoinHandle};

use super::{peers::Secret, revisions::Revisions};
use crate::{
    clock::Clock,
    rpc::{
        call::{Loan, PeersAnswer, Remedy, Report},
        client::{CallError, Client},
    },
};

/// Messages in flight, in each direction.
const MESSAGES_MAX: usize = 64;

const BACKOFF_MIN: Nanoseconds = Nanoseconds(1_000_000_000);
const BACKOFF_MAX: Nanoseconds = Nanoseconds(30_000_000_000);

/// The deadline for the call in progress and the last report together.
const END_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) enum ToManager {
    Report(Box<Progress>, Option<Box<Available>>, Box<Observed>),
    Ask(u32),
    Return(u32),
    Peers(Box<PeerReport>),
}

#[derive(Debug)]
pub(super) enum FromManager {
    /// Whether to continue.
    Direction(Direction),
    /// The next generation of the schedule, which this node has made itself.
    Schedule(Box<Schedule>),
    /// Whether memory may be lent. Without a manager every request is granted.
    Loan(Result<(), String>),
    Peers(Box<Peers>),
    Secret(Secret),
}

/// The loop's end of the connection.
#[derive(Debug)]
pub(super) struct ManagerHandle {
    sender: mpsc::Sender<ToManager>,
    receiver: mpsc::Receiver<FromManager>,
    task: JoinHandle<ManagerConnection>,
}

impl ManagerHandle {
    pub(super) fn start(
        client: Client,
        agent: Registration,
        revisions: Revisions,
        clock: Clock,
    ) -> Self {
        let (sender, inbox) = mpsc::channel(MESSAGES_MAX);
        let (outbox, receiver) = mpsc::channel(MESSAGES_MAX);
        let connection = ManagerConnection {
            client,
            node: agent.node,
            agent,
            clock,
            lent: 0,
            reported: 0,
            outage: None,
            revisions,
        };
        Self { sender, receiver, task: tokio::spawn(connection.run(inbox, outbox)) }
    }

    /// Sends unless the queue is full. A skipped report is replaced by the next one.
    pub(super) fn try_send(&self, message: ToManager) -> Result<(), ToManager> {
        self.sender.try_send(message).map_err(mpsc::error::TrySendError::into_inner)
    }

    /// The next answer; waits for ever if the connection is closed.
    pub(super) async fn next(&mut self) -> FromManager {
        match self.receiver.recv().await {
            Some(message) => message,
            None => std::future::pending().await,
        }
    }

    /// Reports that the agent ends, and waits up to [`END_WITHIN`] for the call.
    pub(super) async fn end(self, progress: &Progress) {
        drop(self.sender);
        drop(self.receiver);
        let mut task = self.task;
        let ending = async {
            match (&mut task).await {
                Ok(connection) => connection.report_drained(progress).await,
                Err(error) => tracing::warn!(%error, "the connection to the manager failed"),
            }
        };
        if tokio::time::timeout(END_WITHIN, ending).await.is_err() {
            tracing::warn!("the last report did not reach the manager in time");
            task.abort();
        }
    }
}

#[derive(Debug)]
struct Outage {
    retry_at: Nanoseconds,
    backoff: Nanoseconds,
    /// The error of the last call.
    reason: String,
}

#[derive(Debug)]
struct ManagerConnection {
    client: Client,
    agent: Registration,
    node: NodeId,
    clock: Clock,
    /// Chunks that workloads of this node hold.
    lent: u32,
    /// Chunks that the manager knows of; changes during an outage are reported afterwards.
    reported: u32,
    outage: Option<Outage>,
    revisions: Revisions,
}

impl ManagerConnection {
    async fn run(
        mut self,
        mut inbox: mpsc::Receiver<ToManager>,
        outbox: mpsc::Sender<FromManager>,
    ) -> Self {
        while let Some(message) = inbox.recv().await {
            failpoint::pass("link");
            let answer = match message {
                ToManager::Report(progress, available, observed) => {
                    let next = self.revisions.next(&observed).await;
                    let next = next.map(|next| FromManager::Schedule(Box::new(next)));
                    if let Some(next) = next
                        && outbox.send(next).await.is_err()
                    {
                        break;
                    }
                    self.report(*progress, available, observed).await
                }
                ToManager::Ask(chunks) => Some(FromManager::Loan(self.ask(chunks).await)),
                ToManager::Peers(report) => self.peers(*report).await,
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
        progress: Progress,
        available: Option<Box<Available>>,
        observed: Box<Observed>,
    ) -> Option<FromManager> {
        if self.is_backing_off() {
            return None;
        }
        let (node, incarnation) = (self.node, self.agent.incarnation);
        let (observed, schedules) = (Some(observed), self.revisions.untold());
        let report = Report { node, incarnation, progress, available, observed, schedules };
        let answer = self.client.report(report).await;
        match self.note_answer(answer)? {
            Ok(Direction::Unknown) => self.register_again().await,
            Ok(direction) => {
                self.revisions.told();
                self.reconcile_loans().await;
                Some(FromManager::Direction(direction))
            }
            Err(error) => {
                tracing::warn!(%error, "the manager refuses a report");
                None
            }
        }
    }

    /// Tells the manager the address of this node. Returns the nodes of the job if they have changed, or the
    /// secret of the job if this node does not listen yet.
    async fn peers(&mut self, report: PeerReport) -> Option<FromManager> {
        if self.is_backing_off() {
            return None;
        }
        let answer = self.client.peers(self.node, self.agent.incarnation, report).await;
        match self.note_answer(answer)? {
            Ok(PeersAnswer::Changed(peers)) => Some(FromManager::Peers(Box::new(peers))),
            Ok(PeersAnswer::Same { secret }) => secret.map(|it| FromManager::Secret(Secret(it))),
            // The next report registers again.
            Ok(PeersAnswer::Unknown) => None,
            Err(error) => {
                tracing::debug!(%error, "the manager does not know of peers");
                None
            }
        }
    }

    async fn register_again(&mut self) -> Option<FromManager> {
        // Also if the manager takes this agent in, and its reply is lost.
        self.revisions.forgotten(None);
        self.reported = 0;
        let answer = self.client.register(&self.agent).await;
        match self.note_answer(answer)? {
            Ok(assignment) => {
                tracing::info!("registered with the manager again");
                // The schedule by which this node works stands; the next report tells it.
                self.revisions.forgotten(Some(assignment.schedule.generation));
                self.reconcile_loans().await;
                None
            }
            Err(error) => {
                tracing::warn!(%error, "the manager does not take this agent again");
                let is_over = error.remedy() == Remedy::Gone;
                let direction = if is_over { Direction::Drain } else { Direction::Superseded };
                Some(FromManager::Direction(direction))
            }
        }
    }

    async fn ask(&mut self, chunks: u32) -> Result<(), String> {
        let outcome =
            if self.is_backing_off() { Ok(()) } else { self.send(Loan::Ask(chunks)).await };
        if outcome.is_ok() {
            self.lent += chunks;
        }
        outcome
    }

    async fn give_back(&mut self, chunks: u32) {
        self.lent = self.lent.saturating_sub(chunks);
        self.reconcile_loans().await;
    }

    /// Reports changes that the manager has missed. The manager only counts; this node has decided.
    async fn reconcile_loans(&mut self) {
        let change = if self.reported > self.lent {
            Loan::Return(self.reported - self.lent)
        } else {
            Loan::Ask(self.lent - self.reported)
        };
        if self.reported == self.lent || self.is_backing_off() {
            return;
        }
        if let Err(error) = self.send(change).await {
            tracing::debug!(%error, "the manager counts loans in another way");
            self.reported = self.lent;
        }
    }

    /// Reports a loan to the manager. During an outage it is granted and reported later.
    async fn send(&mut self, loan: Loan) -> Result<(), String> {
        let (node, incarnation) = (self.node, self.agent.incarnation);
        let answer = self.client.memory(node, incarnation, loan).await;
        match self.note_answer(answer) {
            None => Ok(()),
            Some(Err(error)) => Err(error.to_string()),
            Some(Ok(())) => {
                self.reported = match loan {
                    Loan::Ask(chunks) => self.reported.saturating_add(chunks),
                    Loan::Return(chunks) => self.reported.saturating_sub(chunks),
                };
                Ok(())
            }
        }
    }

    async fn report_drained(self, progress: &Progress) {
        if self.outage.is_some() {
            return;
        }
        let (node, incarnation) = (self.node, self.agent.incarnation);
        if let Err(error) = self.client.drained(node, incarnation, progress.clone()).await {
            tracing::warn!(%error, "the last report did not reach the manager");
        }
    }

    /// Records whether the manager answered; `None` if it is lost.
    fn note_answer<T>(&mut self, answer: Result<T, CallError>) -> Option<Result<T, CallError>> {
        match answer {
            Err(error) if error.is_loss() => {
                self.note_outage(&error);
                None
            }
            answer => {
                if self.outage.take().is_some() {
                    tracing::info!("the manager is back");
                }
                Some(answer)
            }
        }
    }

    /// Logs the reason of an outage, and again if it changes: another manager may answer at the address.
    fn note_outage(&mut self, error: &CallError) {
        let reason = error.to_string();
        let backoff = match &self.outage {
            None => {
                tracing::warn!(%error, "the manager is lost; this node goes on without it");
                BACKOFF_MIN
            }
            Some(outage) => {
                if outage.reason != reason {
                    tracing::warn!(%error, "the manager is still lost");
                }
                Nanoseconds(outage.backoff.0.saturating_mul(2)).min(BACKOFF_MAX)
            }
        };
        let retry_at = Nanoseconds(self.clock.now().0 + backoff.0);
        self.outage = Some(Outage { retry_at, backoff, reason });
    }

    fn is_backing_off(&self) -> bool {
        self.outage.as_ref().is_some_and(|outage| self.clock.now() < outage.retry_at)
    }
}
