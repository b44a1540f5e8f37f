//! The reference: the bytes of each sample written to a connection, and read from it.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use anyhow::{Context as _, anyhow};
use tierfeed_core::units::Bytes;

use super::{BATCH, DEPTH};

/// Serves plain copies for as long as the process lives: a connection asks for a number of bytes, and gets as
/// many, sample by sample.
pub(super) fn serve(listener: &TcpListener, sample: Bytes, held: Vec<u8>) {
    let held = std::sync::Arc::new(held);
    for stream in listener.incoming().flatten() {
        let held = std::sync::Arc::clone(&held);
        // It ends with its connection, or with the process.
        drop(thread::spawn(move || answer(stream, sample, &held)));
    }
}

fn answer(mut stream: TcpStream, sample: Bytes, held: &[u8]) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut wanted = [0; 8];
    while stream.read_exact(&mut wanted).is_ok() {
        let mut left = usize::try_from(u64::from_le_bytes(wanted))?;
        let samples = held.chunks_exact(usize::try_from(sample.0)?).cycle();
        for bytes in samples {
            if left == 0 {
                break;
            }
            let len = bytes.len().min(left);
            stream.write_all(&bytes[..len])?;
            left -= len;
        }
    }
    Ok(())
}

/// Reads `bytes` over some connections into memory, sample by sample.
pub(super) fn read(
    address: SocketAddr,
    connections: u64,
    sample: Bytes,
    bytes: Bytes,
) -> anyhow::Result<()> {
    let share = bytes.0 / connections;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..connections)
            .map(|_| scope.spawn(|| read_share(address, share, sample, connections)))
            .collect();
        let mut ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended.try_for_each(|it| it.map_err(|_| anyhow!("a reader panicked"))?)
    })
}

fn read_share(
    address: SocketAddr,
    share: u64,
    sample: Bytes,
    connections: u64,
) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).context("the plain copy")?;
    stream.set_nodelay(true)?;
    stream.write_all(&share.to_le_bytes())?;
    // As much memory as the batches of the other side.
    let mut staging = vec![0; usize::try_from(BATCH * DEPTH as u64 / connections)?];
    let sample = usize::try_from(sample.0)?.min(staging.len());
    let (mut left, mut at) = (usize::try_from(share)?, 0);
    while left > 0 {
        let len = left.min(sample);
        if at + len > staging.len() {
            at = 0;
        }
        stream.read_exact(&mut staging[at..at + len])?;
        (left, at) = (left - len, at + len);
    }
    Ok(())
}
