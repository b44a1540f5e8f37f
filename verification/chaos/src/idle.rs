//! `tierfeed-bench idle`: the CPU time of an agent whose trainers do nothing.

use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use tierfeed_harness::{
    clock::{now, pause},
    files,
    programs::Programs,
};

use crate::{
    arguments::IdleArguments,
    footprint::cpu_time,
    record,
    role::Role,
    supervisor::{Exits, Supervisor},
    testbed::{Setup, Testbed},
};

/// Share of a core that an idle agent may use.
const SHARE_MAX: f64 = 0.01;

/// Files of the dataset: enough for every batch that is staged ahead.
const FILES: u64 = 300;

/// A step that does not end while the agent is watched.
const STEP: Duration = Duration::from_secs(100_000);

/// Caches are filled and the first reports are sent within this time.
const SETTLE: Duration = Duration::from_secs(3);

const POLL_EVERY: Duration = Duration::from_millis(20);

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
pub(crate) fn run(arguments: &IdleArguments, programs: &Programs) -> anyhow::Result<Outcome> {
    files::in_folder(&arguments.output.folder(), |folder| {
        let testbed = Testbed::make(folder, Setup::plain(FILES))?;
        let mut supervisor = Supervisor::new(&testbed, programs, STEP);
        supervisor.start_all()?;
        for rank in testbed.world.ranks() {
            while record::read(&testbed.folder.record(rank))?.is_empty() {
                supervisor.restart_killed(Exits::Unexpected)?;
                pause(POLL_EVERY);
            }
        }
        pause(SETTLE);
        let cpu = |role| {
            let time = supervisor.pid(role).and_then(cpu_time);
            time.with_context(|| format!("{role} does not run any more"))
        };
        let (begin, agent, manager) = (now(), cpu(Role::Agent(0))?, cpu(Role::Manager)?);
        pause(Duration::from_nanos(arguments.time.0));
        let time_s = begin.elapsed().as_secs_f64();
        let agent_cpu_s = cpu(Role::Agent(0))?.saturating_sub(agent).as_secs_f64();
        let manager_cpu_s = cpu(Role::Manager)?.saturating_sub(manager).as_secs_f64();
        let (agent_share, share_max) = (agent_cpu_s / time_s, SHARE_MAX);
        Ok(Outcome { time_s, agent_cpu_s, manager_cpu_s, agent_share, share_max })
    })
}

pub(crate) fn text(outcome: &Outcome) -> String {
    let Outcome { time_s, agent_share, share_max, manager_cpu_s, .. } = outcome;
    format!(
        "idle for {time_s:.0} s with trainers attached: agent {:.2} % of a core, manager {:.2} %; at most \
         {:.0} %\n",
        1e2 * agent_share,
        1e2 * manager_cpu_s / time_s,
        1e2 * share_max,
    )
}
