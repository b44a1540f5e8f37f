//! The atomics of [`super::slot`]. A model of it brings others.

pub(super) use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
