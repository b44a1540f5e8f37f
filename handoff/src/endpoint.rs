//! The socket file at which trainers find the agent of their node.
//!
//! The file is in a directory that only the agent's user can enter, so no other user reaches it,
//! not even between its creation and the change of its mode. A file that a killed agent left behind
//! is replaced; one at which an agent listens is not. Check and replacement happen under a lock on
//! the directory, so of two agents that start at once one wins and the other gets an error.

use std::{
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
        socket_with,
    },
    process::getuid,
};

use super::descriptors::Descriptors;

const BACKLOG: i32 = 128;

const DIRECTORY_MODE: u32 = 0o700;
const SOCKET_MODE: u32 = 0o600;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    #[error("{} is too long for a socket address; at most 107 bytes are possible", .path.display())]
    PathTooLong { path: PathBuf },
    #[error("{} is not a directory; the socket needs one of its own", .path.display())]
    NoDirectory { path: PathBuf },
    #[error(
        "directory {} belongs to user {owner} and has mode {mode:04o}; it must belong to user {user} \
         and have mode 0700", .path.display()
    )]
    NotPrivate { path: PathBuf, owner: u32, mode: u32, user: u32 },
    #[error("another agent listens at {}; stop it, or choose another path", .path.display())]
    InUse { path: PathBuf },
    #[error("{} exists and is not a socket; remove it, or choose another path", .path.display())]
    NotASocket { path: PathBuf },
    #[error("cannot listen at {}", .path.display())]
    System {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A listening socket and its file, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Endpoint {
    listener: OwnedFd,
    descriptors: Descriptors,
    path: PathBuf,
    /// Device and inode of the file, so that no other agent's file is removed.
    identity: (u64, u64),
}

impl Endpoint {
    /// Listens at `path`; creates its directory if it is missing. Descriptors are refused if
    /// `wanted` says so and the kernel supports it.
    pub(super) fn bind(path: &Path, wanted: Descriptors) -> Result<Self, BindError> {
        let system = |source| BindError::System { path: path.to_owned(), source };
        let address = SocketAddrUnix::new(path)
            .map_err(|_| BindError::PathTooLong { path: path.to_owned() })?;
        let directory = private_directory(path)?;
        let locked = File::open(&directory).map_err(system)?;
        lock(&locked).map_err(|errno| system(errno.into()))?;
        remove_stale(path, &address)?;
        let listener = seqpacket_socket(SocketFlags::NONBLOCK).map_err(|it| system(it.into()))?;
        let descriptors = match wanted {
            Descriptors::Refused => Descriptors::refused_by(&listener),
            Descriptors::Possible => Descriptors::Possible,
        };
        bind(&listener, &address).map_err(|errno| system(errno.into()))?;
        let metadata = fs::symlink_metadata(path).map_err(system)?;
        let identity = (metadata.dev(), metadata.ino());
        let endpoint = Self { listener, descriptors, path: path.to_owned(), identity };
        fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE)).map_err(system)?;
        listen(&endpoint.listener, BACKLOG).map_err(|errno| system(errno.into()))?;
        Ok(endpoint)
    }

    pub(super) fn descriptors(&self) -> Descriptors {
        self.descriptors
    }

    pub(super) fn accept(&self) -> Result<Option<OwnedFd>, Errno> {
        match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => Ok(Some(socket)),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        if is_ours {
            // Harmless if it fails: the next agent finds that no process listens and replaces the
            // file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

pub(super) fn seqpacket_socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | flags, None)
}

fn private_directory(socket: &Path) -> Result<PathBuf, BindError> {
    let system = |source| BindError::System { path: socket.to_owned(), source };
    let directory = match socket.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Err(BindError::NoDirectory { path: socket.to_owned() }),
    };
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory).map_err(system)?;
    let metadata = fs::symlink_metadata(directory).map_err(system)?;
    let path = directory.to_owned();
    if !metadata.is_dir() {
        return Err(BindError::NoDirectory { path });
    }
    let (owner, mode, user) = (metadata.uid(), metadata.mode() & 0o7777, getuid().as_raw());
    if owner != user || mode & 0o077 != 0 {
        return Err(BindError::NotPrivate { path, owner, mode, user });
    }
    Ok(path)
}

/// Locks the directory; it is only held for the few calls of a bind, so the wait is short.
fn lock(directory: &File) -> Result<(), Errno> {
    loop {
        match flock(directory, FlockOperation::LockExclusive) {
            Err(Errno::INTR) => (),
            outcome => return outcome,
        }
    }
}

fn remove_stale(path: &Path, address: &SocketAddrUnix) -> Result<(), BindError> {
    let system = |source| BindError::System { path: path.to_owned(), source };
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system(error)),
    };
    if !metadata.file_type().is_socket() {
        return Err(BindError::NotASocket { path: path.to_owned() });
    }
    let probe = seqpacket_socket(SocketFlags::NONBLOCK).map_err(|errno| system(errno.into()))?;
    match connect(&probe, address) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path).map_err(system),
        // AGAIN: an agent listens and is busy. PROTOTYPE: another program listens with another
        // socket type.
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => {
            Err(BindError::InUse { path: path.to_owned() })
        }
        Err(errno) => Err(system(errno.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private_path() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).unwrap();
        let path = directory.path().join("agent.sock");
        (directory, path)
    }

    fn bound(path: &Path) -> Result<Endpoint, BindError> {
        Endpoint::bind(path, Descriptors::Refused)
    }

    #[test]
    fn the_socket_is_private_and_goes_with_the_endpoint() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/agent.sock");
        let endpoint = bound(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        drop(endpoint);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_that_an_agent_left_behind_is_replaced() {
        let (_directory, path) = private_path();
        let stale = seqpacket_socket(SocketFlags::empty()).unwrap();
        bind(&stale, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        drop(stale);
        assert!(path.exists());
        assert!(bound(&path).is_ok());
    }

    #[test]
    fn a_second_agent_at_the_same_path_is_an_error() {
        let (_directory, path) = private_path();
        let first = bound(&path).unwrap();
        assert!(matches!(bound(&path), Err(BindError::InUse { .. })));
        assert!(path.exists());
        drop(first);
        assert!(bound(&path).is_ok());
    }

    #[test]
    fn an_endpoint_leaves_the_file_of_its_successor_alone() {
        let (_directory, path) = private_path();
        let first = bound(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let _second = bound(&path).unwrap();
        drop(first);
        assert!(path.exists());
    }

    #[test]
    fn what_is_no_socket_is_never_removed() {
        let (_directory, path) = private_path();
        fs::write(&path, "precious").unwrap();
        assert!(matches!(bound(&path), Err(BindError::NotASocket { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        let (directory, path) = private_path();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let refused = bound(&path);
        assert!(matches!(refused, Err(BindError::NotPrivate { mode: 0o755, .. })));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/tmp", &link).unwrap();
        let refused = bound(&link.join("agent.sock"));
        assert!(matches!(refused, Err(BindError::NoDirectory { .. })), "{refused:?}");
    }

    #[test]
    fn a_path_that_no_address_can_hold_is_refused() {
        let path = PathBuf::from(format!("/tmp/{}/agent.sock", "x".repeat(120)));
        assert!(matches!(bound(&path), Err(BindError::PathTooLong { .. })));
    }
}
