//! `tierfeed-bench idle`: the CPU time of an agent whose trainers do nothing.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use serde::Serialize;
use tierfeed_harness::{clock::pause, files, programs::Programs};

use crate::{
    clock::Clock,
    footprint::cpu_time,
    record,
    role::{Role, World},
    samples::Samples,
    supervisor::{Exits, Supervisor},
    testbed::{Setup, Testbed},
};

/// Share of a core that an idle agent may use.
pub(crate) const SHARE_MAX: f64 = 0.01;

/// Files of the dataset: enough for every batch that is staged ahead.
const FILES: u64 = 300;

/// A step that does not end while the agent is watched.
const STEP: Duration = Duration::from_secs(100_000);

/// Caches are filled and the first reports are sent within this time.
const SETTLE: Duration = Duration::from_secs(3);

const POLL_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) programs: Programs,
    pub(crate) folder: PathBuf,
    pub(crate) time: Duration,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) time_s: f64,
    pub(crate) agent_cpu_s: f64,
    pub(crate) manager_cpu_s: f64,
    pub(crate) agent_share: f64,
    pub(crate) share_max: f64,
}

/// Attaches trainers that never finish their first step, and watches.
///
/// # Errors
///
/// If the folder cannot be written, or a process cannot be started or ends.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<Outcome> {
    files::in_folder(&settings.folder, |folder| {
        let world = World::ONE_NODE;
        let setup =
            Setup { world, files: FILES, server: None, memory: None, samples: Samples::Noise };
        let testbed = Testbed::make(folder, setup)?;
        let clock = Clock::start();
        let mut supervisor = Supervisor::new(settings.programs.clone(), world, clock, STEP);
        supervisor.start_all(&testbed)?;
        while world.ranks().any(|rank| record::served(&testbed.record(rank)) == 0) {
            supervisor.restart_killed(&testbed, Exits::Unexpected)?;
            pause(POLL_EVERY);
        }
        pause(SETTLE);
        let cpu = |role| {
            let time = supervisor.pid(role).and_then(cpu_time);
            time.with_context(|| format!("{} does not run any more", role.name()))
        };
        let (begin, agent, manager) = (clock.now(), cpu(Role::Agent(0))?, cpu(Role::Manager)?);
        pause(settings.time);
        let time = clock.since(begin).as_secs_f64();
        let agent = cpu(Role::Agent(0))?.saturating_sub(agent).as_secs_f64();
        let manager = cpu(Role::Manager)?.saturating_sub(manager).as_secs_f64();
        Ok(Outcome {
            time_s: time,
            agent_cpu_s: agent,
            manager_cpu_s: manager,
            agent_share: agent / time,
            share_max: SHARE_MAX,
        })
    })
}

#[must_use]
pub(crate) fn table(outcome: &Outcome) -> String {
    let percent = |of: f64| 100.0 * of / outcome.time_s;
    format!(
        "idle for {:.0} s with {ranks} trainers attached: agent {:.2} % of a core, manager {:.2} %; \
         at most {:.0} %\n",
        outcome.time_s,
        percent(outcome.agent_cpu_s),
        percent(outcome.manager_cpu_s),
        100.0 * outcome.share_max,
        ranks = World::ONE_NODE.ranks().len(),
    )
}
