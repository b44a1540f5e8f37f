//! `tierfeed-bench idle`: the CPU time of an agent whose trainers do nothing.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use serde::Serialize;
use tierfeed_harness::{files, programs::Programs};

use crate::{
    cast::{Cast, Endings},
    clock::{Clock, pause},
    footprint::cpu_time,
    part::{Part, RANKS},
    record,
    scene::Scene,
};

/// Share of a core that an idle agent may use.
pub(crate) const SHARE_MAX: f64 = 0.01;

/// Enough for every batch that is staged ahead.
const FILES: u64 = 300;

/// A step that does not end while we look.
const STEP: Duration = Duration::from_secs(100_000);

/// Caches fill and the first reports are sent before.
const SETTLE: Duration = Duration::from_secs(3);

const POLL_EVERY: Duration = Duration::from_millis(20);

/// What to run.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// What it starts.
    pub(crate) programs: Programs,
    /// Where files are made, and removed afterwards.
    pub(crate) folder: PathBuf,
    /// For how long the agent is watched.
    pub(crate) time: Duration,
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    /// For how long the agent was watched.
    pub(crate) time_s: f64,
    /// CPU time of the agent.
    pub(crate) agent_cpu_s: f64,
    /// CPU time of the manager.
    pub(crate) manager_cpu_s: f64,
    /// Of a core, by the agent.
    pub(crate) agent_share: f64,
    /// What is allowed.
    pub(crate) share_max: f64,
}

/// Attaches trainers that never finish their first step, and watches.
///
/// # Errors
///
/// If the folder cannot be written, or a process cannot be started or ends.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<Outcome> {
    files::in_folder(&settings.folder, |folder| {
        let scene = Scene::make(folder, FILES, None, None)?;
        let clock = Clock::start();
        let mut cast = Cast::new(settings.programs.clone(), clock, STEP);
        cast.begin(&scene)?;
        while (0..RANKS).any(|rank| record::served(&scene.record(rank)) == 0) {
            cast.supervise(&scene, Endings::Unexpected)?;
            pause(POLL_EVERY);
        }
        pause(SETTLE);
        let cpu = |part| {
            let time = cast.pid(part).and_then(cpu_time);
            time.with_context(|| format!("{} is not there any more", part.name()))
        };
        let (begin, agent, manager) = (clock.now(), cpu(Part::Agent)?, cpu(Part::Manager)?);
        pause(settings.time);
        let time = clock.since(begin).as_secs_f64();
        let agent = cpu(Part::Agent)?.saturating_sub(agent).as_secs_f64();
        let manager = cpu(Part::Manager)?.saturating_sub(manager).as_secs_f64();
        Ok(Outcome {
            time_s: time,
            agent_cpu_s: agent,
            manager_cpu_s: manager,
            agent_share: agent / time,
            share_max: SHARE_MAX,
        })
    })
}

/// The outcome for people.
#[must_use]
pub(crate) fn table(outcome: &Outcome) -> String {
    let percent = |of: f64| 100.0 * of / outcome.time_s;
    format!(
        "idle for {:.0} s with {RANKS} trainers attached: agent {:.2} % of a core, manager {:.2} %; \
         at most {:.0} %\n",
        outcome.time_s,
        percent(outcome.agent_cpu_s),
        percent(outcome.manager_cpu_s),
        100.0 * outcome.share_max
    )
}
