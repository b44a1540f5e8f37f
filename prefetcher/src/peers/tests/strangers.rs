//! Attempts of processes without the secret of the job.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex, atomic::Ordering},
    thread,
    time::Duration,
};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::fixture::{Node, OURS, PROTECTIONS, Protection, SECRET, Staging, THEIRS, network};
use crate::peers::{Client, ClientSettings, Failure, Outcome};

const LATER: Duration = Duration::from_secs(20);

/// Relays connections to a node, with `change` applied to what the client sends, and keeps it.
struct Tap {
    listener: TcpListener,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Tap {
    fn before(node: &Node, change: fn(usize, &mut [u8])) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (incoming, to) = (listener.try_clone().unwrap(), node.server().address());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&seen);
        thread::spawn(move || {
            for near in incoming.incoming().flatten() {
                let far = TcpStream::connect(to).unwrap();
                let (mut from, mut back) = (far.try_clone().unwrap(), near.try_clone().unwrap());
                thread::spawn(move || {
                    // The client learns the end of the connection too.
                    let _ = std::io::copy(&mut from, &mut back);
                    let _ = back.shutdown(Shutdown::Both);
                });
                let (mut near, mut far, kept) = (near, far, Arc::clone(&kept));
                thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(len @ 1..) = near.read(&mut buffer) {
                        let at = kept.lock().unwrap().len();
                        change(at, &mut buffer[..len]);
                        kept.lock().unwrap().extend(&buffer[..len]);
                        if far.write_all(&buffer[..len]).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { listener, seen }
    }

    fn client(&self, protection: Protection) -> Client {
        let access = protection(&SECRET, OURS, 1);
        let client = Client::start(network(), access, ClientSettings::default());
        client.set_peer(THEIRS, self.listener.local_addr().unwrap(), 1);
        client
    }
}

#[test]
fn a_recorded_handshake_is_refused_and_causes_no_event() {
    for protection in PROTECTIONS {
        let node = Node::protected(&[1000], protection);
        let tap = Tap::before(&node, |_, _| ());
        let outcome = Staging::of(&[1000]).read_all(&tap.client(protection), 7, LATER)[0];
        assert!(matches!(outcome, Outcome::Held { .. }), "{outcome:?}");
        let asked = node.asked.load(Ordering::Acquire);
        let recorded = tap.seen.lock().unwrap().clone();
        assert!(!recorded.is_empty());
        let mut replayed = TcpStream::connect(node.server().address()).unwrap();
        // The server may refuse it before it has all of it.
        let _ = replayed.write_all(&recorded);
        let mut answer = Vec::new();
        let _ = replayed.read_to_end(&mut answer);
        node.wait_for(|node| node.server().counts().refused == 1);
        assert_eq!(node.asked.load(Ordering::Acquire), asked);
        assert_eq!(node.server().counts().accepted, 1);
    }
}

#[test]
fn a_message_that_is_changed_on_the_way_ends_its_connection() {
    // A byte of the first request: no record of TLS starts with a length below 64 KiB.
    let change: fn(usize, &mut [u8]) = |_, bytes| {
        if bytes[2..4] == [0, 0] {
            bytes[8] ^= 1;
        }
    };
    let node = Node::holding(&[1000]);
    let tap = Tap::before(&node, change);
    let client = tap.client(PROTECTIONS[0]);
    let outcome = Staging::of(&[1000]).read_all(&client, 7, LATER)[0];
    assert_eq!(outcome, Outcome::Failed(Failure::Closed));
    node.wait_for(|node| node.server().counts().lost == 1);
    assert_eq!(node.asked.load(Ordering::Acquire), 0);
}

#[test]
fn a_byte_that_is_changed_on_the_way_ends_an_encrypted_connection() {
    // Somewhere behind the handshake of TLS.
    let change: fn(usize, &mut [u8]) = |at, bytes| {
        if at > 400 && bytes.len() > 30 {
            bytes[20] ^= 1;
        }
    };
    let node = Node::protected(&[1000], PROTECTIONS[1]);
    let tap = Tap::before(&node, change);
    let client = tap.client(PROTECTIONS[1]);
    let outcome = Staging::of(&[1000]).read_all(&client, 7, LATER)[0];
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    assert_eq!(node.asked.load(Ordering::Acquire), 0);
}

#[test]
fn an_echo_is_no_peer() {
    for protection in PROTECTIONS {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let incoming = listener.try_clone().unwrap();
        thread::spawn(move || {
            for mut stream in incoming.incoming().flatten() {
                let mut back = stream.try_clone().unwrap();
                thread::spawn(move || std::io::copy(&mut stream, &mut back));
            }
        });
        let settings = ClientSettings {
            connect_within: Duration::from_millis(200),
            ..ClientSettings::default()
        };
        let client = Client::start(network(), protection(&SECRET, OURS, 1), settings);
        client.set_peer(THEIRS, listener.local_addr().unwrap(), 1);
        let outcome = Staging::of(&[1000]).read_all(&client, 7, LATER)[0];
        let is_refused = matches!(outcome, Outcome::Failed(Failure::Refused | Failure::Stranger));
        assert!(is_refused, "{outcome:?}");
    }
}

#[test]
fn two_thousand_idle_connections_and_garbage_stop_no_peer() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    for protection in PROTECTIONS {
        let node = Node::protected(&[100_000], protection);
        let idle = |_| TcpStream::connect(node.server().address()).unwrap();
        let mut connections: Vec<TcpStream> = (0..2000).map(idle).collect();
        for stream in &mut connections[1990..] {
            stream.write_all(&[0xa5; 300]).unwrap();
        }
        let client = node.client();
        for _ in 0..10 {
            let outcome = Staging::of(&[100_000]).read_all(&client, 7, LATER)[0];
            assert!(matches!(outcome, Outcome::Held { .. }), "{outcome:?}");
        }
        // All but the last ones were closed for those behind them; the rest has a time to prove itself.
        node.wait_for(|node| node.server().counts().refused == 2000);
        assert!((1..=4).contains(&node.server().counts().accepted));
    }
}
