//! Says what a stored sample becomes: a [`Pipeline`] of steps turns its bytes into one row of a dense tensor.
//!
//! The steps have the names of torchvision, and each does what its model does. What a random step draws
//! depends on the seed, the epoch, the sample and the number of the step alone ([`philox`], [`draw`]), so it
//! is the same with any number of ranks and workers, and after a restart.
//!
//! Deliberately absent: decoders and pixels. `tierfeed-transform-worker` applies a pipeline to bytes, in a
//! process of its own: [`worker_process`] starts it, and [`worker_protocol`] is what is said to it.

#![forbid(unsafe_code)]

pub mod philox;

pub mod container;
pub mod draw;
pub mod geometry;
pub mod output;
pub mod steps;

pub mod pipeline;
pub mod pipeline_file;

pub mod worker_process;
pub mod worker_protocol;

pub use container::Container;
pub use draw::{DrawKey, Operation};
pub use geometry::{Region, Size};
pub use output::{Dtype, Layout, Output, Prepared};
pub use pipeline::{Pipeline, PipelineError, Reason};
pub use pipeline_file::PipelineFile;
pub use steps::{Arrays, Decode, Images, Limits, Step, Tokens, Work};
