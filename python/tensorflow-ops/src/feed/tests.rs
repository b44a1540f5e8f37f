//! A feed over a dataset of eight files and a real server, whose answers the tests give.

use std::{
    fs,
    path::PathBuf,
    sync::mpsc::{Receiver, sync_channel},
    thread,
};

use tempfile::TempDir;
use tierfeed_core::{
    batch::Batch,
    fleet::launch::JobWorld,
    id::{ConnectionId, LeaseId, NodeId, SampleId},
    order::{FurtherDatasets, Position, Shuffle, World},
    session::{Fault, SkipShare},
    tier::Locality,
    units::Bytes,
};
use tierfeed_dataset::{Dataset, Format, Index, source::Location};
use tierfeed_handoff::{Briefing, ClientEvent, Limits, OnError, Role, Server};
use tierfeed_numa_memory::{Pages, Region, Request};

use super::*;

const RANK: Rank = Rank(0);
const WORLD: World = World { nodes: 1, ranks_per_node: 1 };
const LIMITS: Limits = Limits { connections_max: 4, window: 16, published_samples_max: 100 };

/// Two epochs of four batches with two samples of 64 bytes each, which are their numbers.
struct Job {
    directory: TempDir,
    briefing: Briefing,
}

struct FakeAgent {
    server: Server,
    events: Receiver<ClientEvent>,
    arena: Arc<Region>,
    briefing: Briefing,
}

impl Job {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("data");
        fs::create_dir_all(source.join("class")).unwrap();
        for sample in 0..8 {
            let path = source.join(format!("class/{sample}.jpg"));
            fs::write(path, [sample; 64]).unwrap();
        }
        let dataset = Dataset::new(Location::Path(source), Format::ImageFolder);
        let index = Index::build(&dataset, None, &mut |_| ()).unwrap();
        let index_path = directory.path().join("index");
        index.save(&index_path).unwrap();
        let order = Spec {
            samples: 8,
            shuffle: Shuffle::Sequential,
            seed: 0,
            epochs: 2,
            drop_last: false,
            batch_size: 2,
            world: WORLD,
            start: Position::START,
            further: FurtherDatasets::NONE,
        };
        let briefing = Briefing {
            job: "test".into(),
            rank: RANK,
            order,
            index_path,
            bucket: None,
            on_error: OnError::Fail,
            patience_ns: 0,
            emulation: None,
            batches_ahead: 2,
            fingerprint: index.fingerprint(),
            transform: None,
            further: Vec::new(),
        };
        Self { directory, briefing }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("run/agent.sock")
    }

    fn agent(&self) -> FakeAgent {
        let post = JobWorld {
            world: WORLD,
            nodes_at: "job.yaml:1".to_owned(),
            ranks_per_node_at: "job.yaml:2".to_owned(),
            node: Some(NodeId(0)),
        };
        let (sender, events) = sync_channel(1_000);
        let report = Box::new(move |event| drop(sender.send(event)));
        let (len, locality) = (Bytes::mib(1), Locality::Anywhere);
        let request = Request { len, locality, name: "test", pages: Pages::Small };
        FakeAgent {
            server: Server::bind(&self.socket(), LIMITS, post, report).unwrap(),
            events,
            arena: Arc::new(Region::allocate(&request).unwrap()),
            briefing: self.briefing.clone(),
        }
    }

    fn cold(&self, dataset: NamedDataset) -> ColdReader {
        ColdReader::open(&self.briefing, dataset, Vec::new(), "tierfeed".into()).unwrap()
    }

    fn feed(&self) -> Feed {
        let hello = Hello::of_rank(RANK, Role::Trainer);
        let agent = Agent { socket: self.socket(), hello, dataset: None };
        let dataset = NamedDataset::find(&self.briefing, None).unwrap();
        Feed::new(Some(agent), self.cold(dataset), Form::Array(64), dataset, RANK)
    }

    fn feed_of(&self, agent: &FakeAgent) -> (Feed, ConnectionId) {
        thread::scope(|scope| {
            let feed = scope.spawn(|| self.feed());
            let connection = agent.attached();
            agent.admit(connection);
            (feed.join().unwrap(), connection)
        })
    }
}

impl FakeAgent {
    fn event(&self) -> ClientEvent {
        self.events.recv_timeout(Duration::from_secs(60)).expect("an event comes")
    }

    fn attached(&self) -> ConnectionId {
        let event = self.event();
        let ClientEvent::Attached { connection, .. } = event else { panic!("{event:?}") };
        connection
    }

    fn admit(&self, connection: ConnectionId) {
        self.server.admit(connection, &self.briefing, Arc::clone(&self.arena)).unwrap();
    }

    /// The next request; what is reported before it is left out.
    fn requested(&self) -> BatchId {
        loop {
            match self.event() {
                ClientEvent::Requested { batch, .. } => return batch,
                ClientEvent::Delivered { .. } | ClientEvent::Tallied { .. } => (),
                event => panic!("{event:?}"),
            }
        }
    }

    /// Hands over a batch whose bytes are 100 and more.
    fn lease(&self, connection: ConnectionId, id: BatchId) {
        let Step(step) = id.step;
        let samples = [step * 2, step * 2 + 1].map(|sample| (SampleId(sample), Bytes(64)));
        let (batch, offset) =
            (Batch::lay_out(id, samples.into_iter()), Bytes(u64::from(step) * 4096));
        let number = 100 + u8::try_from(step).unwrap();
        self.arena.write(offset, &[number; 128]).unwrap();
        let lease = LeaseId(u64::from(step) + 1);
        self.server.lease(connection, lease, offset, &batch, |_| None).unwrap();
    }
}

fn batch(epoch: u32, step: u32) -> BatchId {
    BatchId { epoch: Epoch(epoch), step: Step(step), rank: RANK }
}

/// Takes a batch for a pipeline that does not wait.
fn take(feed: &Feed, batch: BatchId) -> Result<Answer, Failure> {
    let answer = feed.get(batch)?;
    feed.delivered(answer.ticket, monotonic_now());
    Ok(answer)
}

#[test]
fn closing_a_feed_ends_the_calls_that_wait_and_its_connection() {
    let job = Job::new();
    let agent = job.agent();
    let (feed, _) = job.feed_of(&agent);
    thread::scope(|scope| {
        let feed = &feed;
        let calls = [0, 1].map(|step| scope.spawn(move || feed.get(batch(0, step)).err()));
        agent.requested();
        agent.requested();
        feed.close();
        for call in calls {
            assert_eq!(call.join().unwrap(), Some(closed()));
        }
    });
    let event = agent.event();
    assert!(matches!(event, ClientEvent::Gone { .. }), "{event:?}");
    assert_eq!(feed.get(batch(1, 0)).err(), Some(closed()), "a later epoch");
    assert!(agent.events.try_recv().is_err(), "it does not connect again");
}

#[test]
fn what_an_agent_that_ends_did_not_deliver_is_read() {
    let job = Job::new();
    let agent = job.agent();
    let (feed, connection) = job.feed_of(&agent);
    thread::scope(|scope| {
        let call = scope.spawn(|| take(&feed, batch(0, 0)));
        agent.requested();
        agent.server.close(connection, "the test wants it");
        let answer = call.join().unwrap().unwrap();
        assert_eq!(answer.staged.rows.len(), 2);
    });
    take(&feed, batch(0, 1)).unwrap();
    assert_eq!((feed.figures().read_directly, feed.is_connected()), (2, false));
}

#[test]
fn the_agent_says_why_a_sample_cannot_be_transformed() {
    let job = Job::new();
    let agent = job.agent();
    let (feed, connection) = job.feed_of(&agent);
    thread::scope(|scope| {
        let call = scope.spawn(|| take(&feed, batch(0, 1)));
        let refusal = Refusal::Unreadable(SampleId(3), Fault::Untransformable);
        agent.server.refuse(connection, agent.requested(), refusal).unwrap();
        let event = agent.event();
        let ClientEvent::ExplanationWanted { request, samples, .. } = event else {
            panic!("{event:?}")
        };
        assert_eq!(samples, [SampleId(3)]);
        let reasons = [(SampleId(3), "the file is truncated".to_owned())].into_iter();
        agent.server.explain(connection, request, reasons);
        let failure = call.join().unwrap().err().unwrap();
        assert_eq!(failure.code, Code::DataLoss);
        let said = "cannot transform sample 3, class/3.jpg: the file is truncated";
        assert_eq!(failure.message, said);
    });
}

#[test]
fn nobody_waits_while_a_call_connects_but_those_that_need_the_agent() {
    let job = Job::new();
    let feed = job.feed();
    take(&feed, batch(0, 0)).unwrap();
    assert_eq!(feed.figures().read_directly, 1, "there is no agent yet");
    let agent = job.agent();
    thread::scope(|scope| {
        let first = scope.spawn(|| take(&feed, batch(1, 0)));
        let connection = agent.attached();
        let second = scope.spawn(|| take(&feed, batch(1, 1)));
        // This would wait for the agent, which admits the feed afterwards.
        assert!(!feed.is_connected());
        agent.admit(connection);
        for _ in 0..2 {
            agent.lease(connection, agent.requested());
        }
        first.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
    });
    assert_eq!((feed.figures().read_directly, feed.figures().batches), (1, 3));
}

#[test]
fn a_call_reads_its_batch_while_tensors_keep_all_that_the_agent_stages() {
    let job = Job::new();
    let agent = job.agent();
    let (feed, connection) = job.feed_of(&agent);
    let kept = [0, 1].map(|step| {
        thread::scope(|scope| {
            let call = scope.spawn(|| take(&feed, batch(0, step)));
            agent.lease(connection, agent.requested());
            call.join().unwrap().unwrap()
        })
    });
    // The agent has no room, and answers nothing.
    take(&feed, batch(0, 2)).unwrap();
    assert_eq!((feed.figures().read_directly, feed.is_connected()), (1, true));
    drop(kept);
    // Its answer comes late, and goes back.
    assert_eq!(agent.requested(), batch(0, 2));
    agent.lease(connection, batch(0, 2));
    thread::scope(|scope| {
        let call = scope.spawn(|| take(&feed, batch(0, 3)));
        loop {
            match agent.event() {
                ClientEvent::Requested { batch, .. } => agent.lease(connection, batch),
                ClientEvent::Released { lease: LeaseId(3), .. } => break,
                _ => (),
            }
        }
        call.join().unwrap().unwrap();
    });
    assert_eq!(feed.figures().read_directly, 1);
}

#[test]
fn in_the_place_of_a_batch_of_which_nothing_is_left_comes_the_one_before_it_or_the_nearest() {
    let mut job = Job::new();
    job.briefing.on_error = OnError::Skip(SkipShare(1_000_000));
    let feed = job.feed();
    let samples = |answer: &Answer| answer.staged.rows.iter().map(|row| row.sample).collect();
    let remove = |sample: u32| {
        fs::remove_file(job.directory.path().join(format!("data/class/{sample}.jpg"))).unwrap();
    };
    for (gone, step, expected) in [([4, 5], 2, [2, 3]), ([2, 3], 1, [0, 1]), ([0, 1], 0, [6, 7])] {
        gone.into_iter().for_each(remove);
        let answer = take(&feed, batch(0, step)).unwrap();
        let found: Vec<u32> = samples(&answer);
        assert_eq!((found, answer.staged.skipped), (expected.to_vec(), 2), "step {step}");
    }
    [6, 7].into_iter().for_each(remove);
    let failure = take(&feed, batch(1, 0)).err().unwrap();
    assert_eq!(failure.code, Code::DataLoss);
    assert!(failure.message.contains("leaves out 7 at most"), "{failure:?}");
}

#[test]
fn a_store_that_stays_away_ends_the_training_and_no_sample_is_left_out() {
    let mut job = Job::new();
    job.briefing.on_error = OnError::Skip(SkipShare(1_000_000));
    let feed = job.feed();
    fs::rename(job.directory.path().join("data"), job.directory.path().join("aside")).unwrap();
    let failure = take(&feed, batch(0, 0)).err().unwrap();
    assert_eq!((failure.code, feed.figures().skipped), (Code::Unavailable, 0), "{failure:?}");
    fs::rename(job.directory.path().join("aside"), job.directory.path().join("data")).unwrap();
    assert_eq!(take(&feed, batch(0, 0)).unwrap().staged.rows.len(), 2);
}

#[test]
fn a_job_goes_without_a_share_of_its_samples_in_an_epoch_and_no_more() {
    let mut job = Job::new();
    job.briefing.on_error = OnError::Skip(SkipShare(250_000));
    let feed = job.feed();
    for sample in [0, 2, 5] {
        fs::remove_file(job.directory.path().join(format!("data/class/{sample}.jpg"))).unwrap();
    }
    for step in [0, 1, 0, 3] {
        assert!(take(&feed, batch(0, step)).is_ok(), "each counts once");
    }
    let failure = take(&feed, batch(0, 2)).err().unwrap();
    assert_eq!(failure.code, Code::DataLoss);
    assert!(failure.message.contains("3 samples of this rank's epoch"), "{failure:?}");
    assert!(take(&feed, batch(1, 2)).is_ok(), "another epoch");
}

#[test]
fn the_samples_that_a_rank_goes_without_are_counted_apart_where_it_reads_two_epochs_by_turns() {
    let mut job = Job::new();
    job.briefing.on_error = OnError::Skip(SkipShare(250_000));
    let feed = job.feed();
    for sample in [0, 2, 5] {
        fs::remove_file(job.directory.path().join(format!("data/class/{sample}.jpg"))).unwrap();
    }
    for (epoch, step) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        assert!(take(&feed, batch(epoch, step)).is_ok());
    }
    for epoch in [0, 1] {
        let failure = take(&feed, batch(epoch, 2)).err().unwrap();
        assert!(failure.message.contains("3 samples of this rank's epoch"), "{failure:?}");
    }
}

#[test]
fn an_agent_is_given_up_after_its_silence_unless_it_says_that_it_waits_for_its_store() {
    let job = Job::new();
    let agent = job.agent();
    let (feed, id) = job.feed_of(&agent);
    let connection = feed.lock().connection.clone().unwrap();
    feed.lock().requests.enter(batch(0, 1), Nanoseconds(0));
    feed.lock().requests.sent(batch(0, 1), Nanoseconds(0));
    let lose_patience = |reasons: &[&str]| {
        // It was silent since the host has started.
        feed.lock().requests.agent_waits(Nanoseconds(0));
        thread::scope(|scope| {
            let call = scope.spawn(|| drop(feed.lose_patience(feed.lock(), &connection)));
            let event = agent.event();
            let ClientEvent::ExplanationWanted { request, samples, .. } = event else {
                panic!("{event:?}")
            };
            assert_eq!(samples, [SampleId(2), SampleId(3)]);
            assert!(feed.is_connected(), "it is asked without the lock");
            let reasons = samples.into_iter().zip(reasons.iter().map(|it| (*it).to_owned()));
            agent.server.explain(id, request, reasons);
            call.join().unwrap();
        });
    };
    lose_patience(&["cannot read class/2.jpg: the store is away"]);
    assert!(feed.is_connected() && !feed.lock().requests.is_to_read(batch(0, 1)));
    let (_, silent) = feed.lock().requests.silent_for(monotonic_now()).unwrap();
    assert!(
        silent < Patience::default().limit(Holding::default()),
        "it is asked again only after as long"
    );
    lose_patience(&[]);
    assert!(!feed.is_connected() && feed.lock().requests.is_to_read(batch(0, 1)));
}

#[test]
fn a_batch_is_read_from_the_cold_store_only_while_it_is_wanted() {
    let job = Job::new();
    let dataset = NamedDataset::find(&job.briefing, None).unwrap();
    let cold = job.cold(dataset);
    let read = cold.read(Form::Rows, batch(0, 1), StorePatience::OfTheJob, &|| true).unwrap();
    assert_eq!(read.rows.iter().map(|row| row.sample).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(
        cold.read(Form::Rows, batch(0, 1), StorePatience::OfTheJob, &|| false).err(),
        Some(closed())
    );
}

#[test]
fn a_panic_is_told_and_no_more() {
    let failure = caught(|| panic!("no such {}", "thing")).err();
    assert!(failure.is_some_and(|it| it.message.contains("no such thing")));
    assert_eq!(caught(|| 3), Ok(3));
}
