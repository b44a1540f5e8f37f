//! The atomics of a ring; the models in `verification/models/` replace this module.

pub(super) use std::sync::atomic::{AtomicU64, Ordering};
