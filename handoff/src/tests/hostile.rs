//! Hostile clients: another rank's batches come on time, and the agent holds a bounded amount of
//! the data that they send.

#![expect(
    clippy::large_stack_arrays,
    clippy::disallowed_methods,
    reason = "a packet; the time itself is what is tested"
)]

use std::{
    fs,
    io::{ErrorKind, Write},
    net::{TcpListener, TcpStream},
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::{
    libc,
    sys::socket::{setsockopt, sockopt},
};
use rustix::io::Errno;
use tierfeed_core::id::{ConnectionId, SampleId};

use super::{
    misuse::{Rogue, assert_expelled, assert_serving, hello},
    test_agent::{LIMITS, PATIENCE, TestAgent, batch_id},
};
use crate::{Client, ClientEvent, Reply, packet::SendError};

/// Far longer than an exchange takes, and far shorter than the hostile descriptors wait.
const ON_TIME: Duration = Duration::from_secs(5);

/// A TCP socket whose last `close` blocks for a minute, or until its peer is dropped.
fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    loop {
        match socket.write(&[0; 64 * 1024]) {
            Ok(_) => (),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    setsockopt(&socket, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 60 }).unwrap();
    (socket.into(), peer)
}

/// Sends a descriptor that blocks when it is closed; this process keeps no copy of it.
fn send_lingering(test_agent: &TestAgent, rogue: &Rogue, bytes: &[u8]) -> TcpStream {
    let (socket, peer) = lingering();
    let paused = test_agent.server.paused();
    rogue.say(bytes, &[socket.as_fd()]);
    drop(socket);
    drop(paused);
    peer
}

fn exchange(test_agent: &TestAgent, client: &Client, connection: ConnectionId) -> Duration {
    let begun = Instant::now();
    client.request(batch_id(1)).unwrap();
    assert_eq!(test_agent.requested(), (connection, batch_id(1)));
    test_agent.lease(connection, 1);
    let Ok(Reply::Batch(leased)) = client.next(PATIENCE) else { panic!("no batch") };
    client.release(leased.lease).unwrap();
    assert_eq!(test_agent.released().0, connection);
    begun.elapsed()
}

#[test]
fn the_kernel_refuses_descriptors_at_the_sender_where_it_can() {
    let test_agent = TestAgent::new();
    let (rogue, _rings, _) = Rogue::attached(&test_agent);
    let sent = rogue.try_say(br#"{"type":"free_memory","grant":1}"#, &[rogue.0.as_fd()]);
    if kernel() >= (6, 16) {
        assert!(matches!(sent, Err(SendError::Socket(Errno::PERM))), "{sent:?}");
    } else {
        assert!(rogue.reason().contains("descriptors"));
        assert_expelled(&test_agent, "descriptors");
    }
}

fn kernel() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|it: char| !it.is_ascii_digit()).map(|it| it.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn a_descriptor_that_waits_when_it_is_closed_delays_no_other_client() {
    let test_agent = TestAgent::of_old_kernel();
    let (client, connection) = test_agent.attach();
    for bytes in [&[b' '; 5000][..], &hello(), b"no message"] {
        let rogue = Rogue::connect(&test_agent);
        let _peer = send_lingering(&test_agent, &rogue, bytes);
        assert!(rogue.reason().contains("descriptors"));
        drop(rogue);
        let took = exchange(&test_agent, &client, connection);
        assert!(took < ON_TIME, "{took:?}");
    }
    // A client that sends no hello, and whose packets are never handled.
    let rogue = Rogue::connect(&test_agent);
    let (socket, _peer) = lingering();
    let paused = test_agent.server.paused();
    rogue.say(b"no message", &[]);
    rogue.say(b"no message", &[socket.as_fd()]);
    drop((socket, rogue));
    drop(paused);
    let took = exchange(&test_agent, &client, connection);
    assert!(took < ON_TIME, "{took:?}");
}

#[test]
fn what_waits_to_be_closed_counts_as_a_connection() {
    let test_agent = TestAgent::of_old_kernel();
    let mut peers = Vec::new();
    for _ in 0..LIMITS.connections_max {
        let rogue = Rogue::connect(&test_agent);
        peers.push(send_lingering(&test_agent, &rogue, b"no message"));
        assert!(rogue.reason().contains("descriptors"));
    }
    let refused = Rogue::connect(&test_agent).reason();
    assert_eq!(refused, "the agent has 8 connections already");
    drop(peers);
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let rogue = Rogue::connect(&test_agent);
        if rogue.try_say(b"no message", &[]).is_ok() && rogue.reason().contains("no sense") {
            assert_serving(&test_agent);
            return;
        }
        std::thread::yield_now();
    }
    panic!("places of closed connections are not free again");
}

#[test]
fn a_flood_of_publications_is_one_order_and_the_end() {
    let test_agent = TestAgent::new();
    let (client, honest) = test_agent.attach();
    let (rogue, _rings, connection) = Rogue::attached(&test_agent);
    let publish = br#"{"type":"publish","request":1,"epoch":0,"samples":100000}"#;
    let written = br#"{"type":"order_written","request":1}"#;
    for _ in 0..20 {
        // The agent ends the connection meanwhile.
        let _ = rogue.try_say(publish, &[]);
        let _ = rogue.try_say(written, &[]);
    }
    match test_agent.event() {
        ClientEvent::Published { connection: who, samples, .. } => {
            assert_eq!(who, connection);
            assert_eq!(samples, vec![SampleId(0); 100_000], "nothing was written");
        }
        other => panic!("{other:?}"),
    }
    match test_agent.event() {
        ClientEvent::Gone { connection: gone, cause } => {
            assert_eq!(gone, connection);
            assert!(cause.to_string().contains("before the one before it was answered"), "{cause}");
        }
        other => panic!("{other:?}"),
    }
    assert!(exchange(&test_agent, &client, honest) < ON_TIME);
}

#[test]
fn the_length_of_an_order_is_looked_at_before_there_is_a_file() {
    let test_agent = TestAgent::new();
    for samples in [0, LIMITS.published_samples_max + 1, u32::MAX] {
        let (rogue, _rings, _) = Rogue::attached(&test_agent);
        let publish = format!(r#"{{"type":"publish","request":1,"epoch":0,"samples":{samples}}}"#);
        rogue.say(publish.as_bytes(), &[]);
        assert!(rogue.reason().contains("from 1 to 100000 are possible"));
        assert_expelled(&test_agent, "from 1 to 100000 are possible");
    }
}
