//! One connection as a stream of bytes: nothing in it waits but [`Channel::readable`] and
//! [`Channel::writable`], so that a read can end at any point between two calls.

use std::{io, os::fd::AsFd as _, time::Duration};

use rustix::net::sockopt;
use tierfeed_core::units::Bytes;
use tierfeed_dataset::read::sample_sum::SampleSum;
use tierfeed_numa_memory::{MappedRange, Region, send_ranges};
use tokio::{io::Interest, net::TcpStream};

/// The most bytes that one call receives into memory: they are still in a level-2 cache when they are summed.
const PIECE: u64 = 256 << 10;

const PROBE_AFTER: Duration = Duration::from_secs(10);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES_MAX: u32 = 2;

/// Data that the other host does not acknowledge within this time closes the connection.
const ACKNOWLEDGED_WITHIN_MS: u32 = 10_000;

/// A connection.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: TcpStream,
}

impl Channel {
    /// Disables Nagle's algorithm, and lets the kernel close a connection to a lost host.
    pub(crate) fn plain(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, PROBE_AFTER)?;
        sockopt::set_tcp_keepintvl(&stream, PROBE_EVERY)?;
        sockopt::set_tcp_keepcnt(&stream, PROBES_MAX)?;
        sockopt::set_tcp_user_timeout(&stream, ACKNOWLEDGED_WITHIN_MS)?;
        Ok(Self { stream })
    }

    /// Waits until a receive may succeed or fail.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.stream.readable().await
    }

    /// Waits until a send may succeed or fail.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.stream.writable().await
    }

    /// Receives at least one byte of what is there.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if nothing is there, [`io::ErrorKind::UnexpectedEof`] if the other end has
    /// closed the connection, else as `recv(2)`.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.stream.try_read(buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            received => Ok(received),
        }
    }

    /// As [`Self::receive`], at most `len` bytes, into memory from `offset` on; adds them to `sum` as they lie
    /// there.
    pub(crate) fn receive_summed(
        &mut self,
        region: &Region,
        offset: Bytes,
        len: Bytes,
        sum: &mut SampleSum,
    ) -> io::Result<Bytes> {
        let len = Bytes(len.0.min(PIECE).min(sum.left_of_segment()));
        let receive = || region.receive(offset, len, self.stream.as_fd());
        let received = self.stream.try_io(Interest::READABLE, receive)?;
        if received.0 == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        region.sum_into(offset, received, sum.segment())?;
        sum.took(received.0);
        Ok(received)
    }

    /// Sends at least one byte.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if the connection takes none now, else as `send(2)`.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.try_write(bytes)
    }

    /// As [`Self::send`], of memory.
    pub(crate) fn send_ranges(&mut self, ranges: &[MappedRange<'_>]) -> io::Result<Bytes> {
        self.stream.try_io(Interest::WRITABLE, || send_ranges(ranges, self.stream.as_fd()))
    }

    /// Fills the buffer.
    pub(crate) async fn receive_all(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            match self.receive(&mut buffer[done..]) {
                Ok(received) => done += received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends all bytes.
    pub(crate) async fn send_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.send(&bytes[done..]) {
                Ok(sent) => done += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
