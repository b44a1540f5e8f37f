//! The claims of a job's tiers on the node: which memory or disk, where, and from which CPUs it is copied.

use tierfeed_core::{
    budget::{Claim, Pool, Request, Staging},
    fleet::Origin,
    id::NumaNode,
    tier::{Kind, Locality},
    units::Bytes,
};
use tierfeed_prefetcher::tier::Backing;
use tierfeed_workload_analyzer::job::{Presence, TierRequest};

use super::{LayoutError, Node, TierClaim, node, staging_min};

/// The tiers of a request: one, or one for each NUMA node of a CXL tier.
pub(super) fn tier_claims(
    request: &TierRequest,
    node: &Node,
    staging: Staging,
) -> Result<Vec<TierClaim>, LayoutError> {
    let least = if request.kind == Kind::MainMemory { staging_min(staging) } else { Bytes(0) };
    let origin = if request.speed.is_some() { Origin::Emulated } else { Origin::Real };
    let wanted = |pool, backing, cpus, origin, parts| TierClaim {
        claim: Claim { kind: request.kind, pool, request: part_of(request.budget, parts), least },
        capacity: match (&request.path, request.kind) {
            (Some(path), _) => node.room_at(path),
            (None, Kind::Scratch) => node.ram_disk_room(),
            (None, _) => None,
        },
        backing,
        speed: request.speed,
        cpus,
        origin,
    };
    match request.kind {
        Kind::MainMemory => {
            let (backing, cpus) = main_memory(node);
            Ok(vec![wanted(node::MEMORY, backing, cpus, origin, 1)])
        }
        Kind::CxlMemory => {
            let numa_nodes = cxl_nodes(request, node)?;
            if numa_nodes.is_empty() && request.presence == Presence::IfPresent {
                return Ok(Vec::new());
            }
            if numa_nodes.is_empty() {
                if request.speed.is_none() {
                    return Err(LayoutError::NoCxlMemory { present: node.numa_names() });
                }
                let (backing, cpus) = main_memory(node);
                return Ok(vec![wanted(node::MEMORY, backing, cpus, Origin::Emulated, 1)]);
            }
            let parts = numa_nodes.len() as u64;
            let on_node = |numa: &NumaNode| {
                let backing = Backing::Memory(Locality::Numa(*numa));
                // A NUMA node with CPUs is main memory of a neighbour, which emulates a CXL card.
                let origin = if node.is_cpuless(*numa) { origin } else { Origin::Emulated };
                wanted(node.pool_on(*numa), backing, node.cpus_near(*numa), origin, parts)
            };
            Ok(numa_nodes.iter().map(on_node).collect())
        }
        Kind::Scratch | Kind::Storage => {
            let (pool, backing) = directory(request, node)?;
            let near = match &backing {
                Backing::RamDisk(_, locality) => locality.node(),
                _ => None,
            };
            let cpus = near.map_or_else(Vec::new, |numa| node.cpus_near(numa));
            Ok(vec![wanted(pool, backing, cpus, origin, 1)])
        }
    }
}

/// Where main memory is taken, and the CPUs beside it: the job's own nodes where there are several.
fn main_memory(node: &Node) -> (Backing, Vec<usize>) {
    match node.memory_nodes().staging.as_slice() {
        [] => (Backing::Memory(Locality::Anywhere), Vec::new()),
        [only] => (Backing::Spread(vec![*only]), node.cpus_near(*only)),
        several => (Backing::Spread(several.to_vec()), Vec::new()),
    }
}

/// The pool that the files of a tier draw on, and where they are.
fn directory(request: &TierRequest, node: &Node) -> Result<(Pool, Backing), LayoutError> {
    let numa = ram_disk_node(request, node)?;
    let locality = numa.map_or(Locality::Anywhere, Locality::Numa);
    let pool = numa.map_or(node::MEMORY, |numa| node.pool_on(numa));
    let Some(path) = &request.path else {
        return Ok((pool, Backing::RamDisk(node.ram_disk().to_owned(), locality)));
    };
    if request.kind == Kind::Scratch && request.speed.is_none() {
        node.require_ram_disk(path)?;
    }
    match locality {
        Locality::Anywhere => Ok((node.pool_of(path)?, Backing::Directory(path.clone()))),
        _ => Ok((pool, Backing::RamDisk(path.clone(), locality))),
    }
}

fn ram_disk_node(request: &TierRequest, node: &Node) -> Result<Option<NumaNode>, LayoutError> {
    match node.memory_nodes().of_ram_disk(request) {
        Some(Locality::Numa(numa)) if node.is_gpu(numa) => {
            let (key, present) = ("tiers.scratch.numa_node", node.numa_names());
            Err(LayoutError::GpuMemory { key, node: numa, present })
        }
        Some(Locality::Numa(numa)) if !node.has(numa) => {
            Err(LayoutError::NoScratchNode { node: numa, present: node.numa_names() })
        }
        Some(Locality::Numa(numa)) => Ok(Some(numa)),
        Some(Locality::Anywhere | Locality::Near(_)) | None => Ok(None),
    }
}

fn cxl_nodes(request: &TierRequest, node: &Node) -> Result<Vec<NumaNode>, LayoutError> {
    if request.numa_nodes.is_empty() {
        return Ok(node.memory_nodes().behind_cxl.clone());
    }
    if let Some(gpu) = request.numa_nodes.iter().find(|it| node.is_gpu(**it)) {
        let (key, present) = ("tiers.cxl-memory.numa_nodes", node.numa_names());
        return Err(LayoutError::GpuMemory { key, node: *gpu, present });
    }
    match request.numa_nodes.iter().find(|it| !node.has(**it)) {
        None => Ok(request.numa_nodes.clone()),
        Some(_) if request.speed.is_some() => Ok(Vec::new()),
        Some(missing) => {
            Err(LayoutError::NoNumaNode { node: *missing, present: node.numa_names() })
        }
    }
}

fn part_of(budget: Request, parts: u64) -> Request {
    match budget {
        Request::Size(size) => Request::Size(Bytes(size.0 / parts)),
        // The share is one of each NUMA node's own free memory.
        Request::Share(_) => budget,
    }
}
