use std::{io, sync::mpsc};

use tierfeed_core::{tier::Locality, units::Bytes};
use tierfeed_dataset::read::Sink;
use tierfeed_numa_memory::{Checksum, Pages, Region, Request};

use super::*;
use crate::fetcher::Target;

const HOUR: Nanoseconds = Nanoseconds(3600 * 1_000_000_000);

type Failing = fn() -> ReadError;

/// Answers with these outcomes in order and then repeats the last one; `None` is a success.
#[derive(Debug)]
struct Scripted {
    outcomes: Vec<Option<Failing>>,
    asked: Mutex<usize>,
    tried: mpsc::Sender<SampleId>,
}

impl Fetcher for Scripted {
    fn start(&self, fetch: Fetch) {
        let mut asked = self.asked.lock();
        let outcome = self.outcomes[(*asked).min(self.outcomes.len() - 1)];
        *asked += 1;
        let _ = self.tried.send(fetch.sample);
        // Something may be written and summed before a failure.
        let written = fetch.to.write(Bytes(0), &[7; 4]);
        let refused = |source| ReadError::Io { path: "target".into(), source };
        fetch.end(outcome.map_or(Ok(()), |error| Err(error())).and(written.map_err(refused)));
    }

    fn backend(&self) -> &'static str {
        "scripted"
    }
}

fn away() -> ReadError {
    ReadError::Away { path: "/data/cat/1.jpg".into(), directory: "/data/cat".into() }
}

fn busy() -> ReadError {
    ReadError::Io { path: "/data/cat/1.jpg".into(), source: io::ErrorKind::ResourceBusy.into() }
}

fn gone() -> ReadError {
    ReadError::Vanished { path: "/data/cat/1.jpg".into() }
}

/// A fetcher with this script, and a receiver of the sample of each attempt.
fn patient(
    outcomes: Vec<Option<Failing>>,
    patience: Nanoseconds,
) -> (PatientFetcher, mpsc::Receiver<SampleId>) {
    let (tried, attempts) = mpsc::channel();
    let engine = Box::new(Scripted { outcomes, asked: Mutex::new(0), tried });
    (PatientFetcher::start(engine, "/data".to_owned(), patience).unwrap(), attempts)
}

fn target() -> Target {
    let (locality, pages) = (Locality::Anywhere, Pages::Small);
    let request = Request { len: Bytes(64), locality, name: "test", pages };
    Target::summed(Arc::new(Region::allocate(&request).unwrap()), Bytes(0), Bytes(4))
}

fn fetch(fetcher: &PatientFetcher, to: Target) -> mpsc::Receiver<Result<(), ReadError>> {
    let (ended, outcome) = mpsc::channel();
    fetcher.start(Fetch::new(SampleId(3), to, move |it| ended.send(it).unwrap()));
    outcome
}

#[test]
fn a_fetch_waits_until_its_store_can_be_read_and_brings_its_bytes() {
    let (fetcher, attempts) =
        patient(vec![Some(away as Failing), Some(busy as Failing), None], HOUR);
    let to = target();
    fetch(&fetcher, to.clone()).recv().unwrap().unwrap();
    assert_eq!(attempts.try_iter().count(), 3);
    assert!(to.sum().is_some(), "the sum is that of the last attempt");
    fetch(&fetcher, target()).recv().unwrap().unwrap();
}

#[test]
fn a_fault_of_a_sample_is_told_at_once_and_so_is_any_without_patience() {
    for (error, patience) in [(gone as Failing, HOUR), (away as Failing, Nanoseconds(0))] {
        let (fetcher, attempts) = patient(vec![Some(error)], patience);
        let told = fetch(&fetcher, target()).recv().unwrap().unwrap_err();
        assert_eq!(told.to_string(), error().to_string());
        assert_eq!(attempts.try_iter().count(), 1);
    }
}

#[test]
fn when_the_patience_is_used_up_the_last_failure_is_told() {
    let (fetcher, attempts) =
        patient(vec![Some(away as Failing), Some(busy as Failing)], Nanoseconds(250_000_000));
    let told = fetch(&fetcher, target()).recv().unwrap().unwrap_err();
    assert_eq!(told.to_string(), busy().to_string());
    assert!(attempts.try_iter().count() >= 3);
}

#[test]
fn the_fetch_after_one_that_was_given_up_does_not_wait_anew_until_the_store_can_be_read() {
    let script = [true, true, true, true, false, true, false];
    let script = script.map(|fails| fails.then_some(away as Failing)).to_vec();
    let (fetcher, attempts) = patient(script, Nanoseconds(250_000_000));
    let fetch = || fetch(&fetcher, target()).recv().unwrap().is_ok();
    let answers = [fetch(), fetch(), fetch(), fetch()];
    // Three attempts of the first one, and two of the last.
    assert_eq!((answers, attempts.try_iter().count()), ([false, false, true, true], 7));
}

#[test]
fn who_asks_is_told_what_a_fetch_waits_for_and_a_stop_ends_the_wait() {
    let (fetcher, attempts) = patient(vec![Some(away as Failing)], HOUR);
    let outcome = fetch(&fetcher, target());
    attempts.recv().unwrap();
    let why = fetcher.waits_for(SampleId(3)).unwrap();
    assert!(why.starts_with("cannot read /data/cat/1.jpg: /data/cat is not there"), "{why}");
    assert_eq!(fetcher.waits_for(SampleId(4)), None);
    fetcher.stop();
    assert!(outcome.recv().is_err(), "it is dropped, which is an answer");
    fetch(&fetcher, target()).recv().unwrap().unwrap_err();
}

#[derive(Debug)]
struct Broken;

impl Sink for Broken {
    fn write_summed(&self, _: Bytes, _: &[u8], _: &mut Checksum) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EIO))
    }
}

#[test]
fn no_fetch_waits_for_a_store_because_a_tier_takes_no_bytes() {
    let (fetcher, attempts) = patient(vec![None], HOUR);
    let told = fetch(&fetcher, Target::sink(Arc::new(Broken), Bytes(4))).recv().unwrap();
    told.unwrap_err();
    assert_eq!(attempts.try_iter().count(), 1);
}
