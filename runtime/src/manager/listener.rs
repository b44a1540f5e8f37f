//! Where a manager listens: a socket file for its own user, or the network for peers with the token.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use tokio::net::TcpListener;

use super::ManagerError;
use crate::transport::{local_socket::LocalListener, mutual_tls::Credentials, token::Token};

/// The length of the queue of connections that wait to be accepted: with a short one, thousands of idle
/// connections would make an agent wait for the next attempt of its kernel, which is a second later.
const BACKLOG: i32 = 4096;

#[derive(Debug)]
pub enum Listener {
    /// A socket file, for processes of the same user.
    Unix(LocalListener, PathBuf),
    /// The network, for peers that prove the token.
    Tcp(TcpListener, Credentials),
}

impl Listener {
    /// A new socket file that only its owner can reach. Replaces the socket of a manager that has ended.
    pub fn unix(path: &Path) -> Result<Self, ManagerError> {
        let failed = |source| ManagerError::Listen { address: path.display().to_string(), source };
        let listener = LocalListener::bind(path).map_err(failed)?;
        Ok(Self::Unix(listener, path.to_owned()))
    }

    /// `address` is `host:port`; port 0 takes a free one.
    pub async fn tcp(address: &str, token: &Token) -> Result<Self, ManagerError> {
        let failed = |source| ManagerError::Listen { address: address.to_owned(), source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        // A second call changes the length of the queue.
        rustix::net::listen(&listener, BACKLOG).map_err(|error| failed(error.into()))?;
        Ok(Self::Tcp(listener, Credentials::of(token)))
    }

    /// `None` for a socket file.
    pub fn tcp_address(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            Self::Unix(..) => Ok(None),
            Self::Tcp(listener, _) => listener.local_addr().map(Some),
        }
    }
}
