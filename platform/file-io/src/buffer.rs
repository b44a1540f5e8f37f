//! Memory for direct I/O, aligned for the strictest device.

use std::fmt;

/// Alignment of memory, offset and length for direct I/O. Devices with larger blocks are rare;
/// [`crate::direct::alignment`] returns what a file requires.
pub const ALIGNMENT: usize = 4096;

/// Bytes on the heap that start on a multiple of [`ALIGNMENT`] and keep their address when the
/// value is moved.
pub struct AlignedBuffer {
    /// Longer than the buffer, because a `Vec` cannot be told its alignment. Never grown.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// `len` bytes, all zero. The kernel allocates the memory on first touch.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let bytes = vec![0; len + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Self { bytes, start, len }
    }

    /// The bytes of the buffer, for reading.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// The bytes of the buffer, for writing.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

impl fmt::Debug for AlignedBuffer {
    /// Prints the length and not the bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_as_long_as_asked_and_zero() {
        for len in [0, 1, ALIGNMENT, (1 << 20) + 1] {
            let buffer = AlignedBuffer::zeroed(len);
            assert_eq!(buffer.as_slice().as_ptr().align_offset(ALIGNMENT), 0);
            assert_eq!(buffer.as_slice().len(), len);
            assert!(buffer.as_slice().iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_moved_buffer_keeps_its_address() {
        let mut buffer = AlignedBuffer::zeroed(64);
        let before = buffer.as_mut_slice().as_mut_ptr();
        let mut elsewhere = Box::new(buffer);
        assert_eq!(elsewhere.as_mut_slice().as_mut_ptr(), before);
    }
}
