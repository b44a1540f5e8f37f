//! One tier of a node: its chunks, their backing, and the link that emulates its speed.

mod arrival;
mod bounce;
mod directory;
mod disk;
mod probe;
mod ram_disk;
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
        Arc, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::RwLock;
use tierfeed_core::{
    id::{ChunkId, NumaNode, TierId},
    session::Fault,
    space::Piece,
    tier::{Kind, Locality, Speed},
    units::Bytes,
};
use tierfeed_handoff::{SharedTier, Starts};
use tierfeed_numa_memory::{
    AllocateError, HugePages, Pages, Region, Request, SLICE, SharedPool, SharedPoolRequest, Slices,
    Stores,
};

use tierfeed_dataset::pace::{Link, Pace};

pub use directory::{DirectoryError, Medium};

pub(crate) use arrival::Arrival;
pub(crate) use directory::Directory;
use disk::{DiskChunk, Windows};
pub(crate) use probe::faster_stores;
use ram_disk::RamDiskFile;
pub(crate) use store::{Allocation, Segment, Store};
pub(crate) use transfer::{
    Check, Side, TransferError, forget_sums, record_arrival, transfer, transfer_bytes,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backing {
    Memory(Locality),
    /// In memory of this process that trainers map for reading, so that they can use samples in place: at
    /// most this many chunks at a time.
    SharedMemory(Locality, NonZeroU32),
    /// In memory of this process, near these NUMA nodes in turn.
    Spread(Vec<NumaNode>),
    /// In unnamed files in this directory, on a RAM disk or a disk.
    Directory(PathBuf),
    /// In unnamed files in this directory, on a RAM disk; their pages lie there.
    RamDisk(PathBuf, Locality),
}

impl Backing {
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::Directory(path) | Self::RamDisk(path, _) => Some(path),
            Self::Memory(_) | Self::SharedMemory(..) | Self::Spread(_) => None,
        }
    }
}

/// How the bytes of a tier are written, as chosen by probing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    Memory {
        /// Cached or non-temporal stores: the faster of both when the first chunk was filled.
        stores: Stores,
        /// The pages of the first chunk.
        pages: HugePages,
    },
    /// To files through the page cache: on a RAM disk, or where a file system refuses `O_DIRECT`.
    PageCache,
    /// To files with direct I/O, in pieces of 4 MiB.
    Direct,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierSettings {
    pub kind: Kind,
    pub backing: Backing,
    /// The speed that is imposed on copies from and to it, if it emulates a slower tier.
    pub emulated: Option<Speed>,
    pub copy_threads: NonZeroUsize,
    /// The CPUs that these threads are pinned to; empty for no pinning.
    pub cpus: Vec<usize>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    #[error(transparent)]
    Memory(#[from] AllocateError),
    #[error("cannot allocate a chunk of {len} in the directory of tier {kind}: {source}")]
    File { kind: Kind, len: Bytes, source: io::Error },
    /// The file of a chunk could not be extended: the RAM disk filled up after the chunk was added.
    #[error("cannot allocate {len} more of its file: {source}")]
    Slice { len: Bytes, source: io::Error },
    /// The chunk or arena exists already; the old one stays.
    #[error("it is there already")]
    Taken,
}

impl SpaceError {
    #[must_use]
    pub fn fault(&self) -> Fault {
        let source = match self {
            Self::Memory(AllocateError::System { source, .. })
            | Self::File { source, .. }
            | Self::Slice { source, .. } => source,
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

#[derive(Debug)]
pub(crate) struct Tier {
    kind: Kind,
    backing: OpenBacking,
    chunk: Bytes,
    link: Option<Link>,
    chunks: RwLock<BTreeMap<ChunkId, Arc<Store>>>,
    held: Arc<AtomicU64>,
    /// The kind of stores that was faster on the first chunk.
    stores: OnceLock<Stores>,
}

#[derive(Debug)]
enum OpenBacking {
    Memory(Locality),
    Spread(Vec<NumaNode>),
    SharedMemory(Arc<SharedPool>, Starts),
    /// A directory on a RAM disk, and where the pages of its files lie.
    Directory(Directory, Locality),
    Disk(Directory, Arc<Windows>),
}

impl Tier {
    /// Creates its directory if it has one.
    pub(crate) fn open(settings: &TierSettings, chunk: Bytes) -> Result<Self, DirectoryError> {
        let backing = match &settings.backing {
            Backing::Memory(locality) => OpenBacking::Memory(*locality),
            Backing::SharedMemory(locality, chunks_max) => {
                reserve(settings.kind, *locality, chunk, *chunks_max)
            }
            Backing::Spread(nodes) => OpenBacking::Spread(nodes.clone()),
            Backing::Directory(path) => open(path, Locality::Anywhere)?,
            Backing::RamDisk(path, locality) => open(path, *locality)?,
        };
        let link = settings.emulated.map(Link::new);
        let (chunks, held, stores) = (RwLock::default(), Arc::default(), OnceLock::new());
        Ok(Self { kind: settings.kind, backing, chunk, link, chunks, held, stores })
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    pub(crate) fn medium(&self) -> Medium {
        match &self.backing {
            OpenBacking::Memory(_) | OpenBacking::SharedMemory(..) | OpenBacking::Spread(_) => {
                Medium::Memory
            }
            OpenBacking::Directory(directory, _) | OpenBacking::Disk(directory, _) => {
                directory.medium()
            }
        }
    }

    /// Bytes of all chunks that exist, including dropped ones that an operation still uses. A chunk counts
    /// in full from the start: its room is claimed.
    pub(crate) fn held(&self) -> Bytes {
        Bytes(self.held.load(Ordering::Relaxed))
    }

    /// Adds a chunk, whose first slice has memory then. Room for all of it is claimed;
    /// [`Store::ensure_next`] allocates the rest.
    ///
    /// # Errors
    ///
    /// Nothing stays allocated then.
    pub(crate) fn add_chunk_blocking(
        &self,
        chunk: ChunkId,
        pace: &Pace,
    ) -> Result<Arc<Store>, SpaceError> {
        if self.chunk(chunk).is_some() {
            return Err(SpaceError::Taken);
        }
        let slices = self.claim_room(chunk)?;
        let allocation = self.allocate_chunk(chunk)?;
        slices.ensure(Bytes(0), Bytes(1), |offset, len| allocation.populate(offset, len))?;
        let stores = match allocation.memory() {
            Some(memory) => *self.stores.get_or_init(|| faster_stores(memory, SLICE, pace)),
            None => Stores::Cached,
        };
        if let (Allocation::SharedMemory(span), OpenBacking::SharedMemory(_, starts)) =
            (&allocation, &self.backing)
        {
            let mut known = starts.write().unwrap_or_else(PoisonError::into_inner);
            known.insert(chunk, span.offset());
        }
        let store = Store::new(Some(chunk), allocation, self.chunk, &self.held, stores);
        let store = Arc::new(store.with_slices(slices));
        let mut chunks = self.chunks.write();
        chunks.insert(chunk, Arc::clone(&store));
        Ok(store)
    }

    fn allocate_chunk(&self, chunk: ChunkId) -> Result<Allocation, SpaceError> {
        let len = self.chunk;
        Ok(match &self.backing {
            OpenBacking::Memory(_) | OpenBacking::Spread(_) => {
                let name = format!("tierfeed-{}-{}", self.kind, chunk.0);
                let locality = self.locality_of(chunk);
                let request = Request { len, locality, name: &name, pages: Pages::Huge };
                Allocation::Memory(Arc::new(Region::reserve(&request)?))
            }
            OpenBacking::SharedMemory(all, _) => Allocation::SharedMemory(all.take_empty()?),
            OpenBacking::Directory(directory, locality) => {
                let missing = self.missing();
                let file = self.created(directory.reserve_chunk(len, missing))?;
                Allocation::File(RamDiskFile::new(file, len, *locality)?)
            }
            OpenBacking::Disk(directory, windows) => {
                let file = self.created(directory.create_chunk(len))?;
                Allocation::Disk(Arc::new(DiskChunk::new(file, len, windows)))
            }
        })
    }

    /// Refuses a chunk in memory that exceeds the free memory or the headroom of the control groups, and
    /// claims the room for it. The pages of a RAM disk count too: the kernel cannot reclaim them, so without
    /// room for them it kills a process.
    fn claim_room(&self, chunk: ChunkId) -> Result<Slices, SpaceError> {
        if let OpenBacking::Disk(..) = self.backing {
            return Ok(Slices::complete());
        }
        let locality = self.locality_of(chunk);
        match Slices::reserve(self.chunk, locality) {
            // If the free memory is unknown, only the file system refuses.
            Err(AllocateError::FreeMemoryUnreadable(_)) if self.medium() == Medium::Tmpfs => {
                Ok(Slices::unclaimed(self.chunk, locality))
            }
            slices => Ok(slices?),
        }
    }

    fn locality_of(&self, chunk: ChunkId) -> Locality {
        match &self.backing {
            OpenBacking::Memory(locality) | OpenBacking::Directory(_, locality) => *locality,
            OpenBacking::SharedMemory(all, _) => all.locality(),
            OpenBacking::Spread(nodes) => {
                let turn = chunk.0 as usize % nodes.len().max(1);
                nodes.get(turn).map_or(Locality::Anywhere, |node| Locality::Near(*node))
            }
            OpenBacking::Disk(..) => Locality::Anywhere,
        }
    }

    /// Bytes of its chunks that have no memory yet.
    fn missing(&self) -> Bytes {
        let chunks = self.chunks.read();
        Bytes(chunks.values().map(|store| store.missing().0).sum())
    }

    fn created(&self, file: io::Result<File>) -> Result<File, SpaceError> {
        file.map_err(|source| SpaceError::File { kind: self.kind, len: self.chunk, source })
    }

    /// `None` before the first chunk.
    pub(crate) fn write_mode(&self) -> Option<WriteMode> {
        let chunks = self.chunks.read();
        let write_mode = match chunks.first_key_value()?.1.allocation() {
            allocation @ (Allocation::Memory(_) | Allocation::SharedMemory(_)) => {
                WriteMode::Memory {
                    stores: self.stores.get().copied().unwrap_or(Stores::Cached),
                    pages: match allocation {
                        Allocation::Memory(region) => region.huge_pages(),
                        // The kernel reports the pages of all chunks together.
                        _ => HugePages::Unknown,
                    },
                }
            }
            Allocation::Disk(chunk) if chunk.is_direct() => WriteMode::Direct,
            Allocation::Disk(_) | Allocation::File(_) => WriteMode::PageCache,
        };
        Some(write_mode)
    }

    pub(crate) fn writes_failed(&self) -> u64 {
        match &self.backing {
            OpenBacking::Disk(_, windows) => windows.failed(),
            _ => 0,
        }
    }

    /// `None` if trainers cannot read this tier in place.
    pub(crate) fn shared(&self, tier: TierId) -> Option<SharedTier> {
        match &self.backing {
            OpenBacking::SharedMemory(all, starts) => {
                Some(SharedTier::new(tier, Arc::clone(all), Arc::clone(starts)))
            }
            _ => None,
        }
    }

    /// Removes a chunk and returns it, so that the caller chooses the thread that unmaps it.
    pub(crate) fn take_chunk(&self, chunk: ChunkId) -> Option<Arc<Store>> {
        if let OpenBacking::SharedMemory(_, starts) = &self.backing {
            starts.write().unwrap_or_else(PoisonError::into_inner).remove(&chunk);
        }
        self.chunks.write().remove(&chunk)
    }

    /// The error is the first chunk that does not exist.
    pub(crate) fn segments(&self, pieces: &[Piece]) -> Result<Vec<Segment>, ChunkId> {
        let segment = |piece: &Piece| {
            let store = self.chunk(piece.chunk).ok_or(piece.chunk)?;
            Ok(Segment { store, offset: piece.offset, len: piece.len })
        };
        pieces.iter().map(segment).collect()
    }

    fn chunk(&self, chunk: ChunkId) -> Option<Arc<Store>> {
        self.chunks.read().get(&chunk).cloned()
    }
}

impl Drop for Tier {
    /// A trainer may use samples in this memory for longer than this process lives, so it is left mapped.
    fn drop(&mut self) {
        if let OpenBacking::SharedMemory(all, _) = &self.backing {
            all.keep_for_readers();
        }
    }
}

fn open(path: &Path, locality: Locality) -> Result<OpenBacking, DirectoryError> {
    Ok(match Directory::open(path)? {
        disk if disk.medium() == Medium::Disk => OpenBacking::Disk(disk, Arc::default()),
        ram_disk => OpenBacking::Directory(ram_disk, locality),
    })
}

/// Reserves addresses for chunks that trainers read; falls back to private memory without them.
fn reserve(kind: Kind, locality: Locality, chunk: Bytes, chunks_max: NonZeroU32) -> OpenBacking {
    let name = format!("tierfeed-{kind}");
    let request =
        SharedPoolRequest { piece: chunk, pieces_max: chunks_max.get(), locality, name: &name };
    match SharedPool::reserve(&request) {
        Ok(pool) => OpenBacking::SharedMemory(Arc::new(pool), Starts::default()),
        Err(_) => OpenBacking::Memory(locality),
    }
}
