//! On a real S3 server on loopback.

use std::{
    fs,
    path::Path,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use tierfeed_core::{session::Fault, tier::Locality};
use tierfeed_dataset::{
    Dataset, Format,
    format::{Npz, Raw},
    source::{self, Address, Identity, Location},
};
use tierfeed_numa_memory::{Pages, Region, Request};
use tierfeed_object_stores::{
    Patience,
    test_server::{Access, Server, Verdict},
};

use super::*;
use tierfeed_dataset::read::FileSource;

const RECORD: usize = 100_000;
const RECORDS: usize = 5;

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|index| u8::try_from(index * 31 % 251).unwrap()).collect()
}

fn records() -> Format {
    Format::Raw(Raw::of_records(Bytes(RECORD as u64)))
}

fn source(server: &Server, format: Format) -> ObjectSource {
    let bucket = Address {
        url: "s3://bucket/data".to_owned(),
        access: source::Access {
            endpoint: Some(server.endpoint()),
            region: None,
            identity: Identity::Anonymous,
        },
    };
    let dataset = Dataset::new(Location::Bucket(bucket), format);
    let index = Index::build(&dataset, None, &mut |_| ()).unwrap();
    let address = Address {
        url: "s3://bucket/data".to_owned(),
        access: source::Access { endpoint: None, region: None, identity: Identity::Anonymous },
    };
    let patience = Patience { retries: 2, pause: Duration::from_millis(1), ..Patience::default() };
    let client = Client::open(&address, &server.options(), &patience.without_retries()).unwrap();
    let settings = ObjectSettings { patience, ..ObjectSettings::default() };
    ObjectSource::new(Arc::new(index), client, settings).unwrap()
}

/// Reads to the middle of a region, which must be untouched beside the sample.
fn read(source: &ObjectSource, sample: u32) -> Result<Vec<u8>, ReadError> {
    let len = source.index().size(SampleId(sample));
    let locality = Locality::Anywhere;
    let request = Request { len: Bytes(len.0 + 128), locality, name: "test", pages: Pages::Small };
    let region = Arc::new(Region::allocate(&request).unwrap());
    source.read(SampleId(sample), &Target::new(Arc::clone(&region), Bytes(64), len))?;
    let mut all = vec![0; usize::try_from(len.0).unwrap() + 128];
    region.read(Bytes(0), &mut all).unwrap();
    let rest = all.split_off(all.len() - 64);
    assert_eq!((&all[..64], &rest[..]), (&[0; 64][..], &[0; 64][..]));
    Ok(all.split_off(64))
}

fn is_get(request: &hyper::Request<hyper::body::Incoming>) -> bool {
    request.method() == hyper::Method::GET && request.headers().contains_key("range")
}

#[test]
fn a_sample_arrives_at_its_place_by_one_conditional_request() {
    let server = Server::serving(Access::Everybody);
    let all = bytes(RECORD * RECORDS);
    server.put_bytes("data/records", all.clone());
    let source = source(&server, records());
    assert_eq!(source.index().len(), 5);
    let before = server.seen().len();
    for (sample, expected) in (0..).zip(all.chunks(RECORD)) {
        assert!(read(&source, sample).unwrap() == expected, "sample {sample}");
    }
    let seen = server.seen().split_off(before);
    assert_eq!(seen.len(), RECORDS);
    assert!(seen.iter().all(|it| it.if_match.is_some() && it.range.is_some()), "{seen:?}");
}

#[test]
fn threads_read_at_the_same_time() {
    // The delay is there so that the requests meet; nothing depends on how long they take.
    let delay = Duration::from_millis(5);
    let server = Server::start(Access::Everybody, move |_| Verdict::ServeAfter(delay));
    server.put_bytes("data/records", bytes(RECORD * RECORDS));
    let source = source(&server, records());
    thread::scope(|scope| {
        for sample in 0..5 {
            let source = &source;
            scope.spawn(move || read(source, sample).unwrap());
        }
    });
    assert!(server.most_in_flight() > 1);
}

#[test]
fn a_part_of_a_sample_ends_with_it_and_is_of_the_indexed_version() {
    let server = Server::serving(Access::Everybody);
    let whole = bytes(RECORD * RECORDS);
    server.put_bytes("data/records", whole.clone());
    let source = source(&server, records());
    let part = |sample: u32, from: usize, len: usize| {
        let mut buffer = vec![0; len];
        let read = source.read_part(SampleId(sample), Bytes(from as u64), &mut buffer);
        read.map(|read| buffer[..read].to_vec())
    };
    for (sample, from, len) in [(0, 0, 30), (1, RECORD - 10, 30), (4, 5, 4096), (2, RECORD, 7)] {
        let begin = sample as usize * RECORD + from;
        let end = (begin + len).min((sample as usize + 1) * RECORD);
        assert!(part(sample, from, len).unwrap() == whole[begin..end], "sample {sample}");
    }
    assert!(matches!(part(5, 0, 1), Err(ReadError::Unknown { .. })));
    server.put("data/records", RECORD * RECORDS);
    assert_eq!(part(1, 0, 30).unwrap_err().fault(), Fault::Changed);
}

#[test]
fn an_empty_sample_is_asked_for_and_has_no_bytes() {
    let server = Server::serving(Access::Everybody);
    server.put("data/cat/1.jpg", 3_000);
    server.put("data/dog/1.jpg", 0);
    let source = source(&server, Format::ImageFolder);
    assert_eq!(read(&source, 0).unwrap(), [7; 3_000]);
    assert_eq!(read(&source, 1).unwrap(), [0; 0]);
    server.put("data/dog/1.jpg", 5);
    assert_eq!(read(&source, 1).unwrap_err().fault(), Fault::Changed);
    server.remove("data/dog/1.jpg");
    assert_eq!(read(&source, 1).unwrap_err().fault(), Fault::Vanished);
}

#[test]
fn a_deflated_sample_is_that_of_the_file() {
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../dataset/tests/fixtures/npz/deflated.npz");
    let server = Server::serving(Access::Everybody);
    server.put_bytes("data/deflated.npz", fs::read(&fixture).unwrap());
    let format = || Format::Npz(Npz { members: Vec::new() });
    let dataset = Dataset::new(Location::Path(fixture), format());
    let files = FileSource::new(Arc::new(Index::build(&dataset, None, &mut |_| ()).unwrap()), 1);
    let source = source(&server, format());
    assert_eq!(source.index().len(), files.index().len());
    for sample in 0..files.index().len() {
        let len = files.index().size(SampleId(sample)).0;
        let mut expected = vec![0; usize::try_from(len).unwrap()];
        files.read_into(SampleId(sample), &mut expected).unwrap();
        assert_eq!(read(&source, sample).unwrap(), expected);
    }
}

#[test]
fn an_object_that_was_replaced_or_removed_is_a_fault_that_names_it() {
    let server = Server::serving(Access::Everybody);
    server.put_bytes("data/records", bytes(RECORD * RECORDS));
    let source = source(&server, records());
    // As long as before: only its version tells.
    server.put("data/records", RECORD * RECORDS);
    let error = read(&source, 1).unwrap_err();
    assert_eq!(error.fault(), Fault::Changed);
    assert!(error.to_string().contains("s3://bucket/data/records changed"), "{error}");
    server.remove("data/records");
    let error = read(&source, 1).unwrap_err();
    assert_eq!(error.fault(), Fault::Vanished);
}

#[test]
fn a_body_that_is_cut_is_continued_and_one_that_is_always_cut_is_an_error() {
    let cuts = AtomicUsize::new(0);
    let server = Server::start(Access::Everybody, move |request| {
        let is_cut = is_get(request) && cuts.fetch_add(1, Ordering::Relaxed) != 1;
        if is_cut { Verdict::CutAfter { bytes: 30_000 } } else { Verdict::Serve }
    });
    let all = bytes(RECORD * RECORDS);
    server.put_bytes("data/records", all.clone());
    let source = source(&server, records());
    assert!(read(&source, 2).unwrap() == all[2 * RECORD..3 * RECORD]);
    let error = read(&source, 2).unwrap_err();
    assert_eq!(error.fault(), Fault::Io);
    assert!(error.to_string().contains("s3://bucket/data/records"), "{error}");
}

#[test]
fn a_store_that_refuses_is_an_error_that_says_what_is_missing() {
    let server = Server::start(Access::Everybody, |request| {
        let status = hyper::StatusCode::FORBIDDEN;
        if is_get(request) { Verdict::Refuse(status) } else { Verdict::Serve }
    });
    server.put("data/records", RECORD);
    let error = read(&source(&server, records()), 0).unwrap_err();
    assert_eq!(error.fault(), Fault::Denied);
    let text = error.to_string();
    assert!(text.contains("refuses access") && text.contains("read objects"), "{text}");
}

#[test]
fn a_read_that_waits_ends_when_the_data_plane_stops() {
    let (arrived, arrival) = mpsc::sync_channel(16);
    let server = Server::start(Access::Everybody, move |request| {
        if is_get(request) {
            arrived.send(()).unwrap();
            return Verdict::NeverAnswer;
        }
        Verdict::Serve
    });
    server.put("data/records", RECORD);
    let source = source(&server, records());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| read(&source, 0));
        arrival.recv().unwrap();
        source.stop();
        let error = waiting.join().unwrap().unwrap_err();
        assert_eq!(error.fault(), Fault::Io);
    });
}

#[test]
fn a_sample_that_is_not_there_or_of_another_length_is_refused() {
    let server = Server::serving(Access::Everybody);
    server.put("data/records", RECORD);
    let source = source(&server, records());
    let locality = Locality::Anywhere;
    let request = Request { len: Bytes(10), locality, name: "test", pages: Pages::Small };
    let region = Arc::new(Region::allocate(&request).unwrap());
    let to = |len| Target::new(Arc::clone(&region), Bytes(0), Bytes(len));
    let read = |sample, len| source.read(SampleId(sample), &to(len));
    assert!(matches!(read(1, RECORD as u64), Err(ReadError::Unknown { samples: 1, .. })));
    assert!(matches!(read(0, 10), Err(ReadError::WrongLength { .. })));
    // The right length, and a region that is too short for it.
    assert!(matches!(read(0, RECORD as u64), Err(ReadError::Io { .. })));
}
