//! The atomics of [`super::slot`]; the models in `verification/models/` replace this module.

pub(super) use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
