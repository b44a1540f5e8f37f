//! `tierfeed plan --simulate --replay`: repeats a run by the schedules that were recorded.

use std::path::Path;

use tierfeed_core::{budget::Request, fleet::schedule::Figures, units::Nanoseconds};
use tierfeed_runtime::{predict::replay::Recorded, run_dir::RunDir};

use super::Plan;
use crate::{command::analyze::cold_speed, failure::Failure, jobs::SizedJob, output};

/// The exit code of a replay that decides otherwise than the run.
const DIFFERS: u8 = 1;

pub(super) fn run(arguments: &Plan, sized: &SizedJob, run_dir: &Path) -> Result<(), Failure> {
    super::require_computed(sized)?;
    let node = super::nodes(arguments, sized)?.ids().next().map_or(0, |id| id.0);
    let run_dir = RunDir::open(run_dir).map_err(Failure::input)?;
    let job = sized.job();
    let recorded = Recorded::read(&run_dir.schedule_log(), node).map_err(Failure::input)?;
    let cold = cold_speed(job, &arguments.cold, &Figures::default());
    let site = recorded.site(&sized.demand, cold);
    let step_time = arguments.steps.step_time.or(job.step_time);
    let pause = job.trainer.pause.map(|pause| pause.in_steps(sized.order.steps_per_epoch()));
    let model = tierfeed_core::simulator::Model {
        pause,
        ..site.model(step_time.unwrap_or(Nanoseconds(0)))
    };
    let report = run_dir.report();
    let lengths = sized.lengths();
    let replay = recorded.replay(job, sized.order, lengths, &site, &model, &report);
    if arguments.json {
        output::json(&replay)?;
    } else {
        replay.lines().iter().try_for_each(|line| output::lines(line))?;
        if job.tiers.iter().any(|tier| matches!(tier.budget, Request::Share(_))) {
            output::lines(
                "a tier with reserve adapts to free memory, which is not recorded: then decisions may differ",
            )?;
        }
    }
    if replay.equal == Some(false) { Err(Failure::Passed(DIFFERS, None)) } else { Ok(()) }
}
