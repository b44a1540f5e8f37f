//! The end of an agent: its report, and everything it started brought to an end.

use std::time::Duration;

use tierfeed_core::{
    fleet,
    session::Progress,
    tier::Kind,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

use tokio::time::timeout;

use super::{Agent, AgentError};
use crate::{
    places::{Layout, Place},
    report::{Facts, Report, TierEntry},
    scratch::Scratch,
};

/// A read that hangs in the kernel cannot be called back, and the report must not wait for it.
const THREADS_END_WITHIN: Duration = Duration::from_secs(10);

/// Ends all threads and tasks, then writes the report.
pub(super) async fn conclude(agent: Agent) -> Result<Option<Report>, AgentError> {
    let Agent { server, clients, plane, link, mut lending, session, .. } = agent;
    // The thread of the hand-off may wait for a place in this queue.
    drop(clients);
    let ended = tokio::task::spawn_blocking(move || {
        server.shutdown();
        let usage = plane.usage();
        plane.shutdown();
        usage
    });
    lending.abort_all();
    let mut footprint = agent.footprint;
    match timeout(THREADS_END_WITHIN, ended).await {
        Ok(Ok(usage)) => footprint.note(&usage, agent.loans.granted()),
        Ok(Err(error)) => tracing::warn!(%error, "a thread did not end well"),
        Err(_) => {
            tracing::warn!("threads still wait for storage; the report is written without them");
        }
    }
    agent.observer.end();
    let scratch = agent.scratch.map(Scratch::end);
    let progress = session.progress();
    link.end(&summary(progress, &agent.layout)).await;
    if agent.is_superseded {
        return Ok(None);
    }
    let kinds: Vec<Kind> = agent.layout.places.iter().map(|it| it.settings.kind).collect();
    let order = agent.assignment.order;
    let speed = agent.job.dataset.speed;
    let facts = Facts {
        job: &agent.job.name,
        node: agent.assignment.node.0,
        generation: agent.assignment.generation,
        policy: agent.assignment.policy.name(),
        order,
        progress,
        wasted: session.wasted(),
        staged_batches: agent.assignment.staged_batches,
        chunk: agent.layout.chunk,
        session_tiers: &kinds,
        tiers: agent.layout.places.iter().map(entry).collect(),
        cold: speed.map_or(BytesPerSecond(0), |speed| speed.bandwidth),
        cold_store_emulated: speed.is_some(),
        cold_engine: &agent.cold_engine,
        cold_reads_at_a_time: session.cold_window() as u64,
        step_time: agent.job.step_time,
        wall: agent.training.map_or(Nanoseconds(0), super::trainers::Span::len),
        memory: footprint,
        scratch,
    };
    let report = Report::of(facts, &agent.published, |sample| agent.index.object_name(sample));
    report.write(&agent.run_dir.report())?;
    if let Err(error) = agent.published.clear() {
        tracing::debug!(%error, "published orders are left behind");
    }
    Ok(Some(report))
}

fn entry(place: &Place) -> TierEntry {
    TierEntry {
        name: place.settings.kind.name(),
        budget_bytes: place.budget.0,
        cache_bytes: place.cache.0,
        emulated: place.origin == fleet::Origin::Emulated,
        direct: place.direct.map(Into::into),
    }
}

/// What the manager is told.
pub(super) fn summary(progress: &Progress, layout: &Layout) -> fleet::Progress {
    let epochs = &progress.epochs;
    let sum = |of: fn(&tierfeed_core::session::EpochProgress) -> u64| epochs.iter().map(of).sum();
    let tier_read = |(at, place): (usize, &Place)| {
        let bytes = epochs.iter().filter_map(|epoch| epoch.from_tier.get(at));
        (place.settings.kind, Bytes(bytes.map(|bytes| bytes.0).sum()))
    };
    fleet::Progress {
        batches: sum(|epoch| epoch.batches),
        samples: sum(|epoch| epoch.samples),
        handed_over: Bytes(sum(|epoch| epoch.demand.0)),
        cold_read: Bytes(sum(|epoch| epoch.cold.0)),
        tier_read: layout.places.iter().enumerate().map(tier_read).collect(),
        stall: Nanoseconds(sum(|epoch| epoch.stall.0)),
        faults: progress.fault_count + progress.tier_faults,
    }
}
