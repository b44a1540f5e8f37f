//! A training that is started with `--expand-memory`: where the kernel puts what it allocates.

use std::{collections::BTreeMap, fs, process::Output};

use serde_json::json;

use crate::{
    fixture::{Fixture, assert_ended, trainer},
    machine::{Topology, kills_for_memory, pages_by_node},
    training::{assert_right, fixture_with},
};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// Rank 0 starts a process that fills a buffer of `$1` bytes and then waits, because its output is not
/// read; when it is full, what the kernel says of it goes to `maps`. Beside it the ranks train.
const TRAIN: &str = "if [ $RANK = 0 ]; then\n\
       mkfifo pipe; dd bs=$1 count=1 if=/dev/zero of=pipe 2>/dev/null & dd=$!\n\
       exec 3<pipe; head -c 1 <&3 >/dev/null\n\
       cat /proc/$dd/numa_maps >filled; mv filled maps\n\
     fi\n\
     until [ -e maps ]; do sleep 0.1; done\n\
     \"$0\" log; code=$?\n\
     [ -z \"$dd\" ] || kill $dd\n\
     exit $code";

/// Runs the job beside a buffer of so many bytes, and returns the pages of that buffer by node.
fn pages_beside_training(fixture: &Fixture, expand: &str, bytes: u64) -> BTreeMap<u32, u64> {
    let output = run(fixture, expand, bytes);
    assert_ended(&output, 0);
    assert_right(fixture, &fixture.log());
    let maps = fs::read_to_string(fixture.path("maps")).unwrap();
    let anonymous = pages_by_node(&maps, "anon=").into_iter();
    let buffer = anonymous.max_by_key(|it| it.values().sum::<u64>()).unwrap();
    // The allocator adds a head.
    let (pages, counted) = (bytes / PAGE, buffer.values().sum::<u64>());
    assert!((pages..pages + 16).contains(&counted), "{pages} pages:\n{maps}");
    buffer
}

fn run(fixture: &Fixture, expand: &str, bytes: u64) -> Output {
    let option = format!("--expand-memory={expand}");
    let mut command = fixture.tierfeed(&["run", "job.yaml", "--run-dir", "run", &option, "--"]);
    command.args(["sh", "-c", TRAIN]).arg(trainer()).arg(bytes.to_string()).output().unwrap()
}

fn fixture() -> Fixture {
    fixture_with(&format!("{{ numa_nodes: [{}], size: 1 MiB }}", Topology::here().far()))
}

/// The most that may lie elsewhere: what is asked for beyond the free memory, and what the processes of tierfeed
/// and the kernel take of that meanwhile. 60 to 130 MiB were seen, of a GiB.
const BEYOND_MAX: u64 = 192 * MIB;

/// The bytes that are free on the nodes of main memory above the marks at which the kernel looks elsewhere.
fn free_in_main_memory() -> u64 {
    free_on(&[0, 1])
}

fn free_on(nodes: &[u32]) -> u64 {
    let zones = fs::read_to_string("/proc/zoneinfo").unwrap();
    let number = |line: &str, key: &str| -> Option<u64> {
        line.trim().strip_prefix(key)?.trim().parse().ok()
    };
    let mut is_main = false;
    let mut pages = 0_i64;
    for line in zones.lines() {
        if let Some(node) = line.strip_prefix("Node ") {
            is_main = nodes.iter().any(|it| node.starts_with(&format!("{it},")));
        }
        if is_main {
            pages += number(line, "pages free").unwrap_or(0).cast_signed();
            // What CPUs keep of the pages that were freed there last, tens of MiB after a process that had much.
            pages += number(line, "count:").unwrap_or(0).cast_signed();
            pages -= number(line, "min ").unwrap_or(0).cast_signed();
        }
    }
    pages.unsigned_abs() * PAGE
}

/// Not an emulated device: stacks and heaps of processes would lie there too, where QEMU traps every
/// access, and sooner or later it does not survive that.
fn lets_trainers_live_on_the_far_node(topology: Topology) -> bool {
    !topology.has_cxl()
}

#[test]
fn what_main_memory_has_room_for_does_not_lie_behind_cxl() {
    let roomy = pages_beside_training(&fixture(), "preferred-many", 24 * MIB);
    assert_eq!(roomy.get(&Topology::here().far()), None, "main memory comes first: {roomy:?}");
}

#[test]
fn what_main_memory_has_no_room_for_lies_behind_cxl_and_the_training_goes_on() {
    let topology = Topology::here();
    if !lets_trainers_live_on_the_far_node(topology) {
        return;
    }
    let kills = kills_for_memory();
    let fixture = fixture();
    let more = free_in_main_memory() + 24 * MIB;
    let tight = pages_beside_training(&fixture, "preferred-many", more - more % PAGE);
    let behind_cxl = tight.get(&topology.far()).copied().unwrap_or(0) * PAGE;
    assert!((MIB..BEYOND_MAX).contains(&behind_cxl), "{tight:?}");
    assert!(tight.contains_key(&0) && tight.contains_key(&1), "all of main memory: {tight:?}");
    assert_eq!(fixture.report()["expanded_memory"]["cxl_memory"], json!([topology.far()]));
    assert_eq!(kills_for_memory(), kills);
}

#[test]
fn a_neighbour_that_is_named_takes_what_main_memory_has_no_room_for() {
    if !lets_trainers_live_on_the_far_node(Topology::here()) {
        return;
    }
    let fixture = fixture_with("{ numa_nodes: [1], size: 1 MiB }");
    let more = free_on(&[0]) + 24 * MIB;
    let tight = pages_beside_training(&fixture, "preferred-many", more - more % PAGE);
    let on_neighbour = tight.get(&1).copied().unwrap_or(0) * PAGE;
    assert!((MIB..BEYOND_MAX).contains(&on_neighbour), "{tight:?}");
    let told = &fixture.report()["expanded_memory"];
    assert_eq!(told["main_memory"], json!([0]));
    assert_eq!(told["cxl_memory"], json!([1, Topology::here().far()]));
}

#[test]
fn with_weights_all_nodes_take_turns_from_the_first_page_on() {
    let topology = Topology::here();
    if !lets_trainers_live_on_the_far_node(topology) {
        return;
    }
    let pages = pages_beside_training(&fixture(), "weighted", 12 * MIB);
    let least = 12 * MIB / PAGE / 4;
    assert!(topology.nodes().iter().all(|it| pages.get(it) >= Some(&least)), "{pages:?}");
}
