//! One tier of a node at work: its chunks, where they come from, and the link that emulates its speed.

mod bounce;
mod directory;
mod disk;
mod probe;
mod store;
mod sums;
mod transfer;

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    num::{NonZeroU32, NonZeroUsize},
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use tierfeed_core::{
    id::{ChunkId, TierId},
    session::Fault,
    space::Piece,
    tier::{Kind, Locality, Speed},
    units::Bytes,
};
use tierfeed_handoff::{SharedTier, Starts};
use tierfeed_numa_memory::{
    AllocateError, HugePages, Pages, Region, Request, SharedPool, SharedPoolRequest, Stores,
    capacity,
};

use tierfeed_dataset::pace::{Link, Pace};

pub use directory::{DirectoryError, Medium};

pub(crate) use directory::Directory;
use disk::{DiskChunk, Windows};
pub(crate) use probe::faster_stores;
pub(crate) use store::{Body, Segment, Store};
pub(crate) use transfer::{Check, TransferError, Which, forget, record_arrival, transfer};

/// Where the chunks of a tier lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backing {
    /// In memory of this process.
    Memory(Locality),
    /// In memory of this process that trainers map, so that they may read samples there: as many chunks
    /// as this at a time.
    Shelf(Locality, NonZeroU32),
    /// In files without a name in this directory: a RAM disk or a disk.
    Directory(PathBuf),
}

/// How the bytes of a tier are stored, as it was found to work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To memory.
    Memory {
        /// Through the caches or past them, whichever was faster on the first chunk.
        stores: Stores,
        /// The pages of the first chunk.
        pages: HugePages,
    },
    /// To files, through the page cache: on a RAM disk, which is nothing else, or where a file system
    /// refuses `O_DIRECT`.
    PageCache,
    /// To files past the page cache, in pieces of 4 MiB.
    Direct,
}

/// One tier of a job on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierSettings {
    /// What it is, for reports.
    pub kind: Kind,
    /// Where its chunks lie.
    pub backing: Backing,
    /// The speed that is imposed on copies from and to it, if it plays a slower one.
    pub emulated: Option<Speed>,
    /// How many threads copy from and to it.
    pub copy_threads: NonZeroUsize,
    /// The CPUs that these threads stay on; empty lets them run anywhere.
    pub cpus: Vec<usize>,
}

/// Why there is no new chunk or arena.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// Memory was refused.
    #[error(transparent)]
    Memory(AllocateError),
    /// The directory of a tier gave no file.
    #[error("cannot allocate a chunk of {len} in the directory of tier {kind}: {source}")]
    File {
        /// Which tier.
        kind: Kind,
        /// The size of a chunk.
        len: Bytes,
        /// As `open(2)` or `posix_fallocate(3)`.
        source: io::Error,
    },
    /// The chunk or arena is there already; the old one stays.
    #[error("it is there already")]
    Taken,
}

impl SpaceError {
    /// What the session is told.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let source = match self {
            Self::Memory(AllocateError::System { source, .. }) | Self::File { source, .. } => {
                source
            }
            Self::Memory(AllocateError::NoRoom { .. } | AllocateError::Misplaced { .. }) => {
                return Fault::NoSpace;
            }
            Self::Memory(_) | Self::Taken => return Fault::Io,
        };
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::ENOMEM | libc::EFBIG) => Fault::NoSpace,
            _ => Fault::Io,
        }
    }
}

/// A tier and its chunks.
#[derive(Debug)]
pub(crate) struct Tier {
    kind: Kind,
    place: Place,
    chunk: Bytes,
    link: Option<Link>,
    chunks: RwLock<BTreeMap<ChunkId, Arc<Store>>>,
    held: Arc<AtomicU64>,
    /// How to store to its memory, as the first chunk was found to like it.
    stores: OnceLock<Stores>,
}

#[derive(Debug)]
enum Place {
    Memory(Locality),
    Shelf(Arc<SharedPool>, Starts),
    /// A directory on a RAM disk.
    Directory(Directory),
    /// A directory on a disk.
    Disk(Directory, Arc<Windows>),
}

impl Tier {
    /// A tier without chunks; creates its directory if it has one.
    ///
    /// # Errors
    ///
    /// [`DirectoryError`] if the directory cannot hold chunks.
    pub(crate) fn open(settings: &TierSettings, chunk: Bytes) -> Result<Self, DirectoryError> {
        let place = match &settings.backing {
            Backing::Memory(locality) => Place::Memory(*locality),
            Backing::Shelf(locality, chunks_max) => {
                reserve(settings.kind, *locality, chunk, *chunks_max)
            }
            Backing::Directory(path) => match Directory::open(path)? {
                disk if disk.medium() == Medium::Disk => Place::Disk(disk, Arc::default()),
                other => Place::Directory(other),
            },
        };
        let link = settings.emulated.map(Link::new);
        let (chunks, held, stores) = (RwLock::default(), Arc::default(), OnceLock::new());
        Ok(Self { kind: settings.kind, place, chunk, link, chunks, held, stores })
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// What its chunks lie on.
    pub(crate) fn medium(&self) -> Medium {
        match &self.place {
            Place::Memory(_) | Place::Shelf(..) => Medium::Memory,
            Place::Directory(directory) | Place::Disk(directory, _) => directory.medium(),
        }
    }

    /// Bytes of all chunks that exist, those included that were dropped while in use.
    pub(crate) fn held(&self) -> Bytes {
        Bytes(self.held.load(Ordering::Relaxed))
    }

    /// Allocates a chunk, which may take long.
    ///
    /// # Errors
    ///
    /// A [`SpaceError`]; nothing stays allocated then.
    pub(crate) fn add_chunk_blocking(&self, chunk: ChunkId, pace: &Pace) -> Result<(), SpaceError> {
        if self.chunk(chunk).is_some() {
            return Err(SpaceError::Taken);
        }
        let len = self.chunk;
        self.check_room()?;
        let body = match &self.place {
            Place::Memory(locality) => {
                let name = format!("tierfeed-{}-{}", self.kind, chunk.0);
                Body::Memory(allocate(&name, *locality, len, Pages::Huge)?)
            }
            Place::Shelf(all, starts) => {
                let span = all.take().map_err(SpaceError::Memory)?;
                let mut known = starts.write().unwrap_or_else(PoisonError::into_inner);
                known.insert(chunk, span.offset());
                Body::Shelved(span)
            }
            Place::Directory(directory) => Body::File(self.create_file(directory)?),
            Place::Disk(directory, windows) => {
                let file = self.create_file(directory)?;
                Body::Disk(Arc::new(DiskChunk::new(file, len, windows)))
            }
        };
        let stores = match body.memory() {
            Some(memory) => *self.stores.get_or_init(|| faster_stores(memory, pace)),
            None => Stores::Cached,
        };
        let store = Store::new(Some(chunk), body, len, &self.held, stores);
        self.chunks.write().unwrap_or_else(PoisonError::into_inner).insert(chunk, Arc::new(store));
        Ok(())
    }

    /// Refuses a chunk in memory that would take what the control groups keep for everything else. A file
    /// on a RAM disk is memory that nobody else claims: without room for it the kernel kills.
    fn check_room(&self) -> Result<(), SpaceError> {
        let root = Path::new("/");
        let on_host = match &self.place {
            Place::Disk(..) => return Ok(()),
            // Where nobody can say, only the file system is asked.
            Place::Directory(_) => capacity::allocatable_bytes(root, Locality::Anywhere).ok(),
            Place::Memory(_) | Place::Shelf(..) => None,
        };
        match [on_host, capacity::cache_headroom(root)].into_iter().flatten().min() {
            Some(available) if available < self.chunk => {
                let (wanted, locality) = (self.chunk, Locality::Anywhere);
                Err(SpaceError::Memory(AllocateError::NoRoom { wanted, available, locality }))
            }
            _ => Ok(()),
        }
    }

    fn create_file(&self, directory: &Directory) -> Result<File, SpaceError> {
        let file = directory.create_chunk(self.chunk);
        file.map_err(|source| SpaceError::File { kind: self.kind, len: self.chunk, source })
    }

    /// How its bytes are stored; `None` before the first chunk.
    pub(crate) fn way(&self) -> Option<Way> {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        let way = match chunks.first_key_value()?.1.body() {
            body @ (Body::Memory(_) | Body::Shelved(_)) => Way::Memory {
                stores: self.stores.get().copied().unwrap_or(Stores::Cached),
                pages: match body {
                    Body::Memory(region) => region.huge_pages(),
                    // The kernel shows the pages of all chunks together.
                    _ => HugePages::Unknown,
                },
            },
            Body::Disk(chunk) if chunk.is_direct() => Way::Direct,
            Body::Disk(_) | Body::File(_) => Way::PageCache,
        };
        Some(way)
    }

    /// Writes to its disk that failed.
    pub(crate) fn writes_failed(&self) -> u64 {
        match &self.place {
            Place::Disk(_, windows) => windows.failed(),
            Place::Memory(_) | Place::Shelf(..) | Place::Directory(_) => 0,
        }
    }

    /// What trainers map of it, if they may read there.
    pub(crate) fn shelved(&self, tier: TierId) -> Option<SharedTier> {
        match &self.place {
            Place::Shelf(all, starts) => {
                Some(SharedTier::new(tier, Arc::clone(all), Arc::clone(starts)))
            }
            Place::Memory(_) | Place::Directory(_) | Place::Disk(..) => None,
        }
    }

    /// Forgets a chunk and returns it, to be dropped where that may take long.
    pub(crate) fn take_chunk(&self, chunk: ChunkId) -> Option<Arc<Store>> {
        if let Place::Shelf(_, starts) = &self.place {
            starts.write().unwrap_or_else(PoisonError::into_inner).remove(&chunk);
        }
        self.chunks.write().unwrap_or_else(PoisonError::into_inner).remove(&chunk)
    }

    /// The ranges that `pieces` name, or the first chunk that does not exist.
    pub(crate) fn segments(&self, pieces: &[Piece]) -> Result<Vec<Segment>, ChunkId> {
        let segment = |piece: &Piece| {
            let store = self.chunk(piece.chunk).ok_or(piece.chunk)?;
            Ok(Segment { store, offset: piece.offset, len: piece.len })
        };
        pieces.iter().map(segment).collect()
    }

    fn chunk(&self, chunk: ChunkId) -> Option<Arc<Store>> {
        self.chunks.read().unwrap_or_else(PoisonError::into_inner).get(&chunk).cloned()
    }
}

impl Drop for Tier {
    /// A trainer may hold a batch that names samples here for longer than this process lives.
    fn drop(&mut self) {
        if let Place::Shelf(all, _) = &self.place {
            all.keep_for_readers();
        }
    }
}

/// An address space for chunks that trainers read; plain memory where there is none.
fn reserve(kind: Kind, locality: Locality, chunk: Bytes, chunks_max: NonZeroU32) -> Place {
    let name = format!("tierfeed-{kind}");
    let request =
        SharedPoolRequest { piece: chunk, pieces_max: chunks_max.get(), locality, name: &name };
    match SharedPool::reserve(&request) {
        Ok(shelf) => Place::Shelf(Arc::new(shelf), Starts::default()),
        Err(_) => Place::Memory(locality),
    }
}

/// Memory that is touched and sealed.
///
/// # Errors
///
/// [`SpaceError::Memory`].
pub(crate) fn allocate(
    name: &str,
    locality: Locality,
    len: Bytes,
    pages: Pages,
) -> Result<Arc<Region>, SpaceError> {
    let request = Request { len, locality, name, pages };
    Region::allocate(&request).map(Arc::new).map_err(SpaceError::Memory)
}
