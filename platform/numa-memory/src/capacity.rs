//! Decides how much memory may be taken without harm, from the free memory that the kernel reports.
//!
//! A strict memory policy on a full node gets the process killed, and a preference spills silently,
//! so room is checked before it is taken. The allocatable memory is the free memory less the
//! watermarks at which the kernel starts to reclaim, less a reserve ([`kept_free`]), and at most
//! what the control groups of this process allow.
//!
//! Every function takes the root of the tree that holds `/proc` and `/sys`, so that tests can
//! provide their own.

pub mod cgroup;
mod zones;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use tierfeed_units::{Bytes, Locality, NumaNode};

use crate::error::AllocateError;

/// The share of all memory, in percent, that stays free.
const RESERVE_PERCENT: u64 = 5;

/// If little memory is free, this part of it stays free instead.
const RESERVE_PART: u64 = 4;

/// A window of a disk tier and the buffers of its copying threads take 8 MiB; threads, sockets and
/// page tables get as much.
const BESIDE_CACHES: Bytes = Bytes::mib(16);

/// The free memory of a NUMA node, or what the whole host can provide without swapping.
///
/// For a node this is `MemFree` of its `meminfo`: with a memory policy the kernel uses other nodes
/// before it reclaims page cache. For the host it is `MemAvailable` of `/proc/meminfo`, page cache
/// included.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] if there is no such node, [`io::ErrorKind::InvalidData`] if the file
/// lacks the line.
pub fn free_bytes(sysroot: &Path, node: Option<NumaNode>) -> io::Result<Bytes> {
    match node {
        Some(node) => meminfo_field(&node_meminfo(sysroot, node), "MemFree:"),
        None => meminfo_field(&sysroot.join("proc/meminfo"), "MemAvailable:"),
    }
}

/// Bytes that stay free of `total` when `free` bytes are free: 5 % of all, or a quarter of the free
/// bytes if that is less. On a node that other processes have filled, 5 % of all memory can be more
/// than is left.
#[must_use]
pub fn kept_free(total: Bytes, free: Bytes) -> Bytes {
    Bytes((total.0 / 100 * RESERVE_PERCENT).min(free.0 / RESERVE_PART))
}

/// Memory that may be taken now: free memory less watermarks and reserve, within the control
/// groups.
///
/// # Errors
///
/// As [`free_bytes`].
pub fn allocatable_bytes(sysroot: &Path, locality: Locality) -> io::Result<Bytes> {
    let unreserved = unreserved_bytes(sysroot, locality)?;
    let headroom = cgroup::headroom(sysroot, |_| Bytes(0));
    Ok(headroom.map_or(unreserved, |headroom| headroom.min(unreserved)))
}

/// Free memory less watermarks and reserve; limits of control groups are not considered.
fn unreserved_bytes(sysroot: &Path, locality: Locality) -> io::Result<Bytes> {
    let (free, total) = match locality {
        Locality::Anywhere | Locality::Near(_) => {
            let total = meminfo_field(&sysroot.join("proc/meminfo"), "MemTotal:")?;
            (free_bytes(sysroot, None)?, total)
        }
        Locality::Numa(node) => {
            let total = meminfo_field(&node_meminfo(sysroot, node), "MemTotal:")?;
            let free = free_bytes(sysroot, Some(node))?;
            let above_watermarks = zones::free_above_watermarks(sysroot, node);
            (above_watermarks.map_or(free, |above| above.min(free)), total)
        }
    };
    Ok(Bytes(free.0 - kept_free(total, free).0))
}

/// Bytes that a control group with this limit keeps free of caches: [`RESERVE_PERCENT`], and in a
/// small group at least the memory that a caching process takes in addition, for threads, sockets
/// and page tables. Without it the kernel would kill the process for lack of a page.
#[must_use]
pub fn kept_of_group(limit: Bytes) -> Bytes {
    Bytes((limit.0 / 100 * RESERVE_PERCENT).max(BESIDE_CACHES.0))
}

/// Memory that caches may take now within the control groups of this process, without what this
/// process has claimed and not taken yet; `None` if the groups have no limit.
///
/// Other memory may take more, up to [`allocatable_bytes`]: the memory kept free is for it.
#[must_use]
pub fn cache_headroom(sysroot: &Path) -> Option<Bytes> {
    let claimed = sum_of(&claims(), Locality::Anywhere);
    headroom_of(sysroot, Purpose::Cache).map(|headroom| less(headroom, claimed))
}

/// Memory that this process has claimed on a node, or in all, and not taken yet.
#[cfg(test)]
pub(crate) fn claimed(locality: Locality) -> Bytes {
    sum_of(&claims(), locality)
}

/// What memory is for. It decides how much of a control group must stay free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Caches: [`kept_of_group`] stays free.
    Cache,
    /// Anything else may take all.
    Other,
}

/// Memory that was checked and is not taken yet, so that the kernel still reports it as free.
#[derive(Debug)]
pub(crate) struct Claim {
    locality: Locality,
    len: Bytes,
}

/// All claims of this process. Concurrent allocations must not count the same free memory twice;
/// near the limit an allocation may be refused that would just have fitted.
static CLAIMS: Mutex<Vec<(Locality, Bytes)>> = Mutex::new(Vec::new());

/// Checks that `len` bytes fit and reserves them until the claim is dropped.
pub(crate) fn claim(
    sysroot: &Path,
    locality: Locality,
    len: Bytes,
    purpose: Purpose,
) -> Result<Claim, AllocateError> {
    let locality = locality.room();
    let mut claims = claims();
    check_beside(sysroot, locality, len, purpose, &claims)?;
    claims.push((locality, len));
    Ok(Claim { locality, len })
}

/// Checks that `len` bytes of a cache, which were claimed before, are still there: another process
/// may have taken them since.
pub(crate) fn check_claimed(
    sysroot: &Path,
    locality: Locality,
    len: Bytes,
) -> Result<(), AllocateError> {
    check_beside(sysroot, locality.room(), len, Purpose::Cache, &[])
}

/// Checks that `len` bytes fit beside the memory of `claims`.
fn check_beside(
    sysroot: &Path,
    locality: Locality,
    len: Bytes,
    purpose: Purpose,
    claims: &[(Locality, Bytes)],
) -> Result<(), AllocateError> {
    if len.0 == 0 {
        return Err(AllocateError::Empty);
    }
    let unreserved = match (unreserved_bytes(sysroot, locality), locality) {
        (Ok(unreserved), _) => unreserved,
        (Err(error), Locality::Numa(node)) if error.kind() == io::ErrorKind::NotFound => {
            return Err(AllocateError::AbsentNode { node });
        }
        (Err(error), _) => return Err(AllocateError::FreeMemoryUnreadable(error)),
    };
    let free = less(unreserved, sum_of(claims, locality));
    let headroom = headroom_of(sysroot, purpose);
    let headroom = headroom.map(|it| less(it, sum_of(claims, Locality::Anywhere)));
    let available = headroom.map_or(free, |headroom| headroom.min(free));
    if len > available {
        return Err(AllocateError::NoRoom { wanted: len, available, locality });
    }
    Ok(())
}

fn headroom_of(sysroot: &Path, purpose: Purpose) -> Option<Bytes> {
    match purpose {
        Purpose::Cache => cgroup::headroom(sysroot, kept_of_group),
        Purpose::Other => cgroup::headroom(sysroot, |_| Bytes(0)),
    }
}

/// The claims on a node, or all of them for the host.
fn sum_of(claims: &[(Locality, Bytes)], locality: Locality) -> Bytes {
    let is_there = |at: Locality| locality == Locality::Anywhere || at == locality;
    Bytes(claims.iter().filter(|(at, _)| is_there(*at)).map(|(_, claimed)| claimed.0).sum())
}

fn less(bytes: Bytes, by: Bytes) -> Bytes {
    Bytes(bytes.0.saturating_sub(by.0))
}

fn claims() -> MutexGuard<'static, Vec<(Locality, Bytes)>> {
    CLAIMS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Claim {
    /// Ends the claim on `len` of its bytes: the kernel counts them as taken now.
    pub(crate) fn release(&mut self, len: Bytes) {
        let mut claims = claims();
        let left = less(self.len, len);
        if let Some(claim) = claims.iter_mut().find(|it| **it == (self.locality, self.len)) {
            claim.1 = left;
        }
        self.len = left;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claims = claims();
        if let Some(index) = claims.iter().position(|it| *it == (self.locality, self.len)) {
            claims.swap_remove(index);
        }
    }
}

fn node_meminfo(sysroot: &Path, node: NumaNode) -> PathBuf {
    sysroot.join(format!("sys/devices/system/node/node{}/meminfo", node.0))
}

/// Reads a line such as `Node 0 MemFree:  4380440 kB`.
fn meminfo_field(path: &Path, field: &str) -> io::Result<Bytes> {
    let text = fs::read_to_string(path)?;
    let kibibytes = text.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != field);
        words.nth(1)?.parse::<u64>().ok()
    });
    kibibytes.map(|it| Bytes(it << 10)).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests;
