//! The rendezvous file of a job: where its manager listens, and the token of the job.
//!
//! The first node writes it into a run directory that all nodes see. Like a token file, only its owner may read
//! it. A file that an earlier run has left gives another token, so no node joins another job by it.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use nix::unistd::Uid;
use serde::{Deserialize, Serialize};

use crate::{
    transport::token::{Token, TokenError},
    whole_file,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendezvous {
    /// The addresses of the manager as HOST:PORT; those that more hosts reach come first.
    pub addresses: Vec<String>,
    pub token: Token,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RendezvousFile {
    addresses: Vec<String>,
    token: String,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "{}: owner {owner}, mode {mode:03o}; the rendezvous file of a job must be yours with mode 600",
        .path.display()
    )]
    Exposed { path: PathBuf, owner: u32, mode: u32 },
    #[error("{}: {source}", .path.display())]
    Token { path: PathBuf, source: TokenError },
}

impl Rendezvous {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// [`RendezvousError`], also if the file does not exist yet.
    pub fn read(path: &Path) -> Result<Self, RendezvousError> {
        let failed = |source| RendezvousError::Io { path: path.to_owned(), source };
        let file = fs::File::open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        let (owner, mode) = (found.uid(), found.mode() & 0o777);
        if owner != Uid::effective().as_raw() || mode & 0o077 != 0 {
            return Err(RendezvousError::Exposed { path: path.to_owned(), owner, mode });
        }
        let RendezvousFile { addresses, token } =
            serde_json::from_reader(io::Read::take(file, FILE_BYTES_MAX))
                .map_err(|error| failed(error.into()))?;
        let token = token
            .parse()
            .map_err(|source| RendezvousError::Token { path: path.to_owned(), source })?;
        Ok(Self { addresses, token })
    }

    /// Writes the file atomically; replaces that of an earlier run.
    pub fn write(&self, path: &Path) -> Result<(), RendezvousError> {
        let failed = |source| RendezvousError::Io { path: path.to_owned(), source };
        let Self { addresses, token } = self;
        let file = RendezvousFile { addresses: addresses.clone(), token: token.to_hex() };
        let text = serde_json::to_vec_pretty(&file).map_err(|error| failed(error.into()))?;
        whole_file::write_secret(path, text).map_err(failed)
    }
}

/// A rendezvous file has some hundred bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_the_first_node_writes_another_reads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rendezvous");
        let token = Token::generate().unwrap();
        let one = Rendezvous { addresses: vec!["10.0.0.1:7070".to_owned()], token };
        one.write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(Rendezvous::read(&path).unwrap(), one);
        let other = Rendezvous { token: Token::generate().unwrap(), ..one };
        other.write(&path).unwrap();
        assert_eq!(Rendezvous::read(&path).unwrap(), other, "a later run replaces it");
        whole_file::remove(&path).unwrap();
        whole_file::remove(&path).unwrap();
        assert!(matches!(Rendezvous::read(&path), Err(RendezvousError::Io { .. })));
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rendezvous");
        let token = Token::generate().unwrap();
        Rendezvous { addresses: Vec::new(), token }.write(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = Rendezvous::read(&path).unwrap_err();
        assert!(matches!(error, RendezvousError::Exposed { mode: 0o644, .. }), "{error}");
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rendezvous");
        Rendezvous { addresses: Vec::new(), token: Token::generate().unwrap() }
            .write(&path)
            .unwrap();
        for text in ["", "{", "{\"addresses\":[]}", "{\"addresses\":[],\"token\":\"x\"}"] {
            fs::write(&path, text).unwrap();
            Rendezvous::read(&path).unwrap_err();
        }
    }
}
