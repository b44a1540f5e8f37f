//! Tells from the source of a training script what a job of it needs, and says how sure that is.
//!
//! The text is parsed with a grammar of Python, names are followed to what they stand for, and tables
//! say what the calls of libraries mean. PyTorch, TensorFlow and JAX are known, with the loaders that
//! are used with them. `docs/analyze-script.md` says what is found and what never can be.
//!
//! 1. The script is never executed, and of the files beside it none is read but those it imports.
//! 2. A value is [`Certainty::Certain`] only if a run cannot change it without changing the source.
//! 3. Any text gives an analysis: what is no Python is reported, the rest is analysed.

mod compare;
mod error;
mod evaluate;
mod find;
mod finding;
mod known;
mod load;
mod parse;
mod program;
mod suggest;
mod table;
mod tree;
mod value;

use std::path::PathBuf;

use serde::Serialize;

pub use compare::Contradiction;
pub use error::ScriptError;
pub use finding::{Fact, Finding, Kind, Literal};
pub use load::{BYTES_MAX, FILE_BYTES_MAX, FILES_MAX, IMPORT_DEPTH_MAX};
pub use parse::SyntaxError;
pub use table::table;
pub use value::Certainty;

use crate::Job;
use evaluate::Evaluator;
use program::{Parsed, Program};

/// What a script says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Analysis {
    /// The files that were read, those that were given first.
    pub files: Vec<String>,
    /// By kind and place.
    pub findings: Vec<Finding>,
    /// Where the files are no Python 3.
    pub syntax_errors: Vec<SyntaxError>,
    /// What was left out, and why.
    pub left_out: Vec<String>,
    /// A job file as far as the script tells; what it does not tell is in comments.
    pub job_yaml: String,
    /// Where the script does something else than a job file says.
    pub contradictions: Vec<Contradiction>,
}

impl Analysis {
    /// Compares the script with a job.
    #[must_use]
    pub fn compared_with(mut self, job: &Job) -> Self {
        self.contradictions = compare::contradictions(&self.findings, job);
        self
    }
}

/// Analyses scripts, and the files beside them that they import.
///
/// # Errors
///
/// If a file cannot be read, is no text in UTF-8, or is larger than a script; or there are too many.
pub fn analyze(paths: &[PathBuf]) -> Result<Analysis, ScriptError> {
    let (files, left_out) = load::load(paths)?;
    Ok(of_files(files, left_out))
}

/// Analyses a script that is not in a file; `name` stands in findings.
#[must_use]
pub fn analyze_text(name: &str, text: &str) -> Analysis {
    of_files(vec![load::parsed(name.to_owned(), text.to_owned())], Vec::new())
}

fn of_files(files: Vec<load::Read>, mut left_out: Vec<String>) -> Analysis {
    let (parsed, errors): (Vec<Parsed>, Vec<_>) =
        files.into_iter().map(|read| (read.parsed, read.errors)).unzip();
    let program = Program::of(&parsed);
    let evaluator = Evaluator::new(&program);
    let findings = find::all(&evaluator);
    if evaluator.is_exhausted() {
        left_out
            .push("the files are larger than can be followed; some values are missing".to_owned());
    }
    let name = parsed.first().map(|file| file.name.as_str()).unwrap_or_default();
    Analysis {
        job_yaml: suggest::job(name, &findings),
        findings,
        files: parsed.iter().map(|file| file.name.clone()).collect(),
        syntax_errors: errors.into_iter().flatten().collect(),
        left_out,
        contradictions: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
