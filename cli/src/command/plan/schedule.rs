//! `tierfeed plan --schedule`: what the manager gives the agent of a node like this one.

use serde::Serialize;
use tierfeed_runtime::{
    layout::Node,
    observe::schedule::ScheduleEntry,
    schedule::{self, Terms},
};

use crate::{
    arguments::Plan,
    command::analyze::{found, placed},
    failure::Failure,
    jobs::SizedJob,
    output,
};

#[derive(Serialize)]
struct Document<'a> {
    job: &'a str,
    node: u32,
    policy: &'static str,
    schedule: ScheduleEntry,
}

pub(super) fn run(arguments: &Plan, sized: &SizedJob, node: &Node) -> Result<(), Failure> {
    let nodes = super::nodes(arguments, sized)?;
    let number = nodes.ids().next().map_or(0, |id| id.0);
    let (job, file) = (sized.job(), &sized.file);
    let offer = found(file, &sized.demand, node)?.offer();
    let schedule = schedule::of(&Terms::of(job, &sized.demand), &offer)
        .map_err(|error| placed(file, error.into()))?;
    let schedule = ScheduleEntry::of(&schedule, &offer);
    if arguments.json {
        let policy = job.policy.name();
        return output::json(&Document { job: &job.name, node: number, policy, schedule });
    }
    output::lines(&format!("job {}, node {number}, policy {}", job.name, job.policy))?;
    output::lines(&schedule.table())
}
