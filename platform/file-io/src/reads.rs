//! Reads of files straight into regions, many at a time, over an `io_uring`.
//!
//! A [`ReadRing`] belongs to the thread that made it. A read goes to one or more ranges of regions,
//! which are consecutive in the file, or to a [`Bounce`] buffer if the ranges are not aligned for
//! direct I/O. Files, regions and bounce buffers are registered with the kernel, so that it does
//! not look them up and pin them again for each read; if it refuses the registration, reads work
//! without it ([`ReadRing::registration`]).
//!
//! 1. Every read that entered leaves once, in any order.
//! 2. A number refers to the same file or memory as long as a read that names it is in flight.
//! 3. A region that no other code holds any more is released by the next
//!    [`ReadRing::forget_regions`], and so are pages that a region gave back.
//! 4. Only memory that a region has is registered, and a number is used only while the region has
//!    the version under which its pages were pinned ([`Region::pin_around`]): so the kernel
//!    allocates no memory for a hole, and writes to no page that the region no longer has. If a
//!    range is not registered, the read goes there without a registration.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd as _,
    sync::{Arc, Weak},
    time::Duration,
};

use rustix::event::{EventfdFlags, eventfd};
use tierfeed_numa_memory::{RangeError, Region};
use tierfeed_units::Bytes;

pub use crate::flight::{Bounce, RegionRange};

use crate::{
    buffer::AlignedBuffer,
    flight::{FileReference, Flight, Target},
    ring::{Issuer, LEN_MAX, Ring},
};

/// Number of ranges that one read can fill: for more, the list costs more than a second read.
pub const RANGES_MAX: usize = 64;

/// Number of files that a ring registers.
const FILES_MAX: u16 = 256;

/// Number of parts of regions that a ring registers.
const REGIONS_MAX: u16 = 64;

/// Largest number of bytes that the kernel registers under one number.
const REGISTERED_MAX: Bytes = Bytes(1 << 30);

/// The destination of a read.
#[derive(Debug)]
pub enum Destination {
    /// Consecutive ranges, 1 to [`RANGES_MAX`].
    Ranges(Vec<RegionRange>),
    /// The start of a bounce buffer, for so many bytes.
    Bounce(Bounce, usize),
}

/// A read of a part of a file.
#[derive(Debug)]
pub struct Read {
    /// The file, which stays open until the read has ended.
    pub file: Arc<File>,
    /// Start of the read in the file, in bytes.
    pub offset: u64,
    /// Where the bytes go.
    pub to: Destination,
    /// The caller's identification of the read.
    pub token: u64,
}

/// The end of a read.
#[derive(Debug)]
pub struct Ended {
    /// The token of the read.
    pub token: u64,
    /// The buffer, if the read went to one.
    pub bounce: Option<Bounce>,
    /// Number of bytes read: fewer than requested at the end of the file, and whenever the kernel
    /// reads only a part.
    pub outcome: io::Result<usize>,
}

/// Wakes the thread that waits for a ring.
#[derive(Debug, Clone)]
pub struct Waker(Arc<File>);

impl Waker {
    /// Creates a waker for one ring.
    ///
    /// # Errors
    ///
    /// As `eventfd(2)`.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(File::from(eventfd(0, EventfdFlags::CLOEXEC)?))))
    }

    /// Makes the wait for the ring that has this waker return, the present or the next one.
    pub fn wake(&self) {
        // It fails only after 2^64 writes without a read.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// Why a read was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadRefusal {
    /// The number of reads in flight equals the depth of the ring.
    #[error("{depth} reads are in flight, as many as the ring is deep; wait for one first")]
    Full {
        /// The depth of the ring.
        depth: usize,
    },
    /// A range leaves its region.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// No ranges or bytes, or more ranges than a read can have, or more bytes than the kernel moves
    /// at once.
    #[error(
        "{ranges} ranges and {bytes} bytes; a read has 1 to {RANGES_MAX} ranges and 1 to {} bytes",
        LEN_MAX
    )]
    Shape {
        /// Number of ranges in the read.
        ranges: usize,
        /// Number of bytes in the read.
        bytes: u64,
    },
}

#[derive(Debug)]
struct Numbered {
    file: Arc<File>,
    in_flight: u32,
}

/// A registered range of a region.
#[derive(Debug)]
struct Registered {
    region: Weak<Region>,
    start: Bytes,
    len: Bytes,
    /// [`Region::version`] when its pages were pinned.
    version: u64,
    in_flight: u32,
}

impl Registered {
    fn is_of(&self, region: &Arc<Region>) -> bool {
        std::ptr::eq(self.region.as_ptr(), Arc::as_ptr(region))
    }

    /// Whether a range lies inside, in pages that its region still has.
    fn holds(&self, range: &RegionRange) -> bool {
        let behind = range.offset.0.checked_sub(self.start.0);
        let fits = behind.is_some_and(|behind| {
            behind.checked_add(range.len.0).is_some_and(|end| end <= self.len.0)
        });
        fits && self.is_of(&range.region) && range.region.version() == self.version
    }

    fn is_stale(&self) -> bool {
        self.region.upgrade().is_none_or(|region| region.version() != self.version)
    }
}

/// A ring of reads in flight.
///
/// Dropping it cancels what can be cancelled and waits for the rest.
#[derive(Debug)]
pub struct ReadRing {
    ring: Ring<Flight>,
    depth: usize,
    waker: Waker,
    is_waker_armed: bool,
    files: Vec<Option<Numbered>>,
    next_file: usize,
    regions: Vec<Option<Registered>>,
    bounces: u16,
    identity: Arc<()>,
    registration: io::Result<()>,
    can_read_lists: bool,
}

impl ReadRing {
    /// Creates a ring for `depth` reads of the calling thread; `waker` ends a [`Self::wait`].
    ///
    /// # Errors
    ///
    /// If the kernel provides no ring; see [`crate::io_uring_available`].
    pub fn new(depth: u16, waker: Waker) -> io::Result<Self> {
        let ring = Ring::new(u32::from(depth) + 1, Issuer::ThisThread)?;
        let buffers = u32::from(depth) * 2 + u32::from(REGIONS_MAX);
        let (files, registration) = ring.make_tables(FILES_MAX.into(), buffers);
        let files_max = if files.is_ok() { FILES_MAX } else { 0 };
        let can_read_lists = ring.can_read_lists();
        Ok(Self {
            ring,
            depth: usize::from(depth),
            waker,
            is_waker_armed: false,
            files: (0..files_max).map(|_| None).collect(),
            next_file: 0,
            regions: (0..REGIONS_MAX).map(|_| None).collect(),
            bounces: 0,
            identity: Arc::new(()),
            registration,
            can_read_lists,
        })
    }

    /// Whether memory is registered; if not, why. Without it reads cost a little more.
    ///
    /// # Errors
    ///
    /// The error of the first refused registration, such as too little locked memory (`ulimit -l`).
    pub fn registration(&self) -> Result<(), &io::Error> {
        self.registration.as_ref().copied()
    }

    /// Number of reads that entered and have not left.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ring.in_flight() - usize::from(self.is_waker_armed)
    }

    /// Whether another read may enter.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.in_flight() < self.depth
    }

    /// Creates a buffer of `len` bytes, to be reused.
    #[must_use]
    pub fn bounce(&mut self, len: usize) -> Bounce {
        let mut buffer = AlignedBuffer::zeroed(len);
        let mut number = None;
        if self.registration.is_ok() && usize::from(self.bounces) < 2 * self.depth {
            let next = REGIONS_MAX + self.bounces;
            match self.ring.register_aligned(next.into(), &mut buffer) {
                Ok(()) => {
                    self.bounces += 1;
                    number = Some(next);
                }
                Err(error) => self.registration = Err(error),
            }
        }
        Bounce { buffer, number, ring: Arc::clone(&self.identity) }
    }

    /// Adds a read. It starts at the latest with the next [`Self::start`] or [`Self::wait`].
    ///
    /// # Errors
    ///
    /// See [`ReadRefusal`]; the read is dropped.
    pub fn push(&mut self, read: Read) -> Result<(), ReadRefusal> {
        if !self.has_room() {
            return Err(ReadRefusal::Full { depth: self.depth });
        }
        let Read { file, offset, to, token } = read;
        let target = self.target(to)?;
        let file_reference = self.file_reference(&file);
        self.count(file_reference, &target, |in_flight| in_flight + 1);
        self.ring.push(Flight { file: file_reference, offset, target, token, _held: file });
        Ok(())
    }

    /// Starts the pushed reads.
    pub fn start(&mut self) {
        self.ring.start();
    }

    /// Starts the pushed reads, waits until a read has ended, the waker was used or `timeout` has
    /// passed, and appends the ended reads to `ended`.
    ///
    /// # Errors
    ///
    /// If the kernel accepts nothing at the moment, for lack of memory for instance. Another call
    /// may succeed.
    pub fn wait(&mut self, timeout: Option<Duration>, ended: &mut Vec<Ended>) -> io::Result<()> {
        self.arm_waker();
        if self.collect(ended) {
            self.ring.start();
            return Ok(());
        }
        match timeout {
            Some(timeout) => self.ring.submit_and_wait_for(timeout)?,
            None => self.ring.submit_and_wait()?,
        }
        self.collect(ended);
        Ok(())
    }

    /// Releases regions that no other code holds any more, or whose memory has changed, so that the
    /// memory that they gave back is freed. Returns whether the ring still holds any.
    pub fn forget_regions(&mut self) -> bool {
        for (number, slot) in (0..).zip(&mut self.regions) {
            let is_idle_and_stale = |it: &Registered| it.in_flight == 0 && it.is_stale();
            if slot.as_ref().is_some_and(is_idle_and_stale)
                && self.ring.unregister_buffer(number).is_ok()
            {
                *slot = None;
            }
        }
        self.regions.iter().any(Option::is_some)
    }

    /// Returns whether any completion came, that of the waker included.
    fn collect(&mut self, ended: &mut Vec<Ended>) -> bool {
        let mut has_any = false;
        while let Some((flight, outcome)) = self.ring.ended() {
            has_any = true;
            self.count(flight.file, &flight.target, |in_flight| in_flight - 1);
            let bounce = match flight.target {
                Target::Waker(_) => {
                    self.is_waker_armed = false;
                    continue;
                }
                Target::Bounce { bounce, .. } => Some(bounce),
                Target::Ranges { .. } => None,
            };
            ended.push(Ended { token: flight.token, bounce, outcome });
        }
        has_any
    }

    fn arm_waker(&mut self) {
        if !self.is_waker_armed {
            self.is_waker_armed = true;
            let held = Arc::clone(&self.waker.0);
            let (file, target) = (
                FileReference::Descriptor(held.as_raw_fd()),
                Target::Waker(AlignedBuffer::zeroed(8)),
            );
            self.ring.push(Flight { file, offset: 0, target, token: 0, _held: held });
        }
    }

    fn target(&mut self, to: Destination) -> Result<Target, ReadRefusal> {
        match to {
            Destination::Ranges(ranges) => {
                let bytes = ranges.iter().fold(0_u64, |sum, it| sum.saturating_add(it.len.0));
                let is_readable = (1..=LEN_MAX as u64).contains(&bytes);
                if !(1..=RANGES_MAX).contains(&ranges.len()) || !is_readable {
                    return Err(ReadRefusal::Shape { ranges: ranges.len(), bytes });
                }
                let spots = ranges.iter().map(spot).collect::<Result<_, _>>()?;
                let number = self.number_of_all(&ranges);
                Ok(Target::Ranges { spots, number, _held: ranges })
            }
            Destination::Bounce(mut bounce, len) => {
                if len > bounce.buffer.as_slice().len().min(LEN_MAX) {
                    return Err(ReadRefusal::Shape { ranges: 1, bytes: len as u64 });
                }
                // The numbers of another ring refer to other memory here.
                if !Arc::ptr_eq(&bounce.ring, &self.identity) {
                    bounce.number = None;
                }
                Ok(Target::Bounce { bounce, len })
            }
        }
    }

    /// The number of the file; it gets one if there is one that no read in flight names.
    fn file_reference(&mut self, file: &Arc<File>) -> FileReference {
        let descriptor = FileReference::Descriptor(file.as_raw_fd());
        let is_this =
            |it: &Option<Numbered>| it.as_ref().is_some_and(|it| Arc::ptr_eq(&it.file, file));
        if let Some(number) = self.files.iter().position(is_this) {
            return i32::try_from(number).map_or(descriptor, FileReference::Number);
        }
        let Some(slot) = self.files.get_mut(self.next_file) else { return descriptor };
        let following = (self.next_file + 1) % usize::from(FILES_MAX);
        if slot.as_ref().is_some_and(|it| it.in_flight > 0) {
            self.next_file = following;
            return descriptor;
        }
        let number = u32::try_from(self.next_file).expect("FILES_MAX fits 32 bits");
        if self.ring.register_file(number, file.as_raw_fd()).is_err() {
            return descriptor;
        }
        *slot = Some(Numbered { file: Arc::clone(file), in_flight: 0 });
        self.next_file = following;
        i32::try_from(number).map_or(descriptor, FileReference::Number)
    }

    /// The number of all ranges, if they share one and the kernel can use it.
    fn number_of_all(&mut self, ranges: &[RegionRange]) -> Option<u16> {
        let (first, others) = ranges.split_first()?;
        if !others.is_empty() && !self.can_read_lists {
            return None;
        }
        let number = self.number_of(first)?;
        let registered = self.regions[usize::from(number)].as_ref()?;
        others.iter().all(|it| registered.holds(it)).then_some(number)
    }

    /// The number under which the memory of a range is registered; registers it if needed.
    fn number_of(&mut self, range: &RegionRange) -> Option<u16> {
        if self.registration.is_err() {
            return None;
        }
        let holds = |it: &Option<Registered>| it.as_ref().is_some_and(|it| it.holds(range));
        if let Some(number) = self.regions.iter().position(holds) {
            return u16::try_from(number).ok();
        }
        self.forget_regions();
        let is_left = |it: &Registered| it.is_of(&range.region) && it.is_stale();
        if self.regions.iter().flatten().any(is_left) {
            // Reads in flight hold the pages that it had before: no page is pinned twice.
            return None;
        }
        self.register(range)
    }

    fn register(&mut self, range: &RegionRange) -> Option<u16> {
        let free = self.regions.iter().position(Option::is_none)?;
        let number = u16::try_from(free).ok()?;
        let &RegionRange { ref region, offset, len } = range;
        let (ring, registration) = (&self.ring, &mut self.registration);
        let registered = region.pin_around(offset, len, REGISTERED_MAX, |start, len, version| {
            match ring.register_region(number.into(), region, start, len) {
                Ok(()) => {
                    let region = Arc::downgrade(region);
                    Some(Registered { region, start, len, version, in_flight: 0 })
                }
                Err(error) => {
                    *registration = Err(error);
                    None
                }
            }
        });
        self.regions[free] = registered.flatten();
        self.regions[free].is_some().then_some(number)
    }

    /// Counts a read at its numbers: keeps invariant 2.
    fn count(&mut self, file: FileReference, target: &Target, change: impl Fn(u32) -> u32) {
        if let FileReference::Number(number) = file
            && let Some(Some(file)) =
                usize::try_from(number).ok().and_then(|it| self.files.get_mut(it))
        {
            file.in_flight = change(file.in_flight);
        }
        if let Target::Ranges { number: Some(number), .. } = target
            && let Some(Some(region)) = self.regions.get_mut(usize::from(*number))
        {
            region.in_flight = change(region.in_flight);
        }
    }
}

impl Drop for ReadRing {
    /// Ends the wait for the waker even if the kernel cannot cancel it (before Linux 6.0).
    fn drop(&mut self) {
        self.waker.wake();
    }
}

fn spot(range: &RegionRange) -> Result<libc::iovec, RangeError> {
    let start = range.region.as_ptr_range(range.offset, range.len)?;
    let len = usize::try_from(range.len.0).expect("a mapping is no longer than a usize says");
    Ok(libc::iovec { iov_base: start.cast(), iov_len: len })
}
