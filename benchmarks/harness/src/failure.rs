//! Failures of a program, and their exit codes.

use std::process::ExitCode;

#[derive(Debug)]
pub enum Failure {
    /// The input was wrong, so that other input would help.
    Input(anyhow::Error),
    /// The work failed, or a promise was missed.
    Work(anyhow::Error),
    /// The machine was too busy, or there were too few rounds.
    Inconclusive(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Work(error)
    }
}

/// The exit code of an outcome: 0 done, 1 the work failed or a promise was missed, 2 the input was wrong,
/// 3 the figures are inconclusive. Prints the error on standard error.
pub fn exit_code(outcome: Result<(), Failure>) -> ExitCode {
    let (error, code) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Work(error)) => (error, 1),
        Err(Failure::Input(error)) => (error, 2),
        Err(Failure::Inconclusive(error)) => (error, 3),
    };
    eprintln!("error: {error:#}");
    ExitCode::from(code)
}
