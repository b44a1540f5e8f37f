//! The transform in the report: what was made of samples, by how many threads, and in which form tiers held them.

use std::collections::BTreeMap;

use serde::Serialize;
use tierfeed_core::{
    session::{EpochProgress, Form},
    units::{Bytes, Nanoseconds, float},
};
use tierfeed_prefetcher::transforms::Counts;

use super::seconds;

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TransformEntry {
    /// Workers, which have a thread each.
    pub threads: u32,
    /// The form in which tiers hold samples: `stored` or `prepared`.
    pub cached: &'static str,
    pub cached_because: String,
    /// The modes of the job that are quicker than exact.
    pub quick_modes: Vec<&'static str>,
    /// Samples that became rows, as often as they were read.
    pub samples: u64,
    /// Those of them that came in the prepared form.
    pub prepared_samples: u64,
    /// Samples that did not become rows.
    pub failed: u64,
    /// Those of them that are no good, by the reason: `damaged`, `too-large`, `unsuitable`, `out-of-memory`,
    /// `crashed` or `timed-out`.
    pub failed_for: BTreeMap<&'static str, u64>,
    pub read_bytes: u64,
    pub row_bytes: u64,
    /// Processor time that all workers needed for samples.
    pub thread_s: f64,
    /// How long workers had samples in all: longer than `thread_s` if they waited for a core.
    pub held_s: f64,
    /// Cores that `thread_s` kept busy on average, while the job trained.
    pub busy_cores: f64,
    /// Workers that were started: those of the start, and one for each that ended.
    pub workers_started: u64,
    /// Workers that ended by themselves, or by another process.
    pub workers_crashed: u64,
    /// Workers that were ended because a sample took too long.
    pub workers_timed_out: u64,
}

impl TransformEntry {
    /// The figures of the workers and of all epochs.
    #[must_use]
    pub fn of(counts: &Counts, total: &EpochProgress, wall: Nanoseconds) -> Self {
        let [stored, prepared] = total.transforms;
        let thread_s = seconds(Nanoseconds(stored.time.0.saturating_add(prepared.time.0)));
        Self {
            samples: stored.samples + prepared.samples,
            prepared_samples: prepared.samples,
            failed: stored.failed + prepared.failed,
            failed_for: counts.rejections().collect(),
            read_bytes: stored.read.0 + prepared.read.0,
            row_bytes: stored.made.0 + prepared.made.0,
            thread_s,
            held_s: counts.held.as_secs_f64(),
            busy_cores: thread_s / seconds(wall).max(1e-9),
            workers_started: counts.started,
            workers_crashed: counts.crashed,
            workers_timed_out: counts.timed_out,
            ..Self::default()
        }
    }

    pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
        let exact = self.quick_modes.is_empty();
        let mut rows = vec![
            (
                "rows made",
                format!("{}, {} of them of prepared samples", self.samples, self.prepared_samples),
            ),
            (
                "read, and written as rows",
                format!("{}, {}", Bytes(self.read_bytes), Bytes(self.row_bytes)),
            ),
            (
                "processor time",
                format!(
                    "{:.2} s by {} workers, which had samples for {:.2} s; {:.2} cores busy",
                    self.thread_s, self.threads, self.held_s, self.busy_cores
                ),
            ),
            ("samples in tiers", format!("{}: {}", self.cached, self.cached_because)),
            ("pixels", if exact { "exact".to_owned() } else { self.quick_modes.join(", ") }),
            (
                "workers started",
                format!(
                    "{}; {} crashed, {} took too long",
                    self.workers_started, self.workers_crashed, self.workers_timed_out
                ),
            ),
            ("samples that became no row", self.failed.to_string()),
        ];
        let per_row = (self.samples > 0).then(|| self.thread_s * 1e3 / float(self.samples));
        rows.extend(per_row.map(|time| ("processor time of a row", format!("{time:.3} ms"))));
        rows.extend(self.failed_for.iter().map(|(reason, count)| (*reason, count.to_string())));
        rows
    }

    fn reasons(&self) -> String {
        let of = self.failed_for.iter().map(|(reason, count)| format!("{count} {reason}"));
        of.collect::<Vec<_>>().join(", ")
    }

    pub(super) fn line(&self) -> String {
        let Self { threads, samples, thread_s, busy_cores, cached, .. } = self;
        let made = format!(
            "transform: {samples} samples in {thread_s:.1} s of {threads} threads, {busy_cores:.1} cores busy"
        );
        let form = Form::ALL.into_iter().find(|form| form.name() == *cached);
        let restriction = form.and_then(Form::restriction).map(|it| format!(", and {it}"));
        let restriction = restriction.unwrap_or_default();
        let held = format!("tiers hold {cached} samples ({}){restriction}", self.cached_because);
        let quick = !self.quick_modes.is_empty();
        let quick = quick.then(|| format!("not exact: {}", self.quick_modes.join(", ")));
        let ended = self.workers_crashed + self.workers_timed_out;
        let ended = (ended > 0).then(|| {
            let timed_out = self.workers_timed_out;
            format!(
                "{ended} workers were replaced, {timed_out} of them for a sample that took too long"
            )
        });
        let failed = (self.failed > 0).then(|| {
            let of = self.reasons();
            let of = if of.is_empty() { of } else { format!(" ({of})") };
            format!("{} samples became no row{of}", self.failed)
        });
        let parts = [Some(made), Some(held), quick, ended, failed];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}
