//! How the ranks of a run end, and the lines in which the processes of a run on one node say so to each other.

use std::{os::unix::process::ExitStatusExt as _, process::ExitStatus};

use nix::sys::signal::Signal;
use tierfeed_core::fleet::training::Cause;
use tokio::sync::watch;

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

pub(crate) fn asked(signal: Signal) -> Cause {
    Cause::Asked(u8::try_from(signal as i32).unwrap_or_default())
}

/// The signal of a [`Cause::Asked`].
pub(crate) fn signal_of(number: u8) -> Signal {
    Signal::try_from(i32::from(number)).unwrap_or(Signal::SIGTERM)
}

/// Waits until all ranks shall end; returns why.
pub(crate) async fn stopped(stop: &mut watch::Receiver<Option<Cause>>) -> Cause {
    let cause = stop.wait_for(Option::is_some).await.ok().and_then(|cause| *cause);
    match cause {
        Some(cause) => cause,
        None => std::future::pending().await,
    }
}

/// The agent waits for ranks or other nodes, and does not hang.
pub(crate) const WAITS: &str = "waits";

/// `failed CODE` or `asked SIGNAL`.
pub(crate) fn word(cause: Cause) -> String {
    match cause {
        Cause::Failed(code) => format!("failed {code}"),
        Cause::Asked(signal) => format!("asked {signal}"),
    }
}

pub(crate) fn cause(word: &str) -> Option<Cause> {
    let (kind, number) = word.split_once(' ')?;
    let number = number.parse().ok()?;
    match kind {
        "failed" => Some(Cause::Failed(number)),
        "asked" => Some(Cause::Asked(number)),
        _ => None,
    }
}

/// `ended STATUS`, as `wait` of the kernel says it, and the signal after which it did.
pub(crate) fn ended(RankEnd { status, asked }: RankEnd) -> String {
    match asked {
        None => format!("ended {}", status.into_raw()),
        Some(signal) => format!("ended {} {}", status.into_raw(), signal as i32),
    }
}

pub(crate) fn rank_end(word: &str) -> Option<RankEnd> {
    let mut numbers = word.strip_prefix("ended ")?.split(' ').map(str::parse::<i32>);
    let status = ExitStatus::from_raw(numbers.next()?.ok()?);
    let asked = numbers.next().transpose().ok()?.map(Signal::try_from);
    Some(RankEnd { status, asked: asked.transpose().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_says_is_what_the_other_hears() {
        for said in [Cause::Failed(7), Cause::Asked(10)] {
            assert_eq!(cause(&word(said)), Some(said));
        }
        for (status, asked) in [(7 << 8, None), (15, Some(Signal::SIGTERM)), (0, None)] {
            let end = RankEnd { status: ExitStatus::from_raw(status), asked };
            assert_eq!(rank_end(&ended(end)), Some(end));
        }
        assert_eq!(rank_end("ended 0 4711"), None);
        assert_eq!(cause("start 7"), None);
    }
}
