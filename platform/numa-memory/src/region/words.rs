//! The atomics and locks of [`super::holes`]; the models in `verification/models/` replace this
//! module.

pub(super) use std::sync::{
    RwLock,
    atomic::{AtomicU64, Ordering},
};
