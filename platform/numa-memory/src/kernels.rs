//! The inner loops of the memory benchmarks. The measuring code decides which to run, how often,
//! and how to interpret the result.
//!
//! A kernel runs on the calling thread over memory that it is given and reads no clock; a new kernel
//! is a new function.
//!
//! 1. A kernel reads each word of its sources once and writes each word of its targets once, so that
//!    the bytes it moves are the lengths of its slices.
//! 2. Ordinary kernels store through the caches, at any length: none of them becomes a call of the
//!    C library, which uses other stores for long copies. Those named `non_temporal` store past the
//!    caches if [`has_non_temporal_stores`] is true, and their stores have left the processor's
//!    buffers when they return.

#[expect(unsafe_code, reason = "dependent loads that the compiler must not touch")]
mod chase;
#[cfg_attr(
    target_arch = "x86_64",
    expect(
        unsafe_code,
        reason = "calls of functions compiled for AVX2, after asking the processor"
    )
)]
mod stream;

pub use chase::{Chain, ChainError, ChainShape, HOPS_PER_ROUND};
pub use stream::{add, copy, fill, read_sum, scale, triad};

pub use crate::{
    cache_line::LINE_BYTES,
    non_temporal::{copy_non_temporal, fill_non_temporal, has_non_temporal_stores},
};

use crate::cache_line::LINE_WORDS;
