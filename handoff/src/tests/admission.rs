//! The processes that are admitted as ranks: those on which launcher and job agree, each rank once.

use std::{collections::BTreeMap, os::unix::process::parent_id, sync::Arc};

use super::{
    misuse::Rogue,
    test_agent::{PATIENCE, RANK, TestAgent},
};
use crate::{
    Client, ClientEvent, ConnectError, Hello, Role,
    message::{self, FromAgent, FromClient, PROTOCOL, Pages, SentHello},
};

fn variables(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn turned_away(test_agent: &TestAgent, of: &[(&str, &str)]) -> String {
    let hello = Hello::launched(variables(of), Role::Trainer);
    let reason = match Client::connect(&test_agent.path, &hello, PATIENCE) {
        Err(ConnectError::TurnedAway { reason }) => reason,
        other => panic!("{other:?}"),
    };
    match test_agent.event() {
        ClientEvent::TurnedAway { reason: told } => assert_eq!(told, reason),
        other => panic!("{other:?}"),
    }
    reason
}

/// The hello of a process in another container, which has a number of its own there.
fn hello_of(pid: u32, trainer: u32, rank: &str) -> Vec<u8> {
    let variables = variables(&[("RANK", rank)]);
    let role = if pid == trainer { Role::Trainer } else { Role::Worker };
    let (protocol, pages) = (PROTOCOL, Pages::Pageable);
    let hello = FromClient::Hello(SentHello { protocol, role, pid, trainer, pages, variables });
    message::to_bytes(&hello).unwrap()
}

#[test]
fn what_contradicts_the_job_is_turned_away_with_both_sources() {
    let test_agent = TestAgent::new();
    for (of, expected) in [
        (&[("RANK", "2"), ("WORLD_SIZE", "8")][..], "WORLD_SIZE=8 of torchrun"),
        (&[("RANK", "0"), ("WORLD_SIZE", "1")][..], "WORLD_SIZE=1 of torchrun"),
        (&[("TIERFEED_RANK", "4")][..], "TIERFEED_RANK=4 of the environment"),
        (&[("TIERFEED_RANK", "1"), ("RANK", "2")][..], "RANK=2 of torchrun"),
        (&[("RANK", "2"), ("GROUP_RANK", "1")][..], "GROUP_RANK=1 of torchrun"),
        (&[("RANK", "two")][..], "RANK is 'two'"),
        (&[][..], "which of the 4 ranks"),
    ] {
        let reason = turned_away(&test_agent, of);
        assert!(reason.contains(expected), "{of:?}: {reason}");
    }
    let reason = turned_away(&test_agent, &[("RANK", "2"), ("WORLD_SIZE", "8")]);
    assert!(reason.contains("world.ranks_per_node: 4 in job.yaml:5"), "{reason}");
    test_agent.attach();
}

#[test]
fn a_rank_is_read_by_one_process_at_a_time() {
    let test_agent = &TestAgent::new();
    // The kernel knows it as a descendant of another process than this one.
    let first = Rogue::connect(test_agent);
    first.say(&hello_of(1, parent_id(), "2"), &[]);
    test_agent.admit_next();
    let reason = turned_away(test_agent, &[("TIERFEED_RANK", "2")]);
    for part in ["rank 2", "process 1 (RANK=2 of torchrun)", "TIERFEED_RANK=2 of the environment"] {
        assert!(reason.contains(part), "{reason}");
    }
    drop(first);
    // The thread of the server may not have seen yet that it has ended.
    std::thread::scope(|scope| {
        let hello = Hello::of_rank(RANK, Role::Trainer);
        let client = scope.spawn(move || Client::connect(&test_agent.path, &hello, PATIENCE));
        let connection = loop {
            match test_agent.event() {
                ClientEvent::Gone { .. } => (),
                ClientEvent::Attached { connection, .. } => break connection,
                other => panic!("{other:?}"),
            }
        };
        test_agent
            .server
            .admit(connection, &test_agent.briefing, Arc::clone(&test_agent.arena))
            .unwrap();
        client.join().unwrap().unwrap();
    });
}

#[test]
fn one_process_may_connect_more_than_once_and_have_workers() {
    let test_agent = TestAgent::new();
    let _first = test_agent.attach();
    let _second = test_agent.attach();
    let worker = Rogue::connect(&test_agent);
    worker.say(&hello_of(77, std::process::id(), "2"), &[]);
    assert!(matches!(test_agent.event(), ClientEvent::Attached { .. }));
    let other = Rogue::connect(&test_agent);
    other.say(&hello_of(78, parent_id(), "2"), &[]);
    assert!(matches!(test_agent.event(), ClientEvent::TurnedAway { .. }));
    assert!(matches!(other.hear().0, FromAgent::TurnedAway { .. }));
    let free = Rogue::connect(&test_agent);
    free.say(&hello_of(78, 78, "3"), &[]);
    assert!(matches!(test_agent.event(), ClientEvent::Attached { .. }));
}

#[test]
fn the_agent_learns_that_a_device_holds_the_pages_of_a_client() {
    let test_agent = TestAgent::new();
    for pages in [Pages::Pageable, Pages::Pinned] {
        let hello = Hello { pages, ..Hello::of_rank(RANK, Role::Trainer) };
        let path = test_agent.path.clone();
        let client = std::thread::spawn(move || drop(Client::connect(&path, &hello, PATIENCE)));
        let ClientEvent::Attached { connection, pages: told, .. } = test_agent.event() else {
            panic!("the client attaches first");
        };
        assert_eq!(told, pages);
        test_agent.server.close(connection, "the test is over");
        client.join().unwrap();
        assert_eq!(test_agent.gone(), connection);
    }
}
