//! The atomics of a ring. A model of the ring brings atomics of its own.

pub(super) use std::sync::atomic::{AtomicU64, Ordering};
