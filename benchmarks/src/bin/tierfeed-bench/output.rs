//! What an experiment prints on standard output: one JSON document, or tables.

use std::io::{self, Write};

use anyhow::Context;
use serde::Serialize;

use crate::failure::Failure;

/// Prints one JSON document.
pub(crate) fn json(document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document).context("the outcome is no JSON");
    lines(&text.map_err(Failure::Work)?)
}

/// Prints text. A reader that closes its pipe, as `head` does, is no failure.
pub(crate) fn lines(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match write!(out, "{text}{end}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output").map_err(Failure::Work)
        }
        _ => Ok(()),
    }
}
