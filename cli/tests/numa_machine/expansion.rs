//! A training that is started with `--expand-memory`: where the kernel puts what it allocates.

use std::{collections::BTreeMap, fs, process::Command};

use crate::{
    fixture::{Fixture, assert_ended},
    machine::{Topology, pages_by_node},
    training::fixture_with,
};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// A process with a buffer of `$1` that it has filled, which waits because nobody reads what it writes;
/// what the kernel says of its memory goes to `maps`. Only rank 0 does that.
const ALLOCATE: &str = "[ $TIERFEED_RANK = 0 ] || exit 0\n\
     mkfifo pipe && dd bs=$1 count=1 if=/dev/zero of=pipe 2>/dev/null & dd=$!\n\
     until [ -p pipe ]; do sleep 0.1; done\n\
     exec 3<pipe && head -c 1 <&3 >/dev/null\n\
     cat /proc/[0-9]*/numa_maps >maps 2>/dev/null; kill $dd; exit 0";

/// `tierfeed run` whose training allocates `mib`.
fn run(expand: &str, mib: u64) -> Vec<String> {
    let run_dir = format!("run-{mib}-{expand}");
    let option = format!("--expand-memory={expand}");
    let size = (mib * MIB).to_string();
    ["run", "job.yaml", "--run-dir", &run_dir, &option, "--", "sh", "-c", ALLOCATE, "sh", &size]
        .map(str::to_owned)
        .to_vec()
}

/// Pages by node of the one mapping that is as large as the buffer, of all processes.
fn buffer(fixture: &Fixture, mib: u64) -> BTreeMap<u32, u64> {
    let maps = fs::read_to_string(fixture.path("maps")).unwrap();
    let pages = mib * MIB / PAGE;
    let is_it = |it: &BTreeMap<u32, u64>| {
        // The allocator adds a head.
        (pages..pages + 16).contains(&it.values().sum())
    };
    let anonymous = pages_by_node(&maps, "anon=");
    let buffers: Vec<_> = anonymous.into_iter().filter(is_it).collect();
    let [buffer] = buffers.as_slice() else { panic!("{} buffers:\n{maps}", buffers.len()) };
    fs::remove_file(fixture.path("maps")).unwrap();
    fs::remove_file(fixture.path("pipe")).unwrap();
    buffer.clone()
}

fn fixture() -> Fixture {
    fixture_with(&format!("{{ numa_nodes: [{}], size: 1 MiB }}", Topology::here().far()))
}

fn assert_runs(command: &mut Command) {
    assert_ended(&command.output().unwrap(), 0);
}

#[test]
fn what_main_memory_has_room_for_does_not_lie_behind_cxl() {
    let far = Topology::here().far();
    let fixture = fixture();
    assert_runs(fixture.tierfeed(&[]).args(run("preferred-many", 24)));
    let roomy = buffer(&fixture, 24);
    assert_eq!(roomy.get(&far), None, "main memory comes first: {roomy:?}");
}
