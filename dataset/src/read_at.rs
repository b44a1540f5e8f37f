//! Reads bytes at any offset: of a file, an object of a bucket, or memory.

use std::io;

/// Bytes that can be read at any offset: a file, an object of a bucket, or memory.
pub trait ReadAt: Sync {
    fn len(&self) -> u64;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `into` from `offset` on.
    ///
    /// # Errors
    ///
    /// If the bytes cannot be read; [`io::ErrorKind::UnexpectedEof`] if there are fewer.
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;

    /// Number of bytes that can be read in the time that one more read takes to start.
    ///
    /// If the gap between two pieces that a parser needs is smaller, it reads the gap as well. The
    /// default suits a local disk; a read over a network costs more.
    fn read_cost_bytes(&self) -> u64 {
        64 * 1024
    }
}

/// Whether a read of `object` costs little: no round trip to a store.
pub(crate) fn is_near(object: &dyn ReadAt) -> bool {
    object.read_cost_bytes() <= 64 * 1024
}

impl ReadAt for [u8] {
    fn len(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let found = usize::try_from(offset).ok().and_then(|start| {
            let end = start.checked_add(into.len())?;
            self.get(start..end)
        });
        into.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_exact_at(into, offset)
    }

    fn read_cost_bytes(&self) -> u64 {
        (**self).read_cost_bytes()
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.as_slice().read_exact_at(into, offset)
    }
}
