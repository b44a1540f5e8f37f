//! How long a hand-off takes, both sides in one process: a batch that is asked for and answered at once
//! (two wake-ups of a thread), and one that waits in the ring already (none). Both figures include the
//! release, which wakes the agent.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use tierfeed_core::{
    batch::Batch,
    fleet::launch::JobWorld,
    id::{BatchId, Epoch, LeaseId, Rank, SampleId, Step},
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    tier::Locality,
    units::Bytes,
};
use tierfeed_handoff::{
    Briefing, Client, ClientEvent, Hello, LeasedBatch, Limits, OnError, Reply, Role, Server,
};
use tierfeed_numa_memory::{Pages, Region, Request};

const SAMPLES: u32 = 8;
const PATIENCE: Duration = Duration::from_secs(10);
const RANK: Rank = Rank(0);

fn hand_off(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a bench may write to the temporary directory");
    let path = directory.path().join("run/agent.sock");
    let (sender, events) = mpsc::channel();
    let report = Box::new(move |event| drop(sender.send(event)));
    let post = JobWorld {
        world: World { nodes: 1, ranks_per_node: 1 },
        nodes_at: String::new(),
        ranks_per_node_at: String::new(),
        node: None,
    };
    let server = Server::bind(&path, Limits::STANDARD, post, report)
        .expect("the folder is new, so no socket is there");
    let agent = thread::spawn(move || serve(&server, &events));
    let client = Client::connect(&path, &Hello::of_rank(RANK, Role::Trainer), PATIENCE);
    let client = client.expect("the agent above listens");

    let mut group = criterion.benchmark_group("hand-off");
    group.bench_function("request to batch", |bencher| {
        bencher.iter(|| {
            client.request(batch_id()).expect("the window is open");
            give_back(&client, &next(&client));
        });
    });
    group.bench_function("batch in the ring", |bencher| {
        let stage = || {
            client.request(batch_id()).expect("the window is open");
            client.request(batch_id()).expect("the window is open");
            let first = next(&client);
            // By then the second is in the ring too.
            thread::park_timeout(Duration::from_micros(200));
            first
        };
        let take = |first: LeasedBatch| {
            let second = next(&client);
            give_back(&client, &first);
            give_back(&client, &second);
        };
        bencher.iter_batched(stage, take, BatchSize::PerIteration);
    });
    group.finish();
    drop(client);
    agent.join().expect("the agent ends when its client is gone");
}

fn next(client: &Client) -> LeasedBatch {
    match client.next(PATIENCE) {
        Ok(Reply::Batch(leased)) => leased,
        other => panic!("the agent below refuses nothing: {other:?}"),
    }
}

fn give_back(client: &Client, leased: &LeasedBatch) {
    client.release(leased.lease).expect("the lease is held");
}

fn serve(server: &Server, events: &mpsc::Receiver<ClientEvent>) {
    let mut leases = 0;
    for event in events {
        match event {
            ClientEvent::Attached { connection, .. } => {
                let (len, locality, pages) = (Bytes::mib(1), Locality::Anywhere, Pages::Small);
                let arena = Region::allocate(&Request { len, locality, name: "arena", pages });
                let arena = Arc::new(arena.expect("1 MiB is free"));
                server.admit(connection, &briefing(), arena).expect("it asked to be let in");
            }
            ClientEvent::Requested { connection, batch } => {
                let samples = (0..SAMPLES).map(|sample| (SampleId(sample), Bytes(4096)));
                let batch = Batch::lay_out(batch, samples);
                leases += 1;
                let lease = LeaseId(leases);
                server.lease(connection, lease, Bytes(0), &batch, |_| Some(1)).expect("it asked");
            }
            ClientEvent::Gone { .. } => return,
            _ => (),
        }
    }
}

fn batch_id() -> BatchId {
    BatchId { epoch: Epoch(0), step: Step(0), rank: RANK }
}

fn briefing() -> Briefing {
    Briefing {
        job: "bench".into(),
        rank: RANK,
        order: Spec {
            samples: SAMPLES,
            shuffle: Shuffle::Sequential,
            seed: 0,
            epochs: 1,
            drop_last: false,
            batch_size: SAMPLES,
            world: World { nodes: 1, ranks_per_node: 1 },
            start: Position::START,
            further: FurtherDatasets::NONE,
        },
        index_path: "/nowhere".into(),
        bucket: None,
        on_error: OnError::Fail,
        patience_ns: 0,
        emulation: None,
        batches_ahead: 1,
        fingerprint: 0,
        transform: None,
        further: Vec::new(),
    }
}

criterion_group!(benches, hand_off);
criterion_main!(benches);
