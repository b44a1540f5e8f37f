//! Allocates memory: mappings on the requested NUMA node, sealed for other processes, with copies
//! between them on threads pinned to CPUs.
//!
//! This is the only crate with unsafe Rust for memory. Its interface is safe: every access is
//! checked against the bounds of its mapping, because offsets may come from another process, and no
//! Rust slice covers memory that another process writes ([`FileBytes`] documents its exception).
//!
//! Deliberately absent: any policy of what is kept where, anything asynchronous.

#![deny(unsafe_code)]
#![warn(missing_docs)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!(
    "tierfeed needs 64-bit Linux: memfd, mbind and move_pages have no equivalent elsewhere"
);

pub mod affinity;
pub mod ballast;
#[expect(unsafe_code, reason = "a signal handler, and pages laid over broken ones")]
pub mod bus_errors;
pub mod capacity;
pub mod failpoint;
pub mod interleave;
pub mod kernels;
pub mod lanes;
pub mod policy_probe;

mod anonymous;
#[cfg_attr(feature = "address-sanitizer", expect(unsafe_code, reason = "calls of its runtime"))]
mod asan;
mod cache_line;
mod checksum;
mod error;
#[expect(unsafe_code, reason = "a file that others could write is mapped as a slice")]
mod file_bytes;
mod file_placement;
mod mapping;
#[expect(unsafe_code, reason = "stores that Rust has no word for")]
mod non_temporal;
mod placement;
#[expect(unsafe_code, reason = "system calls that no crate wraps")]
mod policy;
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "a hint that older compilers take for unsafe")
)]
mod prefetch;
mod region;
mod slices;
mod view;

pub use anonymous::Anonymous;
pub use ballast::Ballast;
pub use checksum::{Checksum, Stores};
pub use error::{AllocateError, Step};
pub use file_bytes::FileBytes;
pub use file_placement::{file_placement, place_file};
pub use mapping::{
    MappedRange, Mapping, PageCache, RangeError, SENT_RANGES_MAX, cached, drop_pages,
    read_cached_into, read_into, round_trip, send_ranges,
};
pub use placement::Placement;
pub use policy::Policy;
#[cfg(any(test, feature = "fault-injection"))]
pub use region::injection as late_holes;
pub use region::{
    HugePages, Pages, Region, RegionPart, Request, SharedPool, SharedPoolRequest, Span,
};
#[cfg(any(test, feature = "fault-injection"))]
pub use slices::injection as late_slices;
pub use slices::{SLICE, Slices};
pub use view::{MapError, ReadView, View};
