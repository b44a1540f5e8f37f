//! Control packets: bytes and descriptors on a `SOCK_SEQPACKET` socket, transferred whole or not at
//! all.
//!
//! No call here blocks: a client that does not read must not stop the agent, and a client waits
//! with `poll` so that its caller can set a timeout. Descriptors that a client receives are owned
//! values at once (closed on every path) and never survive an `exec`.
//!
//! An agent receives none ([`receive_bytes`]): closing a descriptor may wait for a network or a
//! file system of the sender's choice, as a socket with `SO_LINGER` does.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
};

use super::descriptors;

pub(super) const PACKET_BYTES_MAX: usize = 64 * 1024;

/// The most descriptors in one packet. The kernel allows 253.
pub(super) const DESCRIPTORS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Packet {
    pub(super) bytes: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
}

#[derive(Debug)]
pub(super) enum Arrival {
    Packet(Packet),
    Nothing,
    End,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ReceiveError {
    #[error("a packet is longer than {max} bytes")]
    TooLong { max: usize },
    #[error("a packet carries more than {max} descriptors, or more than this process may open")]
    TooManyDescriptors { max: usize },
    #[error("a packet carries descriptors; the agent takes none")]
    Descriptors,
    #[error("receiving failed")]
    Socket(#[source] Errno),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("the packet has {len} bytes; at most {max} are allowed")]
    TooLong { len: usize, max: usize },
    #[error("the packet has {count} descriptors; at most {max} are allowed")]
    TooManyDescriptors { count: usize, max: usize },
    #[error("the other side does not read its packets")]
    Clogged,
    #[error("the other side is gone")]
    End,
    #[error("sending failed")]
    Socket(#[source] Errno),
}

pub(super) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), SendError> {
    if bytes.len() > PACKET_BYTES_MAX {
        return Err(SendError::TooLong { len: bytes.len(), max: PACKET_BYTES_MAX });
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let count = descriptors.len();
    let rights = SendAncillaryMessage::ScmRights(descriptors);
    // The space is rounded up, so it might hold one more.
    if count > DESCRIPTORS_MAX || (count > 0 && !control.push(rights)) {
        return Err(SendError::TooManyDescriptors { count, max: DESCRIPTORS_MAX });
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        return match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(_) => Ok(()),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Err(SendError::Clogged),
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Err(SendError::End),
            Err(errno) => Err(SendError::Socket(errno)),
        };
    }
}

/// Receives one packet of at most `bytes_max` bytes, if one is there.
pub(super) fn receive(socket: BorrowedFd<'_>, bytes_max: usize) -> Result<Arrival, ReceiveError> {
    let mut bytes = vec![0; bytes_max];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Ok(received) => break received,
            // A side that closes with unread packets resets the connection. The error is reported
            // once; packets that were sent before can be read after it.
            Err(Errno::INTR | Errno::CONNRESET) => (),
            Err(Errno::AGAIN) => return Ok(Arrival::Nothing),
            Err(errno) => return Err(ReceiveError::Socket(errno)),
        }
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(ReceiveError::TooLong { max: bytes_max });
    }
    if received.flags.contains(ReturnFlags::CTRUNC) || descriptors.len() > DESCRIPTORS_MAX {
        return Err(ReceiveError::TooManyDescriptors { max: DESCRIPTORS_MAX });
    }
    if received.bytes == 0 {
        return Ok(Arrival::End);
    }
    bytes.truncate(received.bytes);
    Ok(Arrival::Packet(Packet { bytes, descriptors }))
}

/// Receives one packet of at most `bytes_max` bytes, if one is there, and never a descriptor.
///
/// A packet that carries descriptors stays in the socket; closing the socket closes them.
pub(super) fn receive_bytes(
    socket: BorrowedFd<'_>,
    bytes_max: usize,
) -> Result<Arrival, ReceiveError> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    // Without space for descriptors the kernel only reports that there are some. Peeking does not
    // receive the packet, so none of them is closed here.
    match receive_raw(socket, flags | RecvFlags::PEEK, &mut [])? {
        None => return Ok(Arrival::Nothing),
        Some((_, seen)) if seen.contains(ReturnFlags::CTRUNC) => {
            return Err(ReceiveError::Descriptors);
        }
        Some(_) => (),
    }
    let mut bytes = vec![0; bytes_max];
    let Some((len, seen)) = receive_raw(socket, flags, &mut bytes)? else {
        return Ok(Arrival::Nothing);
    };
    if seen.contains(ReturnFlags::TRUNC) {
        return Err(ReceiveError::TooLong { max: bytes_max });
    }
    if len == 0 {
        return Ok(Arrival::End);
    }
    bytes.truncate(len);
    Ok(Arrival::Packet(Packet { bytes, descriptors: Vec::new() }))
}

/// The length of the next packet and the kernel's flags; `None` if none is there.
fn receive_raw(
    socket: BorrowedFd<'_>,
    flags: RecvFlags,
    bytes: &mut [u8],
) -> Result<Option<(usize, ReturnFlags)>, ReceiveError> {
    loop {
        match descriptors::receive_raw(socket, flags, bytes) {
            Ok(received) => return Ok(Some(received)),
            // As in `receive`.
            Err(Errno::CONNRESET) => (),
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(ReceiveError::Socket(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn packet(arrival: Arrival) -> Packet {
        match arrival {
            Arrival::Packet(packet) => packet,
            other => panic!("no packet: {other:?}"),
        }
    }

    #[test]
    fn a_packet_arrives_whole_with_its_descriptors() {
        let (ours, theirs) = pair();
        let extra = [theirs.as_fd(), theirs.as_fd()];
        send(ours.as_fd(), b"hello", &extra).unwrap();
        send(ours.as_fd(), b"again", &[]).unwrap();
        let first = packet(receive(theirs.as_fd(), 100).unwrap());
        assert_eq!((&first.bytes[..], first.descriptors.len()), (&b"hello"[..], 2));
        assert_eq!(packet(receive(theirs.as_fd(), 100).unwrap()).bytes, b"again");
        assert!(matches!(receive(theirs.as_fd(), 100), Ok(Arrival::Nothing)));
    }

    #[test]
    fn a_packet_over_the_limit_is_an_error_and_not_a_shorter_packet() {
        let (ours, theirs) = pair();
        send(ours.as_fd(), &[7; 101], &[]).unwrap();
        assert!(matches!(receive(theirs.as_fd(), 100), Err(ReceiveError::TooLong { max: 100 })));
        let long = vec![0; PACKET_BYTES_MAX + 1];
        assert!(matches!(send(ours.as_fd(), &long, &[]), Err(SendError::TooLong { .. })));
        let many = vec![theirs.as_fd(); DESCRIPTORS_MAX + 1];
        assert!(matches!(
            send(ours.as_fd(), b"x", &many),
            Err(SendError::TooManyDescriptors { .. })
        ));
    }

    #[test]
    fn a_packet_with_descriptors_stays_in_the_socket_where_none_are_taken() {
        let (ours, theirs) = pair();
        send(ours.as_fd(), b"plain", &[]).unwrap();
        send(ours.as_fd(), b"laden", &[ours.as_fd()]).unwrap();
        assert_eq!(packet(receive_bytes(theirs.as_fd(), 100).unwrap()).bytes, b"plain");
        for _ in 0..2 {
            let laden = receive_bytes(theirs.as_fd(), 100);
            assert!(matches!(laden, Err(ReceiveError::Descriptors)), "{laden:?}");
        }
        assert_eq!(packet(receive(theirs.as_fd(), 100).unwrap()).descriptors.len(), 1);
        drop(ours);
        assert!(matches!(receive_bytes(theirs.as_fd(), 100), Ok(Arrival::End)));
    }

    #[test]
    fn a_side_that_never_reads_clogs_the_socket_instead_of_blocking_us() {
        let (ours, _theirs) = pair();
        let clogged = (0..10_000).find_map(|_| send(ours.as_fd(), &[0; 4096], &[]).err());
        assert!(matches!(clogged, Some(SendError::Clogged)));
    }

    #[test]
    fn what_was_sent_before_a_reset_is_still_read() {
        let (ours, theirs) = pair();
        send(theirs.as_fd(), b"unread", &[]).unwrap();
        send(ours.as_fd(), b"farewell", &[]).unwrap();
        drop(ours);
        assert_eq!(packet(receive(theirs.as_fd(), 100).unwrap()).bytes, b"farewell");
        assert!(matches!(receive(theirs.as_fd(), 100), Ok(Arrival::End)));
        assert!(matches!(send(theirs.as_fd(), b"x", &[]), Err(SendError::End)));
    }
}
