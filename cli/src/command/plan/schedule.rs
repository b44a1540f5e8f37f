//! `tierfeed plan --schedule`: what the manager gives the agent of a node like this one.

use serde::Serialize;
use tierfeed_runtime::{observe::schedule::ScheduleEntry, schedule};

use super::Plan;
use crate::{
    command::machine::{Machine, MachineName},
    failure::Failure,
    jobs::SizedJob,
    output,
};

#[derive(Serialize)]
struct Document<'a> {
    job: &'a str,
    /// `None` for this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<&'a MachineName>,
    node: u32,
    policy: &'static str,
    schedule: ScheduleEntry,
}

pub(super) fn run(arguments: &Plan, sized: &SizedJob, machine: &Machine) -> Result<(), Failure> {
    let nodes = super::nodes(arguments, sized)?;
    let number = nodes.ids().next().map_or(0, |id| id.0);
    let (job, file) = (sized.job(), &sized.file);
    let offer = machine.found(file, &sized.demand)?.offer();
    let schedule = schedule::of(job, &sized.demand, &offer)
        .map_err(|error| machine.placed(file, error.into()))?;
    let schedule = ScheduleEntry::of(&schedule, &offer);
    if arguments.json {
        let policy = job.policy.name();
        let machine = machine.name.as_ref();
        return output::json(&Document { job: &job.name, machine, node: number, policy, schedule });
    }
    if let Some(name) = &machine.name {
        output::lines(&name.text)?;
    }
    output::lines(&format!("job {}, node {number}, policy {}", job.name, job.policy))?;
    output::lines(&schedule.table())
}
