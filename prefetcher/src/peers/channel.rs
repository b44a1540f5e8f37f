//! One connection as a stream of bytes, encrypted or, after its handshake, plain. Only its `async` methods
//! wait, so that a read can end at any point between two calls.

mod tls;

use std::{io, os::fd::AsFd as _, time::Duration};

use rustix::net::sockopt;
use rustls::Connection;
use tierfeed_core::units::Bytes;
use tierfeed_dataset::read::sample_sum::SampleSum;
use tierfeed_numa_memory::{MappedRange, Region, round_trip, send_ranges};
use tokio::{io::Interest, net::TcpStream};

use tls::Tls;

/// The most bytes that one call receives into memory: they are still in a level-2 cache when they are summed.
const PIECE: u64 = 256 << 10;

/// The send buffer of a connection with a short round trip: more bytes would be driven out of the caches
/// before the receiver takes them. `tierfeed-bench peers --transport` over loopback, samples of 100 KiB and
/// 1 MiB: 1.14 and 1.04 x a plain copy, and 0.85 and 0.73 x with the buffer that the kernel chooses.
const SEND_BUFFER_BYTES: usize = 512 << 10;

/// The longest round trip at which send buffers of that length fill a link of 50 Gbit/s over the connections
/// that a peer opens; for a longer one the kernel chooses.
const SHORT_ROUND_TRIP: Duration = Duration::from_micros(300);

const PROBE_AFTER: Duration = Duration::from_secs(10);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES_MAX: u32 = 2;

/// Data that the other host does not acknowledge within this time closes the connection.
const ACKNOWLEDGED_WITHIN_MS: u32 = 10_000;

#[derive(Debug)]
pub(crate) struct Channel {
    stream: TcpStream,
    tls: Option<Box<Tls>>,
}

impl Channel {
    /// Carries out the handshake of TLS. Disables Nagle's algorithm, and lets the kernel close a connection to
    /// a lost host.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if the other end does not prove the same key, else as the connection.
    pub(crate) async fn encrypted(stream: TcpStream, connection: Connection) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, PROBE_AFTER)?;
        sockopt::set_tcp_keepintvl(&stream, PROBE_EVERY)?;
        sockopt::set_tcp_keepcnt(&stream, PROBES_MAX)?;
        sockopt::set_tcp_user_timeout(&stream, ACKNOWLEDGED_WITHIN_MS)?;
        let mut tls = Box::new(Tls::new(connection));
        while !tls.shake_hands(&stream)? {
            if tls.has_unsent() {
                stream.writable().await?;
            } else {
                stream.readable().await?;
            }
        }
        Ok(Self { stream, tls: Some(tls) })
    }

    /// A key that only both ends of this connection know, for the purpose that `label` names.
    ///
    /// # Errors
    ///
    /// If the connection is not encrypted.
    pub(crate) fn derived_key(&self, label: &[u8]) -> io::Result<[u8; 32]> {
        let tls = self.tls.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        tls.derived_key(label)
    }

    /// Leaves all bytes from now on as they are. Both ends do it between the same two messages.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if the other end sent something too early.
    pub(crate) fn end_encryption(&mut self) -> io::Result<()> {
        let is_drained = self.tls.take().is_none_or(|mut tls| tls.is_drained());
        if is_drained { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Bounds the send buffer if the link has a short round trip. On an error the choice of the kernel stays.
    pub(crate) fn fit_send_buffer(&self) {
        if round_trip(self.stream.as_fd()).is_ok_and(|time| time <= SHORT_ROUND_TRIP) {
            let _ = sockopt::set_socket_send_buffer_size(&self.stream, SEND_BUFFER_BYTES);
        }
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.stream.readable().await
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.stream.writable().await
    }

    /// Whether bytes that were taken have not left yet; [`Self::flush`] sends them.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_unsent())
    }

    /// Sends what the connection takes of bytes that were taken before.
    ///
    /// # Errors
    ///
    /// As `send(2)`, but for [`io::ErrorKind::WouldBlock`].
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.tls.as_mut().map_or(Ok(()), |tls| tls.flush(&self.stream))
    }

    /// Receives at least one byte of what is there.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if nothing is there, [`io::ErrorKind::UnexpectedEof`] if the other end
    /// has closed the connection, else as `recv(2)`.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(tls) = &mut self.tls {
            return tls.receive(&self.stream, buffer.len(), |bytes| {
                buffer[..bytes.len()].copy_from_slice(bytes);
                Ok(())
            });
        }
        match self.stream.try_read(buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            received => Ok(received),
        }
    }

    /// As [`Self::receive`], at most `len` bytes, into memory from `offset` on; adds them to `sum` as they
    /// lie there.
    pub(crate) fn receive_summed(
        &mut self,
        region: &Region,
        offset: Bytes,
        len: Bytes,
        sum: &mut SampleSum,
    ) -> io::Result<Bytes> {
        let len = Bytes(len.0.min(PIECE).min(sum.left_of_segment()));
        let received = if let Some(tls) = &mut self.tls {
            let wanted = usize::try_from(len.0).unwrap_or(usize::MAX);
            let received = tls.receive(&self.stream, wanted, |bytes| {
                Ok(region.write_summed(offset, bytes, sum.segment())?)
            })?;
            Bytes(received as u64)
        } else {
            let receive = || region.receive(offset, len, self.stream.as_fd());
            let received = self.stream.try_io(Interest::READABLE, receive)?;
            if received.0 == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            region.sum_into(offset, received, sum.segment())?;
            received
        };
        sum.took(received.0);
        Ok(received)
    }

    /// Takes at least one byte.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if the connection takes none now, else as `send(2)`.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => tls.send(&self.stream, bytes),
            None => self.stream.try_write(bytes),
        }
    }

    /// As [`Self::send`]; the memory is not needed any more when this returns.
    pub(crate) fn send_ranges(&mut self, ranges: &[MappedRange<'_>]) -> io::Result<Bytes> {
        match &mut self.tls {
            Some(tls) => tls.send_ranges(&self.stream, ranges),
            None => {
                self.stream.try_io(Interest::WRITABLE, || send_ranges(ranges, self.stream.as_fd()))
            }
        }
    }

    pub(crate) async fn send_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() || self.has_unsent() {
            let sent = if done < bytes.len() { self.send(&bytes[done..]) } else { Ok(0) };
            match sent {
                Ok(sent) => done += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
            self.flush()?;
            if done == bytes.len() && self.has_unsent() {
                self.writable().await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn over_a_short_round_trip_the_send_buffer_is_bounded() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let channel = Channel { stream, tls: None };
            let size = || sockopt::socket_send_buffer_size(&channel.stream).unwrap();
            let before = size();
            let is_short = round_trip(channel.stream.as_fd()).unwrap() <= SHORT_ROUND_TRIP;
            channel.fit_send_buffer();
            // The kernel doubles what it is told.
            let is_bounded = size() != before && size() <= 2 * SEND_BUFFER_BYTES;
            assert_eq!(is_bounded, is_short, "{before} bytes before, {} after", size());
        });
    }
}
