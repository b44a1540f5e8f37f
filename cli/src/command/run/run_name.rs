//! The name of a run among its processes, by what its launcher sets.

use std::fs;

use nix::unistd::{Pid, gethostname};
use tierfeed_core::fleet::launch::{Identity, Launcher};
use tierfeed_runtime::run_dir;

use super::process_tree::parent_and_start;
use crate::environment::{slurm_name, slurm_step, variable};

/// The name of a run among its processes.
#[derive(Debug)]
pub(super) struct RunName {
    pub(super) text: String,
    /// Whether no other run ever had this name.
    pub(super) is_unique: bool,
}

/// The name of this run among its processes: by its launcher, else by where they meet.
pub(super) fn run_name(identity: &Identity, nodes: u32, met_at: Option<&str>) -> Option<RunName> {
    let mpi = || {
        let text = format!("mpi-{}", variable("PMIX_NAMESPACE")?);
        Some(RunName { text, is_unique: false })
    };
    let inner = torchrun_name(identity, nodes).or_else(mpi);
    // What starts ranks inside a job of Slurm may use another step on each node, or none.
    let name = match (slurm_name(), inner) {
        (Some(slurm), Some(inner)) => {
            Some(RunName { text: format!("{slurm}.{}", inner.text), ..inner })
        }
        (Some(slurm), None) => {
            let text = format!("{slurm}.{}", slurm_step());
            // Slurm never gives a job, step and restart their numbers again.
            let is_unique = identity.launcher() == Some(Launcher::Slurm);
            Some(RunName { text, is_unique })
        }
        (None, inner) => inner,
    };
    let met = || Some(RunName { text: met_at?.to_owned(), is_unique: false });
    name.or_else(met).map(|name| RunName { text: plain(&name.text), ..name })
}

/// What distinguishes a run of torchrun, accelerate or deepspeed. Its address and port may be those of every run
/// of a user, so the ranks of one node are also known by the process that started them.
fn torchrun_name(identity: &Identity, nodes: u32) -> Option<RunName> {
    let (host, port) = (variable("MASTER_ADDR")?, variable("MASTER_PORT")?);
    if identity.launcher() != Some(Launcher::Torchrun) {
        return None;
    }
    let mut own = Vec::new();
    own.extend(variable("TORCHELASTIC_RUN_ID").filter(|id| id != "none"));
    own.extend(variable("TORCHELASTIC_RESTART_COUNT").filter(|count| count != "0"));
    let started_by = (nodes == 1).then(started_by).flatten();
    let is_unique = started_by.is_some();
    if nodes == 1 {
        own.push(gethostname().unwrap_or_default().to_string_lossy().into_owned());
        own.extend(started_by);
    }
    let digest = if own.is_empty() { String::new() } else { format!("-{}", run_dir::digest(&own)) };
    Some(RunName { text: format!("torchrun-{host}-{port}{digest}"), is_unique })
}

/// Variables that a launcher sets for the ranks that it starts itself, as their ancestor.
const OF_ANCESTOR: [&str; 2] = ["TORCHELASTIC_RUN_ID", "CROSS_SIZE"];

/// How far up the launcher is looked for.
const ANCESTORS_MAX: usize = 64;

/// The process that started all ranks of this node, and when: the nearest ancestor that was started without the
/// variable by which its launcher marks a rank. `None` if the ranks may have been started one by one.
fn started_by() -> Option<String> {
    let marked =
        OF_ANCESTOR.into_iter().find_map(|name| Some(format!("{name}={}", variable(name)?)))?;
    let mut process = Pid::parent();
    for _ in 0..ANCESTORS_MAX {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        let (parent, started) = parent_and_start(process)?;
        if !environment.split(|byte| *byte == 0).any(|it| it == marked.as_bytes()) {
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            // Containers number their processes alike.
            let numbered_in = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
            return Some(format!("{process} {started} {} {boot}", numbered_in.display()));
        }
        process = parent;
    }
    None
}

/// A name for a directory: other characters than letters, digits and `-._` become `-`.
fn plain(name: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-._".contains(it);
    name.chars().map(|it| if is_plain(it) { it } else { '-' }).collect()
}
