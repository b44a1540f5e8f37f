//! The atomics, threads and yields of a world: loom's, shuttle's, or the real ones.

#[cfg(feature = "loom")]
pub use loom::{
    model,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};
#[cfg(all(feature = "shuttle", not(feature = "loom")))]
pub use shuttle::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};
