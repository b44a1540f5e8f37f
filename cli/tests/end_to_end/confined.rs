//! An agent that starts in a control group in which others left it little memory: it takes no more than
//! there is, is not killed, and serves.

use std::{fs, process::Command, time::SystemTime};

use tierfeed_core::units::Bytes;

use crate::{
    apart::Cluster,
    fixture::{self, Fixture, Running, eventually},
    group::Group,
};

const ROOMY: Bytes = Bytes::mib(1024);

/// The bytes that a neighbour holds in the group.
const TAKEN: Bytes = Bytes::mib(40);

/// The bytes that are left then: enough for the agent itself and for staging.
const LEFT: Bytes = Bytes::mib(72);

/// Nothing of what is asked for would fit twice, and all together it is three times what is left.
const SIZES: [&str; 3] = ["size: 72 MiB", "size: 60 MiB", "size: 60 MiB"];
const SHARES: [&str; 3] = ["reserve: 90 %", "reserve: 90 %", "reserve: 90 %"];

fn write_job(fixture: &Fixture, [main, cxl, scratch]: [&str; 3]) {
    let text = fs::read_to_string(fixture.job()).unwrap();
    let storage = fixture.path("storage");
    let text = text
        .replace("60 MB/s", "400 MB/s")
        .replace("main-memory: { size: 3 MiB", &format!("main-memory: {{ {main}"))
        .replace("{ size: 1280 KiB,", &format!("{{ {cxl},"))
        .replace("size: 256 KiB }", &format!("{scratch} }}"));
    // Less than is left: where the folder is no disk but memory, the group pays for that too.
    let storage = format!("  storage: {{ size: 40 MiB, path: {} }}\n", storage.display());
    fs::write(fixture.job(), text + &storage).unwrap();
}

/// The time at which an agent last said where it listens.
fn listening_since(fixture: &Fixture) -> Option<SystemTime> {
    fs::metadata(fixture.run_dir().join("trainer.json")).ok()?.modified().ok()
}

/// An agent in `group`, as soon as it listens.
fn start(cluster: &Cluster, group: &Group) -> Running {
    let before = listening_since(&cluster.fixture);
    let mut agent = Running::start(&mut group.enter(&cluster.agent_command()));
    eventually("the agent listens", || {
        let now = listening_since(&cluster.fixture);
        assert!(!agent.has_ended(), "{}", agent.errors());
        now.is_some() && now != before
    });
    agent
}

/// Leaves little in `group`, as a neighbour does that fills a RAM disk.
fn take_memory(fixture: &Fixture, group: &Group) {
    let mut writer = Command::new("sh");
    writer.arg("-c").arg(format!("head -c {} /dev/zero > taken", TAKEN.0));
    let status = group.enter(writer.current_dir(fixture.scratch())).status().unwrap();
    assert!(status.success());
    let held = group.held();
    assert!(held >= TAKEN, "the group pays for what its members wrote: {held}");
    group.limit(Bytes(held.0 + LEFT.0));
}

fn train(cluster: &Cluster, group: &Group, agent: &mut Running) {
    let mut trainers = cluster.trainers(100_000);
    trainers.iter_mut().for_each(|trainer| trainer.ends_with(0));
    assert!(!agent.has_ended(), "{}", agent.errors());
    group.assert_unharmed();
    let log = cluster.fixture.log();
    let served = fixture::assert_complete(&log);
    assert!(served * 2 > log.len(), "{served} of {} batches came from the agent", log.len());
}

#[test]
fn an_agent_that_comes_back_to_a_small_group_starts_with_less_and_serves() {
    let Some(group) = Group::new("back", ROOMY) else { return };
    let fixture = Fixture::new();
    fixture.write_large_samples();
    write_job(&fixture, SIZES);
    let cluster = Cluster::of(fixture, Vec::new());
    start(&cluster, &group).kill();
    take_memory(&cluster.fixture, &group);
    let mut agent = start(&cluster, &group);
    train(&cluster, &group, &mut agent);
    assert!(agent.errors().contains("it starts with less"), "{}", agent.errors());
}

#[test]
fn the_first_agent_in_a_small_group_takes_its_share_of_what_is_left_there() {
    let Some(group) = Group::new("first", ROOMY) else { return };
    let fixture = Fixture::new();
    fixture.write_large_samples();
    write_job(&fixture, SHARES);
    let cluster = Cluster::of(fixture, Vec::new());
    take_memory(&cluster.fixture, &group);
    let mut agent = start(&cluster, &group);
    train(&cluster, &group, &mut agent);
}
