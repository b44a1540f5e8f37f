//! Hands operations to the kernel over a ring (`io_uring`): the only unsafe code of the crate.
//!
//! The kernel is given the address of a buffer and writes there until it says that the operation ended.
//!
//! 1. While an operation is in flight, its buffer and its file lie in its slot and are not touched; the
//!    heap memory of a buffer does not move when its owner does.
//! 2. A slot is emptied only by the completion that names it.
//! 3. `Drop` empties all slots before the ring goes; if the kernel does not let it, the buffers are
//!    leaked, never freed.
//!
//! Deliberately absent: polling for completions, a kernel thread that polls for submissions, registered
//! buffers and files. Each needs a privilege or a budget that a node may not grant.

#![expect(unsafe_code, reason = "the kernel is given addresses; see the invariants")]

use std::{fmt, io, mem, os::fd::AsRawFd as _};

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};

use crate::operation::{Completion, Kind, Operation};

pub(crate) struct Ring {
    queues: IoUring,
    slots: Vec<Option<Operation>>,
    free: Vec<usize>,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No buffer: the kernel may be writing there.
        f.debug_struct("Ring").field("free", &self.free.len()).finish_non_exhaustive()
    }
}

/// Whether a ring can be set up that knows all operations used here.
pub(crate) fn has_operations() -> io::Result<bool> {
    let ring = IoUring::new(1)?;
    let mut probe = Probe::new();
    // A kernel that cannot be asked (before Linux 5.6) has none of them.
    let is_told = ring.submitter().register_probe(&mut probe).is_ok();
    let known = |code| probe.is_supported(code);
    Ok(is_told && known(opcode::Read::CODE) && known(opcode::Write::CODE))
}

impl Ring {
    pub(crate) fn new(depth: u32) -> io::Result<Self> {
        let queues = set_up(depth)?;
        let slots: Vec<_> = (0..depth).map(|_| None).collect();
        let free = (0..slots.len()).rev().collect();
        Ok(Self { queues, slots, free })
    }

    /// The caller keeps fewer operations in flight than the depth.
    pub(crate) fn push(&mut self, mut operation: Operation) {
        let slot = self.free.pop().expect("fewer operations are in flight than there are slots");
        let entry = entry(&mut operation, slot as u64);
        self.slots[slot] = Some(operation);
        let mut submission = self.queues.submission();
        // SAFETY:
        // - The address is valid for reads and writes of the length: both are of the buffer's slice.
        // - It stays so until the operation ends: the buffer lies in its slot and keeps its memory when
        //   moved (invariants 1 and 2); `Drop` frees no buffer that is in flight (invariant 3).
        // - Nobody else accesses it meanwhile: the buffer is owned by the slot, and no method hands out
        //   a reference to a slot's operation.
        // - The descriptor stays open: the operation in the slot owns a share of the file.
        let pushed = unsafe { submission.push(&entry) };
        pushed.expect("the submission queue has an entry for each slot");
    }

    pub(crate) fn start(&mut self) {
        // `wait` tries again and reports what keeps failing.
        let _ = self.queues.submit();
    }

    /// The caller knows that an operation is in flight.
    pub(crate) fn wait(&mut self) -> io::Result<Completion> {
        loop {
            let ended = self.queues.completion().next();
            if let Some(ended) = ended {
                return Ok(self.finish(&ended));
            }
            match self.queues.submit_and_wait(1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                submitted => drop(submitted?),
            }
        }
    }

    /// Invariant 2.
    fn finish(&mut self, ended: &cqueue::Entry) -> Completion {
        let slot = usize::try_from(ended.user_data()).expect("it was made from a usize");
        let operation = self.slots[slot].take().expect("the kernel ends an operation once");
        self.free.push(slot);
        let outcome = usize::try_from(ended.result())
            .map_err(|_| io::Error::from_raw_os_error(-ended.result()));
        Completion { token: operation.token, buffer: operation.buffer, outcome }
    }

    /// Ends everything that is in flight.
    fn drain(&mut self) -> io::Result<()> {
        let is_idle = |ring: &Self| ring.free.len() == ring.slots.len();
        if is_idle(self) {
            return Ok(());
        }
        self.queues.submit()?;
        let any = types::CancelBuilder::any();
        // Only saves time: a kernel before Linux 6.0 cannot, and what runs already is waited for.
        let _ = self.queues.submitter().register_sync_cancel(None, any);
        while !is_idle(self) {
            self.wait()?;
        }
        Ok(())
    }
}

impl Drop for Ring {
    /// Invariant 3.
    fn drop(&mut self) {
        if self.drain().is_err() {
            mem::forget(mem::take(&mut self.slots));
        }
    }
}

/// Without interrupts of the thread for each completion, which it collects in `wait` anyway; Linux before
/// 5.19 cannot leave them out.
fn set_up(depth: u32) -> io::Result<IoUring> {
    let plain = IoUring::builder().dontfork().clone();
    match plain.clone().setup_coop_taskrun().build(depth) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => plain.build(depth),
        outcome => outcome,
    }
}

fn entry(operation: &mut Operation, slot: u64) -> squeue::Entry {
    let descriptor = types::Fd(operation.file.as_raw_fd());
    let bytes = operation.buffer.as_mut_slice();
    let len = u32::try_from(bytes.len().min(Operation::LEN_MAX)).expect("LEN_MAX fits 32 bits");
    let start = bytes.as_mut_ptr();
    let entry = match operation.kind {
        Kind::Read => opcode::Read::new(descriptor, start, len).offset(operation.offset).build(),
        Kind::Write => opcode::Write::new(descriptor, start, len).offset(operation.offset).build(),
    };
    entry.user_data(slot)
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

    use super::*;
    use crate::buffer::AlignedBuffer;

    /// A read of an empty pipe is certainly in flight when the ring goes. A second descriptor keeps the
    /// kernel's side of the ring alive, so that nothing but `Drop` can end the read. If the kernel could
    /// still carry it out afterwards, it would take the byte and write it into freed memory.
    #[test]
    fn a_read_that_waits_for_a_peer_ends_before_its_buffer_is_freed() {
        let Ok(mut ring) = Ring::new(4) else { return };
        let kept = ring.queues.as_fd().try_clone_to_owned().unwrap();
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let (mut reader, mut writer) = (File::from(reader), File::from(writer));
        // The ring shall wait for the byte, and the test shall not.
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
        reader.read_exact(&mut byte).expect("nobody else takes the byte");
        assert_eq!(&byte, b"x");
        drop(kept);
    }
}
