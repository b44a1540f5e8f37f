//! Hands operations to the kernel over an `io_uring`: the only unsafe code of the crate.
//!
//! The kernel gets the address of memory and writes there until it reports the end of the
//! operation. A value in flight owns this memory and the file: an [`Operation`] with its buffer, or
//! a read into regions, which it keeps mapped.
//!
//! 1. While an operation is in flight, its memory and its file lie in its slot and are not
//!    accessed; the heap memory of a buffer does not move when its owner does, nor does a region.
//! 2. A slot is emptied only by the completion that names it.
//! 3. `Drop` empties all slots before the ring is closed; if the kernel does not allow it, their
//!    values are leaked, never freed.
//! 4. A registered buffer is named only by the owner of the memory that was registered under its
//!    number.
//!
//! Deliberately absent: polling for completions, and a kernel thread that polls for submissions.
//! Each needs a CPU that the training could use.

#![expect(unsafe_code, reason = "the kernel is given addresses; see the invariants")]

use std::{
    fmt, io, mem,
    os::fd::{AsRawFd as _, RawFd},
    time::Duration,
};

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};

use tierfeed_numa_memory::Region;
use tierfeed_units::Bytes;

use crate::{
    buffer::AlignedBuffer,
    flight::{FileReference, Flight, Target},
    operation::{Kind, Operation},
};

/// The most bytes that the kernel moves in one operation (`MAX_RW_COUNT` of `linux/fs.h`).
pub(crate) const LEN_MAX: usize = 0x7fff_f000;

/// A value that can be in flight.
///
/// # Safety
///
/// The entry may make the kernel write only to memory that `self` owns alone, or that no reference
/// ever covers (a region), that keeps its address when `self` is moved, and that is freed at the
/// earliest with `self`. The same holds for memory that the kernel reads through the entry. The
/// file that it names stays open as long as `self` lives.
pub(crate) unsafe trait Carried {
    /// The submission queue entry.
    fn entry(&mut self) -> squeue::Entry;
}

pub(crate) struct Ring<T: Carried> {
    queues: IoUring,
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

/// Which thread may use a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Issuer {
    /// One after another, as its owner is moved.
    Any,
    /// Only the thread that sets it up: the kernel then does its part of the work only when that
    /// thread asks for completions (Linux 6.1).
    ThisThread,
}

impl<T: Carried> fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the buffers: the kernel may be writing there.
        f.debug_struct("Ring").field("free", &self.free.len()).finish_non_exhaustive()
    }
}

/// Whether a ring can be set up that supports all operations used here.
pub(crate) fn has_operations() -> io::Result<bool> {
    let ring = IoUring::new(1)?;
    let mut probe = Probe::new();
    // A kernel that cannot be queried (before Linux 5.6) has none of them.
    let is_told = ring.submitter().register_probe(&mut probe).is_ok();
    let known = |code| probe.is_supported(code);
    Ok(is_told && known(opcode::Read::CODE) && known(opcode::Write::CODE))
}

impl<T: Carried> Ring<T> {
    pub(crate) fn new(depth: u32, issuer: Issuer) -> io::Result<Self> {
        let queues = set_up(depth, issuer)?;
        let slots: Vec<_> = (0..depth).map(|_| None).collect();
        let free = (0..slots.len()).rev().collect();
        Ok(Self { queues, slots, free })
    }

    /// The caller keeps fewer operations in flight than the depth.
    pub(crate) fn push(&mut self, mut carried: T) {
        let slot = self.free.pop().expect("fewer operations are in flight than there are slots");
        let entry = carried.entry().user_data(slot as u64);
        self.slots[slot] = Some(carried);
        let mut submission = self.queues.submission();
        // SAFETY:
        // - The memory that the entry names is valid, unshared and stays so until the operation
        //   ends: `Carried` guarantees it for the value, which lies in its slot until the
        //   completion (invariants 1 and 2); `Drop` frees nothing that is in flight (invariant 3).
        // - No other code accesses it meanwhile: no method returns a reference to a value in a
        //   slot.
        // - The descriptor stays open: the value in the slot keeps it.
        let pushed = unsafe { submission.push(&entry) };
        pushed.expect("the submission queue has an entry for each slot");
    }

    pub(crate) fn start(&mut self) {
        if self.queues.submission().is_empty() {
            return;
        }
        // `wait` tries again and reports an error that persists.
        let _ = self.queues.submit();
    }

    /// Number of operations that were pushed and have not left.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// An operation that has ended already, with the kernel's result.
    pub(crate) fn ended(&mut self) -> Option<(T, io::Result<usize>)> {
        let ended = self.queues.completion().next()?;
        Some(self.finish(&ended))
    }

    /// Starts the pushed operations, and returns when one has ended.
    pub(crate) fn submit_and_wait(&mut self) -> io::Result<()> {
        match self.queues.submit_and_wait(1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            submitted => submitted.map(drop),
        }
    }

    /// As [`Self::submit_and_wait`], but returns after `timeout` at the latest. Kernels before
    /// Linux 5.11 have no timeout.
    pub(crate) fn submit_and_wait_for(&mut self, timeout: Duration) -> io::Result<()> {
        let timeout = types::Timespec::from(timeout);
        let arguments = types::SubmitArgs::new().timespec(&timeout);
        match self.queues.submitter().submit_with_args(1, &arguments) {
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.submit_and_wait(),
            submitted => submitted.map(drop),
        }
    }

    /// The caller knows that an operation is in flight.
    pub(crate) fn wait(&mut self) -> io::Result<(T, io::Result<usize>)> {
        loop {
            if let Some(ended) = self.ended() {
                return Ok(ended);
            }
            self.submit_and_wait()?;
        }
    }

    /// Takes the value out of the slot that the completion names: invariant 2.
    fn finish(&mut self, ended: &cqueue::Entry) -> (T, io::Result<usize>) {
        let slot = usize::try_from(ended.user_data()).expect("it was made from a usize");
        let carried = self.slots[slot].take().expect("the kernel ends an operation once");
        self.free.push(slot);
        let outcome = usize::try_from(ended.result())
            .map_err(|_| io::Error::from_raw_os_error(-ended.result()));
        (carried, outcome)
    }

    /// Whether one read can fill many ranges of registered memory (Linux 6.15).
    pub(crate) fn can_read_lists(&self) -> bool {
        let mut probe = Probe::new();
        let is_told = self.queues.submitter().register_probe(&mut probe).is_ok();
        is_told && probe.is_supported(opcode::ReadvFixed::CODE)
    }

    /// Allocates tables for `files` and `buffers` that are registered later by their number.
    pub(crate) fn make_tables(&self, files: u32, buffers: u32) -> (io::Result<()>, io::Result<()>) {
        let submitter = self.queues.submitter();
        (submitter.register_files_sparse(files), submitter.register_buffers_sparse(buffers))
    }

    /// Lets `number` refer to an open file until it is reassigned. Operations in flight keep their
    /// own.
    pub(crate) fn register_file(&self, number: u32, file: RawFd) -> io::Result<()> {
        self.queues.submitter().register_files_update(number, &[file]).map(drop)
    }

    /// Lets `number` refer to this memory until it is reassigned to other memory, or to none (`len`
    /// 0).
    ///
    /// # Safety
    ///
    /// The address is valid for reads and writes of `len` bytes, and every later user of `number`
    /// owns this memory then (invariant 4). The kernel keeps the pages themselves.
    unsafe fn register_buffer(&self, number: u32, start: *mut u8, len: usize) -> io::Result<()> {
        let memory = libc::iovec { iov_base: start.cast(), iov_len: len };
        let submitter = self.queues.submitter();
        // SAFETY: as the caller promises; `memory` lives through the call.
        unsafe { submitter.register_buffers_update(number, &[memory], None) }
    }

    /// Ends everything that is in flight.
    fn drain(&mut self) -> io::Result<()> {
        if self.in_flight() == 0 {
            return Ok(());
        }
        self.queues.submit()?;
        let any = types::CancelBuilder::any();
        // Only saves time: a kernel before Linux 6.0 cannot, and running operations are waited for.
        let _ = self.queues.submitter().register_sync_cancel(None, any);
        while self.in_flight() > 0 {
            drop(self.wait()?);
        }
        Ok(())
    }
}

impl<T: Carried> Drop for Ring<T> {
    /// Waits for operations in flight: keeps invariant 3.
    fn drop(&mut self) {
        if self.drain().is_err() {
            mem::forget(mem::take(&mut self.slots));
        }
    }
}

// SAFETY: the entry names the buffer of the operation, whose memory is on the heap and its own, and
// its file, which it keeps open.
unsafe impl Carried for Operation {
    fn entry(&mut self) -> squeue::Entry {
        let descriptor = types::Fd(self.file.as_raw_fd());
        let bytes = self.buffer.as_mut_slice();
        let len = u32::try_from(bytes.len().min(LEN_MAX)).expect("LEN_MAX fits 32 bits");
        let start = bytes.as_mut_ptr();
        match self.kind {
            Kind::Read => opcode::Read::new(descriptor, start, len).offset(self.offset).build(),
            Kind::Write => opcode::Write::new(descriptor, start, len).offset(self.offset).build(),
        }
    }
}

// SAFETY: the entry names
// - ranges of regions, whose addresses `ReadRing::push` took from them and which it keeps alive,
//   and a list of them that is on the heap and its own; or a buffer, whose memory is on the heap
//   and its own;
// - a file, which it keeps open; the number of a file refers to that one when the entry is pushed,
//   and the kernel takes its own reference then.
unsafe impl Carried for Flight {
    fn entry(&mut self) -> squeue::Entry {
        let (file, flags) = match self.file {
            FileReference::Number(number) => (types::Fd(number), squeue::Flags::FIXED_FILE),
            FileReference::Descriptor(descriptor) => {
                (types::Fd(descriptor), squeue::Flags::empty())
            }
        };
        let offset = self.offset;
        let list = |spots: &[libc::iovec], number| {
            let (list, count) = (spots.as_ptr(), count(spots));
            match number {
                Some(number) => {
                    opcode::ReadvFixed::new(file, list, count, number).offset(offset).build()
                }
                None => opcode::Readv::new(file, list, count).offset(offset).build(),
            }
        };
        let one = |start, len, number| match number {
            Some(number) => opcode::ReadFixed::new(file, start, len, number).offset(offset).build(),
            None => opcode::Read::new(file, start, len).offset(offset).build(),
        };
        let entry = match &mut self.target {
            Target::Ranges { spots, number, .. } => match &spots[..] {
                [spot] => one(spot.iov_base.cast(), whole(spot.iov_len), *number),
                spots => list(spots, *number),
            },
            Target::Bounce { bounce, len } => {
                let number = bounce.number;
                one(bounce.buffer.as_mut_slice().as_mut_ptr(), whole(*len), number)
            }
            Target::Waker(word) => one(word.as_mut_slice().as_mut_ptr(), 8, None),
        };
        entry.flags(flags)
    }
}

fn count(spots: &[libc::iovec]) -> u32 {
    u32::try_from(spots.len()).expect("RANGES_MAX fits 32 bits")
}

fn whole(len: usize) -> u32 {
    u32::try_from(len).expect("LEN_MAX fits 32 bits")
}

impl Ring<Flight> {
    /// Registers `len` bytes of a region under `number`.
    pub(crate) fn register_region(
        &self,
        number: u32,
        region: &Region,
        offset: Bytes,
        len: Bytes,
    ) -> io::Result<()> {
        let start = region.as_ptr_range(offset, len)?;
        let len = usize::try_from(len.0).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the range is mapped, as `as_ptr_range` checked; every user of the number keeps
        // this region alive (`crate::reads::Registered`).
        unsafe { self.register_buffer(number, start, len) }
    }

    /// Registers a buffer under `number`.
    pub(crate) fn register_aligned(&self, number: u32, to: &mut AlignedBuffer) -> io::Result<()> {
        let bytes = to.as_mut_slice();
        // SAFETY: the memory is the slice's; every user of the number owns this buffer, which
        // carries it (`Bounce`).
        unsafe { self.register_buffer(number, bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Removes the registration of `number`, so that the kernel frees the pages.
    pub(crate) fn unregister_buffer(&self, number: u32) -> io::Result<()> {
        // SAFETY: no memory is named.
        unsafe { self.register_buffer(number, std::ptr::null_mut(), 0) }
    }
}

/// Without interrupts of the thread for each completion, which it collects in `wait` anyway; Linux
/// before 5.19 cannot disable them.
fn set_up(depth: u32, issuer: Issuer) -> io::Result<IoUring> {
    let plain = IoUring::builder().dontfork().clone();
    if issuer == Issuer::ThisThread {
        let deferred = plain.clone().setup_single_issuer().setup_defer_taskrun().build(depth);
        if let Ok(queues) = deferred {
            return Ok(queues);
        }
    }
    match plain.clone().setup_coop_taskrun().build(depth) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => plain.build(depth),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{Read as _, Write as _},
        os::fd::{AsFd as _, OwnedFd},
        sync::Arc,
    };

    use rustix::pipe::{PipeFlags, pipe_with};
    use tierfeed_test_needs::{Need, skip};

    use super::*;
    use crate::buffer::AlignedBuffer;

    /// A read of an empty pipe is certainly in flight when the ring is dropped. A second descriptor
    /// keeps the kernel's side of the ring alive, so that only `Drop` can end the read. If the
    /// kernel could still execute it afterwards, it would take the byte and write it into freed
    /// memory.
    #[test]
    fn a_read_that_waits_for_a_peer_ends_before_its_buffer_is_freed() {
        let mut ring = match Ring::new(4, Issuer::Any) {
            Ok(ring) => ring,
            Err(error) => return skip(Need::IoUring, error),
        };
        let kept = ring.queues.as_fd().try_clone_to_owned().unwrap();
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let (mut reader, mut writer) = (File::from(reader), File::from(writer));
        // The ring must wait for the byte, and the test must not.
        let waiting = Arc::new(File::from(OwnedFd::from(reader.try_clone().unwrap())));
        rustix::fs::fcntl_setfl(&waiting, rustix::fs::OFlags::empty()).unwrap();
        let buffer = AlignedBuffer::zeroed(64);
        let operation = Operation { file: waiting, kind: Kind::Read, offset: 0, buffer, token: 0 };
        ring.push(operation);
        ring.start();
        drop(ring);
        rustix::fs::fcntl_setfl(&reader, rustix::fs::OFlags::NONBLOCK).unwrap();
        writer.write_all(b"x").unwrap();
        let mut byte = [0];
        reader.read_exact(&mut byte).expect("no other reader takes the byte");
        assert_eq!(&byte, b"x");
        drop(kept);
    }
}
