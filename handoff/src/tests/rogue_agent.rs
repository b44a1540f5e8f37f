//! A client whose agent breaks the protocol or dies: it gets an error, and never a batch outside
//! its arena.

use std::{os::fd::AsFd, path::PathBuf, sync::Arc};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tempfile::TempDir;
use tierfeed_core::{id::LeaseId, units::Bytes};
use tierfeed_numa_memory::Region;

use super::test_agent::{LIMITS, PATIENCE, RANK, batch, batch_id, briefing, region};
use crate::{
    Client, ConnectError, Disconnected, Hello, NextError, Reply, Role,
    channel::Channel,
    descriptors::Descriptors,
    endpoint::Endpoint,
    entry::{Completion, Ready},
    message::{self, FromAgent, Reading, SharedTierBytes},
    packet,
    ring::{Entry, Producer},
    table,
    wake::{self, ClientWakeup},
};

struct RogueAgent {
    endpoint: Endpoint,
    path: PathBuf,
    rings: Region,
    arena: Arc<Region>,
    wakeup: ClientWakeup,
    completions: Producer,
    _directory: TempDir,
}

impl RogueAgent {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/agent.sock");
        let channel = Channel::new(LIMITS.window).unwrap();
        Self {
            endpoint: Endpoint::bind(&path, Descriptors::Refused).unwrap(),
            path,
            rings: region(Bytes(channel.len())),
            arena: Arc::new(region(Bytes::mib(1))),
            wakeup: ClientWakeup::new().unwrap(),
            completions: Producer::new(channel.completions),
            _directory: directory,
        }
    }

    fn welcome(&self) -> FromAgent {
        FromAgent::Welcome {
            reading: Some(Box::new(Reading {
                briefing: briefing(),
                window: LIMITS.window,
                ring_bytes: self.rings.len().0,
                arena_bytes: self.arena.len().0,
                shared_tiers: Vec::new(),
            })),
        }
    }

    /// Admits a client of this process with `welcome`.
    fn meet(&self, welcome: &FromAgent) -> (Result<Client, ConnectError>, rustix::fd::OwnedFd) {
        let hello = Hello::of_rank(RANK, Role::Trainer);
        std::thread::scope(|scope| {
            let client = scope.spawn(move || Client::connect(&self.path, &hello, PATIENCE));
            let mut polled = [PollFd::new(&self.endpoint, PollFlags::IN)];
            poll(&mut polled, Some(&Timespec::try_from(PATIENCE).unwrap())).unwrap();
            let socket = self.endpoint.accept().unwrap().expect("a client waits");
            let agent_wakeup = wake::agent_wakeup().unwrap();
            let descriptors =
                [self.rings.fd(), self.arena.fd(), self.wakeup.client_end(), agent_wakeup.as_fd()];
            let bytes = message::to_bytes(welcome).unwrap();
            packet::send(socket.as_fd(), &bytes, &descriptors).unwrap();
            (client.join().unwrap(), socket)
        })
    }

    fn push(&mut self, entry: Entry) {
        self.completions.push(&*self.rings, entry).unwrap();
    }
}

fn ready(offset: Bytes, len: Bytes) -> Ready {
    let batch = batch(0, &[100]);
    let table_offset = batch.table_offset;
    Ready { lease: LeaseId(1), batch: batch.id, offset, len, table_offset, rows: 1 }
}

#[test]
fn a_batch_pushed_by_an_agent_that_dies_before_it_rings_is_still_delivered() {
    // The end may come before, while and after the client reads the ring; each case is tried.
    for delay in 0..30 {
        let mut agent = RogueAgent::new();
        let (client, socket) = agent.meet(&agent.welcome());
        let client = client.unwrap();
        let batch = batch(0, &[100]);
        table::write(&agent.arena, Bytes(0), &batch, |_| None, |_| None).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| client.next(PATIENCE));
            for _ in 0..delay * 10 {
                std::thread::yield_now();
            }
            agent.push(Completion::Lease(ready(Bytes(0), batch.len)).encode());
            drop(socket);
            assert!(matches!(waiting.join().unwrap(), Ok(Reply::Batch(_))));
        });
        let end = client.next(PATIENCE);
        assert!(matches!(end, Err(NextError::Disconnected(_))), "{end:?}");
    }
}

#[test]
fn what_makes_no_sense_in_the_ring_ends_the_connection() {
    let outside = Bytes::mib(1);
    let page = Bytes(4096);
    for entry in [
        [0; 8],
        [u64::MAX; 8],
        Completion::Lease(ready(outside, page)).encode(),
        Completion::Lease(ready(Bytes(0), Bytes(outside.0 + 4096))).encode(),
        Completion::Lease(ready(Bytes(u64::MAX - 4095), page)).encode(),
        Completion::Lease(Ready { rows: u32::MAX, ..ready(Bytes(0), page) }).encode(),
    ] {
        let mut agent = RogueAgent::new();
        let (client, _socket) = agent.meet(&agent.welcome());
        let client = client.unwrap();
        agent.push(entry);
        agent.wakeup.wake();
        for _ in 0..2 {
            match client.next(PATIENCE) {
                Err(NextError::Disconnected(Disconnected { .. })) => (),
                other => panic!("{other:?}"),
            }
        }
        assert!(client.request(batch_id(1)).is_err());
    }
}

#[test]
fn a_welcome_that_makes_no_sense_is_no_connection() {
    let agent = RogueAgent::new();
    let change = |change: fn(&mut Reading)| {
        let FromAgent::Welcome { reading: Some(mut reading) } = agent.welcome() else {
            unreachable!("the welcome of this file")
        };
        change(&mut reading);
        FromAgent::Welcome { reading: Some(reading) }
    };
    for welcome in [
        change(|it| it.window = 3),
        change(|it| it.window = 1024),
        change(|it| it.ring_bytes = 64),
        change(|it| it.ring_bytes = u64::MAX),
        change(|it| it.arena_bytes = 0),
        change(|it| it.arena_bytes += 1),
        change(|it| it.shared_tiers = vec![SharedTierBytes { tier: 0, bytes: 4096 }]),
        FromAgent::Welcome { reading: None },
        FromAgent::Error { reason: "no".into() },
    ] {
        let (client, _socket) = agent.meet(&welcome);
        assert!(client.is_err(), "{welcome:?}");
    }
}
