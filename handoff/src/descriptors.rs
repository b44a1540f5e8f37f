//! Keeps descriptors that peers send to a Unix socket of the agent out of the agent's process.
//!
//! Closing a descriptor may wait for a network or a file system of the sender's choice, as a socket
//! with `SO_LINGER` does, and the process that received it would wait as well. So the kernel is
//! told to refuse descriptors at the sender ([`Descriptors::refused_by`]). Before Linux 6.16, where
//! it cannot, data is peeked at before it is received ([`read_stream`]), and a socket that may hold
//! descriptors is closed by a dedicated thread ([`super::Closing`]).

use std::{
    io::{self, IoSliceMut},
    os::fd::{AsFd, BorrowedFd},
};

use nix::sys::socket::{SetSockOpt, sockopt::SetBool};
use rustix::{
    io::Errno,
    net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, recvmsg},
};

/// Of `asm-generic/socket.h`, since Linux 6.16; the C library does not name it yet.
const SO_PASSRIGHTS: libc::c_int = 83;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Descriptors {
    /// The kernel refuses them at the sender.
    Refused,
    /// They may lie in the socket until it is closed.
    Possible,
}

/// Option that stops all processes from sending descriptors to a socket and to those accepted from
/// it.
#[derive(Debug, Clone, Copy)]
struct PassRights;

nix::setsockopt_impl!(PassRights, libc::SOL_SOCKET, SO_PASSRIGHTS, bool, SetBool);

impl Descriptors {
    /// Asks the kernel to refuse descriptors for a socket that does not listen yet, and returns
    /// whether it does. Connections that are accepted from the socket inherit the option.
    #[must_use]
    pub fn refused_by(socket: &impl AsFd) -> Self {
        if PassRights.set(socket, &false).is_ok() { Self::Refused } else { Self::Possible }
    }
}

/// Reads from a stream socket without blocking, and receives no descriptor from it.
///
/// # Errors
///
/// As `recvmsg(2)`; [`io::ErrorKind::PermissionDenied`] if descriptors come with the bytes. They
/// stay in the socket.
pub fn read_stream(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<usize> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    // Without space for descriptors the kernel only reports that there are some. Peeking does not
    // receive them.
    let (len, seen) = receive_raw(socket, flags | RecvFlags::PEEK, bytes)?;
    if seen.contains(ReturnFlags::CTRUNC) {
        let what = "the peer sent descriptors, and none are taken";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    // Data that arrived after the peek is not received.
    let (taken, _) = receive_raw(socket, flags, &mut bytes[..len])?;
    Ok(taken)
}

/// Receives without space for descriptors; returns the number of bytes and the kernel's flags.
pub(super) fn receive_raw(
    socket: BorrowedFd<'_>,
    flags: RecvFlags,
    bytes: &mut [u8],
) -> Result<(usize, ReturnFlags), Errno> {
    loop {
        let mut nothing = RecvAncillaryBuffer::new(&mut []);
        match recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut nothing, flags) {
            Ok(received) => return Ok((received.bytes, received.flags)),
            Err(Errno::INTR) => (),
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
        SocketType, send, sendmsg, socketpair,
    };

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn send_laden(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let rights = [socket.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&rights)));
        sendmsg(socket, &[io::IoSlice::new(bytes)], &mut control, SendFlags::empty())
    }

    #[test]
    fn a_stream_is_read_as_far_as_no_descriptor_comes() {
        let (ours, theirs) = pair();
        send(&ours, b"plain", SendFlags::empty()).unwrap();
        let mut bytes = [0; 100];
        assert_eq!(read_stream(theirs.as_fd(), &mut bytes[..2]).unwrap(), 2);
        assert_eq!(read_stream(theirs.as_fd(), &mut bytes[2..]).unwrap(), 3);
        assert_eq!(&bytes[..5], b"plain");
        let nothing = read_stream(theirs.as_fd(), &mut bytes).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        send_laden(&ours, b"laden").unwrap();
        for _ in 0..2 {
            let laden = read_stream(theirs.as_fd(), &mut bytes).unwrap_err();
            assert_eq!(laden.kind(), io::ErrorKind::PermissionDenied);
        }
        drop(ours);
        let (other, theirs) = pair();
        drop(other);
        assert_eq!(read_stream(theirs.as_fd(), &mut bytes).unwrap(), 0, "the end");
    }

    #[test]
    fn what_is_said_of_the_kernel_is_what_it_does() {
        let (ours, theirs) = pair();
        let sent = match Descriptors::refused_by(&theirs) {
            Descriptors::Refused => Err(Errno::PERM),
            Descriptors::Possible => Ok(5),
        };
        assert_eq!(send_laden(&ours, b"laden"), sent);
    }
}
