//! Failures of a bucket, and the identities that may read it.

use std::{fs, net::TcpListener};

use hyper::StatusCode;
use tierfeed_dataset::source::{
    self, Address, BucketStore, Identity, Location, SourceError, Store, open,
};
use tierfeed_object_stores::{
    Environment, OpenError, Options, ProfileError, RequestError, RequestFault,
    test_server::{Access, KEY, SECRET, Server, Verdict, refuse_first},
};

use super::{PATIENCE, bucket, cause, environment, impatient, store};
use crate::listed::{list, objects, paths};

fn is_listing(request: &hyper::Request<hyper::body::Incoming>) -> bool {
    request.uri().query().is_some_and(|query| query.contains("list-type"))
}

fn refusal(server: &Server) -> RequestError {
    server.put("data/x", 1);
    match list(&impatient(server, "s3://bucket/data")).unwrap_err() {
        SourceError::Request(error) => error,
        error => panic!("{error}"),
    }
}

#[test]
fn a_listing_that_is_refused_for_now_is_made_again() {
    let refuse = refuse_first(2, StatusCode::SERVICE_UNAVAILABLE, is_listing);
    let server = Server::start(Access::Signed, refuse);
    server.put("data/x", 1);
    assert_eq!(paths(&list(&impatient(&server, "s3://bucket/data")).unwrap()), ["x"]);
    assert_eq!(server.listings(), 3);
}

#[test]
fn a_server_that_is_always_busy_is_given_up_and_named() {
    let server =
        Server::start(Access::Signed, |_| Verdict::Refuse(StatusCode::SERVICE_UNAVAILABLE));
    let error = refusal(&server);
    assert!(matches!(&error, RequestError { fault: RequestFault::Throttled, .. }), "{error}");
    assert!(error.to_string().contains("s3://bucket/data refuses more requests"), "{error}");
    assert_eq!(server.listings(), 1 + PATIENCE.retries);
}

#[test]
fn a_server_that_says_nothing_is_given_up_and_named() {
    let server = Server::start(Access::Signed, |_| Verdict::NeverAnswer);
    let error = refusal(&server);
    assert!(matches!(&error, RequestError { fault: RequestFault::Silent, .. }), "{error}");
    assert!(server.listings() <= 1 + PATIENCE.retries);
}

#[test]
fn where_no_server_is_the_endpoint_is_to_be_checked() {
    // Bound, but never accepting.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let endpoint = Some(format!("http://127.0.0.1:{port}"));
    let access = source::Access { endpoint, region: None, identity: Identity::Anonymous };
    let bucket = Address { access, ..bucket("s3://bucket/data") };
    let store = BucketStore::open(&bucket, &Environment::default(), &PATIENCE).unwrap();
    let error = list(&store).unwrap_err();
    assert!(
        matches!(
            &error,
            SourceError::Request(RequestError { fault: RequestFault::Unreachable, .. })
        ),
        "{error}"
    );
    assert!(error.to_string().contains("check the endpoint"), "{error}");
}

#[test]
fn who_may_not_list_or_read_is_told_which_rights_are_missing() {
    let server = Server::start(Access::Signed, |request| {
        if is_listing(request) { Verdict::Refuse(StatusCode::FORBIDDEN) } else { Verdict::Serve }
    });
    let error = refusal(&server);
    assert!(matches!(&error, RequestError { fault: RequestFault::Denied, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("rights to list") && text.contains("anonymously"), "{text}");

    let server = Server::start(Access::Signed, |request| match *request.method() {
        hyper::Method::GET if !is_listing(request) => Verdict::Refuse(StatusCode::FORBIDDEN),
        _ => Verdict::Serve,
    });
    server.put("data/x", 1);
    let store = impatient(&server, "s3://bucket/data");
    let object = objects(&list(&store).unwrap()).remove(0);
    let error = store.open(&object).unwrap().read_exact_at(&mut [0], 0).unwrap_err();
    let is_denied = matches!(
        cause(&error),
        SourceError::Request(RequestError { fault: RequestFault::Denied, .. })
    );
    assert!(is_denied && error.to_string().contains("s3://bucket/data/x"), "{error}");
}

#[test]
fn a_wrong_secret_is_denied_and_not_printed() {
    let server = Server::serving(Access::Signed);
    server.put("data/x", 1);
    let mut options = server.options();
    options.0.insert("AWS_SECRET_ACCESS_KEY".to_owned(), "another-secret".to_owned());
    let store =
        BucketStore::open(&bucket("s3://bucket"), &environment(options), &PATIENCE).unwrap();
    let error = list(&store).unwrap_err();
    assert!(error.to_string().contains("does not accept these keys"), "{error}");
    let text = format!("{error} {error:?} {store:?}");
    assert!(!text.contains("another-secret") && !text.contains(KEY), "{text}");
}

#[test]
fn a_bucket_in_another_region_says_so() {
    let server = Server::start(Access::Signed, |_| Verdict::Refuse(StatusCode::MOVED_PERMANENTLY));
    let error = refusal(&server);
    assert!(matches!(&error, RequestError { fault: RequestFault::Region, .. }), "{error}");
    assert!(error.to_string().contains("AWS_REGION"), "{error}");
}

#[test]
fn anonymous_requests_are_not_signed_and_the_endpoint_of_the_job_wins() {
    let server = Server::serving(Access::Everybody);
    server.put("data/x", 3);
    let options = [
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
        ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1"),
        ("AWS_REGION", "eu-west-1"),
    ];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let bucket = Address {
        url: "s3://bucket/data".to_owned(),
        access: source::Access {
            endpoint: Some(server.endpoint()),
            region: Some("us-west-2".to_owned()),
            identity: Identity::Anonymous,
        },
    };
    let environment = environment(Options(options.into()));
    let store = BucketStore::open(&bucket, &environment, &PATIENCE).unwrap();
    assert_eq!(paths(&list(&store).unwrap()), ["x"]);
    let seen = server.seen();
    // The bucket is in the path, for servers without a host name for each bucket.
    assert!(seen.iter().all(|it| !it.is_signed && it.path.starts_with("/bucket")), "{seen:?}");
}

#[test]
fn keys_and_endpoint_come_from_the_profile_of_the_user() {
    let server = Server::serving(Access::Signed);
    server.put("data/x", 3);
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".aws")).unwrap();
    let keys = format!("[lab]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n");
    fs::write(home.path().join(".aws/credentials"), keys).unwrap();
    let config = format!(
        "[profile lab]\nendpoint_url = {}\nregion = eu-west-1\n[profile sso]\nsso_session = x\n",
        server.endpoint()
    );
    fs::write(home.path().join(".aws/config"), config).unwrap();
    let opened = |profile: &str| {
        let variables = [("AWS_PROFILE".to_owned(), profile.to_owned())];
        let home = Some(home.path().to_owned());
        let environment = Environment { variables: Options(variables.into()), home };
        BucketStore::open(&bucket("s3://bucket/data"), &environment, &PATIENCE)
    };
    assert_eq!(paths(&list(&opened("lab").unwrap()).unwrap()), ["x"]);
    assert!(server.seen().iter().all(|it| it.is_signed));
    let error = opened("sso").unwrap_err();
    let is_profile = matches!(
        &error,
        SourceError::Bucket(OpenError::Profile(ProfileError::NoStaticKeys { .. }))
    );
    assert!(is_profile && error.to_string().contains("sso_session"), "{error}");
}

#[test]
fn what_is_no_bucket_is_refused_with_what_would_be_right() {
    let refused = |url: &str| open(&Location::Bucket(bucket(url))).unwrap_err().to_string();
    let text = refused("bucket/data");
    assert!(text.contains("s3://bucket/prefix"), "{text}");
    assert!(refused("ftp://host/data").contains("ftp:// is no object store; write s3://"));
    assert!(refused("s3://bucket/a//b").contains("empty parts"));
    assert!(refused("s3://bucket/a#b").contains("%23"));
    assert!(refused("s3://key:s3cr3t@bucket").contains("credentials"));
}

#[test]
fn a_name_that_leads_out_of_the_source_is_refused() {
    let server = Server::serving(Access::Signed);
    server.put("data/x", 1);
    let store = store(&server, "s3://bucket/data");
    for path in [&b"../other"[..], b"a//b", b"/x", b"x/", b"\xff", b"."] {
        let error = store.stat(path).unwrap_err();
        assert!(matches!(&error, SourceError::Outside { .. }), "{error}");
    }
    assert_eq!(server.seen().len(), 0);
}
