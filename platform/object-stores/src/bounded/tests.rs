use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread::{self, JoinHandle},
    time::Duration,
};

use object_store::{ObjectStoreExt, path::Path};
use tokio_stream::StreamExt;

use crate::{Access, Address, Client, Identity, Options, Patience};

/// More than any answer may have, less than would exhaust the test machine without a bound.
const ENDLESS: u64 = 512 << 20;

/// A server that answers one request with a head and then zeros, up to `ENDLESS`; its thread
/// returns how many it could send.
fn answering(head: &'static str) -> (String, JoinHandle<u64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let sent = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        flood(&mut stream)
    });
    (address, sent)
}

fn flood(stream: &mut TcpStream) -> u64 {
    #[expect(clippy::large_stack_arrays, reason = "a piece of a body")]
    let piece = [b' '; 1 << 16];
    let mut sent = 0;
    while sent < ENDLESS && stream.write_all(&piece).is_ok() {
        sent += piece.len() as u64;
    }
    sent
}

fn client(endpoint: String) -> Client {
    let address = Address {
        url: "s3://bucket/prefix".to_owned(),
        access: Access {
            endpoint: Some(endpoint),
            region: Some("here".to_owned()),
            identity: Identity::Anonymous,
        },
    };
    let patience = Patience { silence: Duration::from_secs(5), ..Patience::default() };
    Client::open(&address, &Options::default(), &patience.without_retries()).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Bytes that both ends of a socket may hold, in addition to what was read.
const IN_SOCKETS: u64 = 16 << 20;

#[test]
fn the_body_of_an_error_is_read_as_far_as_it_says_something() {
    for head in [
        "HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n<Error>no rights",
        "HTTP/1.1 403 Forbidden\r\nContent-Length: 1000000000000000\r\n\r\n<Error>no rights",
    ] {
        let (endpoint, sent) = answering(head);
        let client = client(endpoint);
        let error = runtime().block_on(client.store().get(&Path::from("a"))).unwrap_err();
        assert!(error.to_string().contains("no rights"), "the beginning of the body is told");
        assert!(error.to_string().len() < 100_000);
        assert!(sent.join().unwrap() < IN_SOCKETS, "the connection was closed");
    }
}

#[test]
fn a_page_of_a_listing_that_does_not_end_is_an_error() {
    let (endpoint, sent) = answering("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<?xml ");
    let client = client(endpoint);
    let listed = runtime().block_on(async { client.store().list(None).next().await });
    let error = listed.unwrap().unwrap_err();
    let causes: Vec<_> = causes(&error).collect();
    assert!(causes.iter().any(|it| it.contains("a page of more than")), "{causes:?}");
    assert!(sent.join().unwrap() < super::PAGE_BYTES_MAX + IN_SOCKETS);
}

fn causes(error: &dyn std::error::Error) -> impl Iterator<Item = String> {
    std::iter::successors(Some(error), |it| it.source()).map(ToString::to_string)
}
