//! Tells the manager of a job how far the training of this node is, and hears when the job ends elsewhere.

use std::time::Duration;

use tierfeed_core::{
    fleet::training::{Cause, Outlook, Stage},
    id::NodeId,
};
use tierfeed_runtime::{observe::report::NodeSummary, rpc::client::Client};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};

use super::ending::stopped;

const TELL_EVERY: Duration = Duration::from_millis(500);

/// How long a node that ends tries to say so.
const SAID_WITHIN: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct TrainingWatch {
    client: Client,
    node: NodeId,
    ends: watch::Receiver<Option<Cause>>,
    telling: JoinHandle<()>,
}

impl TrainingWatch {
    /// Says from now on that this node trains.
    pub(super) fn start(client: Client, node: NodeId) -> Self {
        let (sender, ends) = watch::channel(None);
        let own = client.clone();
        let telling = tokio::spawn(async move {
            loop {
                // A manager that is lost does not end a training.
                if let Ok(told) = own.training(node, Stage::Running, None).await {
                    sender.send_replace(told.outlook.ends);
                }
                tokio::time::sleep(TELL_EVERY).await;
            }
        });
        Self { client, node, ends, telling }
    }

    /// Waits until ranks of another node have failed, or ended because they were asked to.
    pub(super) fn ends_elsewhere(&self) -> impl Future<Output = Cause> + use<> {
        let mut ends = self.ends.clone();
        async move { stopped(&mut ends).await }
    }

    /// Says that the training of this node has ended, and sums it up.
    pub(super) async fn end(self, cause: Option<Cause>, summary: NodeSummary) -> Ended {
        self.telling.abort();
        let until = Instant::now() + SAID_WITHIN;
        let outlook = loop {
            match self.client.training(self.node, Stage::Ended(cause), Some(summary.clone())).await
            {
                Ok(told) => break Some(told.outlook),
                Err(error) if Instant::now() >= until => {
                    tracing::warn!(%error, "the manager does not know that this node has ended");
                    break None;
                }
                Err(_) => tokio::time::sleep(TELL_EVERY / 2).await,
            }
        };
        Ended { client: self.client, node: self.node, cause, summary, outlook }
    }
}

#[derive(Debug)]
pub(super) struct Ended {
    client: Client,
    node: NodeId,
    cause: Option<Cause>,
    summary: NodeSummary,
    outlook: Option<Outlook>,
}

impl Ended {
    pub(super) fn of_job(&self) -> Option<Cause> {
        self.outlook?.ends
    }

    /// Waits until no node trains any more, at most `within` if the job has ended before its time.
    pub(super) async fn others(&mut self, within: Option<Duration>) {
        let began = Instant::now();
        while self.outlook.is_some_and(|it| !it.is_over) {
            let has_failed = self.of_job().is_some();
            if has_failed && within.is_some_and(|within| began.elapsed() >= within) {
                tracing::warn!("some nodes still train, though the job has ended");
                return;
            }
            tokio::time::sleep(TELL_EVERY).await;
            let stage = Stage::Ended(self.cause);
            let told = self.client.training(self.node, stage, Some(self.summary.clone()));
            if let Ok(Ok(told)) = timeout(SAID_WITHIN, told).await {
                self.outlook = Some(told.outlook);
            }
        }
    }
}
