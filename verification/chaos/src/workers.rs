//! The transform workers of an agent: its child processes, which faults kill and stop.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use procfs::process::Process;

const NAME: &str = "tierfeed-transform-worker";

/// The workers that a process started, or that came to it when the process that started them ended.
pub(crate) fn of(parent: u32) -> Vec<Pid> {
    let children = || {
        let tasks = Process::new(i32::try_from(parent).ok()?).ok()?.tasks().ok()?;
        Some(tasks.flatten().filter_map(|task| task.children().ok()).flatten())
    };
    let pids = children().into_iter().flatten().filter_map(|pid| i32::try_from(pid).ok());
    pids.filter(|pid| is_worker(*pid)).map(Pid::from_raw).collect()
}

fn is_worker(pid: i32) -> bool {
    let arguments = Process::new(pid).and_then(|it| it.cmdline()).unwrap_or_default();
    arguments.first().is_some_and(|name| name.starts_with(NAME))
}

/// Sends a signal to each, and returns whether one got it.
pub(crate) fn signal(workers: &[Pid], signal: Signal) -> bool {
    workers.iter().filter(|pid| kill(**pid, signal).is_ok()).count() > 0
}
