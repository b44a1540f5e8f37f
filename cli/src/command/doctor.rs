//! `tierfeed doctor`: what tierfeed can use of this host, what not, and the fix.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
};

use anyhow::anyhow;
use clap::Args;
use serde::Serialize;
use tierfeed_core::id::{Epoch, SampleId};
use tierfeed_prefetcher::transforms::{Rows, auto_threads};
use tierfeed_resource_gatherer::{
    Sysroot,
    doctor::{self, Facts, Finding, State, TransformWorker},
    report::Style,
};
use tierfeed_transform::{Pipeline, PipelineFile, worker_process::Program, worker_protocol::Setup};
use tierfeed_transform_worker::has_landlock;

use crate::{environment, failure::Failure, output};

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// A dataset, or a file of it: says how it would be read; may be given several times [default: tried in
    /// the directory for storage].
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Vec<PathBuf>,
    /// Ends with code 1 if anything is missing.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Prints the findings as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    host: &'a str,
    kernel: &'a str,
    in_container: bool,
    count: Count,
    findings: &'a [Finding],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Count {
    ok: usize,
    degraded: usize,
    missing: usize,
}

pub(crate) fn run(arguments: &Doctor) -> Result<(), Failure> {
    if let Some(missing) = arguments.path.iter().find(|path| !path.exists()) {
        return Err(Failure::Input(anyhow!(
            "--path: {} is not there; name a file or a directory of a dataset",
            missing.display()
        )));
    }
    let facts = Facts::gather(Sysroot::live())?;
    let facts = facts.with_transform_worker(try_transform_worker());
    let facts = match arguments.path.as_slice() {
        [] => facts,
        paths => facts.with_cold_files(paths),
    };
    let findings = doctor::diagnose(&facts);
    let count = Count::of(&findings);
    if arguments.json {
        output::json(&Document {
            host: &facts.inventory.host,
            kernel: &facts.kernel,
            in_container: facts.in_container,
            count,
            findings: &findings,
        })?;
    } else {
        output::lines(&table(&findings, count, output::style()))?;
    }
    match count.missing {
        missing if arguments.strict && missing > 0 => {
            Err(Failure::Work(anyhow!("{missing} of {} subjects are missing", findings.len())))
        }
        _ => Ok(()),
    }
}

impl Count {
    fn of(findings: &[Finding]) -> Self {
        let of = |state| findings.iter().filter(|finding| finding.state == state).count();
        Self { ok: of(State::Ok), degraded: of(State::Degraded), missing: of(State::Missing) }
    }
}

fn table(findings: &[Finding], count: Count, style: Style) -> String {
    let width = findings.iter().map(|finding| finding.subject.len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    let mut line = |line: String| lines.push(line.trim_end().to_owned());
    for finding in findings {
        let state = state(finding.state, style);
        line(format!("{state}  {:<width$}  {}", finding.subject, finding.found));
        let indented = |line: &str| format!("{:STATE_WIDTH$}  {:width$}  {line}", "", "");
        if let Some(consequence) = finding.consequence {
            line(indented(&format!("so {consequence}")));
        }
        for fix in &finding.fixes {
            line(indented(&format!("fix ({}): {}", fix.place.name(), fix.setting)));
        }
    }
    let Count { ok, degraded, missing } = count;
    line(format!("{ok} ok, {degraded} degraded, {missing} missing"));
    lines.join("\n")
}

const STATE_WIDTH: usize = "degraded".len();

fn state(state: State, style: Style) -> String {
    let (word, code) = match state {
        State::Ok => ("ok", 32),
        State::Degraded => ("degraded", 33),
        State::Missing => ("missing", 31),
    };
    match style {
        Style::Coloured => format!("\u{1b}[{code}m{word:<STATE_WIDTH$}\u{1b}[0m"),
        Style::Plain => format!("{word:<STATE_WIDTH$}"),
    }
}

/// A PNG of 2 x 2 pixels: red and green above blue and white.
const IMAGE: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52,
    0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x02, 0x08, 0x02, 0x00, 0x00, 0x00, 0xfd, 0xd4, 0x9a,
    0x73, 0x00, 0x00, 0x00, 0x12, 0x49, 0x44, 0x41, 0x54, 0x78, 0xda, 0x63, 0xf8, 0xcf, 0xc0, 0xc0,
    0x00, 0xc2, 0x0c, 0xff, 0x81, 0x00, 0x00, 0x1f, 0xee, 0x05, 0xfb, 0xf1, 0xab, 0xba, 0x77, 0x00,
    0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
];

/// The pixels of [`IMAGE`].
const ROW: [u8; 12] = [255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255];

const STEPS: &str = r#"{ "steps": [{ "resize": [2, 2] }, { "layout": "hwc" }] }"#;

/// Tries a transform worker: whether it starts here, and makes a row of an image.
fn try_transform_worker() -> TransformWorker {
    TransformWorker {
        made_row: make_row_blocking(),
        has_landlock: has_landlock(),
        threads: auto_threads(NonZeroU32::MIN).get(),
    }
}

fn make_row_blocking() -> Result<(), String> {
    let file: PipelineFile = serde_json::from_str(STEPS).map_err(|error| error.to_string())?;
    let pipeline = Pipeline::try_new(&file).map_err(|error| error.to_string())?;
    let program = environment::exe().map_err(|error| error.to_string())?;
    let (program, setup) = (Program::tierfeed(program), Setup::of(&pipeline, 0));
    let rows = Rows::start_blocking(program, setup, pipeline.row_bytes(), NonZeroUsize::MIN);
    let rows = rows.map_err(|error| error.to_string())?;
    let row = rows.of_sample_blocking(SampleId(0), Epoch(0), IMAGE);
    let row = row.map_err(|error| error.to_string())?;
    if row == ROW { Ok(()) } else { Err(format!("it made {row:?} of an image of {ROW:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Vec<Finding> {
        doctor::diagnose(&Facts::default())
    }

    #[test]
    fn a_table_has_no_colour_unless_it_is_asked_for() {
        let findings = findings();
        let count = Count::of(&findings);
        assert!(!table(&findings, count, Style::Plain).contains('\u{1b}'));
        let coloured = table(&findings, count, Style::Coloured);
        assert_eq!(coloured.matches("\u{1b}[31m").count(), count.missing);
        assert_eq!(count.ok + count.degraded + count.missing, findings.len());
    }

    #[test]
    fn every_fix_stands_below_its_finding() {
        let findings = findings();
        let text = table(&findings, Count::of(&findings), Style::Plain);
        let fixes: usize = findings.iter().map(|finding| finding.fixes.len()).sum();
        assert!(fixes > 0);
        assert_eq!(text.matches("fix (").count(), fixes);
        assert!(text.lines().all(|line| line == line.trim_end()));
    }
}
