//! The inner loops of the memory benchmarks. What to run how often, and what to make of it, is the
//! business of whoever measures.
//!
//! A kernel runs on the calling thread over memory it is given and reads no clock. Those over slices
//! are split between threads by splitting the slices; a new kernel is a new function.

#[expect(unsafe_code, reason = "dependent loads that the compiler must not touch")]
mod chase;
#[expect(unsafe_code, reason = "calls of functions compiled for AVX2, after asking the processor")]
mod stream;

pub use chase::{Chain, ChainError, ChainShape, HOPS_PER_ROUND};
pub use stream::{copy, fill, read_sum, triad};
