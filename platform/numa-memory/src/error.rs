//! Why memory was not given out. Whatever the reason, nothing stays allocated.

use std::io;

use tierfeed_units::{Bytes, Locality, NumaNode};

use crate::policy::Policy;

/// Why memory could not be allocated where it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllocateError {
    /// A request for no bytes.
    #[error("asked for 0 B of memory; ask for at least one byte")]
    Empty,
    /// The length does not fit in the address space.
    #[error("asked for {len} of memory, more than a process can address")]
    TooLarge {
        /// What was asked for.
        len: Bytes,
    },
    /// The node is not there, or has no memory.
    #[error("NUMA node {} has no memory on this host; see /sys/devices/system/node/has_memory",
        .node.0)]
    AbsentNode {
        /// The node that was asked for.
        node: NumaNode,
    },
    /// The memory would not fit, or would fit only by taking what the host needs itself.
    #[error("asked for {wanted} of memory {}, where {available} can be taken", place(*.locality))]
    NoRoom {
        /// What was asked for.
        wanted: Bytes,
        /// What could be had, after watermarks, reserve and the limits of control groups.
        available: Bytes,
        /// Where.
        locality: Locality,
    },
    /// The kernel put pages elsewhere. The memory was given back.
    #[error("{pages_on_node} of {pages_sampled} sampled pages lie on NUMA node {}{}",
        .node.0, .policy.advice())]
    Misplaced {
        /// The node that was asked for.
        node: NumaNode,
        /// Pages whose place was read back.
        pages_sampled: usize,
        /// Those of them that lie on the node.
        pages_on_node: usize,
        /// Whether the kernel took the memory policy.
        policy: Policy,
    },
    /// A range that was to be given back or restored leaves its region.
    #[error("a range of {} bytes at offset {} leaves a region of {} bytes",
        .len.0, .offset.0, .mapped.0)]
    Outside {
        /// Where the range starts.
        offset: Bytes,
        /// How long it is.
        len: Bytes,
        /// How long the region is.
        mapped: Bytes,
    },
    /// The free memory of the host could not be read.
    #[error("cannot read how much memory is free")]
    FreeMemoryUnreadable(#[source] io::Error),
    /// A system call failed.
    #[error("cannot {step} {len} of memory")]
    System {
        /// What was being done.
        step: Step,
        /// The length asked for.
        len: Bytes,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// A step on the way to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// `memfd_create` and `ftruncate`.
    Create,
    /// `mmap`.
    Map,
    /// `mbind`.
    Bind,
    /// `fallocate`.
    Reserve,
    /// The first touch of every page.
    Populate,
    /// `F_ADD_SEALS`.
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
    }
}
