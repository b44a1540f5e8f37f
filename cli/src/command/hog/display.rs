//! The display of a hog: a bar on a terminal, else log lines; a sentence at the end.

use anyhow::anyhow;
use indicatif::{ProgressBar, ProgressStyle};
use tierfeed_core::units::{Bytes, Nanoseconds};
use tierfeed_resource_gatherer::hog::{Goal, Hog, KeptBy, Reason, Report};

use crate::output;

#[derive(Debug)]
pub(super) struct Display {
    bar: ProgressBar,
    said: Option<Goal>,
    warned: bool,
}

impl Display {
    pub(super) fn new() -> Self {
        let bar = output::bar();
        let style =
            ProgressStyle::with_template("{msg} [{wide_bar}] {binary_bytes}/{binary_total_bytes}")
                .expect("the template is a constant that every hog draws");
        bar.set_style(style);
        Self { bar, said: None, warned: false }
    }

    pub(super) fn show(&mut self, hog: &Hog, now: Nanoseconds) {
        let held = hog.held();
        self.bar.set_length(hog.target(now).0.max(held.0));
        self.bar.set_position(held.0);
        let goal = hog.goal(now).filter(|_| hog.has_started());
        self.bar.set_message(if goal.is_some() { "holding" } else { "taking" });
        if let Some(goal) = goal
            && self.said != Some(goal)
        {
            self.said = Some(goal);
            let locked = hog.locked();
            self.bar.suspend(|| tracing::info!(%held, %locked, %goal, "memory is held"));
        }
        let for_others = hog.record().given_back.iter().find(|given| given.reason != Reason::Goal);
        if let Some(given) = for_others
            && !self.warned
        {
            self.warned = true;
            let reason = given.reason;
            self.bar.suspend(|| tracing::info!(%held, "memory is given back: {reason}"));
        }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

pub(super) fn summarize(report: &Report) {
    let Some(after_s) = report.record.held_after_s else { return };
    let kept = match (report.kept_by, &report.lock_refusal) {
        (KeptBy::Locking, _) => "locked".to_owned(),
        (KeptBy::Touching, None) => "not locked, touched every 30 s".to_owned(),
        (KeptBy::Touching, Some(why)) => {
            format!("{} locked ({why}), the rest touched every 30 s", Bytes(report.locked_bytes))
        }
    };
    let to_others = report
        .record
        .given_back
        .iter()
        .filter(|given| matches!(given.reason, Reason::OthersGrew | Reason::Pressure));
    eprintln!(
        "held {} ({kept}) for {:.1} s after {after_s:.1} s; others could take {}; {} of it were given \
         back to them meanwhile; now they can take {}",
        Bytes(report.held_bytes_final),
        report.held_for_s,
        Bytes(report.available_bytes_final),
        Bytes(to_others.map(|given| given.bytes).sum()),
        Bytes(report.available_bytes_after),
    );
}

pub(super) fn unreached(report: &Report) -> anyhow::Error {
    let refusal =
        report.record.refusal.as_deref().map_or_else(String::new, |said| format!("; {said}"));
    anyhow!(
        "only {} could be held: others can take {}, of which {} stay with them{refusal}",
        Bytes(report.record.held_bytes_max),
        Bytes(report.available_bytes_final),
        Bytes(report.floor_bytes),
    )
}
