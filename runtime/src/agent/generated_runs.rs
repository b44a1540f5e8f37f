//! Reports of randomly generated runs: trainers with a stop-watch each, a session whose operations take
//! random times, and messages that arrive late. The test compares each report with the watches, and its
//! figures with each other.

use std::collections::{BTreeMap, VecDeque};

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use tierfeed_core::{
    id::{BatchId, ConnectionId, LeaseId, NodeId, Rank},
    latency_quantiles::Draws,
    order::{FurtherDatasets, Position, Shuffle, Spec, World as Ranks},
    retention::policy,
    session::{
        Answer, Command, Event, LookAhead, OnError, Session, Settings, Tally, Wait, Windows,
    },
    tier::{Buffer, Kind},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_dataset::read::page_cache::PageCacheFigures;
use tierfeed_handoff::Role;

use super::readers::Readers;
use crate::observe::{
    report::{PageCacheEntry, Report, RunFigures, TierEntry},
    total::total,
};

const RANKS: u32 = 2;
const SAMPLES: u32 = 24;
const SAMPLE: Bytes = Bytes(1000);
const EPOCHS: u32 = 2;
const AHEAD: usize = 3;

/// The parameters of a run; all times in microseconds.
#[derive(Debug, Clone)]
struct Shape {
    seed: u64,
    reading_max: u64,
    computing_max: u64,
    decoding_max: u64,
    /// The longest delay of a trainer's message to the agent.
    lag_max: u64,
    /// The percentage of batches that a trainer reads itself.
    self_read_percent: u64,
    policy: policy::Kind,
    /// Steps of each rank before it leaves.
    steps_max: u32,
}

/// The counts that a trainer keeps itself.
#[derive(Debug, Clone, Copy, Default)]
struct StopWatch {
    served: u64,
    self_read: u64,
    waited: u64,
}

#[derive(Debug)]
struct Trainer {
    connection: ConnectionId,
    next: Option<BatchId>,
    asked_to: Option<BatchId>,
    steps_left: u32,
    asked: VecDeque<BatchId>,
    ring: BTreeMap<BatchId, LeaseId>,
    /// The time since which it wants its next batch.
    wants_since: Option<u64>,
    watch: StopWatch,
}

#[derive(Debug)]
enum Due {
    Said(Event),
    Wants(usize),
}

struct Run {
    shape: Shape,
    draws: Draws,
    session: Session,
    readers: Readers,
    trainers: Vec<Trainer>,
    now: u64,
    due: BTreeMap<(u64, u64), Due>,
    number: u64,
    /// The arrival of the last message of each trainer: messages of one trainer arrive in order.
    said_until: BTreeMap<ConnectionId, u64>,
}

impl Run {
    fn new(shape: &Shape) -> Self {
        let order = order();
        let settings = Settings {
            order,
            node: NodeId(0),
            sizes: vec![SAMPLE; SAMPLES as usize].into(),
            tiers: vec![Buffer::within(Kind::MainMemory, Bytes(8192), Bytes(4096))],
            chunk: Bytes(4096),
            policy: shape.policy,
            staged_batches: 4,
            staged_batches_max: 0,
            arena: Bytes(64 << 10),
            on_error: OnError::Fail,
            windows: Windows::default(),
            aim: policy::Aim::default(),
            in_place_tiers: Vec::new(),
            transform: None,
            first_room: Bytes(0),
            look_ahead: LookAhead::Off,
        };
        let trainers = (0..RANKS).map(|rank| Trainer {
            connection: ConnectionId(u64::from(rank)),
            next: Some(order.first(Rank(rank))),
            asked_to: Some(order.first(Rank(rank))),
            steps_left: shape.steps_max,
            asked: VecDeque::new(),
            ring: BTreeMap::new(),
            wants_since: None,
            watch: StopWatch::default(),
        });
        let mut run = Self {
            draws: Draws::of(shape.seed, 0),
            session: Session::new(settings),
            readers: Readers::default(),
            trainers: trainers.collect(),
            now: 0,
            due: BTreeMap::new(),
            number: 0,
            said_until: BTreeMap::new(),
            shape: shape.clone(),
        };
        for rank in 0..RANKS {
            let connection = ConnectionId(u64::from(rank));
            run.readers.connect(connection, Role::Trainer, Nanoseconds(0));
            run.readers.mark_active(connection);
            run.tell(Event::Attached { connection, rank: Rank(rank) });
        }
        run
    }

    fn play(&mut self) {
        while let Some(((at, _), due)) = self.due.pop_first() {
            self.now = at;
            match due {
                Due::Said(event) => self.hear(event),
                Due::Wants(who) => self.want(who),
            }
        }
    }

    /// Handles an event as the agent does: it checks the times that trainers report.
    fn hear(&mut self, event: Event) {
        let now = Nanoseconds(self.now);
        let event = match event {
            Event::Delivered { connection, lease, wait } => Event::Delivered {
                connection,
                lease,
                wait: self.readers.clamp_wait(connection, wait, now),
            },
            Event::Tallied { connection, rank, tally } => {
                let tally = self.readers.clamp_tally(connection, tally, now);
                Event::Tallied { connection, rank, tally }
            }
            other => other,
        };
        self.tell(event);
    }

    fn tell(&mut self, event: Event) {
        self.session.handle(event, Nanoseconds(self.now));
        self.obey();
    }

    /// Carries out the commands of the session; its jobs take no time here.
    fn obey(&mut self) {
        loop {
            while let Some(job) = self.session.poll_job() {
                self.session.finish(job.run(), Nanoseconds(self.now));
            }
            let Some(command) = self.session.poll_command() else { return };
            self.carry_out(command);
        }
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Start { op, .. } => {
                let takes = self.draw(self.shape.reading_max);
                self.at(self.now + takes, Due::Said(Event::Completed { op, outcome: Ok(()) }));
            }
            Command::Free(_) => (),
            Command::Answer(answer) => self.answered(answer),
        }
    }

    fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Admit { rank, .. } => self.at(self.now, Due::Wants(rank.0 as usize)),
            Answer::Lease { connection, lease, batch, .. } => {
                let who = usize::try_from(connection.0).unwrap();
                self.trainers[who].ring.insert(batch.id, lease);
                self.take_if_wanted(who);
            }
            Answer::Refuse { batch, reason, .. } => panic!("{batch:?} refused: {reason:?}"),
            Answer::Reject { .. } => (),
        }
    }

    /// A rank asks for its next batch, or leaves.
    fn want(&mut self, who: usize) {
        self.ask(who);
        let trainer = &mut self.trainers[who];
        let connection = trainer.connection;
        let Some(batch) = trainer.next.filter(|_| trainer.steps_left > 0) else {
            self.say(connection, Event::Gone { connection });
            return;
        };
        trainer.wants_since = Some(self.now);
        if trainer.asked.contains(&batch) {
            self.take_if_wanted(who);
        } else {
            self.read_itself(who, batch);
        }
    }

    fn ask(&mut self, who: usize) {
        let order = order();
        while self.trainers[who].asked.len() < AHEAD {
            let Some(batch) = self.trainers[who].asked_to else { break };
            self.trainers[who].asked_to = order.after(batch);
            if self.draws.word() % 100 >= self.shape.self_read_percent {
                let connection = self.trainers[who].connection;
                self.trainers[who].asked.push_back(batch);
                self.say(connection, Event::Requested { connection, batch });
            } else if self.trainers[who].asked.is_empty() {
                // The trainer reads this batch itself, so it requests none beyond it.
                break;
            }
        }
    }

    fn take_if_wanted(&mut self, who: usize) {
        let now = self.now;
        let trainer = &mut self.trainers[who];
        let (Some(since), Some(batch)) = (trainer.wants_since, trainer.next) else { return };
        let Some(lease) = trainer.ring.remove(&batch) else { return };
        let connection = trainer.connection;
        trainer.asked.retain(|asked| *asked != batch);
        trainer.watch.served += 1;
        let wait = Wait { since: Nanoseconds(since), until: Nanoseconds(now) };
        self.say(connection, Event::Delivered { connection, lease, wait });
        let done = self.decode(who, batch, now, Tally::empty(batch.epoch));
        self.say_at(done, connection, Event::Released { connection, lease });
        self.at(done, Due::Wants(who));
    }

    fn read_itself(&mut self, who: usize, batch: BatchId) {
        let unanswered = self.draw(self.shape.reading_max / 4);
        let takes = self.draw(self.shape.reading_max);
        self.trainers[who].watch.self_read += 1;
        let tally = Tally {
            self_read_batches: 1,
            self_read_samples: 1,
            unanswered: Nanoseconds(unanswered),
            self_read: Nanoseconds(takes),
            ..Tally::empty(batch.epoch)
        };
        let done = self.decode(who, batch, self.now + unanswered + takes, tally);
        self.at(done, Due::Wants(who));
    }

    /// Decodes from `from` on, then computes. Returns when the step is over.
    fn decode(&mut self, who: usize, batch: BatchId, from: u64, tally: Tally) -> u64 {
        let decoding = self.draw(self.shape.decoding_max);
        let ready = from + decoding;
        let tally = Tally { decoding: Nanoseconds(decoding), ..tally };
        let trainer = &mut self.trainers[who];
        let (connection, rank) = (trainer.connection, batch.rank);
        trainer.watch.waited += ready - trainer.wants_since.take().unwrap();
        trainer.next = order().after(batch);
        trainer.steps_left -= 1;
        self.say_at(ready, connection, Event::Tallied { connection, rank, tally });
        ready + self.draw(self.shape.computing_max)
    }

    fn say(&mut self, connection: ConnectionId, event: Event) {
        self.say_at(self.now, connection, event);
    }

    fn say_at(&mut self, at: u64, connection: ConnectionId, event: Event) {
        let arrives = at + self.draw(self.shape.lag_max);
        let until = self.said_until.entry(connection).or_default();
        *until = arrives.max(*until);
        let arrives = *until;
        self.at(arrives, Due::Said(event));
    }

    fn at(&mut self, time: u64, due: Due) {
        self.number += 1;
        self.due.insert((time, self.number), due);
    }

    /// A random time of at most `max_us` microseconds, in nanoseconds.
    fn draw(&mut self, max_us: u64) -> u64 {
        self.draws.word() % (max_us * 1000 + 1)
    }

    fn report(&self) -> Report {
        let kinds = [Kind::MainMemory];
        let served = Bytes(self.shape.seed % (u64::from(EPOCHS * SAMPLES) * 2 * SAMPLE.0));
        let page_cache = PageCacheFigures { served, ..PageCacheFigures::default() };
        let progress = self.session.progress();
        let facts = Report {
            policy: self.shape.policy.name(),
            wasted_bytes: self.session.wasted().0,
            tiers: vec![TierEntry {
                name: "main-memory",
                cache_bytes: 8192,
                cache_least_bytes: 8192,
                cache_most_bytes: 8192,
                ..TierEntry::default()
            }],
            // What was read for batches that were dropped meanwhile counts there, too.
            page_cache: Some(PageCacheEntry::of("auto", Some(page_cache), total(progress).cold)),
            ..Report::default()
        };
        Report::of(RunFigures {
            facts,
            progress,
            kinds: &kinds,
            ranks: RANKS,
            further: Vec::new(),
            reader_stats: self.readers.reader_stats(),
            staged_batches: 4,
            look_ahead: LookAhead::Off,
            cycle: self.session.cycle(),
            chunk: Bytes(4096),
            cold: BytesPerSecond(2_000_000),
            step_time: None,
            wall: Nanoseconds(self.now),
            cold_before: Bytes(0),
            transformed_before: Nanoseconds(0),
            processors: 8,
        })
    }
}

fn order() -> Spec {
    Spec {
        samples: SAMPLES,
        shuffle: Shuffle::Sequential,
        seed: 3,
        epochs: EPOCHS,
        drop_last: false,
        batch_size: 2,
        world: Ranks { nodes: 1, ranks_per_node: RANKS },
        start: Position::START,
        further: FurtherDatasets::NONE,
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    let times = (0..5_000_u64, 0..5_000_u64, 0..3_000_u64, 0..3_000_u64);
    let policies = prop::sample::select(vec![policy::Kind::Gap, policy::Kind::None]);
    (any::<u64>(), times, prop_oneof![Just(0), 0..=100_u64], policies, 0..=12_u32).prop_map(
        |(
            seed,
            (reading_max, computing_max, decoding_max, lag_max),
            self_read_percent,
            policy,
            steps_max,
        )| {
            Shape {
                seed,
                reading_max,
                computing_max,
                decoding_max,
                lag_max,
                self_read_percent,
                policy,
                steps_max,
            }
        },
    )
}

fn assert_agrees(report: &Report, watches: &[StopWatch]) -> Result<(), TestCaseError> {
    let sum = |of: fn(&StopWatch) -> u64| watches.iter().map(of).sum::<u64>();
    let (served, self_read) = (sum(|it| it.served), sum(|it| it.self_read));
    prop_assert_eq!((report.steps, report.self_read_batches), (served, self_read));
    prop_assert_eq!(report.used_batches, served + self_read);
    prop_assert_eq!(report.samples, 2 * served, "two samples a batch");
    // The report contains every nanosecond of the watches and no other.
    let near = |one: f64, other: f64| (one - other).abs() < 1e-6 * one.abs().max(1e-3);
    let waited = seconds(sum(|it| it.waited));
    let readers = f64::from(report.readers);
    prop_assert!(near(report.stall_s * readers, waited), "{} {waited}", report.stall_s * readers);
    prop_assert!(near(report.stall_for_s.values().sum(), report.stall_s));
    prop_assert!(near(report.epochs.iter().map(|it| it.stall_s).sum(), report.stall_s));
    for epoch in &report.epochs {
        prop_assert!(near(epoch.stall_for_s.values().sum(), epoch.stall_s));
        prop_assert!(
            (0.0..=1.0).contains(&epoch.hit_ratio) && (0.0..=1.0).contains(&epoch.ready_ratio)
        );
        prop_assert!(epoch.minimal_cold_bytes <= epoch.cold_read_bytes);
    }
    let whole = report.wall_s * (1.0 + 1e-9);
    prop_assert!(report.stall_s <= whole && report.lower_bound_s <= whole, "{report:#?}");
    prop_assert!(report.first_stall_s <= report.stall_s * (1.0 + 1e-9));
    prop_assert!(report.busy_s.values().all(|busy| *busy <= whole));
    let batches: u64 = report.epochs.iter().map(|it| it.batches).sum();
    prop_assert_eq!(batches, report.steps);
    let waits = report.batch_wait_s;
    prop_assert!(waits.p50 <= waits.p99 && waits.p99 <= waits.max && waits.max <= whole);
    assert_sentence(report)?;
    assert_shares(report)?;
    for advice in &report.advice {
        prop_assert!(advice.to_count.is_none_or(|to| to > 0), "{advice:?}");
        prop_assert!(advice.more_bytes.is_none_or(|more| more > 0), "{advice:?}");
        let of_decoding = ["decode-threads", "cheaper-decoding"].contains(&advice.change);
        prop_assert!(of_decoding || advice.to_count.is_none_or(|to| to > 4), "{advice:?}");
    }
    Ok(())
}

/// No part of anything is larger than the whole.
fn assert_shares(report: &Report) -> Result<(), TestCaseError> {
    let from_tiers: u64 = report.tier_read_bytes.values().sum();
    let of_page_cache = report.page_cache.map_or(0, |it| it.read_bytes);
    let ahead: u64 = report.epochs.iter().map(|it| it.ahead_bytes).sum();
    for (part, whole) in [
        (of_page_cache, report.cold_read_bytes),
        (ahead, report.cold_read_bytes),
        (report.direct_samples, report.tier_hits.values().sum()),
        (report.direct_bytes, from_tiers),
        (report.wasted_bytes, report.cold_read_bytes + from_tiers),
        (report.steps, report.used_batches),
        (report.self_read_batches, report.used_batches),
    ] {
        prop_assert!(part <= whole, "{part} of {whole}: {report:#?}");
    }
    let reads = report.cold_read_bytes + from_tiers;
    prop_assert!(report.bytes <= reads, "{} handed over of {reads} read", report.bytes);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a comparison needs no more than 53 bits")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn assert_sentence(report: &Report) -> Result<(), TestCaseError> {
    let Report { verdict, steps, used_batches, self_read_batches, .. } = report;
    if *used_batches == 0 {
        prop_assert!(verdict.starts_with("no batch was used"), "{verdict}");
        return Ok(());
    }
    let served = format!("{steps} of {used_batches} batches served by the agent");
    prop_assert!(verdict.starts_with(&served), "{verdict}");
    let is_small = report.stall_s < 0.005 * report.wall_s && *self_read_batches == 0;
    prop_assert_eq!(verdict.contains("hardly"), is_small, "{}", verdict);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_figures_of_a_report_agree_with_each_other_and_with_a_stop_watch(shape in shapes()) {
        let mut run = Run::new(&shape);
        run.play();
        let watches: Vec<StopWatch> = run.trainers.iter().map(|it| it.watch).collect();
        assert_agrees(&run.report(), &watches)?;
    }
}

#[test]
fn the_runs_use_batches_and_wait_for_whatever_one_can_wait_for() {
    let mut runner = TestRunner::deterministic();
    let (mut served, mut self_read) = (0, 0);
    let mut causes: BTreeMap<&str, f64> = BTreeMap::new();
    for _ in 0..200 {
        let mut run = Run::new(&shapes().new_tree(&mut runner).unwrap().current());
        run.play();
        let report = run.report();
        (served, self_read) = (served + report.steps, self_read + report.self_read_batches);
        for (cause, time) in report.stall_for_s {
            *causes.entry(cause).or_default() += time;
        }
    }
    assert!(served > 1000 && self_read > 200, "{served} {self_read}");
    let tier = ["main-memory", "keep"];
    let of_all = ["cold-store", "hand-off", "unanswered", "self-read", "decoding"];
    assert!(of_all.iter().chain(&tier).all(|cause| causes[cause] > 0.0), "{causes:?}");
}

/// The bytes come late and the trainer's messages later still: the wait is for the cold store, not for the
/// hand-off.
#[test]
fn a_delivery_that_is_told_late_does_not_blame_the_hand_off() {
    let shape = Shape {
        seed: 1,
        reading_max: 5_000,
        computing_max: 10,
        decoding_max: 0,
        lag_max: 3_000,
        self_read_percent: 0,
        policy: policy::Kind::None,
        steps_max: 12,
    };
    let mut run = Run::new(&shape);
    run.play();
    let report = run.report();
    let hand_off = report.stall_for_s["hand-off"];
    // The agent hears requests late too, which is the hand-off's; half of all waits would be, if it
    // stamped deliveries when it hears of them.
    assert!(report.stall_s > 0.01 && hand_off < 0.2 * report.stall_s, "{:?}", report.stall_for_s);
}
