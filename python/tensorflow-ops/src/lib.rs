//! Ops of TensorFlow that hand out the batches of tierfeed as tensors, without a copy and without Python.
//!
//! `tf.load_op_library` loads this library; it registers its ops then. TensorFlow's C API is found in the
//! process, nothing of it is linked: one library serves every version. `tierfeed/tensorflow/` makes a
//! `tf.data.Dataset` of the ops, and opens and closes the feeds that they read by ([`control`]).
//!
//! A batch goes [`kernels`], [`feed`], hand-off, and back as [`batch::Staged`] over [`tierfeed_client::Memory`].
//! There is no thread of its own: calls of TensorFlow wait for the agent in turns, and read from the cold
//! store what it does not deliver.

#![deny(unsafe_code)]

mod batch;
mod cold;
mod control;
mod feed;
mod fields;
mod kernels;
mod outputs;
mod warnings;

#[expect(unsafe_code, reason = "the C API of TensorFlow passes raw addresses")]
mod c_api;

#[expect(unsafe_code, reason = "the loader and Python call functions of C")]
mod entry;
