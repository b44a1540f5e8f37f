//! Runs a program whose input may be hostile, with limits on its time and output.

use std::{
    io::{self, Read},
    os::{fd::AsFd as _, unix::process::CommandExt as _},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
};

#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Time from start to end.
    pub(super) time: Duration,
    /// Bytes written to stdout.
    pub(super) output_bytes: u64,
}

const ERRORS_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) output: Vec<u8>,
    pub(super) errors: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum BoundsError {
    #[error("it ran for more than {} s and was ended", .0.as_secs())]
    Time(Duration),
    #[error("it wrote more than {0} bytes and was ended")]
    Output(u64),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Runs `command` to its end, in a process group of its own, and kills the remaining group.
pub(super) fn run(command: &mut Command, bounds: Bounds) -> Result<Ended, BoundsError> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map(KillOnDrop)?;
    let (output, errors) = (child.0.stdout.take(), child.0.stderr.take());
    thread::scope(|scope| {
        // Output over the limit is not read: the program then waits for the pipe until its time is
        // over, or gets an error when the pipe is dropped.
        let output = scope.spawn(move || read(output, bounds.output_bytes));
        let errors = scope.spawn(move || read(errors, ERRORS_BYTES_MAX));
        let in_time = wait(&child.0, bounds.time);
        // Also kills its remaining children, which would keep the pipes open.
        child.end();
        let [output, errors] = [output, errors].map(|it| it.join().unwrap_or_else(|_| lost()));
        let (output, errors) = (output?, errors?);
        if output.len() as u64 > bounds.output_bytes {
            return Err(BoundsError::Output(bounds.output_bytes));
        }
        if !in_time? {
            return Err(BoundsError::Time(bounds.time));
        }
        Ok(Ended { status: child.0.wait()?, output, errors })
    })
}

/// A program that is killed when this is dropped, with its whole group.
struct KillOnDrop(Child);

impl KillOnDrop {
    /// The process number cannot be reused before the child is waited for.
    fn end(&self) {
        // It fails only for a group that has ended.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.end();
        let _ = self.0.wait();
    }
}

/// Reads at most one byte more than `most`, which shows that the limit was exceeded.
fn read(from: Option<impl Read>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(most + 1).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn lost() -> io::Result<Vec<u8>> {
    Err(io::Error::other("the thread that reads from it panicked"))
}

/// Waits until it ends, at most `time`; returns whether it ended.
fn wait(child: &Child, time: Duration) -> io::Result<bool> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let patience = Timespec::try_from(time).map_err(io::Error::other)?;
    loop {
        let mut watched = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
        match poll(&mut watched, Some(&patience)) {
            // An interrupted wait starts again: signals are rare here.
            Err(rustix::io::Errno::INTR) => (),
            Err(errno) => return Err(errno.into()),
            Ok(ended) => return Ok(ended > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { time: Duration::from_secs(60), output_bytes: 1000 };

    fn shell(script: &str, bounds: Bounds) -> Result<Ended, BoundsError> {
        run(Command::new("sh").args(["-c", script]), bounds)
    }

    #[test]
    fn what_a_program_says_and_how_it_ends_come_back() {
        let ended = shell("echo out; echo err >&2; exit 3", BOUNDS).unwrap();
        assert_eq!(
            (ended.status.code(), &ended.output[..], &ended.errors[..]),
            (Some(3), &b"out\n"[..], &b"err\n"[..])
        );
    }

    #[test]
    fn a_program_that_never_ends_is_ended() {
        let bounds = Bounds { time: Duration::from_millis(50), ..BOUNDS };
        for script in ["exec sleep 1000", "sleep 1000 & wait", "exec >&- 2>&-; exec sleep 1000"] {
            let error = shell(script, bounds).unwrap_err();
            assert!(matches!(error, BoundsError::Time(_)), "{script}: {error}");
        }
    }

    #[test]
    fn what_a_program_leaves_behind_is_ended_with_it() {
        let ended = shell("sleep 1000 & echo left", BOUNDS).unwrap();
        assert_eq!((ended.status.code(), &ended.output[..]), (Some(0), &b"left\n"[..]));
    }

    #[test]
    fn a_program_that_writes_without_end_is_ended() {
        for script in ["yes", "yes >&2"] {
            let outcome = shell(script, BOUNDS);
            let is_right = match script {
                "yes" => matches!(outcome, Err(BoundsError::Output(1000))),
                _ => outcome.is_ok_and(|it| it.errors.len() as u64 == ERRORS_BYTES_MAX + 1),
            };
            assert!(is_right, "{script}");
        }
    }
}
