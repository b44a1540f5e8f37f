//! `tierfeed attend`, which replaces `tierfeed run` after a panic: waits for the trainers, forwards signals to
//! them, and ends with their exit code.

use std::{io, time::Duration};

use anyhow::Context;
use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::Instant,
};

use crate::{arguments::Attend, deadline, failure::Failure};

pub(crate) fn run(arguments: &Attend) -> Result<(), Failure> {
    tracing::error!("the agent of this run has failed; its trainers read on without it");
    let trainers = arguments.trainers.iter().copied().map(Pid::from_raw).collect();
    let runtime = super::runtime()?;
    let grace = Duration::from_nanos(arguments.grace.0);
    let code = runtime.block_on(wait(trainers, grace)).context("waiting for trainers failed");
    match code.map_err(Failure::Work)? {
        0 => Ok(()),
        code => Err(Failure::Passed(code, None)),
    }
}

/// Waits until all have ended, after a signal no longer than `grace`; the first exit code that is not 0.
async fn wait(mut running: Vec<Pid>, grace: Duration) -> io::Result<u8> {
    let mut children = signal(SignalKind::child())?;
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    let mut code = 0;
    let mut kill_at: Option<Instant> = None;
    loop {
        running.retain(|pid| {
            let Some(ended) = ended(*pid) else { return true };
            if code == 0 {
                code = ended;
            }
            false
        });
        if running.is_empty() {
            return Ok(code);
        }
        let asked = tokio::select! {
            _ = children.recv() => continue,
            _ = interrupts.recv() => Signal::SIGINT,
            _ = terminations.recv() => Signal::SIGTERM,
            () = deadline::reached(kill_at) => Signal::SIGKILL,
        };
        let end = Instant::now() + grace;
        kill_at = if asked == Signal::SIGKILL { None } else { Some(kill_at.unwrap_or(end)) };
        for pid in &running {
            // An error means that it has just ended.
            let _ = kill(*pid, asked);
        }
    }
}

/// The exit code of a trainer that has ended, by the convention of shells.
fn ended(pid: Pid) -> Option<u8> {
    let code = match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(_, code)) => code,
        Ok(WaitStatus::Signaled(_, signal, _)) => 128 + signal as i32,
        // It was reaped before the panic.
        Err(Errno::ECHILD) => 0,
        Ok(_) | Err(_) => return None,
    };
    Some(u8::try_from(code).unwrap_or(u8::MAX))
}
