//! One file for each command: what it reads, what it calls, what it prints.

pub(crate) mod agent;
pub(crate) mod analyze;
pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod drain;
pub(crate) mod exec;
mod expansion;
pub(crate) mod hog;
pub(crate) mod index;
pub(crate) mod manager;
pub(crate) mod plan;
pub(crate) mod read;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod tiers;
pub(crate) mod top;
pub(crate) mod trace;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::Context;
use tierfeed_runtime::shutdown;

use crate::failure::Failure;

/// Threads for what waits and talks; bytes are moved by threads of the agent's own.
const THREADS: usize = 2;

/// What asynchronous commands run on.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("tierfeed")
        .enable_all()
        .build()
        .context("cannot start threads")
        .map_err(Failure::Work)
}

/// Runs the work of a command to its end. A thread that hangs in the kernel then, reading from a store
/// that is gone, ends with the process.
fn finish<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = runtime()?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}

/// What turns true when the user wants this process to end, for work that asks between its parts. From
/// the return on no signal of the user kills the process.
fn ended_by_user(runtime: &tokio::runtime::Runtime) -> Result<Arc<AtomicBool>, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let listen = || -> io::Result<_> {
        let _inside = runtime.enter();
        Ok((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
    };
    let (mut interrupts, mut terminations) =
        listen().context("cannot listen for signals").map_err(Failure::Work)?;
    let is_ended = Arc::new(AtomicBool::new(false));
    let flag = is_ended.clone();
    runtime.spawn(async move {
        tokio::select! {
            _ = interrupts.recv() => {}
            _ = terminations.recv() => {}
        }
        flag.store(true, Ordering::Relaxed);
    });
    Ok(is_ended)
}

/// Pulls `trigger` when the user wants this process to end.
async fn end_on_signal(trigger: shutdown::Trigger) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            _ = interrupts.recv() => trigger.pull(),
            _ = terminations.recv() => trigger.pull(),
        }
    }
}
