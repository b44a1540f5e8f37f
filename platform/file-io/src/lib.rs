//! Reads and writes files past the page cache, many operations at a time.
//!
//! A [`Queue`] keeps up to its depth of operations in flight, by one of two engines: `io_uring`, or
//! one thread for each operation if the kernel or a container denies it. Both behave alike;
//! [`Engine::best`] chooses, [`io_uring_available`] returns why not.
//!
//! An operation moves its buffer into the queue and comes back with it when it has ended, so that no
//! code can access memory that the kernel still writes, and no buffer is freed under it. [`direct`]
//! documents how a file has to be opened and aligned to bypass the page cache.
//!
//! For reads into memory that other processes map there is [`reads::ReadRing`].
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
//! queue.push(Operation { file, kind: Kind::Read, offset: 0, buffer, token: 7 });
//! let (ended, read) = queue.wait()?.expect("one operation is in flight");
//! assert_eq!((ended.token, read?), (7, 4));
//! assert_eq!(ended.buffer.as_slice(), b"\x7fELF");
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]
#![warn(missing_docs)]

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
    operation::{Kind, Operation},
    queue::Queue,
};
