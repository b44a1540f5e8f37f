//! An agent without trainers.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use tierfeed_core::{
    fleet::{
        Origin, Progress, Registration,
        schedule::{Device, Figures, FoundTier, Location, Offer},
    },
    id::{Epoch, NodeId},
    retention::in_place::SpeedOrigin,
    session::{Observed, ObservedLink, Supply},
    tier::Kind,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_harness::clock::now;
use tierfeed_runtime::{
    rpc::{
        call::{Remedy, Report},
        client::{Address, CallError, Client},
    },
    transport::token::Token,
};
use tokio::time::{MissedTickBehavior, interval_at, sleep};

const REPORT_EVERY: Duration = Duration::from_millis(500);

const RETRY_AFTER: Duration = Duration::from_millis(250);

/// Attempts to connect, [`RETRY_AFTER`] apart.
const TRIES: u32 = 240;

const SECOND: Nanoseconds = Nanoseconds(1_000_000_000);

pub(super) struct Agent {
    node: NodeId,
    client: Client,
    /// Time until it had joined.
    pub(super) joined: Duration,
    /// Connections that failed before.
    pub(super) retries: u64,
}

impl Agent {
    pub(super) async fn join(
        node: u32,
        address: &Address,
        token: &Token,
        began: Instant,
    ) -> anyhow::Result<Self> {
        let node = NodeId(node);
        let mut retries = 0;
        loop {
            match Self::try_join(node, address, token).await {
                Ok(client) => {
                    return Ok(Self { node, client, joined: began.elapsed(), retries });
                }
                Err(error) if error.remedy() == Remedy::Retry && retries < u64::from(TRIES) => {
                    retries += 1;
                    sleep(RETRY_AFTER).await;
                }
                Err(error) => return Err(error).context(format!("agent {}", node.0)),
            }
        }
    }

    async fn try_join(node: NodeId, address: &Address, token: &Token) -> Result<Client, CallError> {
        let client = Client::connect(address, Some(token)).await?;
        client.job().await?;
        let home = u64::from(node.0) + 1;
        client.register(&Registration { node, home, incarnation: home, offer: offer() }).await?;
        Ok(client)
    }

    /// Reports for `length`; returns how long each report took, in milliseconds.
    pub(super) async fn report(self, length: Duration) -> anyhow::Result<Vec<f64>> {
        let mut times_ms = Vec::new();
        // Agents start at any moment of a period.
        let offset = REPORT_EVERY.mul_f64(f64::from(self.node.0 % 97) / 97.0);
        let mut ticks = interval_at(tokio::time::Instant::from_std(now()) + offset, REPORT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let until = now() + length;
        while now() < until {
            ticks.tick().await;
            let began = now();
            let incarnation = u64::from(self.node.0) + 1;
            let report = Report::of_progress(self.node, incarnation, Progress::default());
            let report = Report { observed: Some(Box::new(observed())), ..report };
            self.client.report(report).await.with_context(|| format!("agent {}", self.node.0))?;
            times_ms.push(began.elapsed().as_secs_f64() * 1e3);
        }
        Ok(times_ms)
    }
}

fn figures(bandwidth: u64) -> Figures {
    let (latency, bandwidth) = (Some(Nanoseconds(1_000)), Some(BytesPerSecond(bandwidth)));
    Figures { latency, bandwidth, from: "bench".into(), is_rough: false }
}

/// Main memory, and memory behind CXL.
fn offer() -> Offer {
    let tier = |kind, location, bandwidth| FoundTier {
        kind,
        origin: Origin::Real,
        location,
        device: Device::Own,
        budget: Bytes::mib(4_096),
        beside: Bytes(0),
        figures: figures(bandwidth),
        pace: SpeedOrigin::Own,
        reads: None,
        writes: None,
    };
    let memory = tier(Kind::MainMemory, Location::Memory, 10_000_000_000);
    let numa = Location::NumaNode(tierfeed_core::id::NumaNode(2));
    let card = tier(Kind::CxlMemory, numa, 5_000_000_000);
    Offer { tiers: vec![memory, card], cold: figures(1_300_000_000), transform: None }
}

fn observed() -> Observed {
    let cold = BytesPerSecond(1_300_000_000);
    let supply = Supply {
        epoch: Bytes(100_000_000_000),
        capacity: Bytes::mib(8_192),
        staged: Bytes(0),
        hits: 20_000,
        cold,
    };
    let link = ObservedLink {
        bytes: Bytes(cold.0),
        operations: 1_000,
        busy: SECOND,
        in_flight: SECOND,
        ..ObservedLink::default()
    };
    let (planned, tiers) = (Epoch(1), vec![link, link]);
    let transforms = Default::default();
    Observed {
        planned,
        cold: link,
        tiers,
        transforms,
        load: None,
        cycle: None,
        supply: Some(supply),
    }
}
