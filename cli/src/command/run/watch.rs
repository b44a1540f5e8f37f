//! Tells the manager of a job how far the training of this node is, and hears when the job ends elsewhere.

use std::time::Duration;

use tierfeed_core::{
    fleet::training::{Outlook, Stage},
    id::NodeId,
};
use tierfeed_runtime::rpc::client::Client;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};

/// How often the manager is told.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// How long a node that ends tries to say so.
const SAID_WITHIN: Duration = Duration::from_secs(3);

/// The training of this node, as the manager hears of it.
#[derive(Debug)]
pub(super) struct TrainingWatch {
    client: Client,
    node: NodeId,
    ends_with: watch::Receiver<Option<u8>>,
    telling: JoinHandle<()>,
}

impl TrainingWatch {
    /// Says from now on that this node trains.
    pub(super) fn start(client: Client, node: NodeId) -> Self {
        let (sender, ends_with) = watch::channel(None);
        let mut own = client.clone();
        let telling = tokio::spawn(async move {
            loop {
                // A manager that is lost does not end a training.
                if let Ok(told) = own.training(node, Stage::Running, Vec::new()).await {
                    sender.send_replace(told.outlook.ends_with);
                }
                tokio::time::sleep(TELL_EVERY).await;
            }
        });
        Self { client, node, ends_with, telling }
    }

    /// Waits until a rank of another node has failed; returns its exit code.
    pub(super) fn fails_elsewhere(&self) -> impl Future<Output = u8> + use<> {
        let mut ends_with = self.ends_with.clone();
        async move {
            let code = ends_with.wait_for(Option::is_some).await.ok().and_then(|it| *it);
            match code {
                Some(code) => code,
                None => std::future::pending().await,
            }
        }
    }

    /// Says that the training of this node has ended, and sums it up.
    pub(super) async fn end(mut self, code: u8, summary: Vec<u8>) -> Ended {
        self.telling.abort();
        let until = Instant::now() + SAID_WITHIN;
        let outlook = loop {
            match self.client.training(self.node, Stage::Ended { code }, summary.clone()).await {
                Ok(told) => break Some(told.outlook),
                Err(error) if Instant::now() >= until => {
                    tracing::warn!(%error, "the manager does not know that this node has ended");
                    break None;
                }
                Err(_) => tokio::time::sleep(TELL_EVERY / 2).await,
            }
        };
        Ended { client: self.client, node: self.node, code, summary, outlook }
    }
}

/// The training of this node after its end.
#[derive(Debug)]
pub(super) struct Ended {
    client: Client,
    node: NodeId,
    code: u8,
    summary: Vec<u8>,
    outlook: Option<Outlook>,
}

impl Ended {
    /// The code with which the job ends, as far as it is known.
    pub(super) fn job_code(&self) -> Option<u8> {
        self.outlook?.ends_with
    }

    /// Waits until no node trains any more, at most `within` if the job has failed.
    pub(super) async fn others(&mut self, within: Duration) {
        let began = Instant::now();
        while self.outlook.is_some_and(|it| !it.is_over) {
            let has_failed = self.job_code().is_some();
            if has_failed && began.elapsed() >= within {
                tracing::warn!("some nodes still train, though a rank of the job has failed");
                return;
            }
            tokio::time::sleep(TELL_EVERY).await;
            let stage = Stage::Ended { code: self.code };
            let told = self.client.training(self.node, stage, self.summary.clone());
            if let Ok(Ok(told)) = timeout(SAID_WITHIN, told).await {
                self.outlook = Some(told.outlook);
            }
        }
    }
}
