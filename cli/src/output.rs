//! Output for people and programs: a JSON document, tables, progress bars, logs.

use std::{
    io::{self, IsTerminal, Write},
    sync::OnceLock,
    time::Duration,
};

use anyhow::Context;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tierfeed_dataset::index::{Progress, Stage};
use tierfeed_resource_gatherer::{probe, report::Style};
use tracing_subscriber::EnvFilter;

use crate::{
    environment::{self, Terminal},
    failure::Failure,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people.
    Text,
    /// A JSON document a line, for programs.
    Json,
}

/// Logs go to standard error: lines for people, or for programs if they are asked for.
pub(crate) fn start_logging(format: LogFormat) {
    let filter = environment::log_filter().unwrap_or_else(|| "info".to_owned());
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_target(false)
        .with_ansi(is_colourful(io::stderr().is_terminal(), &environment::terminal()))
        .with_writer(|| LogLine);
    match format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().init(),
    }
}

/// The number of this node, which each line of a log names if the job has several.
static NODE: OnceLock<u32> = OnceLock::new();

pub(crate) fn name_node(node: u32) {
    // A process is one node from its start to its end.
    let _ = NODE.set(node);
}

struct LogLine;

impl Write for LogLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match NODE.get() {
            None => io::stderr().write_all(line)?,
            Some(node) => io::stderr().write_all(&named(line, *node))?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// A line with the number of a node: behind a text, as the first key of a document.
fn named(line: &[u8], node: u32) -> Vec<u8> {
    if let Some(rest) = line.strip_prefix(b"{") {
        return [format!("{{\"node\":{node},").as_bytes(), rest].concat();
    }
    let (text, end) = line.strip_suffix(b"\n").map_or((line, &b""[..]), |text| (text, b"\n"));
    [text, format!(" node={node}").as_bytes(), end].concat()
}

/// Whether colours are shown; <https://no-color.org> is respected.
fn is_colourful(is_terminal: bool, terminal: &Terminal) -> bool {
    let is_dumb = terminal.kind.as_deref().is_none_or(|kind| kind == "dumb");
    is_terminal && !is_dumb && !terminal.is_colourless
}

pub(crate) fn json(document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document)?;
    lines(&text)
}

/// One document stands alone, several are a list.
pub(crate) fn json_of_each(
    documents: impl IntoIterator<Item = impl Serialize>,
) -> Result<(), Failure> {
    match documents.into_iter().collect::<Vec<_>>().as_slice() {
        [only] => json(only),
        all => json(&all),
    }
}

pub(crate) fn lines(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    written(write!(out, "{text}{end}").and_then(|()| out.flush()))
}

/// The outcome of a write to standard output. A reader that closes its pipe, as `head` does, is no failure.
pub(crate) fn written(outcome: io::Result<()>) -> Result<(), Failure> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output").map_err(Failure::Work),
    }
}

/// A bar for steps that are counted.
pub(crate) fn bar() -> ProgressBar {
    bar_of(COUNTED)
}

/// A bar that is drawn by a template; hidden unless standard error is a terminal.
pub(crate) fn bar_of(template: &str) -> ProgressBar {
    let bar =
        if io::stderr().is_terminal() { ProgressBar::no_length() } else { ProgressBar::hidden() };
    bar.with_style(style_of(template))
}

fn style_of(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is a constant that is drawn")
}

/// As [`bar`], for steps that take about equally long: it says how long it still takes, and is there from
/// the start.
pub(crate) fn timed_bar() -> ProgressBar {
    let bar = bar_of("{msg} [{wide_bar}] {pos}/{len}  {elapsed} of {duration}");
    bar.enable_steady_tick(TICK);
    bar
}

const TICK: Duration = Duration::from_millis(500);

const COUNTED: &str = "{msg} [{wide_bar}] {pos}/{len}";

/// For steps whose number is not known.
const COUNTING: &str = "{msg}: {pos}";

/// A bar for a probe, whose steps take as long as they are given.
pub(crate) fn probe_bar() -> ProgressBar {
    bar_of("[{bar:20}] {pos}/{len}  {prefix}  {msg}")
}

pub(crate) fn show_probing(bar: &ProgressBar, progress: &probe::Progress) {
    bar.set_prefix(format!("at most {} s left", progress.left.0.div_ceil(1_000_000_000)));
    bar.set_message(progress.step.to_string());
    bar.set_length(progress.total as u64);
    bar.set_position(progress.done as u64);
}

pub(crate) fn style() -> Style {
    if is_colourful(io::stdout().is_terminal(), &environment::terminal()) {
        Style::Coloured
    } else {
        Style::Plain
    }
}

/// Shows the progress of indexing. The number of objects is known only after listing, so the bar is hidden
/// until then.
pub(crate) fn show_indexing(bar: &ProgressBar, progress: Progress) {
    let Some(total) = progress.total else {
        bar.set_style(style_of(COUNTING));
        bar.set_message("listing");
        bar.set_position(progress.done);
        return;
    };
    bar.set_style(style_of(COUNTED));
    bar.set_message(match progress.stage {
        Stage::Listing => "listing",
        Stage::Reading => "reading where samples lie",
        Stage::Checking => "comparing checksums",
    });
    bar.set_length(total);
    bar.set_position(progress.done);
}

#[cfg(test)]
mod tests {
    use tierfeed_core::units::Nanoseconds;

    use super::*;

    #[test]
    fn a_line_of_the_log_names_its_node_in_either_form() {
        assert_eq!(named(b"INFO it began at=3\n", 2), b"INFO it began at=3 node=2\n");
        let named = named(b"{\"level\":\"INFO\"}\n", 2);
        assert_eq!(named, b"{\"node\":2,\"level\":\"INFO\"}\n");
    }

    #[test]
    fn the_bars_can_be_drawn() {
        bar().finish_and_clear();
        timed_bar().finish_and_clear();
        let bar = probe_bar();
        let step = probe::Step::Transfers;
        let left = Nanoseconds(1_500_000_000);
        show_probing(&bar, &probe::Progress { step, done: 1, total: 3, left });
        assert_eq!((bar.position(), bar.length()), (1, Some(3)));
        assert_eq!(
            (bar.prefix(), bar.message()),
            ("at most 2 s left".into(), "copies from tier to tier".into())
        );
        bar.finish_and_clear();
    }

    #[test]
    fn no_bar_is_full_before_all_is_listed() {
        let bar = ProgressBar::no_length();
        let progress = |stage, done, total| Progress { stage, done, total };
        show_indexing(&bar, progress(Stage::Listing, 0, None));
        assert_eq!((bar.position(), bar.length()), (0, None));
        show_indexing(&bar, progress(Stage::Listing, 5_000, None));
        assert_eq!((bar.position(), bar.length()), (5_000, None));
        show_indexing(&bar, progress(Stage::Reading, 1, Some(8)));
        assert_eq!((bar.position(), bar.length()), (1, Some(8)));
    }

    #[test]
    fn logs_are_coloured_on_terminals_whose_user_wants_it() {
        let terminal =
            |kind: &str, is_colourless| Terminal { kind: Some(kind.to_owned()), is_colourless };
        assert!(is_colourful(true, &terminal("xterm", false)));
        assert!(!is_colourful(true, &terminal("xterm", true)), "NO_COLOR");
        assert!(!is_colourful(true, &terminal("dumb", false)));
        assert!(!is_colourful(false, &terminal("xterm", false)));
    }
}
