//! The content of a listing of a bucket.

use std::{fs, time::Duration};

use tierfeed_dataset::source::{FileStore, SourceError, Store};
use tierfeed_object_stores::{
    RequestError, RequestFault,
    test_server::{Access, Server, Verdict},
};

use super::store;
use crate::listed::{All, Ending, directories, list, objects, paths};

/// Names with an unusual order, and names that a URL has to escape.
fn keys() -> Vec<String> {
    let mut keys: Vec<String> = (0..1_100).map(|it| format!("many/{it}.jpg")).collect();
    keys.extend((0..40).map(|it| format!("classes/{}/{it}/x.jpg", it % 10)));
    keys.extend(
        [
            "a10",
            "a9",
            "b/z",
            "b-x/a",
            "b/c/q",
            "b/c/d/e/f",
            "B/x",
            "\u{e9}/\u{e000}",
            "a b+c",
            "100%25?x=1&y#z",
            "q'\"<>&/\\ [~]*",
            "b.d/=",
            "dots/...",
            "dots/.hidden",
            "c:d/~",
        ]
        .map(str::to_owned),
    );
    keys
}

#[test]
fn a_listing_in_small_pages_is_that_of_the_same_tree_on_a_file_system() {
    let server = Server::serving(Access::Signed);
    server.limit_pages(7);
    let tree = tempfile::tempdir().unwrap();
    for (index, key) in keys().into_iter().enumerate() {
        let bytes = vec![1; index % 13 + 1];
        let path = tree.path().join(&key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &bytes).unwrap();
        server.put_bytes(&format!("data/{key}"), bytes);
        server.put(&format!("database/{key}"), 1);
    }
    let mut reports = Vec::new();
    let bucket = store(&server, "s3://bucket/data");
    let found = bucket.list(&All, &mut |objects| reports.push(objects)).unwrap();
    let expected = list(&FileStore::new(tree.path().to_owned())).unwrap();
    assert_eq!(directories(&found), directories(&expected));
    assert_eq!(paths(&found), paths(&expected));
    let sizes = |listing| objects(listing).into_iter().map(|it| it.size).collect::<Vec<_>>();
    assert_eq!(sizes(&found), sizes(&expected));
    assert!(objects(&found).iter().all(|it| it.etag.as_ref().is_some_and(|it| it.len() > 2)));
    assert!(found.directories.iter().all(|it| it.mtime_ns.is_none()));
    assert!(reports.is_sorted() && reports.last() == Some(&(keys().len() as u64)), "{reports:?}");
    assert!(server.listings() >= keys().len() / 7);
    // The result is the same with any size of pages, and from the root.
    server.limit_pages(1_000);
    assert_eq!(bucket.list(&All, &mut |_| ()).unwrap(), found);
    let all = list(&store(&server, "s3://bucket")).unwrap();
    assert_eq!(all.objects.len(), 2 * keys().len());
    assert_eq!(paths(&all).iter().filter(|it| it.starts_with("data/")).count(), keys().len());
}

#[test]
fn every_object_of_a_listing_opens_as_itself() {
    let server = Server::serving(Access::Signed);
    for (key, value) in keys().into_iter().rev().take(30).zip(0..) {
        server.put_bytes(&format!("data/{key}"), vec![value; usize::from(value) + 1]);
    }
    let store = store(&server, "s3://bucket/data/");
    let listing = list(&store).unwrap();
    assert_eq!(listing.objects.len(), 30);
    for object in objects(&listing) {
        let opened = store.open(&object).unwrap();
        let mut bytes = vec![0; usize::try_from(opened.len()).unwrap()];
        opened.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|byte| usize::from(*byte) + 1 == bytes.len()), "{object:?}");
        opened.verify().unwrap();
    }
}

/// Few folders are listed level by level; as soon as there are many, each is one request.
#[test]
fn many_folders_take_a_request_each_and_not_one_for_each_level() {
    let server = Server::serving(Access::Signed);
    for number in 0..100 {
        server.put(&format!("train/{number}/a/b/c"), 1);
    }
    let listing = list(&store(&server, "s3://bucket")).unwrap();
    assert_eq!((listing.objects.len(), listing.directories.len()), (100, 302));
    let listings = server.listings();
    assert!((102..=102 + 16 * 3).contains(&listings), "{listings}");
}

/// The delay makes the requests overlap; the result does not depend on their duration.
#[test]
fn folders_are_listed_at_the_same_time_and_no_more_than_sixteen() {
    let delay = Duration::from_millis(5);
    let server = Server::start(Access::Signed, move |_| Verdict::ServeAfter(delay));
    server.limit_pages(2);
    for number in 0..40 {
        for file in 0..5 {
            server.put(&format!("{number}/{file}"), usize::from(number % 2 == 0));
        }
    }
    let listing = list(&store(&server, "s3://bucket")).unwrap();
    assert_eq!((listing.objects.len(), listing.directories.len()), (200, 41));
    let most = server.most_in_flight();
    assert!((2..=16).contains(&most), "{most} requests at the same time");
}

#[test]
fn only_what_is_selected_is_taken_and_asked_for() {
    let server = Server::serving(Access::Signed);
    server.limit_pages(3);
    for number in 0..50 {
        server.put(&format!("d{number}/{number}.tar"), 1);
        server.put(&format!("d{number}/.cache/x.tar"), 1);
    }
    server.put(".git/x.tar", 1);
    server.put("x.txt", 1);
    let listing = store(&server, "s3://bucket").list(&Ending(b".tar"), &mut |_| ()).unwrap();
    assert_eq!(listing.objects.len(), 50);
    assert!(objects(&listing).iter().all(|it| it.path.ends_with(b".tar")));
    assert!(directories(&listing).iter().all(|it| !it.contains('.')));
    assert!(server.seen().iter().all(|it| !it.query.contains("prefix=.git")));
}

/// Markers, as tools and consoles leave them where a folder was made.
#[test]
fn markers_of_folders_are_no_objects_and_empty_objects_are() {
    let server = Server::serving(Access::Signed);
    for key in
        ["data/", "data/a/", "data/a/x", "data/a/empty", "data/new/", "data/both", "data/both/"]
    {
        server.put(key, usize::from(key.ends_with('x')));
    }
    for number in 0..40 {
        server.put(&format!("data/m/{number}/"), 0);
        server.put(&format!("data/m/{number}/made/"), 0);
        server.put(&format!("data/m/{number}/made.txt"), 0);
    }
    server.put("data/m/0/full", 5);
    server.put("data/m/0/full/", 0);
    let listing = list(&store(&server, "s3://bucket/data")).unwrap();
    let expected = (0..40).map(|number| format!("m/{number}/made.txt"));
    let mut expected: Vec<_> =
        expected.chain(["a/empty", "a/x", "both", "m/0/full"].map(str::to_owned)).collect();
    expected.sort();
    let mut found = paths(&listing);
    found.sort();
    assert_eq!(found, expected);
    assert!(directories(&listing).contains(&"new".to_owned()));
    assert!(directories(&listing).contains(&"m/39/made".to_owned()));
}

#[test]
fn a_source_that_is_one_object_is_a_listing_of_it() {
    let server = Server::serving(Access::Signed);
    server.put("data/train.tar", 9);
    let store = store(&server, "s3://bucket/data/train.tar");
    let listing = store.list(&Ending(b".bin"), &mut |_| ()).unwrap();
    assert_eq!(
        (paths(&listing), directories(&listing)),
        (vec![String::new()], vec![String::new()])
    );
    let object = objects(&listing).remove(0);
    assert_eq!((object.size, object.etag.is_some()), (9, true));
    let mut bytes = [0; 9];
    store.open(&object).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [7; 9]);
    assert_eq!(store.stat(b"").unwrap(), object);
}

#[test]
fn a_prefix_without_anything_does_not_exist_and_an_empty_bucket_is_empty() {
    let server = Server::serving(Access::Signed);
    let empty = list(&store(&server, "s3://bucket")).unwrap();
    assert_eq!((empty.objects.len(), directories(&empty)), (0, vec![String::new()]));
    for url in ["s3://bucket/nothing", "s3://other/data", "s3://other"] {
        let error = list(&store(&server, url)).unwrap_err();
        assert!(
            matches!(
                &error,
                SourceError::Request(RequestError { fault: RequestFault::NotFound, .. })
            ),
            "{error}"
        );
        assert!(error.to_string().contains(url), "{error}");
    }
}

#[test]
fn a_key_that_cannot_be_asked_for_is_an_error_that_says_so() {
    for key in ["data//x", "data/../x", "data/./x"] {
        let server = Server::serving(Access::Signed);
        server.put("data/a", 1);
        server.put(key, 1);
        let error = list(&store(&server, "s3://bucket/data")).unwrap_err();
        assert!(
            matches!(&error, SourceError::Request(RequestError { fault: RequestFault::Key, .. })),
            "{error}"
        );
        assert!(error.to_string().contains("rename it"), "{error}");
    }
}

#[test]
fn a_web_server_cannot_be_listed_but_its_objects_open() {
    let server = Server::serving(Access::Everybody);
    server.put_bytes("data/x", b"0123456789".to_vec());
    let store = store(&server, &format!("{}/bucket/data", server.endpoint()));
    let error = list(&store).unwrap_err();
    assert!(matches!(&error, SourceError::CannotList { .. }), "{error}");
    assert!(error.to_string().contains("manifest"), "{error}");
    let object = store.stat(b"x").unwrap();
    assert_eq!(object.size, 10);
    let mut bytes = [0; 4];
    store.open(&object).unwrap().read_exact_at(&mut bytes, 3).unwrap();
    assert_eq!(&bytes, b"3456");
}
