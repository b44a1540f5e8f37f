//! Clients that mean harm: another rank's batches come on time, and the agent holds a bounded amount of
//! what they send.

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
    stage::{LIMITS, PATIENCE, Stage, batch_id},
};
use crate::{Client, ClientEvent, Reply, packet::SendError};

/// Far longer than an exchange takes, and far shorter than the hostile descriptors wait.
const ON_TIME: Duration = Duration::from_secs(5);

/// A TCP socket whose last `close` waits for a minute, or until its peer is dropped.
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

/// Sends a descriptor that waits when it is closed. Nobody but the agent has it when it looks.
fn send_lingering(stage: &Stage, rogue: &Rogue, bytes: &[u8]) -> TcpStream {
    let (socket, peer) = lingering();
    let paused = stage.server.paused();
    rogue.say(bytes, &[socket.as_fd()]);
    drop(socket);
    drop(paused);
    peer
}

/// One batch from the request to the release.
fn exchange(stage: &Stage, client: &Client, holder: ConnectionId) -> Duration {
    let begun = Instant::now();
    client.request(batch_id(1)).unwrap();
    assert_eq!(stage.requested(), (holder, batch_id(1)));
    stage.lease(holder, 1);
    let Ok(Reply::Batch(leased)) = client.next(PATIENCE) else { panic!("no batch") };
    client.release(leased.lease).unwrap();
    assert_eq!(stage.released().0, holder);
    begun.elapsed()
}

#[test]
fn the_kernel_refuses_descriptors_at_the_sender_where_it_can() {
    let stage = Stage::new();
    let (rogue, _rings, _) = Rogue::attached(&stage);
    let sent = rogue.try_say(br#"{"type":"free_memory","grant":1}"#, &[rogue.0.as_fd()]);
    // Linux 6.16 and later.
    if kernel() >= (6, 16) {
        assert!(matches!(sent, Err(SendError::Socket(Errno::PERM))), "{sent:?}");
    } else {
        assert!(rogue.reason().contains("descriptors"));
        assert_expelled(&stage, "descriptors");
    }
}

fn kernel() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|it: char| !it.is_ascii_digit()).map(|it| it.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn a_descriptor_that_waits_when_it_is_closed_holds_up_no_one() {
    let stage = Stage::of_old_kernel();
    let (client, holder) = stage.attach();
    for bytes in [&[b' '; 5000][..], &hello(), b"no message"] {
        let rogue = Rogue::connect(&stage);
        let _peer = send_lingering(&stage, &rogue, bytes);
        assert!(rogue.reason().contains("descriptors"));
        drop(rogue);
        let took = exchange(&stage, &client, holder);
        assert!(took < ON_TIME, "{took:?}");
    }
    // One that leaves without a word, and whose packets are never looked at.
    let rogue = Rogue::connect(&stage);
    let (socket, _peer) = lingering();
    let paused = stage.server.paused();
    rogue.say(b"no message", &[]);
    rogue.say(b"no message", &[socket.as_fd()]);
    drop((socket, rogue));
    drop(paused);
    let took = exchange(&stage, &client, holder);
    assert!(took < ON_TIME, "{took:?}");
}

#[test]
fn what_waits_to_be_closed_counts_as_a_connection() {
    let stage = Stage::of_old_kernel();
    let mut peers = Vec::new();
    for _ in 0..LIMITS.connections_max {
        let rogue = Rogue::connect(&stage);
        peers.push(send_lingering(&stage, &rogue, b"no message"));
        assert!(rogue.reason().contains("descriptors"));
    }
    let refused = Rogue::connect(&stage).reason();
    assert_eq!(refused, "the agent has 8 connections already");
    drop(peers);
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let rogue = Rogue::connect(&stage);
        if rogue.try_say(b"no message", &[]).is_ok() && rogue.reason().contains("no sense") {
            assert_serving(&stage);
            return;
        }
        std::thread::yield_now();
    }
    panic!("places of closed connections are not free again");
}

#[test]
fn a_flood_of_publications_is_one_order_and_the_end() {
    let stage = Stage::new();
    let (client, honest) = stage.attach();
    let (rogue, _rings, holder) = Rogue::attached(&stage);
    let publish = br#"{"type":"publish","request":1,"epoch":0,"samples":100000}"#;
    let written = br#"{"type":"order_written","request":1}"#;
    for _ in 0..20 {
        // The agent ends the connection meanwhile.
        let _ = rogue.try_say(publish, &[]);
        let _ = rogue.try_say(written, &[]);
    }
    match stage.event() {
        ClientEvent::Published { holder: who, samples, .. } => {
            assert_eq!(who, holder);
            assert_eq!(samples, vec![SampleId(0); 100_000], "nothing was written");
        }
        other => panic!("{other:?}"),
    }
    match stage.event() {
        ClientEvent::Gone { holder: gone, cause } => {
            assert_eq!(gone, holder);
            assert!(cause.to_string().contains("before the one before it was answered"), "{cause}");
        }
        other => panic!("{other:?}"),
    }
    assert!(exchange(&stage, &client, honest) < ON_TIME);
}

#[test]
fn the_length_of_an_order_is_looked_at_before_there_is_a_file() {
    let stage = Stage::new();
    for samples in [0, LIMITS.published_samples_max + 1, u32::MAX] {
        let (rogue, _rings, _) = Rogue::attached(&stage);
        let publish = format!(r#"{{"type":"publish","request":1,"epoch":0,"samples":{samples}}}"#);
        rogue.say(publish.as_bytes(), &[]);
        assert!(rogue.reason().contains("from 1 to 100000 are possible"));
        assert_expelled(&stage, "from 1 to 100000 are possible");
    }
}
