//! The life of a transform worker: it hears what to do, maps memory, and answers requests until its starter
//! is gone.
//!
//! It ends with its starter: the socket says so, or a descriptor of that process, because a process that was
//! forked from the starter may hold the socket open; the kernel also ends one that stands still. While a sample is computed an alarm runs, which ends a
//! worker that hangs even if no other process does.
//!
//! 1. A request that leaves its arena is refused before a byte is read or written.
//! 2. A row is written whole and last but one; only the prepared form is written behind it.
//! 3. Input is copied before it is parsed: a trainer can write to its arena at any time.
//! 4. A prepared form is made only of the bytes that arrived: the copy is compared with the checksum in the
//!    request. Other bytes become a row, which goes to the trainer that can have changed them.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use nix::unistd::alarm;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, set_parent_process_death_signal},
    time::{ClockId, clock_gettime},
};
use tierfeed_dataset::read::sample_sum::sum_of;
use tierfeed_numa_memory::{MapError, RangeError, View};
use tierfeed_transform::worker_protocol::{
    self, ARENAS_MAX, AfterTransform, ArenaId, Arrival, Defect, DefectKind, FromWorker, InputForm,
    Outcome, PACKET_BYTES_MAX, PacketError, Request, Setup, ToWorker,
};
use tierfeed_units::Bytes;

use crate::confine::{self, ConfineError};

#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Its number in the dataset.
    pub sample: u64,
    pub epoch: u32,
    pub form: InputForm,
    pub bytes: &'a [u8],
}

pub trait Apply {
    /// Writes the row of a sample, all of it, and its prepared form if a place is given for it.
    ///
    /// # Errors
    ///
    /// A [`Defect`] if the sample cannot be transformed.
    fn apply(
        &mut self,
        input: &Input<'_>,
        row: &mut [u8],
        prepared: Option<&mut Vec<u8>>,
    ) -> Result<(), Defect>;
}

impl Apply for Box<dyn Apply> {
    fn apply(
        &mut self,
        input: &Input<'_>,
        row: &mut [u8],
        prepared: Option<&mut Vec<u8>>,
    ) -> Result<(), Defect> {
        (**self).apply(input, row, prepared)
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    #[error("a packet to a transform worker: {0}")]
    Packet(#[from] PacketError),
    #[error("no setup came; `tierfeed` starts this command itself")]
    NoSetup,
    #[error("arena {}: {source}", .arena.0)]
    Map { arena: ArenaId, source: MapError },
    #[error("arena {}: no descriptor came with it, or there are {ARENAS_MAX} others", .0.0)]
    Arena(ArenaId),
    #[error("a transform worker cannot wait for packets: {0}")]
    System(#[from] io::Error),
    #[error(transparent)]
    Confine(#[from] ConfineError),
    #[error("{0}")]
    Unfit(String),
}

/// Serves at `socket` until the other side closes it or its process ends.
///
/// `prepare` makes the transform of the setup.
///
/// # Errors
///
/// [`ServeError`], if the worker cannot go on.
pub fn serve<A: Apply>(
    socket: OwnedFd,
    prepare: impl FnOnce(&Setup) -> Result<A, String>,
) -> Result<(), ServeError> {
    let mut packets = Packets::new(socket);
    let setup = match packets.next()? {
        Some((ToWorker::Setup(setup), _)) => setup,
        Some(_) => return Err(ServeError::NoSetup),
        None => return Ok(()),
    };
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    let Ok(()) = packets.watch(setup.parent) else { return Ok(()) };
    let ready = match confine::to_computing(&setup) {
        Ok(()) => prepare(&setup).map_err(ServeError::Unfit),
        Err(error) => Err(error.into()),
    };
    let apply = match ready {
        Ok(apply) => apply,
        Err(error) => {
            packets.send(&FromWorker::Unfit(error.to_string()))?;
            return Err(error);
        }
    };
    packets.send(&FromWorker::Ready)?;
    let alarm_s = u32::try_from(setup.time_limit.as_secs()).unwrap_or(u32::MAX).saturating_add(1);
    let mut worker =
        Worker { apply, arenas: BTreeMap::new(), alarm_s, buffers: Buffers::default() };
    while let Some((packet, descriptor)) = packets.next()? {
        match packet {
            ToWorker::Setup(_) => return Err(ServeError::NoSetup),
            ToWorker::Arena { arena, len } => worker.map(arena, len, descriptor)?,
            ToWorker::DropArena(arena) => drop(worker.arenas.remove(&arena)),
            ToWorker::Request(request) => {
                let begun = processor_time();
                let outcome = worker.transform(&request, &packets);
                let took = processor_time().saturating_sub(begun);
                packets.send(&FromWorker::Answer { id: request.id, outcome, took })?;
            }
        }
    }
    Ok(())
}

struct Worker<A> {
    apply: A,
    arenas: BTreeMap<ArenaId, View>,
    alarm_s: u32,
    buffers: Buffers,
}

/// Memory of this process for one sample, used again for the next.
#[derive(Default)]
struct Buffers {
    input: Vec<u8>,
    row: Vec<u8>,
    prepared: Vec<u8>,
}

impl<A: Apply> Worker<A> {
    fn map(
        &mut self,
        arena: ArenaId,
        len: u64,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), ServeError> {
        let descriptor = descriptor.filter(|_| self.arenas.len() < ARENAS_MAX);
        let descriptor = descriptor.ok_or(ServeError::Arena(arena))?;
        let view = View::map(descriptor, Bytes(len));
        let view = view.map_err(|source| ServeError::Map { arena, source })?;
        self.arenas.insert(arena, view);
        Ok(())
    }

    fn transform(&mut self, request: &Request, packets: &Packets) -> Outcome {
        let Self { apply, arenas, alarm_s, buffers } = self;
        let Some(arena) = arenas.get(&request.arena) else {
            return Outcome::Failed(format!("there is no arena {}", request.arena.0));
        };
        if let Err(error) = request.check(arena.len().0) {
            return Outcome::Failed(error.to_string());
        }
        alarm::set(*alarm_s);
        // What a sample left in the buffers is overwritten by the next, so no broken state is seen.
        let applied = catch_unwind(AssertUnwindSafe(|| buffers.fill(apply, arena, request)));
        alarm::cancel();
        match applied {
            Ok(Ok(())) => match buffers.store(arena, request, packets) {
                Ok(prepared_sum) => Outcome::Done { prepared_sum },
                Err(why) => Outcome::Failed(why),
            },
            Ok(Err(outcome)) => outcome,
            Err(panic) => {
                let message = panic.downcast_ref::<&str>().copied();
                let message = message.or_else(|| panic.downcast_ref::<String>().map(|it| &**it));
                let message = message.unwrap_or("with no message");
                let message = format!("its decoder panicked: {message}");
                Outcome::Untransformable(Defect { kind: DefectKind::Damaged, message })
            }
        }
    }
}

impl Buffers {
    /// Computes the row, and the prepared form if it is wanted and the input is what arrived.
    fn fill(
        &mut self,
        apply: &mut impl Apply,
        arena: &View,
        request: &Request,
    ) -> Result<(), Outcome> {
        let Self { input, row, prepared } = self;
        let failed = |error: RangeError| Outcome::Failed(error.to_string());
        input.resize(length(request.input_len), 0);
        arena.read(Bytes(request.slot.offset), input).map_err(failed)?;
        row.resize(length(request.row.len), 0);
        prepared.clear();
        let &Request { sample, epoch, form, after, .. } = request;
        let keep = match after {
            AfterTransform::Prepared { input_sum, .. } if sum_of(input) == input_sum => {
                Some(prepared)
            }
            AfterTransform::Prepared { .. } | AfterTransform::Unused => None,
        };
        let input = Input { sample, epoch, form, bytes: input };
        apply.apply(&input, row, keep).map_err(Outcome::Untransformable)
    }

    /// Copies the row to its place, and then the prepared form, of which it returns the checksum. A form that
    /// is not as long as was foreseen is not kept: the file has changed since the scan of heads, or its head
    /// states no size.
    fn store(
        &self,
        arena: &View,
        request: &Request,
        packets: &Packets,
    ) -> Result<Option<u64>, String> {
        let (slot, row) = (request.slot, request.row);
        arena.write(Bytes(row.offset), &self.row).map_err(|error| error.to_string())?;
        let AfterTransform::Prepared { len, .. } = request.after else { return Ok(None) };
        if self.prepared.len() as u64 != len || len > slot.len {
            return Ok(None);
        }
        packets.send(&FromWorker::Replacing { id: request.id }).map_err(|it| it.to_string())?;
        arena.write(Bytes(slot.offset), &self.prepared).map_err(|error| error.to_string())?;
        // Of memory that no other process can write to.
        Ok(Some(sum_of(&self.prepared)))
    }
}

struct Packets {
    socket: OwnedFd,
    starter: Option<OwnedFd>,
    buffer: Vec<u8>,
}

struct Gone;

impl Packets {
    fn new(socket: OwnedFd) -> Self {
        Self { socket, starter: None, buffer: vec![0; PACKET_BYTES_MAX] }
    }

    /// Lets the connection end with the process `starter` too.
    fn watch(&mut self, starter: u32) -> Result<(), Gone> {
        let pid = i32::try_from(starter).ok().and_then(Pid::from_raw).ok_or(Gone)?;
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => self.starter = Some(descriptor),
            Err(Errno::SRCH) => return Err(Gone),
            // Before Linux 5.3 the socket alone tells.
            Err(_) => (),
        }
        Ok(())
    }

    fn send(&self, packet: &FromWorker) -> Result<(), PacketError> {
        worker_protocol::send(self.socket.as_fd(), &packet.encode(), None)
    }

    /// Waits for the next packet; `None` if the starter is gone.
    fn next(&mut self) -> Result<Option<(ToWorker, Option<OwnedFd>)>, ServeError> {
        loop {
            let socket = self.socket.as_fd();
            match worker_protocol::receive(socket, &mut self.buffer, ToWorker::decode)? {
                Arrival::Packet(packet, descriptor) => return Ok(Some((packet, descriptor))),
                Arrival::Nothing if self.wait()? => (),
                Arrival::End | Arrival::Nothing => return Ok(None),
            }
        }
    }

    /// Waits for a packet or for the end of the starter; returns whether the starter still runs.
    fn wait(&self) -> io::Result<bool> {
        let starter = self.starter.as_ref().map(|it| it.as_fd());
        let sources: Vec<BorrowedFd<'_>> =
            std::iter::once(self.socket.as_fd()).chain(starter).collect();
        let mut sources: Vec<_> =
            sources.iter().map(|it| PollFd::from_borrowed_fd(*it, PollFlags::IN)).collect();
        loop {
            match poll(&mut sources, None) {
                Ok(_) => return Ok(sources.get(1).is_none_or(|it| it.revents().is_empty())),
                Err(Errno::INTR) => (),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).expect("it was compared with the length of memory that is mapped")
}
