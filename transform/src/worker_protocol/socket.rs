//! Packets on their way through the socket, with a descriptor beside one.

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

use super::{PACKET_BYTES_MAX, PacketError};

#[derive(Debug)]
pub enum Arrival<T> {
    /// A packet, with the descriptor that came with it.
    Packet(T, Option<OwnedFd>),
    /// None is there yet.
    Nothing,
    /// The other side has closed its end.
    End,
}

/// Sends one packet, with a descriptor if one is given. Never waits: a side that leaves dozens of packets
/// unread is broken.
///
/// # Errors
///
/// [`PacketError::TooLong`] and [`PacketError::Socket`].
pub fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<(), PacketError> {
    if bytes.len() > PACKET_BYTES_MAX {
        return Err(PacketError::TooLong { len: bytes.len() });
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let rights = descriptor.as_slice();
    if !rights.is_empty() {
        // The space is made for one.
        let _ = control.push(SendAncillaryMessage::ScmRights(rights));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => (),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Receives one packet if one is there, into `buffer`, and reads it with `decode`.
///
/// # Errors
///
/// [`PacketError::TooLong`] and [`PacketError::Socket`], and those of `decode`.
pub fn receive<T>(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    decode: impl FnOnce(&[u8]) -> Result<T, PacketError>,
) -> Result<Arrival<T>, PacketError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
            Ok(received) => break received,
            // A side that closes with unread packets resets the connection, which is told once.
            Err(Errno::INTR | Errno::CONNRESET) => (),
            Err(Errno::AGAIN) => return Ok(Arrival::Nothing),
            Err(errno) => return Err(errno.into()),
        }
    };
    // Those beyond the first are closed here.
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(PacketError::TooLong { len: buffer.len() + 1 });
    }
    if received.bytes == 0 {
        return Ok(Arrival::End);
    }
    Ok(Arrival::Packet(decode(&buffer[..received.bytes])?, descriptor))
}
