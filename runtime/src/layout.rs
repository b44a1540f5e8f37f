//! What a job uses of this node: which tiers, where they are, how large they are.
//!
//! The layout is what the job asks for and the node has; the agent and the simulator both use it. If the
//! node lacks a tier, main memory emulates it if the job file gives its speed, and the tier is marked as
//! emulated; otherwise the job is refused.

mod claims;
mod direct;
mod figures;
mod found;
mod measured;
mod memory_nodes;
mod node;
mod reach;
mod reported;
mod staging;
mod unused;
mod writers;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use tierfeed_core::{
    budget::{
        BudgetError, Claim, Free, Holdings, Infeasible, Percent, Pool, Request, Staging,
        StagingLimit, TierLimit, chunks_in, chunks_max,
    },
    fleet::{
        Origin,
        schedule::{Figures, LinkWindows, Role, Transforming, WriteRates},
    },
    id::{NodeId, NumaNode, TierId},
    order::Spec,
    retention::{
        in_place::InPlaceDecision,
        policy::{Aim, Rates},
    },
    session,
    tier::{Buffer, Kind},
    units::{Bytes, BytesPerSecond},
};
use tierfeed_prefetcher::tier::{Backing, TierSettings};
use tierfeed_workload_analyzer::Job;

use claims::tier_claims;
pub use found::Found;
pub use measured::{Measurable, Measured, SavedReport, calibration_file, report_at};
pub(crate) use measured::{cold_place, without_links};
pub(crate) use memory_nodes::{MemoryNodes, ram_disk_locality};
pub use node::{Disk, Node, NodeError};
pub(crate) use node::{MEMORY, pool_of_numa};
pub use reported::ReportedError;
pub use staging::StagingPart;
pub use unused::UnusedTier;

use crate::schedule;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierLayout {
    pub settings: TierSettings,
    /// The initial budget of the job, staging included.
    pub budget: Bytes,
    /// The part of `budget` that caches samples: whole chunks.
    pub cache: Bytes,
    /// The memory or disk that the tier draws on.
    pub pool: Pool,
    /// The share that the job asked for; `None` if it asked for a size, which does not adapt.
    pub share: Option<Percent>,
    pub origin: Origin,
    /// Whether trainers read samples in place; `None` for files, which they cannot.
    pub direct: Option<InPlaceDecision>,
    /// The measurement that decided the number of copy threads, if there is one.
    pub writers: Option<WriteRates>,
    pub standing: Standing,
}

/// The figures of a tier, and the place among the others that follows from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub figures: Figures,
    pub role: Role,
    pub decision: String,
}

impl Default for Standing {
    fn default() -> Self {
        let (figures, role) = (Figures::none(), Role::RetentionAndLookAhead);
        Self { figures, role, decision: String::new() }
    }
}

/// A tier of the job that is not used on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub kind: Kind,
    /// The budget that it would have had.
    pub budget: Bytes,
    pub origin: Origin,
    pub standing: Standing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub staged: Staged,
    /// The parts of the staging memory of a rank in the order of addresses: in main memory, and behind it in the tiers
    /// that it extends into if main memory holds no batch.
    pub staging: Vec<StagingPart>,
    /// The cache tiers, fastest first; the position is the tier's id in the session.
    pub tiers: Vec<TierLayout>,
    pub left_out: Vec<LeftOut>,
    /// The unit in which the tiers grow.
    pub chunk: Bytes,
    pub cold: Figures,
}

/// Whether a job may get sizes that exceed the free memory of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overcommit {
    /// It may not: such a size is an error of the input, found before anything is allocated.
    Refused,
    /// It may, because it had them before a restart: other processes may return the memory. Until then its
    /// tiers stay smaller, and ranks without staging memory read the cold store themselves.
    Allowed,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    #[error(transparent)]
    Budget(#[from] BudgetError),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error(
        "tiers.cxl-memory.numa_nodes: {}: this host has no such NUMA node; it has {present}; \
         name one of them, or add emulate to let main memory play it", .node.0
    )]
    NoNumaNode { node: NumaNode, present: String },
    #[error(
        "tiers.scratch.numa_node: {}: this host has no such NUMA node; it has {present}; \
         name one of them, or remove the key", .node.0
    )]
    NoScratchNode { node: NumaNode, present: String },
    #[error(
        "{key}: {}: this is memory of a GPU, which is never a tier; name one of {present}, or remove the key",
        .node.0
    )]
    GpuMemory { key: &'static str, node: NumaNode, present: String },
    #[error(
        "tiers.cxl-memory: this host has no memory behind CXL; remove the tier, name the NUMA nodes \
         that shall play it as `numa_nodes` (it has {present}), or add \
         `emulate: {{ latency: 350 ns, bandwidth: 20 GB/s }}` to let main memory play it"
    )]
    NoCxlMemory { present: String },
    #[error(
        "tiers.scratch.path: {} is on {file_system}, and a scratch tier is a RAM disk (tmpfs); name a \
         directory on one, such as /dev/shm/tierfeed, or make this tier `storage`", .path.display()
    )]
    NotARamDisk { path: PathBuf, file_system: String },
    #[error(
        "job_scratch.size: {size} of tiers.scratch, which gets {budget}; \
         give the tier at least {size}, or ask for less"
    )]
    NoJobScratch { budget: Bytes, size: Bytes },
    #[error(transparent)]
    NoStaging(#[from] Infeasible),
}

/// The lengths of the samples of a job, by their numbers.
#[derive(Debug, Clone)]
pub struct Lengths {
    /// As the cold store has them.
    pub stored: Arc<[Bytes]>,
    /// In prepared form, if each has its own length there and that is known.
    pub prepared: Option<Arc<[Bytes]>>,
}

impl From<Vec<Bytes>> for Lengths {
    fn from(stored: Vec<Bytes>) -> Self {
        Self { stored: stored.into(), prepared: None }
    }
}

impl LayoutError {
    /// The key of the job file that caused the error, or its nearest parent.
    #[must_use]
    pub fn keys(&self) -> Vec<&'static str> {
        match self {
            Self::Budget(
                BudgetError::TooLarge { kind, .. } | BudgetError::UnknownPool { kind, .. },
            ) => vec!["tiers", kind.name()],
            Self::NoNumaNode { .. } => vec!["tiers", "cxl-memory", "numa_nodes"],
            Self::GpuMemory { key, .. } => key.split('.').collect(),
            Self::NoScratchNode { .. } => vec!["tiers", "scratch", "numa_node"],
            Self::NoCxlMemory { .. } => vec!["tiers", "cxl-memory"],
            Self::NotARamDisk { .. } => vec!["tiers", "scratch", "path"],
            Self::NoJobScratch { .. } => vec!["job_scratch", "size"],
            Self::NoStaging(_) => vec!["tiers", "main-memory"],
            _ => vec!["tiers"],
        }
    }

    /// Whether the node has too little free memory for the job.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        matches!(self, Self::Budget(BudgetError::TooLarge { .. }) | Self::NoStaging(_))
    }
}

impl TierLayout {
    /// Whether trainers map the tier and read in place.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        matches!(self.settings.backing, Backing::SharedMemory(..))
    }
}

impl Layout {
    #[must_use]
    pub fn session(
        &self,
        job: &Job,
        lengths: Lengths,
        order: Spec,
        node: NodeId,
    ) -> session::Settings {
        let tiers = self.tiers.iter().map(|it| self.buffer(it, it.cache)).collect();
        // Trainers get rows, which are nowhere but in staging.
        let direct = |tier: &TierLayout| tier.is_direct() && job.transform.is_none();
        let in_place_tiers = direct_tiers(self.tiers.iter().map(direct));
        let cache = Cache { tiers, chunk: self.chunk };
        let mut settings = session(job, lengths, order, self.staged, cache);
        settings.aim.rates.tiers =
            self.tiers.iter().map(|it| it.standing.figures.bandwidth).collect();
        session::Settings { node, in_place_tiers, ..settings }
    }

    /// The limits of the memory that the job holds.
    pub(crate) fn holdings(&self, settings: &session::Settings) -> Holdings {
        let dataset = settings.sizes.iter().fold(0, |sum: u64, len| sum.saturating_add(len.0));
        let limit = |(at, tier): (usize, &TierLayout)| {
            let useful =
                settings.aim.useful.get(at).map_or(dataset, |useful| useful.0.min(dataset));
            TierLimit {
                kind: tier.settings.kind,
                pool: tier.pool,
                share: tier.share,
                beside: Bytes(tier.budget.0 - tier.cache.0),
                chunks: chunks_in(tier.cache, self.chunk),
                chunks_max: chunks_max(tier.cache, tier.share, Bytes(useful), self.chunk),
            }
        };
        let tiers: Vec<TierLimit> = self.tiers.iter().enumerate().map(limit).collect();
        let ranks = u64::from(settings.order.world.ranks_per_node);
        let batches = settings.staged_max().max(session::STAGED_MIN);
        let staging = StagingLimit {
            pool: MEMORY,
            batches,
            batches_min: session::STAGED_MIN,
            batch: Bytes(self.staged.arena.0.saturating_mul(ranks) / u64::from(batches)),
        };
        Holdings::new(self.chunk, staging, &tiers)
    }

    #[must_use]
    pub fn scratch(&self) -> Option<&TierLayout> {
        self.tiers.iter().find(|tier| tier.settings.kind == Kind::Scratch)
    }

    pub(crate) fn scratch_mut(&mut self) -> Option<&mut TierLayout> {
        self.tiers.iter_mut().find(|tier| tier.settings.kind == Kind::Scratch)
    }

    /// The memory budget of the job, RAM disks included.
    #[must_use]
    pub fn memory_budget(&self, node: &Node) -> Bytes {
        let in_memory = |it: &&TierLayout| match &it.settings.backing {
            Backing::Directory(_) => node.is_memory(it.pool),
            _ => true,
        };
        Bytes(self.tiers.iter().filter(in_memory).map(|it| it.budget.0).sum())
    }

    fn buffer(&self, place: &TierLayout, cache: Bytes) -> Buffer {
        Buffer::within(place.settings.kind, cache, self.chunk)
    }
}

/// The ids of the tiers whose flag is set.
pub(crate) fn direct_tiers(are_direct: impl Iterator<Item = bool>) -> Vec<TierId> {
    let direct = (0..=u8::MAX).map(TierId).zip(are_direct);
    direct.filter_map(|(tier, is_direct)| is_direct.then_some(tier)).collect()
}

/// What a schedule says of the batches of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Staged {
    /// Staging memory of each rank.
    pub arena: Bytes,
    /// Batches staged ahead of each rank at first, and the most that a later schedule may make of it.
    pub depth: u32,
    pub depth_max: u32,
    pub windows: LinkWindows,
    /// Room of the tiers for samples to come, by the first schedule.
    pub first_room: Bytes,
    /// `None` in a job without a transform.
    pub transforming: Option<Transforming>,
}

#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) tiers: Vec<Buffer>,
    pub(crate) chunk: Bytes,
}

/// The settings of the session of the first node with these tiers, none of which is read in place.
pub(crate) fn session(
    job: &Job,
    Lengths { stored: sizes, prepared }: Lengths,
    order: Spec,
    Staged { arena, depth, depth_max, windows, first_room, transforming }: Staged,
    Cache { tiers, chunk }: Cache,
) -> session::Settings {
    let aim = Aim {
        wears: tiers.iter().map(|tier| tier.kind == Kind::Storage).collect(),
        writes_per_epoch: tiers.iter().map(|tier| writes_per_epoch(job, tier.kind)).collect(),
        useful: reach::useful(job, &sizes, &order, &tiers, chunk).unwrap_or_default(),
        saves: job.cold.limited_by,
        tuning: job.tuning,
        rates: Rates { tiers: Vec::new(), cold: cold_rate(job) },
    };
    let settings = session::Settings {
        order,
        node: NodeId(0),
        sizes,
        tiers,
        chunk,
        policy: job.policy,
        staged_batches: depth,
        staged_batches_max: depth_max,
        arena,
        on_error: job.on_error,
        windows: windows.session(job.assignment),
        aim,
        in_place_tiers: Vec::new(),
        transform: None,
        look_ahead: job.look_ahead,
        first_room,
    };
    schedule::transforms::with_transform(job, transforming, prepared, settings)
}

/// The rate that the job imposes on its source.
fn cold_rate(job: &Job) -> Option<BytesPerSecond> {
    job.cold.speed.map(|speed| speed.bandwidth).filter(|rate| rate.0 > 0)
}

pub(crate) fn writes_per_epoch(job: &Job, kind: Kind) -> Option<Bytes> {
    job.tiers.iter().find(|request| request.kind == kind)?.writes_per_epoch
}

/// A tier before it has a budget.
#[derive(Debug)]
struct TierClaim {
    claim: Claim,
    /// Bytes that the file system can take; `None` for memory.
    capacity: Option<Bytes>,
    backing: Backing,
    speed: Option<tierfeed_core::tier::Speed>,
    cpus: Vec<usize>,
    origin: Origin,
}

impl TierClaim {
    fn candidate(&self) -> figures::Candidate<'_> {
        figures::Candidate { kind: self.claim.kind, backing: &self.backing, emulated: self.speed }
    }

    /// Limits the budget to what the file system can take: a RAM disk may be smaller than its pool.
    fn within_capacity(&self, budget: Bytes, overcommit: Overcommit) -> Result<Bytes, BudgetError> {
        match (self.claim.request, self.capacity) {
            (Request::Size(asked), Some(left))
                if asked > left && overcommit == Overcommit::Refused =>
            {
                Err(BudgetError::TooLarge { kind: self.claim.kind, asked, left })
            }
            (Request::Share(_), Some(left)) => Ok(budget.min(left)),
            _ => Ok(budget),
        }
    }
}

/// The pools as if all sizes that are asked for were free.
fn with_overcommit(claims: &[Claim], pools: &BTreeMap<Pool, Free>) -> BTreeMap<Pool, Free> {
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

/// The least staging memory: for each rank one batch in use and one in flight.
fn staging_min(staging: Staging) -> Bytes {
    Bytes(staging.batch.0.saturating_mul(2).saturating_mul(u64::from(staging.ranks)))
}

#[cfg(test)]
mod tests;
