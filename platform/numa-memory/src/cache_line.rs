//! The size of a cache line.

/// Bytes that caches and buses move at once, on every processor that tierfeed supports.
pub const LINE_BYTES: usize = 64;

/// Words in a cache line.
pub(crate) const LINE_WORDS: usize = LINE_BYTES / size_of::<u64>();
