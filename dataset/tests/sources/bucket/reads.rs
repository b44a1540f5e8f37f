//! The bytes of objects.

use std::{io, time::Duration};

use hyper::StatusCode;
use tierfeed_dataset::source::{Listed, SourceError, Store};
use tierfeed_object_stores::{
    RequestError, RequestFault,
    test_server::{Access, Server, Verdict, refuse_first},
};

use super::{cause, impatient, store};

/// Without a period that could hide an error in a range.
fn noise(len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|it| (it.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).to_le_bytes()[0])
        .collect()
}

fn is_object(request: &hyper::Request<hyper::body::Incoming>) -> bool {
    request.uri().path().ends_with("/object")
}

#[test]
fn any_range_is_the_bytes_of_the_object() {
    let server = Server::serving(Access::Signed);
    let bytes = noise(3_500_001);
    server.put_bytes("object", bytes.clone());
    let store = store(&server, "s3://bucket");
    let opened = store.open(&store.stat(b"object").unwrap()).unwrap();
    assert_eq!(opened.len(), bytes.len() as u64);
    let row = (0..3_500_000).step_by(50_001).map(|offset| (offset, 12));
    let others = [(3_500_000, 1), (0, 3_500_001), (1, 1 << 20), (65_530, 20), (3_243_000, 257_001)];
    for (offset, len) in others.into_iter().chain(row).chain([(10, 0), (2_000_000, 700_000)]) {
        let mut read = vec![0; len];
        opened.read_exact_at(&mut read, offset as u64).unwrap();
        assert!(read == bytes[offset..offset + len], "{len} bytes at {offset}");
    }
    let is_conditional = |seen: &tierfeed_object_stores::test_server::Seen| {
        seen.method != "GET" || seen.if_match.is_some() && seen.range.is_some()
    };
    assert!(server.seen().iter().all(is_conditional));
    opened.verify().unwrap();
}

#[test]
fn small_reads_in_a_row_take_few_requests() {
    let server = Server::serving(Access::Signed);
    let bytes = noise(8 << 20);
    server.put_bytes("object", bytes.clone());
    let store = store(&server, "s3://bucket");
    let opened = store.open(&store.stat(b"object").unwrap()).unwrap();
    for offset in (0..bytes.len() - 16).step_by(3_001) {
        let mut header = [0; 16];
        opened.read_exact_at(&mut header, offset as u64).unwrap();
        assert_eq!(header, bytes[offset..offset + 16]);
    }
    let requests = server.count("GET");
    assert!(requests <= 16, "{requests} requests for 2795 headers in 8 MiB");
}

#[test]
fn threads_may_read_one_object_at_once() {
    let server = Server::serving(Access::Signed);
    let bytes = noise(2 << 20);
    server.put_bytes("object", bytes.clone());
    let store = store(&server, "s3://bucket");
    let opened = store.open(&store.stat(b"object").unwrap()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let (opened, bytes) = (&opened, &bytes);
            scope.spawn(move || {
                for offset in (thread * 1_000..bytes.len() - 500).step_by(97_003) {
                    let mut read = [0; 500];
                    opened.read_exact_at(&mut read, offset as u64).unwrap();
                    assert_eq!(read, bytes[offset..offset + 500]);
                }
            });
        }
    });
}

#[test]
fn what_lies_behind_the_end_is_not_asked_for() {
    let server = Server::serving(Access::Signed);
    server.put("object", 10);
    let store = store(&server, "s3://bucket");
    let opened = store.open(&store.stat(b"object").unwrap()).unwrap();
    for (offset, len) in [(10, 1), (5, 6), (u64::MAX, 1), (11, 0)] {
        let error = opened.read_exact_at(&mut vec![0; len], offset).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
    assert_eq!(server.count("GET"), 0);
}

#[test]
fn another_version_is_noticed_at_the_next_read_and_at_the_end() {
    let server = Server::serving(Access::Signed);
    let store = store(&server, "s3://bucket");
    // Of the same length, so that only the ETag differs.
    for has_gone in [false, true] {
        server.put_bytes("object", noise(1 << 20));
        let opened = store.open(&store.stat(b"object").unwrap()).unwrap();
        opened.read_exact_at(&mut [0; 8], 0).unwrap();
        opened.verify().unwrap();
        if has_gone {
            server.remove("object");
        } else {
            server.put("object", 1 << 20);
        }
        let error = opened.read_exact_at(&mut [0; 8], 500_000).unwrap_err();
        assert!(matches!(cause(&error), SourceError::Changed { .. }), "{error}");
        assert!(error.to_string().contains("s3://bucket/object: changed"), "{error}");
        let error = opened.verify().unwrap_err();
        assert!(matches!(error, SourceError::Changed { .. }), "{error}");
    }
}

/// A server without conditional requests answers with the present object.
#[test]
fn another_version_is_noticed_without_the_help_of_the_server() {
    let server = Server::serving(Access::Signed);
    server.put("object", 100);
    let store = store(&server, "s3://bucket");
    let object = store.stat(b"object").unwrap();
    let read = |object: &Listed| store.open(object).unwrap().read_exact_at(&mut [0; 8], 0);
    let unnamed = Listed { etag: None, ..object.clone() };
    read(&unnamed).unwrap();
    let weak = Listed { etag: Some("W/\"other\"".to_owned()), ..object.clone() };
    let longer = Listed { size: 101, ..object.clone() };
    let older = Listed { mtime_ns: unnamed.mtime_ns - 1_000_000_000, ..unnamed };
    for changed in [weak, older] {
        let error = read(&changed).unwrap_err();
        assert!(matches!(cause(&error), SourceError::Changed { .. }), "{error}");
    }
    assert!(read(&longer).is_err());
}

#[test]
fn a_body_that_is_cut_is_asked_for_again_from_there() {
    let cuts = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::start(Access::Signed, move |request| {
        let is_cut = request.method() == hyper::Method::GET
            && cuts.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2;
        if is_cut { Verdict::CutAfter { bytes: 300_000 } } else { Verdict::Serve }
    });
    let bytes = noise(2 << 20);
    server.put_bytes("object", bytes.clone());
    let store = store(&server, "s3://bucket");
    let opened = store.open(&store.stat(b"object").unwrap()).unwrap();
    let mut read = vec![0; bytes.len()];
    opened.read_exact_at(&mut read, 0).unwrap();
    assert!(read == bytes);
    assert_eq!(server.count("GET"), 3);
}

#[test]
fn a_body_that_is_always_cut_is_an_error() {
    let server = Server::start(Access::Signed, |request| match *request.method() {
        hyper::Method::GET => Verdict::CutAfter { bytes: 10 },
        _ => Verdict::Serve,
    });
    server.put("object", 1 << 20);
    let store = impatient(&server, "s3://bucket");
    let opened = store.open(&store.stat(b"object").unwrap()).unwrap();
    let error = opened.read_exact_at(&mut vec![0; 1 << 20], 0).unwrap_err();
    let is_failed = matches!(
        cause(&error),
        SourceError::Request(RequestError { fault: RequestFault::Failed, .. })
    );
    assert!(is_failed, "{error}");
    opened.verify().unwrap();
}

#[test]
fn fewer_bytes_than_were_asked_for_are_no_bytes() {
    let server = Server::start(Access::Signed, |request| match *request.method() {
        hyper::Method::GET => Verdict::EndAfter { bytes: 60 },
        _ => Verdict::Serve,
    });
    server.put("object", 100);
    let store = store(&server, "s3://bucket");
    let opened = store.open(&store.stat(b"object").unwrap()).unwrap();
    let error = opened.read_exact_at(&mut [0; 10], 0).unwrap_err();
    let is_length = matches!(cause(&error), SourceError::Length { expected: 100, found: 60, .. });
    assert!(is_length, "{error}");
}

#[test]
fn a_read_that_is_refused_for_now_is_made_again() {
    let refuse = refuse_first(2, StatusCode::SERVICE_UNAVAILABLE, is_object);
    let server = Server::start(Access::Signed, refuse);
    server.put("object", 10);
    let store = impatient(&server, "s3://bucket");
    let opened = store.open(&store.stat(b"object").unwrap()).unwrap();
    opened.read_exact_at(&mut [0; 10], 0).unwrap();
    assert_eq!(server.count("HEAD") + server.count("GET"), 4);
}

/// The limit on silence applies between bytes, not to the whole time.
#[test]
fn a_slow_answer_arrives_whole() {
    let server = Server::start(Access::Signed, |request| match *request.method() {
        hyper::Method::GET => Verdict::ServeAt { bytes_per_s: 400_000 },
        _ => Verdict::ServeAfter(Duration::from_millis(1)),
    });
    let bytes = noise(200_000);
    server.put_bytes("object", bytes.clone());
    let store = impatient(&server, "s3://bucket");
    let opened = store.open(&store.stat(b"object").unwrap()).unwrap();
    let mut read = vec![0; bytes.len()];
    opened.read_exact_at(&mut read, 0).unwrap();
    assert!(read == bytes);
    assert_eq!(server.count("GET"), 1, "nothing was asked for twice");
}
