//! What people and programs see: one JSON document, tables, progress bars, logs.

use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tierfeed_workload_analyzer::index::{Progress, Stage};
use tracing_subscriber::EnvFilter;

use crate::{environment, failure::Failure};

/// Logs go to standard error: lines for people on a terminal, JSON else.
pub(crate) fn start_logging() {
    let filter = environment::log_filter().unwrap_or_else(|| "info".to_owned());
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_target(false)
        .with_writer(io::stderr);
    if io::stderr().is_terminal() { builder.init() } else { builder.json().init() }
}

/// Prints one JSON document.
pub(crate) fn json(document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document).map_err(Failure::work)?;
    lines(&text)
}

/// Prints text to standard output.
pub(crate) fn lines(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    write!(out, "{text}{end}")
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
        .map_err(Failure::Work)
}

/// A bar for steps that are counted; hidden unless standard error is a terminal.
pub(crate) fn bar() -> ProgressBar {
    let bar = if io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{msg} [{wide_bar}] {pos}/{len}")
        .expect("the template is a constant that a test draws");
    bar.set_style(style);
    bar
}

/// Shows how far an index is.
pub(crate) fn show_indexing(bar: &ProgressBar, progress: Progress) {
    bar.set_message(match progress.stage {
        Stage::Listing => "listing files",
        Stage::Measuring => "measuring files",
    });
    bar.set_length(progress.total.unwrap_or(progress.done));
    bar.set_position(progress.done);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_can_be_drawn() {
        bar().finish_and_clear();
    }
}
