//! The line of a cache.

/// What caches and buses move at once, on every processor that tierfeed knows.
pub const LINE_BYTES: usize = 64;

/// A line as words.
pub(crate) const LINE_WORDS: usize = LINE_BYTES / size_of::<u64>();
