//! How long a hand-off takes on this machine, both sides in one process.
//!
//! `cargo run --release -p tierfeed-prefetcher --example handoff`
//!
//! Two figures, each for batches of 8 samples: from request to batch, where the agent answers at once
//! (two wake-ups of a thread), and for a batch that waits in the ring already (none).

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example that measures time and prints it"
)]

use std::{
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use tierfeed_core::{
    batch::Batch,
    id::{BatchId, Epoch, LeaseId, Rank, SampleId, Step},
    order::{Shuffle, Spec, World},
    tier::Locality,
    units::Bytes,
};
use tierfeed_numa_memory::{Pages, Region, Request};
use tierfeed_prefetcher::handoff::{
    Briefing, Client, ClientEvent, Hello, Limits, OnError, Reply, Role, Server,
};

const ROUNDS: u32 = 20_000;
const SAMPLES: u32 = 8;
const PATIENCE: Duration = Duration::from_secs(10);
const RANK: Rank = Rank(0);

fn main() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run/agent.sock");
    let (sender, events) = mpsc::channel();
    let report = Box::new(move |event| drop(sender.send(event)));
    let server = Server::bind(&path, Limits::STANDARD, report).unwrap();
    let agent = thread::spawn(move || serve(&server, &events));

    let client = Client::connect(&path, Hello { rank: RANK, role: Role::Trainer }, PATIENCE);
    let client = client.unwrap();
    print("request to batch", measure(&client, 1));
    print("batch in the ring", measure(&client, Limits::STANDARD.window / 2));
    drop(client);
    agent.join().unwrap();
}

/// Asks for `ahead` batches, waits until the last is there, then times the others. With one ahead it
/// times the whole round.
fn measure(client: &Client, ahead: u32) -> Vec<Duration> {
    let mut times = Vec::new();
    for round in 0..ROUNDS / ahead {
        let start = Instant::now();
        for step in 0..ahead {
            client.request(batch_id(round * ahead + step)).unwrap();
        }
        let first = next(client);
        if ahead == 1 {
            times.push(start.elapsed());
        } else {
            thread::park_timeout(Duration::from_millis(2));
        }
        client.release(first).unwrap();
        for _ in 1..ahead {
            let start = Instant::now();
            let lease = next(client);
            times.push(start.elapsed());
            client.release(lease).unwrap();
        }
    }
    times
}

fn next(client: &Client) -> LeaseId {
    match client.next(PATIENCE).unwrap() {
        Reply::Batch(leased) => leased.lease,
        Reply::Refused { .. } => unreachable!("the agent below refuses nothing"),
    }
}

fn serve(server: &Server, events: &mpsc::Receiver<ClientEvent>) {
    let mut leases = 0;
    for event in events {
        match event {
            ClientEvent::Attached { holder, .. } => {
                let len = Bytes::mib(1);
                let (locality, pages) = (Locality::Anywhere, Pages::Small);
                let arena = Region::allocate(&Request { len, locality, name: "arena", pages });
                server.admit(holder, &briefing(), Arc::new(arena.unwrap())).unwrap();
            }
            ClientEvent::Requested { holder, batch } => {
                let samples = (0..SAMPLES).map(|sample| (SampleId(sample), Bytes(4096)));
                let batch = Batch::lay_out(batch, samples);
                leases += 1;
                server.lease(holder, LeaseId(leases), Bytes(0), &batch, |_| Some(1)).unwrap();
            }
            ClientEvent::Gone { .. } => return,
            _ => (),
        }
    }
}

fn batch_id(step: u32) -> BatchId {
    BatchId { epoch: Epoch(0), step: Step(step), rank: RANK }
}

fn briefing() -> Briefing {
    Briefing {
        job: "example".into(),
        rank: RANK,
        order: Spec {
            samples: ROUNDS * SAMPLES,
            shuffle: Shuffle::Sequential,
            seed: 0,
            epochs: 1,
            drop_last: false,
            batch_size: SAMPLES,
            world: World { nodes: 1, ranks_per_node: 1 },
        },
        index_path: "/nowhere".into(),
        on_error: OnError::Fail,
        emulation: None,
        batches_ahead: 1,
        fingerprint: 0,
    }
}

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!("{what}: median {:?}, 99 % within {:?}", at(50), at(99));
}
