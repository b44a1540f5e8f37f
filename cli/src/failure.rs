//! The failures of commands: message and exit code.
//!
//! An error that `?` passes on is one of the work; a wrong input is named as such where it is found.

use std::{
    os::unix::process::ExitStatusExt,
    process::{ExitCode, ExitStatus},
};

use tierfeed_dataset::index::IndexError;

#[derive(Debug)]
pub(crate) enum Failure {
    /// The input was wrong (exit code 2).
    Input(anyhow::Error),
    /// The work failed; another attempt may succeed (exit code 1).
    Work(anyhow::Error),
    /// The command that this process started failed: its exit code, which is passed on, and a message.
    Passed(u8, Option<anyhow::Error>),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Work(error.into())
    }
}

impl Failure {
    pub(crate) fn input(error: impl Into<anyhow::Error>) -> Self {
        Self::Input(error.into())
    }

    pub(crate) fn index(error: IndexError) -> Self {
        if error.is_input() { Self::input(error) } else { Self::work(error) }
    }

    pub(crate) fn work(error: impl Into<anyhow::Error>) -> Self {
        Self::Work(error.into())
    }

    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Input(_) => 2,
            Self::Work(_) => 1,
            Self::Passed(code, _) => *code,
        }
    }

    /// The message, if it was not printed before.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            Self::Input(error) | Self::Work(error) | Self::Passed(_, Some(error)) => {
                Some(sentence(error))
            }
            Self::Passed(_, None) => None,
        }
    }

    pub(crate) fn report(&self) -> ExitCode {
        if let Some(message) = self.message() {
            eprintln!("error: {message}");
        }
        ExitCode::from(self.code())
    }
}

/// The exit code of a command, or 128 and the number of the signal that killed it, as shells say.
pub(crate) fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// The message and its causes, without causes that the message already contains.
fn sentence(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let cause = || anyhow::anyhow!("no such file");
        let quoted = Err::<(), _>(cause()).context("cannot open x: no such file").unwrap_err();
        assert_eq!(sentence(&quoted), "cannot open x: no such file");
        let plain = Err::<(), _>(cause()).context("cannot open x").unwrap_err();
        assert_eq!(sentence(&plain), "cannot open x: no such file");
    }
}
