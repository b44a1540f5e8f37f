//! The index of the dataset, from the manager: nodes that start at once do not all list the dataset.
//!
//! It comes in parts, one call for each, so that an agent has one part in flight and many agents share the
//! manager. What came is used if it is the manager's index, undamaged, and if some objects that are looked at
//! on this node are those that were indexed. Else the node indexes the dataset itself, as without a manager
//! that has one, and says what differs.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use tierfeed_dataset::{Dataset, Index, index::IndexError};
use tokio::task::spawn_blocking;

use crate::{
    dataset,
    rpc::{
        call::IndexPart,
        client::{CallError, Client},
    },
    transport::token::{self, TokenError},
};

/// Objects that are looked at: a metadata server answers thousands in a second, also to many nodes.
const LOOKED_AT: usize = 64;

/// Why a node indexes the dataset itself.
#[derive(Debug, thiserror::Error)]
enum NotPassedOn {
    #[error("{0}")]
    Call(#[from] CallError),
    #[error(transparent)]
    Place(#[from] IndexError),
    #[error("the manager has no file of it")]
    None,
    #[error("{}: {source}", .path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("it came damaged, or another one meanwhile")]
    Damaged,
    #[error("objects on this node are not those that the manager indexed")]
    OtherObjects,
    #[error(transparent)]
    Random(#[from] TokenError),
}

/// Brings the manager's index of `dataset` to `path`, unless it is there. `expected` is its fingerprint.
pub(super) async fn bring_index(
    client: &mut Client,
    dataset: &Dataset,
    path: &Path,
    expected: u64,
) {
    let is_there = {
        let (dataset, path) = (dataset.clone(), path.to_owned());
        spawn_blocking(move || dataset::reopen(&dataset, &path, expected).is_some())
    };
    if is_there.await.is_ok_and(|it| it) {
        return;
    }
    match try_bring(client, dataset, path, expected).await {
        Ok(bytes) => tracing::info!(path = %path.display(), bytes, "index from the manager"),
        Err(why) => {
            tracing::info!(%why, "no index from the manager; this node indexes the dataset");
        }
    }
}

async fn try_bring(
    client: &mut Client,
    dataset: &Dataset,
    path: &Path,
    expected: u64,
) -> Result<u64, NotPassedOn> {
    Index::check_place(dataset, path)?;
    let incoming = Incoming::beside(path)?;
    let mut file = File::create(&incoming.0).map_err(|source| incoming.failed(source))?;
    let mut offset = 0;
    loop {
        let IndexPart { bytes, whole } = client.index(offset).await?;
        if whole == 0 {
            return Err(NotPassedOn::None);
        }
        if bytes.is_empty() || bytes.len() as u64 > whole - offset.min(whole) {
            return Err(NotPassedOn::Damaged);
        }
        offset += bytes.len() as u64;
        let written = spawn_blocking(move || file.write_all(&bytes).map(|()| file)).await;
        file =
            written.expect("writing does not panic").map_err(|source| incoming.failed(source))?;
        if offset == whole {
            break;
        }
    }
    drop(file);
    let (dataset, path) = (dataset.clone(), path.to_owned());
    let accepted = spawn_blocking(move || accept(&incoming, &dataset, &path, expected));
    accepted.await.expect("opening an index does not panic")?;
    Ok(offset)
}

fn accept(
    incoming: &Incoming,
    dataset: &Dataset,
    path: &Path,
    expected: u64,
) -> Result<(), NotPassedOn> {
    let index = dataset::reopen(dataset, &incoming.0, expected).ok_or(NotPassedOn::Damaged)?;
    if !index.has_objects_as_indexed(LOOKED_AT) {
        return Err(NotPassedOn::OtherObjects);
    }
    fs::rename(&incoming.0, path).map_err(|source| incoming.failed(source))
}

/// A file that is written; removed unless it got its name.
struct Incoming(PathBuf);

impl Incoming {
    /// Several agents may have one file system, and one path of the index.
    fn beside(path: &Path) -> Result<Self, NotPassedOn> {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{:016x}", token::incarnation()?));
        Ok(Self(PathBuf::from(name)))
    }

    fn failed(&self, source: std::io::Error) -> NotPassedOn {
        NotPassedOn::File { path: self.0.clone(), source }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // An error means that it has its name, or was never there.
        let _ = fs::remove_file(&self.0);
    }
}
