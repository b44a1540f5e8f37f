//! Memory policies, and the NUMA system calls that are needed: `mbind`, `set_mempolicy`,
//! `get_mempolicy` and the query form of `move_pages`.
//!
//! `libnuma-sys` does not build with current toolchains, so they are called through
//! `libc::syscall`; constants that `libc` lacks are defined here with the header they come from.

use std::{ffi::c_void, io, ops::Range, ptr};

use memmap2::MmapRaw;
use tierfeed_units::NumaNode;

/// `MPOL_PREFERRED_MANY` of `linux/mempolicy.h`, Linux 5.15.
pub(crate) const MPOL_PREFERRED_MANY: libc::c_int = 5;

/// `MPOL_WEIGHTED_INTERLEAVE` of `linux/mempolicy.h`, Linux 6.9.
pub(crate) const MPOL_WEIGHTED_INTERLEAVE: libc::c_int = 6;

/// `MPOL_MF_MOVE` of `linux/mempolicy.h`.
const MPOL_MF_MOVE: libc::c_uint = 1 << 1;

/// Node numbers that fit in the mask: `CONFIG_NODES_SHIFT` is at most 10.
pub(crate) const NODES_MAX: u32 = 1024;

const WORD_BITS: u32 = u64::BITS;

/// What the kernel does if a node has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It takes pages of other nodes: for all memory that lives long.
    Prefer,
    /// It kills the process (`constraint=CONSTRAINT_MEMORY_POLICY`): only for memory of a
    /// measurement, and only after the node's room was checked.
    Strict,
    /// As [`Self::Prefer`], and it moves the pages that only this process has mapped.
    Move,
}

/// Whether the kernel accepted a memory policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The policy is set.
    Applied,
    /// This process may set none, as under the seccomp profiles of container engines.
    Denied,
}

impl Policy {
    pub(crate) const fn advice(self) -> &'static str {
        match self {
            Self::Applied => "; the node was full, or the kernel moved them since",
            Self::Denied => {
                "; memory policies are denied to this process: give the container CAP_SYS_NICE"
            }
        }
    }
}

/// Sets the policy of a mapping. Only [`Mode::Move`] moves pages that were touched before.
///
/// # Errors
///
/// As `mbind(2)`: `EINVAL` for a node without memory, `EPERM` under the seccomp profile of most
/// container engines.
pub(crate) fn bind(mapping: &MmapRaw, node: NumaNode, mode: Mode) -> io::Result<()> {
    bind_range(mapping, 0..mapping.len(), node, mode)
}

/// As [`bind`], of a range of the mapping that starts at a page.
///
/// # Errors
///
/// As [`bind`], and `EINVAL` for a range that leaves the mapping.
pub(crate) fn bind_range(
    mapping: &MmapRaw,
    range: Range<usize>,
    node: NumaNode,
    mode: Mode,
) -> io::Result<()> {
    let mbind = |mode, flags| mbind_range(mapping, range.clone(), node, (mode, flags));
    match mode {
        Mode::Strict => mbind(libc::MPOL_BIND | libc::MPOL_F_STATIC_NODES, 0),
        Mode::Prefer | Mode::Move => {
            let flags = if mode == Mode::Move { MPOL_MF_MOVE } else { 0 };
            match mbind(MPOL_PREFERRED_MANY, flags) {
                // Linux before 5.15. For a set with one node both modes prefer the same.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    mbind(libc::MPOL_PREFERRED, flags)
                }
                outcome => outcome,
            }
        }
    }
}

/// Whether an error of [`bind`] means that this process may set no policies at all.
pub(crate) fn is_denied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS))
}

/// A set of nodes in the form of the kernel.
type Mask = [u64; (NODES_MAX / WORD_BITS) as usize];

fn mask_of(nodes: &[NumaNode]) -> io::Result<Mask> {
    let mut mask = Mask::default();
    for node in nodes {
        let word = mask.get_mut((node.0 / WORD_BITS) as usize);
        *word.ok_or(io::ErrorKind::InvalidInput)? |= 1 << (node.0 % WORD_BITS);
    }
    Ok(mask)
}

/// Sets the policy of the calling thread, for memory without a policy of its own; processes that it
/// starts inherit it.
///
/// # Errors
///
/// As `set_mempolicy(2)`: `EINVAL` for a mode that the kernel lacks or nodes without memory, `EPERM`
/// under the seccomp profile of most container engines.
pub(crate) fn set_of_thread(mode: libc::c_int, nodes: &[NumaNode]) -> io::Result<()> {
    let mask = mask_of(nodes)?;
    // The default policy takes no nodes.
    let (start, count) = if nodes.is_empty() {
        (ptr::null(), 0)
    } else {
        (mask.as_ptr(), libc::c_ulong::from(NODES_MAX + 1))
    };
    // SAFETY:
    // - `start` is null with a count of 0, or `mask`, which is initialised and outlives the call; the
    //   kernel reads `count - 1` bits, all of them in `mask`.
    // - The call changes where later pages of this thread lie, never what memory holds.
    let status = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, start, count) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The bits of a mode that are no flags.
pub(crate) const MODE_BITS: libc::c_int = 0xff;

/// The policy of the calling thread: its mode with its flags ([`MODE_BITS`]), and its nodes.
///
/// # Errors
///
/// As `get_mempolicy(2)`: `EPERM` under the seccomp profile of most container engines.
pub(crate) fn of_thread() -> io::Result<(libc::c_int, Vec<NumaNode>)> {
    let mut mode: libc::c_int = 0;
    let mut mask = Mask::default();
    let (no_address, no_flags): (*const c_void, libc::c_ulong) = (ptr::null(), 0);
    // SAFETY:
    // - `mode` and `mask` are valid for writes and outlive the call; the kernel writes one number and at
    //   most `NODES_MAX` bits.
    // - Without flags the address must be null, and the policy of the thread is returned.
    let status = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut mode,
            mask.as_mut_ptr(),
            libc::c_ulong::from(NODES_MAX + 1),
            no_address,
            no_flags,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    let is_in = |node: &u32| mask[(node / WORD_BITS) as usize] >> (node % WORD_BITS) & 1 == 1;
    Ok((mode, (0..NODES_MAX).filter(is_in).map(NumaNode).collect()))
}

pub(crate) fn mbind(mapping: &MmapRaw, node: NumaNode, mode: libc::c_int) -> io::Result<()> {
    mbind_range(mapping, 0..mapping.len(), node, (mode, 0))
}

fn mbind_range(
    mapping: &MmapRaw,
    range: Range<usize>,
    node: NumaNode,
    (mode, flags): (libc::c_int, libc::c_uint),
) -> io::Result<()> {
    if range.start > range.end || range.end > mapping.len() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mask = mask_of(&[node])?;
    // SAFETY:
    // - The range lies in one live mapping, as was just checked: `mapping` owns it and is borrowed through
    //   the call.
    // - `mask` is initialised and outlives the call. The kernel reads `maxnode - 1` bits, so
    //   `NODES_MAX + 1` makes it read all of `mask` and nothing beyond.
    // - `mbind` changes where pages will lie, never what they hold.
    let status = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            mapping.as_mut_ptr().wrapping_add(range.start),
            range.len(),
            mode,
            mask.as_ptr(),
            libc::c_ulong::from(NODES_MAX + 1),
            flags,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The node of each page, or a negated error number: `-ENOENT` for a page that was never touched.
///
/// # Errors
///
/// As `move_pages(2)`: `EPERM` under the seccomp profile of most container engines.
pub(crate) fn nodes_of(pages: &[*const c_void]) -> io::Result<Vec<i32>> {
    let mut nodes = vec![-libc::ENOENT; pages.len()];
    let this_process: libc::pid_t = 0;
    let flags: libc::c_int = 0;
    // SAFETY:
    // - `pages` and `nodes` are valid for `pages.len()` elements each and outlive the call; the kernel
    //   reads the one and writes the other.
    // - Without target nodes the kernel moves nothing and does not touch the pages: an address that is
    //   not mapped gets an error number in `nodes`.
    let status = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            this_process,
            pages.len(),
            pages.as_ptr(),
            ptr::null::<libc::c_int>(),
            nodes.as_mut_ptr(),
            flags,
        )
    };
    if status == 0 { Ok(nodes) } else { Err(io::Error::last_os_error()) }
}
