//! The atomics and locks of [`super::holes`]. A model of it brings others.

pub(super) use std::sync::{
    RwLock,
    atomic::{AtomicU64, Ordering},
};
