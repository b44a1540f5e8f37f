//! The transform workers of an agent: its child processes, which faults kill and stop.

use std::{fs, path::Path};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const NAME: &[u8] = b"tierfeed-transform-worker";

/// The workers that a process started, or that came to it when the process that started them ended.
pub(crate) fn of(parent: u32) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|it| fs::read_to_string(it.path().join("children")).ok());
    let pids = children.flat_map(|it| {
        let pids: Vec<i32> = it.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
        pids
    });
    pids.filter(|pid| is_worker(Path::new(&format!("/proc/{pid}/cmdline"))))
        .map(Pid::from_raw)
        .collect()
}

fn is_worker(arguments: &Path) -> bool {
    fs::read(arguments).is_ok_and(|it| it.starts_with(NAME))
}

/// Sends a signal to each, and returns whether one got it.
pub(crate) fn signal(workers: &[Pid], signal: Signal) -> bool {
    workers.iter().filter(|pid| kill(**pid, signal).is_ok()).count() > 0
}
