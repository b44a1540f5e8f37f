//! Reads and writes files past the page cache, many operations at a time.
//!
//! A [`Queue`] keeps up to its depth of operations in flight, by one of two engines: the kernel's rings
//! (`io_uring`), or one thread for each operation where the kernel or a container forbids rings. Both
//! behave alike; [`Engine::best`] picks, [`io_uring_available`] says why not.
//!
//! An operation moves its buffer into the queue and gets it back with its completion, so that nobody can
//! look at memory that the kernel still writes, and no buffer is freed under it. [`direct`] says how a
//! file has to be opened and aligned so that the page cache stays out of the way.
//!
//! A prefetcher reads into memory that others map: for that there is [`reads::ReadRing`].
//!
//! # Example
//!
//! ```
//! use std::{fs::File, num::NonZeroU32, sync::Arc};
//! use tierfeed_file_io::{AlignedBuffer, Engine, Kind, Operation, Queue};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = Arc::new(File::open("/proc/self/exe")?);
//! let mut queue = Queue::new(Engine::best(), NonZeroU32::MIN)?;
//! let buffer = AlignedBuffer::zeroed(4);
//! queue.push(Operation { file, kind: Kind::Read, offset: 0, buffer, token: 7 })?;
//! let completion = queue.wait()?.expect("one operation is in flight");
//! assert_eq!((completion.token, completion.outcome?), (7, 4));
//! assert_eq!(completion.buffer.as_slice(), b"\x7fELF");
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

pub mod buffer;
pub mod direct;
mod engine;
mod flight;
mod operation;
mod queue;
pub mod reads;
mod ring;
mod threads;

pub use self::{
    buffer::AlignedBuffer,
    engine::{Engine, Unavailable, io_uring_available},
    operation::{Completion, Kind, Operation, Refusal, Refused},
    queue::{DEPTH_MAX, Queue, QueueError},
};
