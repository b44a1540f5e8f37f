//! Reads of files straight into regions, many at a time, over a ring of the kernel.
//!
//! A [`ReadRing`] belongs to the thread that made it. A read goes to one or more places of regions, one
//! behind the other in the file, or to a [`Bounce`] buffer where the places are not aligned as direct I/O
//! wants. Files, regions and bounce buffers are registered with the kernel, so that it does not look them
//! up and pin them again for each read; where it refuses that, reads work all the same
//! ([`ReadRing::registration`]).
//!
//! 1. Every read that entered comes out once, in any order.
//! 2. A number stands for the same file or memory as long as a read that names it is in flight.
//! 3. A region that nobody else holds any more is let go by the next [`ReadRing::forget_regions`], and so
//!    are pages that a region gave back.
//! 4. Only memory that a region has is registered, and a number is used only while the region has the
//!    version under which its pages were pinned ([`Region::pin_around`]): so the kernel takes no memory
//!    for a hole, and writes to no page that the region has no more. Where a place is not registered, the
//!    read goes there all the same.

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

pub use crate::flight::{Bounce, Place};

use crate::{
    buffer::AlignedBuffer,
    flight::{FileName, Flight, Target},
    operation::Operation,
    ring::{Issuer, Ring},
};

/// Places that one read can fill: more, and the list costs more than a second read.
pub const PLACES_MAX: usize = 64;

/// Files that have a number in a ring.
const FILES_MAX: u16 = 256;

/// Pieces of regions that have a number in a ring.
const REGIONS_MAX: u16 = 64;

/// What the kernel registers under one number, at most.
const REGISTERED_MAX: Bytes = Bytes(1 << 30);

/// Where the bytes of a read go.
#[derive(Debug)]
pub enum Destination {
    /// One behind the other, 1 to [`PLACES_MAX`].
    Places(Vec<Place>),
    /// To the start of a bounce buffer, so many bytes.
    Bounce(Bounce, usize),
}

/// One read.
#[derive(Debug)]
pub struct Read {
    /// The file, which stays open until the read ended.
    pub file: Arc<File>,
    /// Where in the file it starts.
    pub offset: u64,
    /// Where it goes.
    pub to: Destination,
    /// The caller's name for it.
    pub token: u64,
}

/// The end of a read.
#[derive(Debug)]
pub struct Ended {
    /// The read's.
    pub token: u64,
    /// The buffer, if the read went to one.
    pub bounce: Option<Bounce>,
    /// How many bytes were read: fewer than asked at the end of the file, and whenever the kernel likes.
    pub outcome: io::Result<usize>,
}

/// Wakes the thread that waits for a ring.
#[derive(Debug, Clone)]
pub struct Bell(Arc<File>);

impl Bell {
    /// A bell for one ring.
    ///
    /// # Errors
    ///
    /// As `eventfd(2)`.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(File::from(eventfd(0, EventfdFlags::CLOEXEC)?))))
    }

    /// Lets the wait for the ring that has this bell return, now or next time.
    pub fn ring(&self) {
        // It fails only if it was rung 2^64 times without being heard.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// Why a read does not enter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// As many are in flight as the ring is deep.
    #[error("{depth} reads are in flight, as many as the ring is deep; wait for one first")]
    Full {
        /// The depth.
        depth: usize,
    },
    /// A place leaves its region.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// No places or bytes, or more places than a read can have, or more bytes than the kernel moves at once.
    #[error(
        "{places} places and {bytes} bytes; a read has 1 to {PLACES_MAX} places and 1 to {} bytes",
        Operation::LEN_MAX
    )]
    Shape {
        /// How many places.
        places: usize,
        /// How many bytes.
        bytes: u64,
    },
}

/// A file that has a number.
#[derive(Debug)]
struct Numbered {
    file: Arc<File>,
    in_flight: u32,
}

/// A range of a region that has a number.
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

    /// Whether a place lies there, in pages that its region has still.
    fn holds(&self, place: &Place) -> bool {
        let behind = place.offset.0.checked_sub(self.start.0);
        let fits = behind.is_some_and(|behind| {
            behind.checked_add(place.len.0).is_some_and(|end| end <= self.len.0)
        });
        fits && self.is_of(&place.region) && place.region.version() == self.version
    }

    fn is_stale(&self) -> bool {
        self.region.upgrade().is_none_or(|region| region.version() != self.version)
    }
}

/// Reads in flight.
///
/// Dropping it cancels what can be cancelled and waits for the rest.
#[derive(Debug)]
pub struct ReadRing {
    ring: Ring<Flight>,
    depth: usize,
    bell: Bell,
    is_bell_armed: bool,
    files: Vec<Option<Numbered>>,
    next_file: usize,
    regions: Vec<Option<Registered>>,
    bounces: u16,
    identity: Arc<()>,
    registration: io::Result<()>,
    can_read_lists: bool,
}

impl ReadRing {
    /// A ring for `depth` reads of the calling thread, which [`Self::wait`] returns for when `bell` rings.
    ///
    /// # Errors
    ///
    /// The kernel gives no ring; see [`crate::io_uring_available`].
    pub fn new(depth: u16, bell: Bell) -> io::Result<Self> {
        let ring = Ring::new(u32::from(depth) + 1, Issuer::ThisThread)?;
        let buffers = u32::from(depth) * 2 + u32::from(REGIONS_MAX);
        let (files, registration) = ring.make_tables(FILES_MAX.into(), buffers);
        let files_max = if files.is_ok() { FILES_MAX } else { 0 };
        let can_read_lists = ring.can_read_lists();
        Ok(Self {
            ring,
            depth: usize::from(depth),
            bell,
            is_bell_armed: false,
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
    /// What the kernel said the first time it refused, such as too little locked memory (`ulimit -l`).
    pub fn registration(&self) -> Result<(), &io::Error> {
        self.registration.as_ref().copied()
    }

    /// Reads that entered and have not come out.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ring.in_flight() - usize::from(self.is_bell_armed)
    }

    /// Whether another read may enter.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.in_flight() < self.depth
    }

    /// A new buffer of `len` bytes, to be used again and again.
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

    /// Takes a read. It starts at the latest with the next [`Self::start`] or [`Self::wait`].
    ///
    /// # Errors
    ///
    /// [`Unreadable`]; the read is dropped.
    pub fn push(&mut self, read: Read) -> Result<(), Unreadable> {
        if !self.has_room() {
            return Err(Unreadable::Full { depth: self.depth });
        }
        let Read { file, offset, to, token } = read;
        let target = self.target(to)?;
        let file_name = self.file_name(&file);
        self.count(file_name, &target, |in_flight| in_flight + 1);
        self.ring.push(Flight { file: file_name, offset, target, token, _held: file });
        Ok(())
    }

    /// Starts what was pushed.
    pub fn start(&mut self) {
        self.ring.start();
    }

    /// Starts what was pushed, waits until a read ended, the bell rang or `patience` is over, and adds
    /// what ended to `ended`.
    ///
    /// # Errors
    ///
    /// The kernel takes nothing at the moment, for lack of memory for instance. Another call may fare
    /// better.
    pub fn wait(&mut self, patience: Option<Duration>, ended: &mut Vec<Ended>) -> io::Result<()> {
        self.arm_bell();
        if self.collect(ended) {
            self.ring.start();
            return Ok(());
        }
        match patience {
            Some(patience) => self.ring.submit_and_wait_for(patience)?,
            None => self.ring.submit_and_wait()?,
        }
        self.collect(ended);
        Ok(())
    }

    /// Lets go of regions that nobody else holds any more, or whose memory is not what it was, so that
    /// what they gave back is freed. Returns whether the ring still knows any.
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

    /// Returns whether anything came, the bell included.
    fn collect(&mut self, ended: &mut Vec<Ended>) -> bool {
        let mut has_any = false;
        while let Some((flight, outcome)) = self.ring.ended() {
            has_any = true;
            self.count(flight.file, &flight.target, |in_flight| in_flight - 1);
            let bounce = match flight.target {
                Target::Bell(_) => {
                    self.is_bell_armed = false;
                    continue;
                }
                Target::Bounce { bounce, .. } => Some(bounce),
                Target::Places { .. } => None,
            };
            ended.push(Ended { token: flight.token, bounce, outcome });
        }
        has_any
    }

    fn arm_bell(&mut self) {
        if !self.is_bell_armed {
            self.is_bell_armed = true;
            let held = Arc::clone(&self.bell.0);
            let (file, target) =
                (FileName::Descriptor(held.as_raw_fd()), Target::Bell(AlignedBuffer::zeroed(8)));
            self.ring.push(Flight { file, offset: 0, target, token: 0, _held: held });
        }
    }

    fn target(&mut self, to: Destination) -> Result<Target, Unreadable> {
        match to {
            Destination::Places(places) => {
                let bytes = places.iter().fold(0_u64, |sum, it| sum.saturating_add(it.len.0));
                let is_readable = (1..=Operation::LEN_MAX as u64).contains(&bytes);
                if !(1..=PLACES_MAX).contains(&places.len()) || !is_readable {
                    return Err(Unreadable::Shape { places: places.len(), bytes });
                }
                let spots = places.iter().map(spot).collect::<Result<_, _>>()?;
                let number = self.number_of_all(&places);
                Ok(Target::Places { spots, number, _held: places })
            }
            Destination::Bounce(mut bounce, len) => {
                if len > bounce.buffer.as_slice().len().min(Operation::LEN_MAX) {
                    return Err(Unreadable::Shape { places: 1, bytes: len as u64 });
                }
                // The numbers of another ring stand for other memory here.
                if !Arc::ptr_eq(&bounce.ring, &self.identity) {
                    bounce.number = None;
                }
                Ok(Target::Bounce { bounce, len })
            }
        }
    }

    /// The number of the file, which gets one if there is one that no read in flight names.
    fn file_name(&mut self, file: &Arc<File>) -> FileName {
        let descriptor = FileName::Descriptor(file.as_raw_fd());
        let is_this =
            |it: &Option<Numbered>| it.as_ref().is_some_and(|it| Arc::ptr_eq(&it.file, file));
        if let Some(number) = self.files.iter().position(is_this) {
            return i32::try_from(number).map_or(descriptor, FileName::Number);
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
        i32::try_from(number).map_or(descriptor, FileName::Number)
    }

    /// The number of all places, if they have one together and the kernel can make use of it.
    fn number_of_all(&mut self, places: &[Place]) -> Option<u16> {
        let (first, others) = places.split_first()?;
        if !others.is_empty() && !self.can_read_lists {
            return None;
        }
        let number = self.number_of(first)?;
        let registered = self.regions[usize::from(number)].as_ref()?;
        others.iter().all(|it| registered.holds(it)).then_some(number)
    }

    /// The number under which the memory of a place is registered, which happens now if need be.
    fn number_of(&mut self, place: &Place) -> Option<u16> {
        if self.registration.is_err() {
            return None;
        }
        let holds = |it: &Option<Registered>| it.as_ref().is_some_and(|it| it.holds(place));
        if let Some(number) = self.regions.iter().position(holds) {
            return u16::try_from(number).ok();
        }
        self.forget_regions();
        let is_left = |it: &Registered| it.is_of(&place.region) && it.is_stale();
        if self.regions.iter().flatten().any(is_left) {
            // Reads in flight hold the pages that it had before: no page shall be pinned twice.
            return None;
        }
        self.register(place)
    }

    fn register(&mut self, place: &Place) -> Option<u16> {
        let free = self.regions.iter().position(Option::is_none)?;
        let number = u16::try_from(free).ok()?;
        let &Place { ref region, offset, len } = place;
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

    /// Keeps invariant 2.
    fn count(&mut self, file: FileName, target: &Target, change: impl Fn(u32) -> u32) {
        if let FileName::Number(number) = file
            && let Some(Some(file)) =
                usize::try_from(number).ok().and_then(|it| self.files.get_mut(it))
        {
            file.in_flight = change(file.in_flight);
        }
        if let Target::Places { number: Some(number), .. } = target
            && let Some(Some(region)) = self.regions.get_mut(usize::from(*number))
        {
            region.in_flight = change(region.in_flight);
        }
    }
}

impl Drop for ReadRing {
    /// Ends the wait for the bell also where the kernel cannot cancel it (before Linux 6.0).
    fn drop(&mut self) {
        self.bell.ring();
    }
}

fn spot(place: &Place) -> Result<libc::iovec, RangeError> {
    let start = place.region.as_ptr_range(place.offset, place.len)?;
    let len = usize::try_from(place.len.0).expect("a mapping is no longer than a usize says");
    Ok(libc::iovec { iov_base: start.cast(), iov_len: len })
}
