//! The atomics, threads and yields of a world: loom's, shuttle's, late ones, or the real ones.

#[cfg(feature = "loom")]
pub use loom::{
    model,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};
#[cfg(feature = "late")]
pub use crate::late::{AtomicU64, Ordering};
#[cfg(all(feature = "shuttle", not(any(feature = "late", feature = "loom"))))]
pub use shuttle::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};
#[cfg(not(any(feature = "late", feature = "loom", feature = "shuttle")))]
pub use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};
