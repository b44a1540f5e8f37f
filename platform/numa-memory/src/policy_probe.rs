//! Tries the system calls that place memory, on memory of its own, and returns the kernel's answer.
//!
//! Container engines deny them by default, and newer kernels add modes, so only a trial shows what
//! works. A trial leaves nothing behind: the policy belongs to one page that is never touched and
//! is unmapped at once.

use std::io;

use memmap2::{MmapOptions, MmapRaw};
use tierfeed_units::NumaNode;

use crate::{
    placement,
    policy::{self, MPOL_PREFERRED_MANY, MPOL_WEIGHTED_INTERLEAVE},
};

/// A system call, or a mode of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// The system call `get_mempolicy`.
    GetMempolicy,
    /// `mbind` with the mode `MPOL_BIND`.
    Mbind,
    /// `mbind` with `MPOL_PREFERRED_MANY`, Linux 5.15.
    PreferredMany,
    /// `mbind` with `MPOL_WEIGHTED_INTERLEAVE`, Linux 6.9.
    WeightedInterleave,
    /// The query form of `move_pages`.
    MovePages,
}

impl Call {
    /// All calls that can be tried.
    pub const ALL: [Self; 5] = [
        Self::GetMempolicy,
        Self::Mbind,
        Self::PreferredMany,
        Self::WeightedInterleave,
        Self::MovePages,
    ];
}

/// Makes `call` for memory on `node`.
///
/// # Errors
///
/// As the call: `EPERM` from the filter of a container, `ENOSYS` or `EINVAL` from a kernel that does not
/// know it, `EINVAL` also for a node without memory.
pub fn attempt(call: Call, node: NumaNode) -> io::Result<()> {
    let page = MmapOptions::new().len(placement::page_bytes()).map_anon()?;
    let page = MmapRaw::from(page);
    match call {
        Call::GetMempolicy => policy::of_thread().map(drop),
        Call::Mbind => policy::mbind(&page, node, libc::MPOL_BIND),
        Call::PreferredMany => policy::mbind(&page, node, MPOL_PREFERRED_MANY),
        Call::WeightedInterleave => policy::mbind(&page, node, MPOL_WEIGHTED_INTERLEAVE),
        Call::MovePages => policy::nodes_of(&[page.as_ptr().cast()]).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_works_or_says_why_not() {
        let known = [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::EINVAL];
        for call in Call::ALL {
            if let Err(error) = attempt(call, NumaNode(0)) {
                assert!(known.contains(&error.raw_os_error().unwrap()), "{call:?}: {error}");
            }
        }
    }

    #[test]
    fn a_node_that_is_not_there_is_refused_where_policies_work() {
        if attempt(Call::Mbind, NumaNode(0)).is_ok() {
            let error = attempt(Call::Mbind, NumaNode(1023)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        }
    }
}
