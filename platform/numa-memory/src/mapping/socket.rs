//! Moves bytes between connected sockets and mappings without a buffer between them, and asks the kernel how
//! far the other end of a connection is.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    time::Duration,
};

use tierfeed_units::Bytes;

use super::Mapping;

/// The most ranges that one call sends; `UIO_MAXIOV` of Linux is 1 024.
pub const SENT_RANGES_MAX: usize = 64;

/// A range of a mapping.
#[derive(Debug, Clone, Copy)]
pub struct MappedRange<'a> {
    /// The memory.
    pub mapping: &'a Mapping,
    /// Start of the range.
    pub offset: Bytes,
    /// Length of the range.
    pub len: Bytes,
}

impl Mapping {
    /// Receives at most `len` bytes of a stream socket here, without waiting; returns their number, which
    /// is 0 if the other end has closed the connection, or `len` is 0.
    ///
    /// # Errors
    ///
    /// As `recv(2)`, [`io::ErrorKind::WouldBlock`] if there are none, or
    /// [`io::ErrorKind::InvalidInput`] if the range leaves the mapping.
    pub fn receive(&self, offset: Bytes, len: Bytes, socket: BorrowedFd<'_>) -> io::Result<Bytes> {
        let (to, count) = self.range(offset, len)?;
        loop {
            // SAFETY:
            // - `to` is valid for writes of `count` bytes: `range` checked it, and `self` keeps it mapped.
            //   The kernel writes nowhere else, and nothing after the call has returned.
            // - The socket is open: it is borrowed.
            let received =
                unsafe { libc::recv(socket.as_raw_fd(), to.cast(), count, libc::MSG_DONTWAIT) };
            match u64::try_from(received) {
                Ok(received) => return Ok(Bytes(received)),
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => (),
                    error => return Err(error),
                },
            }
        }
    }
}

/// Sends bytes of the first [`SENT_RANGES_MAX`] ranges, in their order, to a stream socket without
/// waiting; returns their number. The kernel has copied them when this returns.
///
/// # Errors
///
/// As `sendmsg(2)`, [`io::ErrorKind::WouldBlock`] if the socket takes none, or
/// [`io::ErrorKind::InvalidInput`] if a range leaves its mapping. No signal is raised.
pub fn send_ranges(ranges: &[MappedRange<'_>], socket: BorrowedFd<'_>) -> io::Result<Bytes> {
    let as_part = |range: &MappedRange<'_>| {
        let (from, count) = range.mapping.range(range.offset, range.len)?;
        Ok(libc::iovec { iov_base: from.cast(), iov_len: count })
    };
    let parts = ranges.iter().take(SENT_RANGES_MAX).map(as_part);
    let parts = parts.collect::<io::Result<Vec<libc::iovec>>>()?;
    // SAFETY: all of its fields are integers and pointers, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_ptr().cast_mut();
    message.msg_iovlen = parts.len();
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    loop {
        // SAFETY:
        // - `message` and `parts` live through the call; each part is valid for reads of its length:
        //   `range` checked it, and the mappings are borrowed. The kernel only reads them.
        // - The socket is open: it is borrowed.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
        match usize::try_from(sent) {
            Ok(sent) => return Ok(Bytes(sent as u64)),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => (),
                error => return Err(error),
            },
        }
    }
}

/// The round trip of a TCP connection, as the kernel measured and smoothed it.
///
/// # Errors
///
/// As `getsockopt(2)`, as for a socket that is no TCP connection.
pub fn round_trip(socket: BorrowedFd<'_>) -> io::Result<Duration> {
    /// `tcpi_rtt`, in microseconds, is this field of `struct tcp_info` (`include/uapi/linux/tcp.h`), counted
    /// in fields of four bytes.
    const RTT: usize = 17;
    let mut info = [0_u32; RTT + 1];
    let mut len = libc::socklen_t::try_from(size_of_val(&info)).map_err(io::Error::other)?;
    // SAFETY:
    // - `info` is valid for writes of `len` bytes, and the kernel writes no more.
    // - The socket is open: it is borrowed.
    let outcome = unsafe {
        let (level, to) = (libc::IPPROTO_TCP, info.as_mut_ptr().cast());
        libc::getsockopt(socket.as_raw_fd(), level, libc::TCP_INFO, to, &raw mut len)
    };
    match outcome {
        0 => Ok(Duration::from_micros(info[RTT].into())),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
        os::{fd::AsFd as _, unix::net::UnixStream},
    };

    use tierfeed_units::Locality;

    use crate::{Pages, Region, Request};

    use super::*;

    fn region() -> Region {
        let (locality, pages) = (Locality::Anywhere, Pages::Small);
        Region::allocate(&Request { len: Bytes(8192), locality, name: "socket", pages }).unwrap()
    }

    #[test]
    fn ranges_are_sent_in_their_order() {
        let (memory, (ours, mut theirs)) = (region(), UnixStream::pair().unwrap());
        memory.write(Bytes(0), b"behind").unwrap();
        memory.write(Bytes(100), b"before").unwrap();
        let range = |offset, len| MappedRange { mapping: &memory, offset: Bytes(offset), len };
        let ranges = [range(100, Bytes(6)), range(0, Bytes(6))];
        assert_eq!(send_ranges(&ranges, ours.as_fd()).unwrap(), Bytes(12));
        let mut seen = [0; 12];
        theirs.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"beforebehind");
    }

    #[test]
    fn a_range_that_leaves_its_mapping_moves_nothing() {
        let (memory, (ours, mut theirs)) = (region(), UnixStream::pair().unwrap());
        let outside = MappedRange { mapping: &memory, offset: Bytes(8191), len: Bytes(2) };
        let error = send_ranges(&[outside], ours.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        theirs.write_all(b"kept").unwrap();
        let error = memory.receive(Bytes(8191), Bytes(2), ours.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(memory.receive(Bytes(8), Bytes(100), ours.as_fd()).unwrap(), Bytes(4));
        let mut seen = [0; 4];
        memory.read(Bytes(8), &mut seen).unwrap();
        assert_eq!(&seen, b"kept");
    }

    #[test]
    fn the_kernel_measures_the_round_trip_of_tcp_and_of_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        theirs.write_all(b"measured").unwrap();
        for end in [&ours, &theirs] {
            let measured = round_trip(end.as_fd()).unwrap();
            assert!((1..1_000_000).contains(&measured.as_micros()), "{measured:?}");
        }
        let (local, _other) = UnixStream::pair().unwrap();
        assert!(round_trip(local.as_fd()).is_err());
    }

    #[test]
    fn no_call_waits_for_the_other_end() {
        let (memory, (ours, theirs)) = (region(), UnixStream::pair().unwrap());
        let error = memory.receive(Bytes(0), Bytes(1), ours.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let range = MappedRange { mapping: &memory, offset: Bytes(0), len: Bytes(8192) };
        let full = loop {
            match send_ranges(&[range; 4], ours.as_fd()) {
                Ok(_) => (),
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        drop(theirs);
        assert_eq!(
            send_ranges(&[range], ours.as_fd()).unwrap_err().kind(),
            io::ErrorKind::BrokenPipe
        );
    }
}
