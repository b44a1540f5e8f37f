//! On a real S3 server on loopback that answers late, wrongly or not at all.

use std::{
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Receiver, TryRecvError, sync_channel},
    },
    time::Duration,
};

use hyper::{Request as Asked, StatusCode, body::Incoming};
use tierfeed_core::{session::Fault, tier::Locality};
use tierfeed_dataset::{
    Dataset, Format,
    format::Raw,
    source::{self, Address, Identity, Location},
};
use tierfeed_numa_memory::{Pages, Region, Request};
use tierfeed_object_stores::{
    Patience,
    test_server::{Access, Server, Verdict, refuse_first},
};

use super::*;

const RECORD: usize = 100_000;
const MARK: u8 = 0xEE;

struct Fixture {
    server: Server,
    bytes: Vec<u8>,
    record: usize,
    region: Arc<Region>,
    fetcher: ObjectFetcher,
}

type Outcome = Receiver<Result<(), ReadError>>;

impl Fixture {
    fn new(
        records: usize,
        record: usize,
        settings: ObjectSettings,
        judge: impl Fn(&Asked<Incoming>) -> Verdict + Send + Sync + 'static,
    ) -> Self {
        let server = Server::start(Access::Everybody, judge);
        let bytes: Vec<u8> = (0..records * record).map(byte).collect();
        server.put_bytes("data/records", bytes.clone());
        let format = Format::Raw(Raw::of_records(Bytes(record as u64)));
        let index = index(&server, format);
        let fetches_max = NonZeroUsize::new(1_000).unwrap();
        let client = client(&server, settings);
        let fetcher = ObjectFetcher::start(index, client, settings, fetches_max).unwrap();
        Self { server, record, region: region(bytes.len()), bytes, fetcher }
    }

    /// Starts to read a record to the offset that it has in the object.
    fn fetch(&self, sample: usize) -> Outcome {
        fetch(&self.fetcher, &self.region, sample, sample * self.record, self.record)
    }

    fn fetch_all(&self, samples: std::ops::Range<usize>) {
        let outcomes: Vec<_> = samples.clone().map(|sample| self.fetch(sample)).collect();
        for (sample, outcome) in samples.zip(outcomes) {
            outcome.recv().unwrap().unwrap();
            assert!(self.has(sample), "sample {sample}");
        }
    }

    /// Reads the first records, four at a time, so that the usual duration is known and late requests show.
    fn fetch_quickly(&self, count: usize) {
        for first in (0..count).step_by(4) {
            self.fetch_all(first..first + 4);
        }
    }

    fn place(&self, sample: usize) -> Vec<u8> {
        let mut place = vec![0; self.record];
        self.region.read(Bytes((sample * self.record) as u64), &mut place).unwrap();
        place
    }

    fn has(&self, sample: usize) -> bool {
        self.place(sample) == self.bytes[sample * self.record..][..self.record]
    }

    /// Fills the target with a mark, as its next user would.
    fn mark(&self, sample: usize) {
        let at = Bytes((sample * self.record) as u64);
        self.region.fill(at, Bytes(self.record as u64), MARK).unwrap();
    }

    fn is_marked(&self, sample: usize) -> bool {
        self.place(sample).iter().all(|byte| *byte == MARK)
    }

    fn figures(&self) -> ObjectFigures {
        self.fetcher.counters().figures()
    }

    /// The start offsets of the requested ranges, in the order of the requests.
    fn starts(&self) -> Vec<usize> {
        let seen = self.server.seen();
        seen.iter().filter_map(|seen| start(seen.range.as_deref()?)).collect()
    }
}

fn byte(at: usize) -> u8 {
    u8::try_from(at * 31 % 251).unwrap()
}

fn start(range: &str) -> Option<usize> {
    range.strip_prefix("bytes=")?.split_once('-')?.0.parse().ok()
}

fn is_get(asked: &Asked<Incoming>) -> bool {
    asked.method() == hyper::Method::GET && asked.headers().contains_key("range")
}

/// Whether a request is for a range that begins in a sample of [`RECORD`] bytes.
fn is_of(asked: &Asked<Incoming>, sample: usize) -> bool {
    let range = asked.headers().get("range").and_then(|range| range.to_str().ok());
    range.and_then(start).is_some_and(|start| start / RECORD == sample)
}

fn region(len: usize) -> Arc<Region> {
    let locality = Locality::Anywhere;
    let len = Bytes(len.max(1) as u64);
    let request = Request { len, locality, name: "test", pages: Pages::Small };
    Arc::new(Region::allocate(&request).unwrap())
}

fn index(server: &Server, format: Format) -> Arc<Index> {
    let bucket = Address {
        url: "s3://bucket/data".to_owned(),
        access: source::Access {
            endpoint: Some(server.endpoint()),
            region: None,
            identity: Identity::Anonymous,
        },
    };
    let dataset = Dataset::new(Location::Bucket(bucket), format);
    Arc::new(Index::build(&dataset, None, &mut |_| ()).unwrap())
}

fn client(server: &Server, settings: ObjectSettings) -> Client {
    let address = Address {
        url: "s3://bucket/data".to_owned(),
        access: source::Access { endpoint: None, region: None, identity: Identity::Anonymous },
    };
    let patience = settings.patience.without_retries();
    Client::open(&address, &server.options(), &patience).unwrap()
}

fn fetch(
    fetcher: &ObjectFetcher,
    region: &Arc<Region>,
    sample: usize,
    at: usize,
    len: usize,
) -> Outcome {
    let (answer, outcome) = sync_channel(1);
    let sample = SampleId(u32::try_from(sample).unwrap());
    let to = Target::new(Arc::clone(region), Bytes(at as u64), Bytes(len as u64));
    let answer = move |ended| answer.send(ended).unwrap();
    fetcher.start(Fetch::new(sample, to, answer));
    outcome
}

/// Two quick repetitions and no hedge, so that requests can be counted.
fn settings() -> ObjectSettings {
    let pause = Duration::from_millis(1);
    let patience = Patience { retries: 2, pause, ..Patience::default() };
    let hedges = Share { per_mille: 0, saved_max: 0 };
    ObjectSettings { patience, pause_max: pause, hedges, ..ObjectSettings::default() }
}

/// Settings that hedge every late request.
fn hedging() -> ObjectSettings {
    ObjectSettings { hedges: Share { per_mille: 1_000, saved_max: 100 }, ..settings() }
}

fn impatient(silence: Duration) -> ObjectSettings {
    ObjectSettings { patience: Patience { silence, ..settings().patience }, ..settings() }
}

fn in_parts(part_max: u64) -> ObjectSettings {
    ObjectSettings { split: Split { above: Bytes(0), part_max: Bytes(part_max) }, ..settings() }
}

#[test]
fn many_requests_are_in_flight_and_no_more_than_allowed() {
    // The delay is there so that the requests meet; nothing depends on how long they take.
    let delay = Verdict::ServeAfter(Duration::from_millis(20));
    let requests_max = NonZeroUsize::new(16).unwrap();
    let settings = ObjectSettings { requests_max, ..settings() };
    let judge = move |asked: &Asked<Incoming>| if is_get(asked) { delay } else { Verdict::Serve };
    let fixture = Fixture::new(100, 1_000, settings, judge);
    fixture.fetch_all(0..100);
    let most = fixture.server.most_in_flight();
    assert!((NETWORK_THREADS.get() + 1..=16).contains(&most), "{most} in flight");
    assert_eq!(fixture.figures().requests, 100);
}

#[test]
fn a_hedge_wins_over_a_connection_that_is_stuck() {
    let is_stuck = AtomicBool::new(false);
    let fixture = Fixture::new(41, RECORD, hedging(), move |asked| {
        let stick = is_of(asked, 40) && !is_stuck.swap(true, Ordering::Relaxed);
        if stick { Verdict::NeverAnswer } else { Verdict::Serve }
    });
    fixture.fetch_quickly(40);
    // The timeout of 20 s would show as a retry.
    fixture.fetch_all(40..41);
    let ObjectFigures { hedges, hedges_won, retries, .. } = fixture.figures();
    assert!(hedges >= 1 && hedges_won >= 1 && retries == 0, "{:?}", fixture.figures());
}

#[test]
fn a_hedge_goes_on_where_a_body_is_stuck() {
    let is_stuck = AtomicBool::new(false);
    let fixture = Fixture::new(41, RECORD, hedging(), move |asked| {
        let stick = is_of(asked, 40) && !is_stuck.swap(true, Ordering::Relaxed);
        if stick { Verdict::StallAfter { bytes: 30_000 } } else { Verdict::Serve }
    });
    fixture.fetch_quickly(40);
    fixture.fetch_all(40..41);
    let starts = fixture.starts().into_iter().filter(|start| *start >= 40 * RECORD);
    assert_eq!(starts.collect::<Vec<_>>()[..2], [40 * RECORD, 40 * RECORD + 30_000]);
}

#[test]
fn a_hedge_that_loses_writes_nothing_after_the_answer() {
    // The first request for sample 40 is slow and its hedge is slower: it loses while it writes.
    let asked_before = AtomicUsize::new(0);
    let fixture = Fixture::new(42, RECORD, hedging(), move |asked| {
        let rate = |bytes_per_s| Verdict::ServeAt { bytes_per_s };
        if is_of(asked, 41) {
            return rate(80_000);
        }
        if !is_of(asked, 40) {
            return Verdict::Serve;
        }
        let is_first = asked_before.fetch_add(1, Ordering::Relaxed) == 0;
        rate(if is_first { 100_000 } else { 90_000 })
    });
    fixture.fetch_quickly(40);
    let before = fixture.figures().hedges;
    fixture.fetch_all(40..41);
    fixture.mark(40);
    assert_eq!(fixture.figures().hedges, before + 1, "else nothing was raced");
    // This one takes longer than what the loser had left.
    fixture.fetch_all(41..42);
    assert!(fixture.is_marked(40));
}

#[test]
fn hedges_are_at_most_one_in_twenty_requests() {
    let seen = AtomicUsize::new(0);
    let usual = ObjectSettings { hedges: ObjectSettings::default().hedges, ..settings() };
    let fixture = Fixture::new(200, 1_000, usual, move |asked| {
        let is_late = is_get(asked) && seen.fetch_add(1, Ordering::Relaxed) >= 60;
        if is_late { Verdict::ServeAfter(Duration::from_millis(600)) } else { Verdict::Serve }
    });
    fixture.fetch_quickly(60);
    fixture.fetch_all(60..200);
    let ObjectFigures { hedges, requests, .. } = fixture.figures();
    assert!(hedges > 0, "else nothing was late");
    assert!(hedges * 20 <= requests - hedges, "{hedges} of {requests}");
}

#[test]
fn a_store_that_is_busy_twice_is_asked_three_times() {
    let judge = refuse_first(2, StatusCode::SERVICE_UNAVAILABLE, is_get);
    let fixture = Fixture::new(1, RECORD, settings(), judge);
    fixture.fetch_all(0..1);
    let ObjectFigures { requests, retries, .. } = fixture.figures();
    assert_eq!((requests, retries), (3, 2));
}

#[test]
fn a_store_that_is_always_busy_is_a_fault_and_is_asked_no_more_than_thrice() {
    let fixture = Fixture::new(20, 1_000, settings(), |asked| {
        let busy = Verdict::Refuse(StatusCode::SERVICE_UNAVAILABLE);
        if is_get(asked) { busy } else { Verdict::Serve }
    });
    let outcomes: Vec<_> = (0..20).map(|sample| fixture.fetch(sample)).collect();
    for outcome in outcomes {
        let error = outcome.recv().unwrap().unwrap_err();
        assert_eq!(error.fault(), Fault::Io);
        assert!(error.to_string().contains("refuses more requests for now"), "{error}");
    }
    assert_eq!(fixture.starts().len(), 60);
}

#[test]
fn a_body_that_is_cut_is_asked_for_from_there() {
    let cuts = AtomicUsize::new(0);
    let fixture = Fixture::new(1, RECORD, settings(), move |asked| {
        let is_cut = is_get(asked) && cuts.fetch_add(1, Ordering::Relaxed) < 2;
        if is_cut { Verdict::CutAfter { bytes: 30_000 } } else { Verdict::Serve }
    });
    fixture.fetch_all(0..1);
    assert_eq!(fixture.starts(), [0, 30_000, 60_000]);
}

#[test]
fn a_body_that_is_always_too_short_is_a_fault() {
    let fixture = Fixture::new(1, RECORD, settings(), |asked| {
        if is_get(asked) { Verdict::EndAfter { bytes: 10 } } else { Verdict::Serve }
    });
    let error = fixture.fetch(0).recv().unwrap().unwrap_err();
    assert_eq!(error.fault(), Fault::Io);
    assert_eq!(fixture.starts(), [0, 10, 20]);
}

#[test]
fn a_store_that_says_nothing_is_given_up_and_asked_again() {
    let asked_before = AtomicUsize::new(0);
    // Longer than a busy machine lets a server wait, which would be one more request.
    let silence = Duration::from_secs(1);
    let fixture = Fixture::new(1, RECORD, impatient(silence), move |asked| {
        match is_get(asked).then(|| asked_before.fetch_add(1, Ordering::Relaxed)) {
            Some(0) => Verdict::NeverAnswer,
            Some(1) => Verdict::StallAfter { bytes: 50_000 },
            _ => Verdict::Serve,
        }
    });
    fixture.fetch_all(0..1);
    assert_eq!(fixture.starts(), [0, 0, 50_000]);
}

#[test]
fn a_store_that_is_silent_for_ever_is_a_fault() {
    let silence = Duration::from_millis(300);
    let fixture = Fixture::new(1, RECORD, impatient(silence), |asked| {
        if is_get(asked) { Verdict::NeverAnswer } else { Verdict::Serve }
    });
    let error = fixture.fetch(0).recv().unwrap().unwrap_err();
    assert_eq!(error.fault(), Fault::Io);
    assert_eq!(fixture.starts(), [0, 0, 0]);
}

#[test]
fn a_store_that_sends_byte_by_byte_is_a_fault() {
    let silence = Duration::from_millis(300);
    let fixture = Fixture::new(1, RECORD, impatient(silence), |asked| {
        let pause = Duration::from_millis(5);
        if is_get(asked) { Verdict::Drip { pause } } else { Verdict::Serve }
    });
    let error = fixture.fetch(0).recv().unwrap().unwrap_err();
    assert_eq!(error.fault(), Fault::Io);
    assert_eq!(fixture.starts().len(), 3);
}

#[test]
fn a_store_that_is_slow_but_goes_on_is_waited_for() {
    let silence = Duration::from_millis(300);
    let fixture = Fixture::new(1, 400_000, impatient(silence), |asked| {
        let slow = Verdict::ServeAt { bytes_per_s: 250_000 };
        if is_get(asked) { slow } else { Verdict::Serve }
    });
    // More than five silences, and two repetitions would not do.
    fixture.fetch_all(0..1);
}

#[test]
fn parts_are_the_bytes_of_the_object() {
    let delay = Verdict::ServeAfter(Duration::from_millis(5));
    let judge = move |asked: &Asked<Incoming>| if is_get(asked) { delay } else { Verdict::Serve };
    let fixture = Fixture::new(3, 1_000_000, in_parts(64 << 10), judge);
    fixture.fetch_all(0..3);
    assert_eq!(fixture.starts().len(), 3 * 1_000_000_usize.div_ceil(64 << 10));
    assert_eq!(fixture.figures().split, 3);
    assert!(fixture.server.most_in_flight() > 1);
}

#[test]
fn an_object_that_changes_between_its_parts_is_not_mixed() {
    let (arrived, arrival) = sync_channel(1);
    let (go, gone) = sync_channel(1);
    let gone = Mutex::new(gone);
    let asked_before = AtomicUsize::new(0);
    let requests_max = NonZeroUsize::MIN;
    let settings = ObjectSettings { requests_max, ..in_parts(64 << 10) };
    let fixture = Fixture::new(1, 300_000, settings, move |asked| {
        if is_get(asked) && asked_before.fetch_add(1, Ordering::Relaxed) == 2 {
            arrived.send(()).unwrap();
            gone.lock().recv().unwrap();
        }
        Verdict::Serve
    });
    let outcome = fixture.fetch(0);
    arrival.recv().unwrap();
    // As long as before: only its version tells.
    fixture.server.put("data/records", 300_000);
    go.send(()).unwrap();
    let error = outcome.recv().unwrap().unwrap_err();
    assert_eq!(error.fault(), Fault::Changed);
}

#[test]
fn when_a_part_fails_no_other_writes_after_the_answer() {
    let fixture = Fixture::new(2, RECORD * 10, in_parts(RECORD as u64), |asked| {
        let slow = Verdict::ServeAt { bytes_per_s: 200_000 };
        match () {
            () if is_of(asked, 9) => Verdict::Refuse(StatusCode::FORBIDDEN),
            () if is_get(asked) => slow,
            () => Verdict::Serve,
        }
    });
    let error = fixture.fetch(0).recv().unwrap().unwrap_err();
    assert_eq!(error.fault(), Fault::Denied);
    fixture.mark(0);
    // This one takes as long as the parts would have.
    fixture.fetch_all(1..2);
    assert!(fixture.is_marked(0));
}

#[test]
fn a_hundred_fetches_end_when_the_data_plane_stops() {
    let (arrived, arrival) = sync_channel(200);
    let fixture = Fixture::new(100, 1_000, settings(), move |asked| {
        if is_get(asked) {
            arrived.send(()).unwrap();
            return Verdict::NeverAnswer;
        }
        Verdict::Serve
    });
    let outcomes: Vec<_> = (0..100).map(|sample| fixture.fetch(sample)).collect();
    (0..REQUESTS_MAX.get()).for_each(|_| arrival.recv().unwrap());
    fixture.fetcher.stop();
    for outcome in outcomes {
        assert!(outcome.recv().is_err(), "dropped, which is how it is answered");
    }
    let late = fixture.fetch(0);
    assert!(late.recv().is_err());
    assert_eq!(fixture.starts().len(), REQUESTS_MAX.get(), "those that had not begun never do");
}

#[test]
fn a_fetcher_that_is_gone_has_answered_and_writes_nothing() {
    let fixture = Fixture::new(1, RECORD * 20, in_parts(RECORD as u64), |asked| {
        let slow = Verdict::ServeAt { bytes_per_s: 200_000 };
        if is_get(asked) { slow } else { Verdict::Serve }
    });
    let outcome = fixture.fetch(0);
    let Fixture { fetcher, region, record, .. } = fixture;
    // Some parts are on their way.
    while fetcher.counters().figures().requests < 5 {
        std::thread::yield_now();
    }
    drop(fetcher);
    assert_eq!(outcome.try_recv().unwrap_err(), TryRecvError::Disconnected);
    let weak = Arc::downgrade(&region);
    drop(region);
    assert!(weak.upgrade().is_none(), "the memory of {record} B is still held");
}

#[test]
fn a_fetch_too_many_is_dropped() {
    let server = Server::start(Access::Everybody, |asked| {
        if is_get(asked) { Verdict::NeverAnswer } else { Verdict::Serve }
    });
    server.put("data/records", 3);
    let index = index(&server, Format::Raw(Raw::of_records(Bytes(1))));
    let client = client(&server, settings());
    let two = NonZeroUsize::new(2).unwrap();
    let fetcher = ObjectFetcher::start(index, client, settings(), two).unwrap();
    let region = region(3);
    let outcomes: Vec<_> = (0..3).map(|at| fetch(&fetcher, &region, at, at, 1)).collect();
    assert!(outcomes[2].recv().is_err());
    assert_eq!(outcomes[0].try_recv().unwrap_err(), TryRecvError::Empty);
}

#[test]
fn a_missing_object_or_a_wrong_length_is_a_fault() {
    let fixture = Fixture::new(2, 1_000, settings(), |_| Verdict::Serve);
    let fault = |sample, at, len| {
        let outcome = fetch(&fixture.fetcher, &fixture.region, sample, at, len);
        outcome.recv().unwrap().unwrap_err()
    };
    assert!(matches!(fault(2, 0, 1_000), ReadError::Unknown { samples: 2, .. }));
    assert!(matches!(fault(0, 0, 10), ReadError::WrongLength { .. }));
    // The region ends in a page.
    assert!(matches!(fault(0, 1 << 20, 1_000), ReadError::Io { .. }));
    fixture.server.remove("data/records");
    assert!(matches!(fault(0, 0, 1_000), ReadError::Vanished { .. }));
}

#[test]
fn pauses_double_and_those_that_are_too_many_are_the_longest() {
    let patience = Patience { pause: Duration::from_millis(100), ..Patience::default() };
    let pause_max = Duration::from_secs(5);
    let settings = ObjectSettings { patience, pause_max, ..ObjectSettings::default() };
    for (tries, is_quick, most_ms) in
        [(1, true, 100), (2, true, 200), (5, true, 1_600), (9, true, 5_000), (1, false, 5_000)]
    {
        let most = Duration::from_millis(most_ms);
        for chance in [0, 511, 1_023, u64::MAX] {
            let pause = settings.pause(tries, is_quick, chance);
            assert!((most / 2..=most).contains(&pause), "{pause:?} of {most:?}");
        }
        assert!(settings.pause(tries, is_quick, 0) < settings.pause(tries, is_quick, 1_000));
    }
    assert_eq!(settings.pause(u32::MAX, true, 0), pause_max / 2);
}
