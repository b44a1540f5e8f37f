//! The lines that the processes of a run on one node say to each other: why all shall end, and how a rank has
//! ended.

use std::{os::unix::process::ExitStatusExt as _, process::ExitStatus};

use nix::sys::signal::Signal;
use tierfeed_core::fleet::training::Cause;

use crate::ending::RankEnd;

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
