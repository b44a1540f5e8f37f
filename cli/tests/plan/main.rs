//! `tierfeed plan` of a job whose dataset is not here, by the real binary.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod dump;
mod simulate;
mod tiers;
mod whole_job;

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

/// 2,000 samples of 100 kB; 44 MiB of main memory and 32 of CXL memory keep two fifths of them.
const JOB: &str = "\
name: small
dataset:
  source: /nowhere/train
  format: tfrecord
  emulate: { bandwidth: 60 MB/s }
  described: { objects: 20, samples_per_object: 100, sample_bytes: 100 kB, sample_bytes_stdev: 40 kB }
order: { shuffle: torch-distributed, seed: 3, epochs: 3 }
batch_size: 20
world: { nodes: 1, ranks_per_node: 2 }
step_time: 30 ms
chunk: 1 MiB
policy: gap
tiers:
  main-memory: { size: 64 MiB }
  cxl-memory: { size: 32 MiB, emulate: { latency: 350 ns, bandwidth: 20 GB/s } }
";

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierfeed"));
    // A report of this host's tiers would change the figures.
    command.current_dir(folder).env("XDG_STATE_HOME", folder).args(["plan", "job.yaml"]);
    command.args(arguments);
    command
}

fn plan(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

fn text(folder: &Path, arguments: &[&str]) -> String {
    let output = plan(folder, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&text(folder, &[arguments, &["--json"]].concat())).unwrap()
}

/// The standard error of a plan that ends with `code`.
fn refused(folder: &Path, arguments: &[&str], code: i32) -> String {
    let output = plan(folder, arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

fn folder(job: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("job.yaml"), job).unwrap();
    folder
}

/// 200,000 samples: enough to be interrupted in.
fn long_job() -> String {
    JOB.replace("objects: 20, samples_per_object: 100", "objects: 200, samples_per_object: 1000")
}
