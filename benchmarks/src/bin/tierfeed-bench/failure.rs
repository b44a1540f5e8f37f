//! How an experiment ends when it does not end well.

use std::process::ExitCode;

/// Why an experiment stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The input was wrong: other input would help.
    Input(anyhow::Error),
    /// The work failed, or a promise was missed.
    Work(anyhow::Error),
    /// The machine was too busy, or there were too few rounds.
    Inconclusive(anyhow::Error),
}

impl Failure {
    /// Prints the error on standard error; the exit code of the process.
    pub(crate) fn report(&self) -> ExitCode {
        let (error, code) = match self {
            Self::Work(error) => (error, 1),
            Self::Input(error) => (error, 2),
            Self::Inconclusive(error) => (error, 3),
        };
        eprintln!("error: {error:#}");
        ExitCode::from(code)
    }
}
