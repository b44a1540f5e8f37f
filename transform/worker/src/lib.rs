//! Applies the steps of a transform to the bytes of samples, in a process that may crash.
//!
//! [`serve()`] is what the process does from its start to its end: it gives up what it does not need
//! ([`confine`]), maps memory that its starter sends, and answers one request at a time. [`Transform`] is
//! what it does to a sample.

#![forbid(unsafe_code)]

mod confine;
mod serve;
mod transform;

pub use confine::{ConfineError, has_landlock};
pub use serve::{Apply, Input, ServeError, serve};
pub use transform::{Transform, TransformError, Transforms};
