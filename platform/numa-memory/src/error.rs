//! Why an allocation failed. In every case nothing stays allocated.

use std::io;

use tierfeed_units::{Bytes, Locality, NumaNode};

use crate::policy::Policy;

/// Why memory could not be allocated as requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllocateError {
    /// The request was for no bytes.
    #[error("asked for 0 B of memory; ask for at least one byte")]
    Empty,
    /// The length does not fit in the address space.
    #[error("asked for {len} of memory, more than a process can address")]
    TooLarge {
        /// Length that the caller requested.
        len: Bytes,
    },
    /// The node does not exist, or has no memory.
    #[error("NUMA node {} has no memory on this host; see /sys/devices/system/node/has_memory",
        .node.0)]
    AbsentNode {
        /// Node that the caller requested.
        node: NumaNode,
    },
    /// The memory would not fit, or only at the cost of memory that the host needs itself.
    #[error("asked for {wanted} of memory {}, where {available} can be taken", place(*.locality))]
    NoRoom {
        /// Length that the caller requested.
        wanted: Bytes,
        /// Bytes that can be taken, after watermarks, reserve and the limits of control groups.
        available: Bytes,
        /// The node or host that lacks the room.
        locality: Locality,
    },
    /// The kernel put pages on other nodes. The memory was given back.
    #[error("{pages_on_node} of {pages_sampled} sampled pages lie on NUMA node {}{}",
        .node.0, .policy.advice())]
    Misplaced {
        /// Node that the caller requested.
        node: NumaNode,
        /// Pages whose placement was read back.
        pages_sampled: usize,
        /// Sampled pages that lie on the node.
        pages_on_node: usize,
        /// Whether the kernel accepted the memory policy.
        policy: Policy,
    },
    /// A range to be given back or restored leaves its region.
    #[error("a range of {} bytes at offset {} leaves a region of {} bytes",
        .len.0, .offset.0, .mapped.0)]
    Outside {
        /// Start of the range in the region.
        offset: Bytes,
        /// Length of the range.
        len: Bytes,
        /// Length of the region.
        mapped: Bytes,
    },
    /// The free memory of the host could not be read.
    #[error("cannot read how much memory is free")]
    FreeMemoryUnreadable(#[source] io::Error),
    /// A system call failed.
    #[error("cannot {step} {len} of memory")]
    System {
        /// The step that failed.
        step: Step,
        /// Length that the caller requested.
        len: Bytes,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
}

/// A step of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// `memfd_create` and `ftruncate` of the file behind the memory.
    Create,
    /// `mmap` of the file or of private memory.
    Map,
    /// `mbind`, which sets the memory policy.
    Bind,
    /// `fallocate`, which reserves the memory of the file.
    Reserve,
    /// The first touch of every page.
    Populate,
    /// `F_ADD_SEALS`, which fixes the length of the file.
    Seal,
    /// `MADV_DONTNEED`, or `fallocate` with `FALLOC_FL_PUNCH_HOLE`.
    GiveBack,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Map => "map",
            Self::Bind => "bind",
            Self::Reserve => "reserve",
            Self::Populate => "populate",
            Self::Seal => "seal",
            Self::GiveBack => "give back",
        })
    }
}

fn place(locality: Locality) -> String {
    match locality {
        Locality::Anywhere => "anywhere on this host".to_owned(),
        Locality::Numa(node) => format!("on NUMA node {}", node.0),
        Locality::Near(node) => format!("near NUMA node {}", node.0),
    }
}
