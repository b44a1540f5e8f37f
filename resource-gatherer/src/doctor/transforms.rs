//! Judges what agents and trainers need to make rows of samples.

use super::{Facts, Finding, FixPlace};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransformWorker {
    /// Whether it started and made a row of an image, or why not.
    pub made_row: Result<(), String>,
    /// Whether the kernel can close files and connections to it.
    pub has_landlock: bool,
    /// Workers that an agent with one trainer starts unless the job says another number.
    pub threads: usize,
}

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    facts
        .transform_worker
        .iter()
        .flat_map(|it| [starts(it), is_confined(it), threads(it)])
        .collect()
}

fn starts(worker: &TransformWorker) -> Finding {
    const SUBJECT: &str = "transform worker";
    match &worker.made_row {
        Ok(()) => Finding::ok(SUBJECT, "it started, and made a row of an image"),
        Err(why) => Finding::ok(SUBJECT, why)
            .missing("agents and trainers of jobs with a transform cannot start"),
    }
}

fn is_confined(worker: &TransformWorker) -> Finding {
    const SUBJECT: &str = "transform worker confined";
    if worker.has_landlock {
        return Finding::ok(SUBJECT, "the kernel has Landlock");
    }
    Finding::ok(SUBJECT, "the kernel has no Landlock, or it is off")
        .degraded("a hostile sample that takes over a decoder can open files and connections")
        .fix(FixPlace::Boot, "lsm=landlock in front of the other names, from Linux 5.13 on")
}

fn threads(worker: &TransformWorker) -> Finding {
    let count = worker.threads;
    let found = format!("{count} beside one trainer, by affinity and control group");
    Finding::ok("transform threads", found)
}
