//! A turn of fio.

use std::{path::Path, process::Command};

use serde::Deserialize;

use super::{Engine, Pattern, Task, Turn, blocks};
use crate::fio;

pub(super) fn turn(program: &Path, task: &Task<'_>, seed: u64) -> anyhow::Result<Turn> {
    let bytes = u64::from(blocks(task)?) * task.block.0;
    let names: Vec<String> = task.files.iter().map(|it| it.display().to_string()).collect();
    let pattern = match task.pattern {
        Pattern::Random => "randread",
        Pattern::Sequential => "read",
    };
    let mut command = Command::new(program);
    command
        .args([
            "--name=cold",
            "--output-format=json",
            "--thread",
            "--group_reporting",
            "--readonly",
        ])
        // What is in the page cache was dropped already.
        .arg("--invalidate=0")
        .arg(format!("--filename={}", names.join(":")))
        .arg(format!("--rw={pattern}"))
        .arg(format!("--bs={}", task.block.0))
        .arg(format!("--randseed={}", seed + 1));
    match task.engine {
        Engine::Ring => command
            .args(["--ioengine=io_uring", "--direct=1", "--fixedbufs", "--registerfiles"])
            .arg(format!("--iodepth={}", task.depth))
            .arg(format!("--io_size={bytes}")),
        Engine::Threads | Engine::ThreadsDropping => {
            let part = bytes / u64::from(task.depth) / task.block.0 * task.block.0;
            command
                .args(["--ioengine=psync", "--direct=0"])
                .arg(format!("--numjobs={}", task.depth))
                .arg(format!("--io_size={part}"));
            if task.pattern == Pattern::Sequential {
                command.arg(format!("--offset_increment={part}"));
            }
            &mut command
        }
    };
    fio::run::<Job>(&mut command).map(Turn::from)
}

#[derive(Debug, Deserialize)]
struct Job {
    read: Read,
    /// Of all threads together.
    #[serde(rename = "job_runtime")]
    runtime_ms: f64,
    usr_cpu: f64,
    sys_cpu: f64,
}

#[derive(Debug, Deserialize)]
struct Read {
    io_bytes: f64,
    bw_bytes: f64,
}

impl From<Job> for Turn {
    fn from(job: Job) -> Self {
        let cpu_s = (job.usr_cpu + job.sys_cpu) / 100.0 * job.runtime_ms / 1e3;
        Self { bytes_per_s: job.read.bw_bytes, cpu_s_per_gb: cpu_s / (job.read.io_bytes / 1e9) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_the_share_of_the_time_of_all_threads() {
        let text = r#"a note {"jobs": [{"read": {"io_bytes": 2000000000, "bw_bytes": 5e8},
                     "job_runtime": 8000, "usr_cpu": 1.0, "sys_cpu": 9.0}]}"#;
        let turn = Turn::from(fio::parse::<Job>(text).unwrap());
        assert!((turn.bytes_per_s - 5e8).abs() < 1.0);
        assert!((turn.cpu_s_per_gb - 0.4).abs() < 1e-9, "{}", turn.cpu_s_per_gb);
    }
}
