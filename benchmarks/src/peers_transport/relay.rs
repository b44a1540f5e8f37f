//! A process between the two ends of a connection, which holds every piece of bytes back for some time.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tierfeed_core::units::Nanoseconds;
use tierfeed_harness::{
    clock::{now, pause},
    talking::Talking,
};

use super::serving;

const PIECE: usize = 256 << 10;

/// Pieces of one direction that are held back at a time: more than any link of the bench holds.
const PIECES_MAX: usize = 256;

/// A process that passes bytes on later.
pub(super) struct Relay {
    _process: Talking,
    pub(super) address: SocketAddr,
}

impl Relay {
    /// Starts a relay to `to`, which adds `delay` to a round trip.
    pub(super) fn start(to: SocketAddr, delay: Nanoseconds) -> anyhow::Result<Self> {
        let (to, delay) = (to.to_string(), format!("{} ns", delay.0));
        let (process, addresses) =
            serving::start(&["peers-relay", "--to", &to, "--delay", &delay])?;
        let address = *addresses.first().context("the relay gave no address")?;
        Ok(Self { _process: process, address })
    }
}

/// Relays connections to `to` until the input ends, each direction late by half of `delay`.
///
/// # Errors
///
/// If no port can be had.
pub(crate) fn relay(to: SocketAddr, delay: Nanoseconds) -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").context("a port")?;
    let address = listener.local_addr()?;
    let late = Duration::from_nanos(delay.0 / 2);
    // All threads end with the process.
    drop(thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let Ok(far) = TcpStream::connect(to) else { continue };
            drop(both_ways(&near, &far, late));
        }
    }));
    serving::announce(&[address])
}

fn both_ways(near: &TcpStream, far: &TcpStream, late: Duration) -> std::io::Result<()> {
    for (from, to) in [(near, far), (far, near)] {
        from.set_nodelay(true)?;
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        let (pieces, held) = sync_channel(PIECES_MAX);
        drop(thread::spawn(move || receive(from, &pieces, late)));
        drop(thread::spawn(move || send(to, &held)));
    }
    Ok(())
}

fn receive(mut from: TcpStream, pieces: &SyncSender<(Instant, Vec<u8>)>, late: Duration) {
    let mut buffer = vec![0; PIECE];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        if pieces.send((now() + late, buffer[..len].to_vec())).is_err() {
            return;
        }
    }
}

fn send(mut to: TcpStream, held: &Receiver<(Instant, Vec<u8>)>) {
    for (due, piece) in held {
        let early = due.saturating_duration_since(now());
        if !early.is_zero() {
            pause(early);
        }
        if to.write_all(&piece).is_err() {
            return;
        }
    }
    // The other end may have closed it already.
    let _ = to.shutdown(Shutdown::Write);
}
