//! How the ranks of a run end.

use std::{os::unix::process::ExitStatusExt as _, process::ExitStatus};

use nix::sys::signal::Signal;
use tierfeed_core::fleet::training::Cause;

use crate::failure::code_of;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All with code 0.
    Done,
    /// One of them failed; the others were stopped.
    Failed(ExitStatus),
    /// The user stopped the run before any of them was started.
    Unstarted(Signal),
    /// The user stopped them; the status of the first one that did not end with code 0.
    Stopped(Signal, Option<ExitStatus>),
    /// A rank of another node failed with this code; all were stopped.
    FailedElsewhere(u8),
}

/// How a rank ended that another process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RankEnd {
    pub(crate) status: ExitStatus,
    /// The signal to its process after which it ended.
    pub(crate) asked: Option<Signal>,
}

impl Ending {
    /// The exit code by the convention of shells.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed(status) | Self::Stopped(_, Some(status)) => code_of(*status),
            Self::Unstarted(signal) | Self::Stopped(signal, None) => {
                code_of(ExitStatus::from_raw(*signal as i32))
            }
            Self::FailedElsewhere(code) => *code,
        }
    }

    /// The cause for which the rest of the job shall end; `None` if it shall not.
    pub(crate) fn cause(&self) -> Option<Cause> {
        match self {
            Self::Done => None,
            Self::Failed(_) | Self::FailedElsewhere(_) => Some(Cause::Failed(self.code())),
            Self::Unstarted(signal) | Self::Stopped(signal, _) => Some(asked(*signal)),
        }
    }

    pub(crate) fn of_rank(&self) -> RankEnd {
        let of_code = |code: u8| ExitStatus::from_raw(i32::from(code) << 8);
        let (status, asked) = match *self {
            Self::Done => (ExitStatus::default(), None),
            Self::Failed(status) => (status, None),
            Self::FailedElsewhere(code) => (of_code(code), None),
            Self::Unstarted(signal) => (ExitStatus::from_raw(signal as i32), Some(signal)),
            Self::Stopped(signal, status) => (status.unwrap_or_default(), Some(signal)),
        };
        RankEnd { status, asked }
    }
}

fn asked(signal: Signal) -> Cause {
    Cause::Asked(u8::try_from(signal as i32).unwrap_or_default())
}
