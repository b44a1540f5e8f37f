//! What a job may use of this node: which tiers, where they lie, how large they are.
//!
//! The job asks, the node has, and what both allow is the layout that the agent runs and that the
//! simulator predicts with. A tier that the node lacks is played by plain memory and marked as
//! emulated if the job file says how fast it shall appear, and refused if not.

mod chunk;
mod direct;
mod idle;
mod measured;
mod node;
mod reach;
mod writers;

use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    sync::Arc,
};

use tierfeed_core::{
    fleet::{
        self, Origin,
        budget::{MainMemory, Staging},
    },
    id::{NodeId, NumaNode, TierId},
    order::Spec,
    retention::{in_place::Choice, policy::Aim},
    session::{self, Windows},
    tier::{Buffer, Kind, Locality},
    units::Bytes,
};
use tierfeed_prefetcher::{
    budget::{self, BudgetError, Claim, Free, Percent, Pool, Request, allot},
    fetcher::READ_THREADS,
    tier::{Backing, TierSettings},
};
use tierfeed_workload_analyzer::{
    Job,
    demand::Demand,
    job::{Budget, JobScratch, OnError, TierRequest},
};

pub use idle::Idle;
pub use measured::report_at;
pub(crate) use node::MEMORY;
pub use node::{Disk, FileSystem, Node, NodeError};
pub use writers::Measured;

/// Threads that copy from and to each tier, unless it was measured that one does.
const COPY_THREADS: NonZeroUsize = NonZeroUsize::new(2).expect("2 is not 0");

/// What the tables and the alignment of a sample take in staging memory, at most.
const BYTES_PER_STAGED_SAMPLE: u64 = 96;

/// One tier of the job on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// How the data plane opens it.
    pub settings: TierSettings,
    /// What the job may use of it at first, staging included.
    pub budget: Bytes,
    /// What of that is for the cache: whole chunks.
    pub cache: Bytes,
    /// What it draws on.
    pub pool: Pool,
    /// The share that it asked for; `None` if it asked for a size, which does not adapt.
    pub share: Option<Percent>,
    /// Whether it is what its name says.
    pub origin: Origin,
    /// Whether trainers read samples of it where they lie; `None` where nobody could.
    pub direct: Option<Choice>,
    /// What decided how many threads copy, if anything did.
    pub writers: Option<Measured>,
}

/// All tiers of the job on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Staging memory of each local rank.
    pub arena: Bytes,
    /// The cache tiers, fastest first; the position is the tier's id in the session.
    pub places: Vec<Place>,
    /// The unit in which they grow.
    pub chunk: Bytes,
}

/// Whether a job gets sizes that the node does not have free now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// It does not: a size that is too large is a mistake, which is found before anything is taken.
    Free,
    /// It does: it had them before, and whoever takes them now may give them back. Until then its tiers
    /// stay smaller, and its ranks without staging memory read alone.
    Promised,
}

/// Why the node cannot do what the job asks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlacesError {
    /// The tiers do not fit.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// The node cannot be looked at.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The job names a NUMA node that is not there.
    #[error(
        "tiers.cxl-memory.numa_nodes: {}: this host has no such NUMA node; it has {present}; \
         name one of them, or add emulate to let main memory play it", .node.0
    )]
    NoNumaNode {
        /// As asked.
        node: NumaNode,
        /// Those that are there.
        present: String,
    },
    /// The job wants memory behind CXL on a node without any.
    #[error(
        "tiers.cxl-memory: this host has no memory behind CXL; remove the tier, name the NUMA nodes \
         that shall play it as `numa_nodes` (it has {present}), or add \
         `emulate: {{ latency: 350 ns, bandwidth: 20 GB/s }}` to let main memory play it"
    )]
    NoCxlMemory {
        /// The NUMA nodes that are there.
        present: String,
    },
    /// The directory of the scratch tier is on a disk.
    #[error(
        "tiers.scratch.path: {} is on {file_system}, and a scratch tier is a RAM disk (tmpfs); name a \
         directory on one, such as /dev/shm/tierfeed, or make this tier `storage`", .path.display()
    )]
    NotARamDisk {
        /// The directory.
        path: PathBuf,
        /// What it is on.
        file_system: FileSystem,
    },
    /// The scratch tier is smaller than what the job wants of it.
    #[error(
        "job_scratch.size: {size} of tiers.scratch, which gets {budget}; \
         give the tier at least {size}, or ask for less"
    )]
    NoJobScratch {
        /// What the tier gets.
        budget: Bytes,
        /// What the job wants.
        size: Bytes,
    },
    /// Main memory holds no batch.
    #[error(
        "tiers.main-memory: {budget} cannot hold a batch of {batch} for each of {ranks} ranks; \
         give it at least {}", Bytes(.batch.0 * u64::from(*.ranks))
    )]
    NoStaging {
        /// What main memory gets.
        budget: Bytes,
        /// A large batch.
        batch: Bytes,
        /// Ranks of the node.
        ranks: u32,
    },
}

impl PlacesError {
    /// The key of the job file that it is about, as far as one is.
    #[must_use]
    pub fn keys(&self) -> Vec<&'static str> {
        match self {
            Self::Budget(
                BudgetError::TooLarge { kind, .. } | BudgetError::UnknownPool { kind, .. },
            ) => vec!["tiers", kind.name()],
            Self::NoNumaNode { .. } => vec!["tiers", "cxl-memory", "numa_nodes"],
            Self::NoCxlMemory { .. } => vec!["tiers", "cxl-memory"],
            Self::NotARamDisk { .. } => vec!["tiers", "scratch", "path"],
            Self::NoJobScratch { .. } => vec!["job_scratch", "size"],
            Self::NoStaging { .. } => vec!["tiers", "main-memory"],
            _ => vec!["tiers"],
        }
    }

    /// Whether the node has too little free for the job, rather than something else.
    #[must_use]
    pub fn is_want_of_room(&self) -> bool {
        matches!(self, Self::Budget(BudgetError::TooLarge { .. }) | Self::NoStaging { .. })
    }
}

impl Place {
    /// Whether trainers map it.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        matches!(self.settings.backing, Backing::Shelf(..))
    }

    /// What the manager is told of it.
    #[must_use]
    pub fn offer(&self) -> fleet::Tier {
        fleet::Tier { kind: self.settings.kind, budget: self.budget, origin: self.origin }
    }
}

impl Layout {
    /// Fits the tiers of `job` into `node`.
    ///
    /// # Errors
    ///
    /// As [`PlacesError`] tells.
    pub fn fit(job: &Job, demand: &Demand, node: &Node, room: Room) -> Result<Self, PlacesError> {
        let staging = staging(job, demand);
        let mut wanted = Vec::new();
        for request in &job.tiers {
            wanted.extend(wanted_places(request, node, staging)?);
        }
        let claims: Vec<Claim> = wanted.iter().map(|it| it.claim).collect();
        let budgets = match room {
            Room::Free => allot(&claims, node.pools())?,
            Room::Promised => allot(&claims, &promised(&claims, node.pools()))?,
        };
        let mut arena = Bytes(0);
        let mut parts = Vec::new();
        for (wanted, budget) in wanted.into_iter().zip(budgets) {
            let mut budget = wanted.within_room(budget, room)?;
            if (wanted.claim.kind, room) == (Kind::MainMemory, Room::Promised) {
                budget = budget.max(least(staging));
            }
            let mut cache = budget;
            if wanted.claim.kind == Kind::MainMemory {
                let split = staging.within(budget);
                if split.arena < staging.batch {
                    let (batch, ranks) = (staging.batch, staging.ranks);
                    return Err(PlacesError::NoStaging { budget, batch, ranks });
                }
                MainMemory { arena, cache } = split;
            }
            if wanted.claim.kind == Kind::Scratch
                && let Some(JobScratch { size, .. }) = job.job_scratch
            {
                let left = budget.0.checked_sub(size.0);
                cache = Bytes(left.ok_or(PlacesError::NoJobScratch { budget, size })?);
            }
            parts.push((wanted, budget, cache));
        }
        let caches = parts.iter().map(|(_, _, cache)| *cache);
        let chunk = job.chunk.unwrap_or_else(|| chunk::fitting(caches, staging.batch));
        let whole = |cache: Bytes| Bytes(cache.0 - cache.0 % chunk.0);
        let place = |(wanted, budget, cache): (Wanted, _, _)| wanted.place(budget, whole(cache));
        Ok(Self { arena, places: parts.into_iter().map(place).collect(), chunk })
    }

    /// What the session is built from. `sizes` are those of all samples of the dataset.
    #[must_use]
    pub fn session(
        &self,
        job: &Job,
        sizes: Arc<[Bytes]>,
        order: Spec,
        node: NodeId,
    ) -> session::Settings {
        let tiers = self.places.iter().map(|it| self.buffer(it, it.cache)).collect();
        let in_place_tiers = shown(self.places.iter().map(Place::is_shown));
        let settings = session(job, sizes, order, self.arena, Cache { tiers, chunk: self.chunk });
        session::Settings { node, in_place_tiers, ..settings }
    }

    /// What the manager is told.
    #[must_use]
    pub fn offer(&self) -> Vec<fleet::Tier> {
        self.places.iter().map(Place::offer).collect()
    }

    /// What the job may hold in memory, RAM disks included.
    #[must_use]
    pub fn memory_budget(&self, node: &Node) -> Bytes {
        let in_memory = |it: &&Place| match &it.settings.backing {
            Backing::Memory(_) | Backing::Shelf(..) => true,
            Backing::Directory(_) => node.is_memory(it.pool),
        };
        Bytes(self.places.iter().filter(in_memory).map(|it| it.budget.0).sum())
    }

    fn buffer(&self, place: &Place, cache: Bytes) -> Buffer {
        Buffer::within(place.settings.kind, cache, self.chunk)
    }
}

/// The tiers that trainers map, of which it is said for each whether they do.
pub(crate) fn shown(are_shown: impl Iterator<Item = bool>) -> Vec<TierId> {
    let shown = (0..=u8::MAX).map(TierId).zip(are_shown);
    shown.filter_map(|(tier, is_shown)| is_shown.then_some(tier)).collect()
}

/// The cache tiers of a session.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) tiers: Vec<Buffer>,
    /// The unit in which they grow.
    pub(crate) chunk: Bytes,
}

/// What the session of the first node is built from, with these tiers, none of which is shown.
pub(crate) fn session(
    job: &Job,
    sizes: Arc<[Bytes]>,
    order: Spec,
    arena: Bytes,
    Cache { tiers, chunk }: Cache,
) -> session::Settings {
    let aim = Aim {
        wears: tiers.iter().map(|tier| tier.kind == Kind::Storage).collect(),
        writes_per_epoch: tiers.iter().map(|tier| writes_per_epoch(job, tier.kind)).collect(),
        useful: reach::useful(job, &sizes, &order, &tiers, chunk).unwrap_or_default(),
        saves: job.cold.limited_by,
    };
    let windows = Windows::for_threads(count(READ_THREADS), count(COPY_THREADS));
    session::Settings {
        order,
        node: NodeId(0),
        sizes,
        tiers,
        chunk,
        policy: job.policy,
        staged_batches: job.prefetch_batches,
        arena,
        on_error: match job.on_error {
            OnError::Fail => session::OnError::Fail,
            OnError::Skip => session::OnError::Skip,
        },
        windows: Windows { assignment: job.assignment, ..windows },
        aim,
        in_place_tiers: Vec::new(),
    }
}

/// What the job lets an epoch write to a tier of this kind.
pub(crate) fn writes_per_epoch(job: &Job, kind: Kind) -> Option<Bytes> {
    job.tiers.iter().find(|request| request.kind == kind)?.writes_per_epoch
}

/// A tier before it has a budget.
struct Wanted {
    claim: Claim,
    /// What the file system can take, where there is one.
    room: Option<Bytes>,
    backing: Backing,
    speed: Option<tierfeed_core::tier::Speed>,
    cpus: Vec<usize>,
    origin: Origin,
}

impl Wanted {
    /// A RAM disk may be smaller than the memory that it draws on.
    fn within_room(&self, budget: Bytes, room: Room) -> Result<Bytes, BudgetError> {
        match (self.claim.request, self.room) {
            (Request::Size(asked), Some(left)) if asked > left && room == Room::Free => {
                Err(BudgetError::TooLarge { kind: self.claim.kind, asked, left })
            }
            (Request::Share(_), Some(left)) => Ok(budget.min(left)),
            _ => Ok(budget),
        }
    }

    fn place(self, budget: Bytes, cache: Bytes) -> Place {
        let share = match self.claim.request {
            Request::Size(_) => None,
            Request::Share(share) => Some(share),
        };
        Place {
            settings: TierSettings {
                kind: self.claim.kind,
                backing: self.backing,
                emulated: self.speed,
                copy_threads: COPY_THREADS,
                cpus: self.cpus,
            },
            budget,
            cache,
            pool: self.claim.pool,
            share,
            origin: self.origin,
            direct: None,
            writers: None,
        }
    }
}

/// What pools would have free if all sizes were.
fn promised(claims: &[Claim], pools: &BTreeMap<Pool, Free>) -> BTreeMap<Pool, Free> {
    let size_in = |pool| {
        let size = |claim: &Claim| match claim.request {
            Request::Size(size) if claim.pool == pool => size.0,
            _ => 0,
        };
        claims.iter().map(size).fold(0, u64::saturating_add)
    };
    let raised = |(pool, free): (&Pool, &Free)| {
        let least = free.kept.0.saturating_add(size_in(*pool));
        (*pool, Free { bytes: Bytes(free.bytes.0.max(least)), ..*free })
    };
    pools.iter().map(raised).collect()
}

/// What staging has to have: one batch in use and one on its way, for each rank.
fn least(staging: Staging) -> Bytes {
    Bytes(staging.batch.0.saturating_mul(2).saturating_mul(u64::from(staging.ranks)))
}

/// The tiers that a request comes to: one, or one for each NUMA node of a CXL tier.
fn wanted_places(
    request: &TierRequest,
    node: &Node,
    staging: Staging,
) -> Result<Vec<Wanted>, PlacesError> {
    let least = if request.kind == Kind::MainMemory { least(staging) } else { Bytes(0) };
    let origin = if request.speed.is_some() { Origin::Emulated } else { Origin::Real };
    let wanted = |pool, backing, cpus, origin, parts| Wanted {
        claim: Claim { kind: request.kind, pool, request: part_of(request.budget, parts), least },
        room: request.path.as_deref().and_then(|path| node.room_at(path)),
        backing,
        speed: request.speed,
        cpus,
        origin,
    };
    if let Some(path) = &request.path {
        if request.kind == Kind::Scratch && request.speed.is_none() {
            node.require_ram_disk(path)?;
        }
        let backing = Backing::Directory(PathBuf::clone(path));
        return Ok(vec![wanted(node.pool_of(path)?, backing, Vec::new(), origin, 1)]);
    }
    let anywhere = Backing::Memory(Locality::Anywhere);
    if request.kind == Kind::MainMemory {
        return Ok(vec![wanted(node::MEMORY, anywhere, Vec::new(), origin, 1)]);
    }
    let numa_nodes = cxl_nodes(request, node)?;
    if numa_nodes.is_empty() {
        if request.speed.is_none() {
            return Err(PlacesError::NoCxlMemory { present: node.numa_names() });
        }
        let emulated = wanted(node::MEMORY, anywhere, Vec::new(), Origin::Emulated, 1);
        return Ok(vec![emulated]);
    }
    let parts = numa_nodes.len() as u64;
    let on_node = |numa: &NumaNode| {
        let backing = Backing::Memory(Locality::Numa(*numa));
        // A node that has CPUs is main memory of a neighbour that plays a CXL card.
        let origin = if node.is_cpuless(*numa) { origin } else { Origin::Emulated };
        wanted(node::pool_of_numa(*numa), backing, node.cpus_near(*numa), origin, parts)
    };
    Ok(numa_nodes.iter().map(on_node).collect())
}

fn cxl_nodes(request: &TierRequest, node: &Node) -> Result<Vec<NumaNode>, PlacesError> {
    if request.numa_nodes.is_empty() {
        return Ok(node.cxl_nodes());
    }
    match request.numa_nodes.iter().find(|it| !node.has(**it)) {
        None => Ok(request.numa_nodes.clone()),
        Some(_) if request.speed.is_some() => Ok(Vec::new()),
        Some(missing) => {
            Err(PlacesError::NoNumaNode { node: *missing, present: node.numa_names() })
        }
    }
}

fn part_of(budget: Budget, parts: u64) -> Request {
    match budget {
        Budget::Size(size) => Request::Size(Bytes(size.0 / parts)),
        // Each node has its own free memory to take the share of.
        Budget::Reserve(share) => {
            Request::Share(budget::Percent::new(share.0).unwrap_or(Percent::DEFAULT))
        }
    }
}

/// What the ranks of a node need to have batches ready.
pub(crate) fn staging(job: &Job, demand: &Demand) -> Staging {
    let samples = u64::from(job.batch_size.min(demand.samples_per_rank));
    let batch = demand.batch_p99.0 + samples * BYTES_PER_STAGED_SAMPLE;
    let batch = batch.next_multiple_of(tierfeed_core::batch::BATCH_ALIGN);
    Staging { ranks: job.world.ranks_per_node, batches: job.prefetch_batches, batch: Bytes(batch) }
}

fn count(threads: NonZeroUsize) -> NonZeroU32 {
    u32::try_from(threads.get()).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX)
}

#[cfg(test)]
mod tests;
