//! The records of TLS on a socket, without a task of their own.

use std::io::{self, Read, Write};

use rustls::Connection;
use tierfeed_core::units::Bytes;
use tierfeed_numa_memory::MappedRange;
use tokio::net::TcpStream;

/// Bytes that a client receives at once, before they are decrypted: several records.
const INCOMING_BYTES: usize = 256 << 10;

/// The same of a server, which receives only requests, and of both ends during the handshake, when the
/// other end may be anyone.
const INCOMING_BYTES_MIN: usize = 4 << 10;

/// Bytes that may wait encrypted until the socket takes them.
const UNSENT_BYTES_MAX: usize = 512 << 10;

/// The most bytes of one record. Memory is encrypted in pieces of this length, which are copied first,
/// because no slice may cover memory that others write.
const RECORD_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct Tls {
    connection: Connection,
    incoming: Vec<u8>,
    /// `incoming[from..to]` is not decrypted yet.
    from: usize,
    to: usize,
    piece: Vec<u8>,
}

/// A socket that never waits.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tls {
    pub(super) fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        Self { connection, incoming: Vec::new(), from: 0, to: 0, piece: Vec::new() }
    }

    /// Continues the handshake as far as possible; returns whether it has ended and all of it was sent.
    pub(super) fn shake_hands(&mut self, stream: &TcpStream) -> io::Result<bool> {
        self.flush(stream)?;
        while self.connection.is_handshaking() {
            if self.has_unsent() {
                return Ok(false);
            }
            match self.process(stream) {
                Ok(()) => self.flush(stream)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => {
                    // The other end learns the reason, if it still listens.
                    let _ = self.flush(stream);
                    return Err(error);
                }
            }
        }
        Ok(!self.has_unsent())
    }

    pub(super) fn derived_key(&self, label: &[u8]) -> io::Result<[u8; 32]> {
        self.connection.export_keying_material([0; 32], label, None).map_err(io::Error::other)
    }

    /// Whether no byte waits to be sent, decrypted or received; a part of a record may.
    pub(super) fn is_drained(&mut self) -> bool {
        let received = self.connection.reader().into_first_chunk();
        let waits = matches!(received, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        waits && self.from == self.to && !self.has_unsent()
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    pub(super) fn flush(&mut self, stream: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Socket(stream)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives `take` at most `max` decrypted bytes, at least one; returns their number.
    pub(super) fn receive(
        &mut self,
        stream: &TcpStream,
        max: usize,
        take: impl FnOnce(&[u8]) -> io::Result<()>,
    ) -> io::Result<usize> {
        loop {
            match self.connection.reader().into_first_chunk() {
                Ok([]) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(chunk) => {
                    let taken = &chunk[..chunk.len().min(max)];
                    take(taken)?;
                    let taken = taken.len();
                    io::BufRead::consume(&mut self.connection.reader(), taken);
                    return Ok(taken);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.process(stream)?,
                Err(error) => return Err(error),
            }
        }
    }

    fn incoming_bytes(&self) -> usize {
        match &self.connection {
            Connection::Client(_) if !self.connection.is_handshaking() => INCOMING_BYTES,
            _ => INCOMING_BYTES_MIN,
        }
    }

    fn process(&mut self, stream: &TcpStream) -> io::Result<()> {
        if self.from == self.to {
            self.incoming.resize(self.incoming_bytes(), 0);
            self.to = stream.try_read(&mut self.incoming)?;
            self.from = 0;
            if self.to == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let mut rest = &self.incoming[self.from..self.to];
        self.from += self.connection.read_tls(&mut rest)?;
        let processed = self.connection.process_new_packets();
        processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(())
    }

    pub(super) fn send(&mut self, stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        self.flush(stream)?;
        let taken = self.connection.writer().write(bytes)?;
        self.flush(stream)?;
        if taken == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    pub(super) fn send_ranges(
        &mut self,
        stream: &TcpStream,
        ranges: &[MappedRange<'_>],
    ) -> io::Result<Bytes> {
        self.flush(stream)?;
        let mut all = 0;
        'taking: for &MappedRange { mapping, offset, len } in ranges {
            let mut done = 0;
            while done < len.0 {
                let wanted = usize::try_from(len.0 - done).unwrap_or(usize::MAX).min(RECORD_BYTES);
                self.piece.resize(wanted, 0);
                mapping.read(Bytes(offset.0 + done), &mut self.piece)?;
                let taken = self.connection.writer().write(&self.piece)? as u64;
                done += taken;
                all += taken;
                if taken < wanted as u64 {
                    break 'taking;
                }
            }
        }
        self.flush(stream)?;
        if all == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(Bytes(all)) }
    }
}
