//! The processes of this host, with their parents, as `/proc` has them.

use std::{fs, time::Duration};

use nix::unistd::Pid;

/// `USER_HZ` of Linux is 100.
const MS_PER_TICK: u64 = 10;

/// A process, and all that it and its children have started.
pub(super) fn tree_of(root: Pid) -> Vec<Pid> {
    let all = with_parents();
    let (mut found, mut at) = (vec![root], 0);
    while let Some(parent) = found.get(at).copied() {
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found
}

pub(super) fn children_of(parent: Pid) -> Vec<Pid> {
    let children = with_parents().into_iter().filter(|(_, of)| *of == parent);
    children.map(|(pid, _)| pid).collect()
}

fn with_parents() -> Vec<(Pid, Pid)> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|it| it.file_name().to_str()?.parse().ok());
    numbers.map(Pid::from_raw).filter_map(|pid| Some((pid, parent_and_start(pid)?.0))).collect()
}

pub(super) fn name_of(pid: Pid) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// The parent of a process, and when it was started, in ticks since the host was. `None` once it is gone.
pub(super) fn parent_and_start(process: Pid) -> Option<(Pid, u64)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Behind the name, which may have blanks and brackets: state, parent, and 18 fields later the start.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let parent = fields.get(1)?.parse().ok().map(Pid::from_raw)?;
    Some((parent, fields.get(19)?.parse().ok()?))
}

pub(super) fn age_of(process: Pid) -> Option<Duration> {
    let (_, started) = parent_and_start(process)?;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
    let uptime = Duration::try_from_secs_f64(uptime).ok()?;
    Some(uptime.saturating_sub(Duration::from_millis(started.saturating_mul(MS_PER_TICK))))
}
