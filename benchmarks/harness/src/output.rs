//! What a program prints: its outcome as one JSON document or as text on standard output, its steps on standard
//! error; and the options that choose it.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::{Context, anyhow};
use clap::Args;
use serde::Serialize;
use tracing_subscriber::EnvFilter;

use crate::{
    environment,
    failure::Failure,
    judgement::{Judged, Judgement},
    text::text,
};

/// How a program prints its outcome.
#[derive(Debug, Clone, Copy, Args)]
pub struct Format {
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Where a program makes its files, and how it prints its outcome.
#[derive(Debug, Args)]
pub struct FolderAndFormat {
    /// Where the files are made, and removed afterwards [default: the directory for temporary files].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    format: Format,
}

impl Format {
    /// # Errors
    ///
    /// [`Failure::Work`] if standard output cannot be written.
    pub fn print<T: Serialize>(self, outcome: &T, table: fn(&T) -> String) -> Result<(), Failure> {
        if self.json { json(outcome) } else { lines(&table(outcome)) }
    }

    /// Prints an outcome, and fails if a promise was certainly missed, or if that is not certain.
    ///
    /// # Errors
    ///
    /// [`Failure::Work`] if standard output cannot be written or a promise was missed, and
    /// [`Failure::Inconclusive`].
    pub fn show<T: Judged>(self, outcome: &T) -> Result<(), Failure> {
        if self.json {
            json(outcome)?;
        } else {
            lines(&text(outcome, T::DETAILS).context("the outcome is no text")?)?;
        }
        passed(outcome.judged())
    }
}

fn passed(judged: Judgement) -> Result<(), Failure> {
    let Judgement { missed, inconclusive } = judged;
    match (missed.as_slice(), inconclusive.as_slice()) {
        ([], []) => Ok(()),
        ([], unclear) => Err(Failure::Inconclusive(anyhow!(
            "{} figures are inconclusive; repeat on a quiet machine or with more rounds:\n{}",
            unclear.len(),
            unclear.join("\n")
        ))),
        (missed, _) => {
            Err(Failure::Work(anyhow!("{} promises missed:\n{}", missed.len(), missed.join("\n"))))
        }
    }
}

impl FolderAndFormat {
    pub fn folder(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// # Errors
    ///
    /// [`Failure::Work`] if standard output cannot be written.
    pub fn print<T: Serialize>(&self, outcome: &T, table: fn(&T) -> String) -> Result<(), Failure> {
        self.format.print(outcome, table)
    }
}

/// # Errors
///
/// [`Failure::Work`] if standard output cannot be written.
pub fn json(document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document).context("the outcome is no JSON");
    lines(&text.map_err(Failure::Work)?)
}

/// Prints text. A reader that closes its pipe, as `head` does, is no failure.
fn lines(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match write!(out, "{text}{end}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output").map_err(Failure::Work)
        }
        _ => Ok(()),
    }
}

/// Says on standard error what is done next.
pub fn step(step: &str) {
    tracing::info!("{step}");
}

/// Sends log lines to standard error, filtered by `TIERFEED_LOG` or from level `info` on.
pub fn log_to_stderr() {
    let filter = environment::log_filter().unwrap_or_else(|| "info".to_owned());
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_target(false)
        .with_ansi(false)
        .with_writer(io::stderr)
        .init();
}
