//! Tries what only trying tells.

use std::io;

use nix::{
    errno::Errno,
    sys::memfd::{MFdFlags, memfd_create},
};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use tierfeed_core::id::NumaNode;
use tierfeed_file_io::io_uring_available;
use tierfeed_numa_memory::policy_probe::{self, Call};

use super::Facts;
use crate::inventory::Inventory;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Attempt {
    #[default]
    Untried,
    Done,
    /// The kernel refused, with this error number.
    Refused(i32),
}

impl Attempt {
    #[must_use]
    pub fn is_done(self) -> bool {
        self == Self::Done
    }

    #[must_use]
    pub fn is_refused(self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// Whether this process may not do it: a filter or a missing capability.
    #[must_use]
    pub fn is_denied(self) -> bool {
        matches!(self, Self::Refused(number)
            if [Errno::EPERM, Errno::EACCES].contains(&Errno::from_raw(number)))
    }

    #[must_use]
    pub fn said(self) -> String {
        match self {
            Self::Untried => "not tried".to_owned(),
            Self::Done => "works".to_owned(),
            Self::Refused(number) => format!("refused with {:?}", Errno::from_raw(number)),
        }
    }
}

impl<T> From<io::Result<T>> for Attempt {
    fn from(result: io::Result<T>) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(error) => Self::Refused(error.raw_os_error().unwrap_or(Errno::EIO as i32)),
        }
    }
}

impl Facts {
    /// Facts that trying on this machine gives, and no others.
    pub(super) fn tried(inventory: &Inventory) -> Self {
        let node = NumaNode(inventory.memory_nodes().next().map_or(0, |node| node.id));
        let attempt = |call| (call, Attempt::from(policy_probe::attempt(call, node)));
        let flags = MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_CLOEXEC;
        // Linux before 6.3 does not know the second, and `vm.memfd_noexec=2` wants it.
        let no_exec = MFdFlags::from_bits_retain(MFD_NOEXEC_SEAL);
        let memfd = memfd_create("doctor", flags | no_exec)
            .or_else(|_| memfd_create("doctor", flags))
            .map_err(io::Error::from);
        let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).map_err(io::Error::from);
        Self {
            calls: Call::ALL.into_iter().map(attempt).collect(),
            memfd: memfd.into(),
            pidfd: pidfd.into(),
            rings: Some(io_uring_available()),
            ..Self::default()
        }
    }
}

/// `MFD_NOEXEC_SEAL` of `linux/memfd.h`.
const MFD_NOEXEC_SEAL: u32 = 8;
