//! Identifies the process at the other end of a connection, by what the kernel reports.

use std::os::fd::{BorrowedFd, OwnedFd};

use nix::sys::socket::{getsockopt, sockopt};
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, getuid, pidfd_open},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the other end runs as user {theirs}; it must be user {ours} or root")]
pub struct ForeignUser {
    theirs: u32,
    ours: u32,
}

/// Accepts the own user and root only.
pub(super) fn check(socket: BorrowedFd<'_>) -> Result<Result<(), ForeignUser>, Errno> {
    let credentials = getsockopt(&socket, sockopt::PeerCredentials).map_err(errno)?;
    Ok(check_uid(credentials.uid(), getuid().as_raw()))
}

/// Process number of the peer as this process sees it; 0 if it is not visible.
pub(super) fn number(socket: BorrowedFd<'_>) -> Result<i32, Errno> {
    let credentials = getsockopt(&socket, sockopt::PeerCredentials).map_err(errno)?;
    Ok(credentials.pid())
}

fn check_uid(theirs: u32, ours: u32) -> Result<(), ForeignUser> {
    const ROOT: u32 = 0;
    if theirs == ours || theirs == ROOT { Ok(()) } else { Err(ForeignUser { theirs, ours }) }
}

/// A pidfd of the process that connected: readable once it has ended, even while a child of it
/// still holds the socket.
///
/// `None` where the kernel has no pidfds (before 5.3), or where the process is outside of this
/// process namespace and the kernel cannot look it up there (before 6.5).
pub(super) fn process(socket: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Errno> {
    match getsockopt(&socket, sockopt::PeerPidfd).map_err(errno) {
        Ok(pidfd) => Ok(Some(pidfd)),
        Err(Errno::NOPROTOOPT | Errno::INVAL | Errno::OPNOTSUPP) => process_by_number(socket),
        Err(errno) => Err(errno),
    }
}

/// The number may belong to another process by now. Then only the socket shows the end.
fn process_by_number(socket: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Errno> {
    let credentials = getsockopt(&socket, sockopt::PeerCredentials).map_err(errno)?;
    let Some(pid) = Pid::from_raw(credentials.pid()) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Some(pidfd)),
        Err(Errno::NOSYS) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn errno(errno: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(errno as i32)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn a_stranger_is_turned_away_and_root_is_not() {
        assert_eq!(check_uid(1000, 1000), Ok(()));
        assert_eq!(check_uid(0, 1000), Ok(()));
        assert_eq!(check_uid(1001, 1000), Err(ForeignUser { theirs: 1001, ours: 1000 }));
        assert_eq!(check_uid(1000, 0), Err(ForeignUser { theirs: 1000, ours: 0 }));
    }

    #[test]
    fn the_kernel_knows_this_process() {
        let (ours, _theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        assert_eq!(check(ours.as_fd()), Ok(Ok(())));
        assert!(process(ours.as_fd()).unwrap().is_some());
        assert!(process_by_number(ours.as_fd()).unwrap().is_some());
    }
}
