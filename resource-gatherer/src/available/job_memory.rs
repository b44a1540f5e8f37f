//! Tells what a job has left of the memory that its batch system gave it.
//!
//! A site without control groups accounts as Slurm's `jobacct_gather/linux` does: the resident memory of all
//! processes of the step on the node, shared pages in each of them. Those are the processes below the
//! nearest `slurmstepd`; without one, only what this process and those that it started take counts.

use std::collections::BTreeMap;

use tierfeed_core::units::Bytes;

use crate::sysroot::{Sysroot, field_bytes, numbered_entries, optional};

const STEP_DAEMON: &str = "slurmstepd";

/// The processes of the step. Reads those of the whole host, which may be thousands.
pub(super) fn members(sysroot: Sysroot<'_>) -> Vec<u32> {
    let own = optional(&sysroot.join("proc/self/stat"))
        .and_then(|stat| stat.split(' ').next()?.parse().ok());
    let Some(own) = own else { return Vec::new() };
    let processes = processes(sysroot);
    let root = ancestors(own, &processes).find(|pid| is_daemon(*pid, &processes)).unwrap_or(own);
    let is_below = |pid: &u32| *pid != root && ancestors(*pid, &processes).any(|it| it == root);
    processes.keys().copied().filter(|pid| is_below(pid) || *pid == own).collect()
}

/// The rest of `limit` for a job with these processes; a process that has ended holds nothing.
pub(super) fn left_of(limit: Bytes, members: &[u32], sysroot: Sysroot<'_>) -> Bytes {
    let resident = members.iter().map(|pid| resident(sysroot, *pid));
    Bytes(limit.0.saturating_sub(resident.fold(0, u64::saturating_add)))
}

#[derive(Debug)]
struct Process {
    name: String,
    parent: u32,
}

fn processes(sysroot: Sysroot<'_>) -> BTreeMap<u32, Process> {
    let root = sysroot.join("proc");
    let process = |pid: u32| {
        let stat = optional(&root.join(format!("{pid}/stat")))?;
        // The name may have spaces and parentheses.
        let (before, after) = stat.rsplit_once(')')?;
        let (_, name) = before.split_once('(')?;
        let parent = after.split_whitespace().nth(1)?.parse().ok()?;
        Some((pid, Process { name: name.to_owned(), parent }))
    };
    numbered_entries(&root, "").into_iter().filter_map(process).collect()
}

/// Yields the process, its parent, and so on. The list was read while processes came and went, so it may
/// contain a cycle.
fn ancestors(pid: u32, processes: &BTreeMap<u32, Process>) -> impl Iterator<Item = u32> {
    let parent = move |pid: &u32| processes.get(pid).map(|process| process.parent);
    std::iter::successors(Some(pid), parent).take(processes.len() + 1)
}

fn is_daemon(pid: u32, processes: &BTreeMap<u32, Process>) -> bool {
    processes.get(&pid).is_some_and(|process| process.name == STEP_DAEMON)
}

fn resident(sysroot: Sysroot<'_>, pid: u32) -> u64 {
    let status = optional(&sysroot.join(format!("proc/{pid}/status"))).unwrap_or_default();
    field_bytes(&status, "VmRSS:").unwrap_or(0)
}
