//! Buckets on a real S3 server on loopback.

// Always true here; it tells clippy that helpers are tests too.
#![cfg(test)]

use std::time::Duration;

use hyper::{Method, StatusCode};
use tierfeed_core::units::{Bytes, Nanoseconds};
use tierfeed_object_stores::test_server::{Access, KEY, SECRET, Server, Verdict};
use tierfeed_resource_gatherer::{
    probe::object_store::{
        Bucket, Identity, ObjectStoreError, Options, Request, RequestError, RequestFault, measure,
    },
    report,
};

const MIB: usize = 1 << 20;

fn request(server: &Server, url: &str) -> Request {
    let options = [
        ("AWS_ENDPOINT_URL", format!("http://{}", server.address)),
        ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ("AWS_PROFILE", "is no setting of the client".to_owned()),
    ];
    let options = options.into_iter().map(|(name, value)| (name.to_owned(), value));
    let bucket = Bucket {
        url: url.to_owned(),
        options: Options(options.collect()),
        identity: Identity::Configured,
        writes: Bytes(0),
    };
    Request {
        bucket,
        budget: Bytes::mib(64),
        time: Nanoseconds(20_000_000),
        patience: Nanoseconds(60_000_000_000),
    }
}

/// A request that may write.
fn writing(server: &Server, writes: Bytes) -> Request {
    let mut request = request(server, "s3://bucket/new");
    request.bucket.writes = writes;
    request
}

fn served(access: Access) -> Server {
    Server::serving(access)
}

fn refusal(server: &Server, url: &str) -> ObjectStoreError {
    measure(&request(server, url)).unwrap_err()
}

#[test]
fn latency_that_the_server_adds_is_in_every_percentile() {
    let delay = Duration::from_millis(3);
    let server = Server::start(Access::Signed, move |_| Verdict::ServeAfter(delay));
    server.put("data/one", MIB);
    let found = measure(&request(&server, "s3://bucket/data")).unwrap();
    let latency = found.request_latency;
    assert!(latency.samples > 0);
    let injected = 3e6;
    let published = [latency.p50_ns, latency.p90_ns, latency.p99_ns, latency.max_ns];
    // A bucket of the histogram is up to a 128th wide to each side.
    assert!(
        published.into_iter().flatten().all(|it| it >= injected * 127.0 / 128.0),
        "{latency:?}"
    );
    for rate in found.throughput {
        let most = f64::from(rate.requests) * as_f64(rate.range_bytes) / 3e-3;
        assert!(rate.bytes_per_s.median <= most, "{rate:?} is faster than {most} B/s");
    }
}

fn as_f64(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes).unwrap())
}

#[test]
fn every_number_of_requests_is_measured_within_the_budget() {
    let server = served(Access::Signed);
    for index in 0..3 {
        server.put(&format!("data/part/{index}"), 3 * MIB + index);
    }
    server.put("data/empty", 0);
    server.put("other/huge", 4 * MIB);
    let request = request(&server, "s3://bucket/data/");
    let found = measure(&request).unwrap();
    assert_eq!(found.url, "s3://bucket/data/");
    assert_eq!((found.object_bytes, found.made_objects), (3 * MIB as u64 + 2, false));
    let requests: Vec<u32> = found.throughput.iter().map(|it| it.requests).collect();
    assert_eq!(requests, [1, 8, 32]);
    assert!(found.throughput.iter().all(|it| it.bytes_per_s.low > 0.0 && it.range_bytes > 0));
    assert!(found.transferred_bytes > 0 && found.transferred_bytes <= request.budget.0);
    assert!(server.seen().iter().all(|seen| !seen.path.contains("other")));
    assert_eq!(server.count("PUT") + server.count("POST") + server.count("DELETE"), 0);
    assert_eq!(server.keys().len(), 5);
}

#[test]
fn a_small_budget_is_kept_and_what_it_cannot_pay_for_is_told() {
    let server = served(Access::Signed);
    server.put("data/one", MIB);
    let request = Request { budget: Bytes(12_000), ..request(&server, "s3://bucket/data") };
    let found = measure(&request).unwrap();
    assert!(found.transferred_bytes <= 12_000, "{}", found.transferred_bytes);
    assert!(found.remarks.iter().any(|remark| remark.contains("1 MiB")), "{:?}", found.remarks);
}

#[test]
fn the_prefix_may_be_an_object() {
    let server = served(Access::Signed);
    server.put("data/one", MIB);
    server.put("data/two", 2 * MIB);
    let found = measure(&request(&server, "s3://bucket/data/two")).unwrap();
    assert_eq!(found.object_bytes, 2 * MIB as u64);
}

#[test]
fn an_empty_prefix_says_so_and_nothing_is_written_unless_asked_for() {
    let server = served(Access::Signed);
    server.put("data/empty", 0);
    let error = refusal(&server, "s3://bucket/data");
    assert!(matches!(&error, ObjectStoreError::Empty { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("s3://bucket/data") && text.contains("allow writes"), "{text}");
    let error = refusal(&server, "s3://bucket/nothing");
    assert!(matches!(&error, ObjectStoreError::Empty { .. }), "{error}");
    assert!(server.seen().iter().all(|seen| matches!(seen.method.as_str(), "GET" | "HEAD")));
}

#[test]
fn objects_that_were_made_are_removed() {
    let server = served(Access::Signed);
    let request = writing(&server, Bytes::mib(4));
    let found = measure(&request).unwrap();
    assert!(found.made_objects);
    assert_eq!((found.object_bytes, server.count("PUT")), (MIB as u64, 4));
    assert!(found.transferred_bytes <= request.budget.0 + request.bucket.writes.0);
    assert_eq!(server.keys(), [""; 0]);
    assert!(server.seen().iter().all(|seen| seen.method != "PUT" || seen.path.contains("/new/")));
}

#[test]
fn objects_that_were_made_are_removed_when_reading_fails() {
    let server = Server::start(Access::Signed, |request| {
        let is_object = request.uri().path().contains("tierfeed-probe");
        match request.method() {
            &Method::GET if is_object => Verdict::Refuse(StatusCode::IM_A_TEAPOT),
            _ => Verdict::Serve,
        }
    });
    let request = writing(&server, Bytes(4000));
    let error = measure(&request).unwrap_err();
    assert!(
        matches!(
            error,
            ObjectStoreError::Request(RequestError { fault: RequestFault::Failed, .. })
        ),
        "{error}"
    );
    assert_eq!(server.count("PUT"), 4);
    assert_eq!(server.keys(), [""; 0]);
}

#[test]
fn objects_that_cannot_be_removed_are_named() {
    let server = Server::start(Access::Signed, |request| match *request.method() {
        Method::DELETE | Method::POST => Verdict::Refuse(StatusCode::FORBIDDEN),
        _ => Verdict::Serve,
    });
    let request = writing(&server, Bytes(4000));
    let found = measure(&request).unwrap();
    let keys = server.keys();
    assert_eq!(keys.len(), 4);
    for key in keys {
        assert!(found.remarks.iter().any(|remark| remark.contains(&key)), "{:?}", found.remarks);
    }
}

#[test]
fn a_wrong_secret_names_the_bucket_and_the_keys_and_no_secret() {
    let server = served(Access::Signed);
    server.put("data/one", MIB);
    let mut request = request(&server, "s3://bucket/data");
    request
        .bucket
        .options
        .0
        .insert("AWS_SECRET_ACCESS_KEY".to_owned(), "another-secret".to_owned());
    let error = measure(&request).unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(text.contains("s3://bucket/data does not accept these keys"), "{text}");
    assert!(!text.contains("another-secret") && !text.contains(KEY), "{text}");
}

#[test]
fn a_bucket_that_is_not_there_is_named() {
    let server = served(Access::Signed);
    let error = refusal(&server, "s3://no-such-bucket/data");
    assert!(
        matches!(
            &error,
            ObjectStoreError::Request(RequestError { fault: RequestFault::NotFound, .. })
        ),
        "{error}"
    );
    assert!(error.to_string().contains("s3://no-such-bucket/data"), "{error}");
}

#[test]
fn nobody_signs_when_reading_anonymously() {
    let server = served(Access::Everybody);
    server.put("data/one", MIB);
    let mut request = request(&server, "s3://bucket/data");
    request.bucket.identity = Identity::Anonymous;
    assert!(!measure(&request).unwrap().throughput.is_empty());
    assert!(server.seen().iter().all(|seen| !seen.is_signed));
}

#[test]
fn an_object_on_a_web_server_is_measured_by_its_url() {
    let server = served(Access::Everybody);
    server.put("data/one", MIB);
    let url = format!("http://{}/bucket/data/one", server.address);
    let found = measure(&request(&server, &url)).unwrap();
    assert_eq!((found.object_bytes, found.throughput.len()), (MIB as u64, 3));
    let root = format!("http://{}/", server.address);
    assert!(matches!(refusal(&server, &root), ObjectStoreError::NoObject { .. }));
    let absent = format!("http://{}/bucket/data/two", server.address);
    assert!(matches!(
        refusal(&server, &absent),
        ObjectStoreError::Request(RequestError { fault: RequestFault::NotFound, .. })
    ));
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let server = Server::start(Access::Signed, |_| Verdict::NeverAnswer);
    let request = Request {
        patience: Nanoseconds(1_000_000),
        time: Nanoseconds(1_000_000),
        ..request(&server, "s3://bucket/data")
    };
    let error = measure(&request).unwrap_err();
    assert!(matches!(&error, ObjectStoreError::NoAnswer { .. }), "{error}");
}

#[test]
fn what_is_no_bucket_is_refused_with_what_would_be_right() {
    let server = served(Access::Signed);
    let text = |url: &str| refusal(&server, url).to_string();
    assert!(text("bucket/data").contains("s3://bucket/prefix"));
    assert!(text("file:///data").contains("storage tier"));
    assert!(text("ftp://host/data").contains("ftp:// is no object store; write s3://"));
    for url in ["s3://AKIA:s3cr3t@bucket/data", "https://h.blob.core.windows.net/c/x?sig=s3cr3t"] {
        let text = text(url);
        assert!(text.contains("credentials") && !text.contains("s3cr3t"), "{text}");
    }
    assert_eq!(server.seen().len(), 0);
}

#[test]
fn the_report_holds_no_secret() {
    let server = served(Access::Signed);
    server.put("data/one", MIB);
    let found: report::ObjectStore = measure(&request(&server, "s3://bucket/data")).unwrap();
    let json = serde_json::to_string(&found).unwrap();
    assert!(!json.contains(SECRET) && !json.contains(KEY), "{json}");
}
