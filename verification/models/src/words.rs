//! The atomics, threads and yields of an environment: loom's, shuttle's, those of late loads, or
//! the real ones.

#[cfg(feature = "late")]
pub use crate::late::{AtomicU64, Ordering};

#[cfg(feature = "loom")]
pub use loom::{
    model,
    sync::{
        Arc, RwLock,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};
#[cfg(all(feature = "shuttle", not(any(feature = "loom", feature = "late"))))]
pub use shuttle::{
    sync::{
        Arc, RwLock,
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
