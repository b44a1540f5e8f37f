//! The memberships of the nodes that share what they hold, `memberships.json`: a manager that is restarted goes
//! on with them, because who holds what follows from all of them, also for a node that comes later.
//!
//! A run directory that does not answer delays the manager by nothing: a task writes the latest state. If that
//! fails, nodes that come after a restart ask others in vain for some samples, until the memberships change for
//! all.

use std::{
    fs::File,
    io::{self, BufReader, Read as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tierfeed_core::retention::partition::Membership;
use tokio::{
    sync::watch,
    task::{JoinHandle, spawn_blocking},
};

use super::start_marker::StartMarker;
use crate::whole_file;

/// An upper bound of the file's length: some thousand memberships of 1,024 nodes.
const FILE_BYTES_MAX: u64 = 256 << 20;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    job: StartMarker,
    memberships: Vec<Membership>,
}

/// Reads the memberships that an earlier manager of this job noted at `path`; empty if there is no such file,
/// or it is that of another job.
pub(crate) fn read(path: &Path, job: &StartMarker) -> Vec<Membership> {
    match read_record(path) {
        Ok(record) if record.job == *job => record.memberships,
        Ok(_) => Vec::new(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "not the memberships of a job; ignored");
            Vec::new()
        }
    }
}

fn read_record(path: &Path) -> io::Result<Record> {
    Ok(serde_json::from_reader(BufReader::new(File::open(path)?.take(FILE_BYTES_MAX)))?)
}

fn write(path: &Path, job: &StartMarker, memberships: &[Membership]) -> io::Result<()> {
    let record = Record { job: job.clone(), memberships: memberships.to_vec() };
    whole_file::write(path, serde_json::to_vec(&record)?)
}

#[derive(Debug)]
pub(crate) struct MembershipWriter {
    latest: Option<watch::Sender<Vec<Membership>>>,
    writing: JoinHandle<()>,
}

impl MembershipWriter {
    /// Writes to `path` the memberships that are noted after `known`. Must be called within a tokio runtime.
    pub(crate) fn start(path: PathBuf, job: StartMarker, known: Vec<Membership>) -> Self {
        let (latest, mut changes) = watch::channel(known);
        let writing = tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                let memberships = changes.borrow_and_update().clone();
                let (file, job) = (path.clone(), job.clone());
                let written = spawn_blocking(move || write(&file, &job, &memberships)).await;
                if let Ok(Err(error)) = written {
                    let path = path.display();
                    tracing::warn!(%path, %error, "a restarted manager will not know who holds what");
                }
            }
        });
        Self { latest: Some(latest), writing }
    }

    /// Takes note of the memberships if they have changed.
    pub(crate) fn note(&self, memberships: &[Membership]) {
        let Some(latest) = &self.latest else { return };
        latest.send_if_modified(|noted| {
            let number = |all: &[Membership]| all.last().map(|it| it.generation);
            let has_changed = number(noted) != number(memberships);
            if has_changed {
                *noted = memberships.to_vec();
            }
            has_changed
        });
    }

    /// Waits until the latest is written.
    pub(crate) async fn end(&mut self) {
        self.latest = None;
        // A panic of the thread counts as a failed write.
        let _ = (&mut self.writing).await;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tierfeed_core::{id::Epoch, retention::partition::Member, units::Bytes};

    use super::*;

    fn memberships(count: u32) -> Vec<Membership> {
        let member = |process| Member { room: Bytes(5), process };
        let membership = |generation: u32| Membership {
            generation,
            from: Epoch(3 * generation),
            nodes: (0..3).map(|node| member(u64::MAX - node)).collect(),
        };
        (1..=count).map(membership).collect()
    }

    #[tokio::test]
    async fn a_restarted_manager_reads_the_latest_memberships_of_its_job() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memberships.json");
        let job = StartMarker::new("job", vec![7]);
        assert_eq!(read(&path, &job), []);
        let mut writer = MembershipWriter::start(path.clone(), job.clone(), Vec::new());
        (0..=4).for_each(|count| writer.note(&memberships(count)));
        writer.end().await;
        assert_eq!(read(&path, &job), memberships(4));
        assert_eq!(read(&path, &StartMarker::new("job", vec![8])), [], "another index");
        fs::write(&path, "{}").unwrap();
        assert_eq!(read(&path, &job), []);
    }

    #[tokio::test]
    async fn what_has_not_changed_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memberships.json");
        let job = StartMarker::new("job", vec![7]);
        let mut writer = MembershipWriter::start(path.clone(), job.clone(), memberships(2));
        writer.note(&memberships(2));
        writer.end().await;
        assert!(!path.exists());
    }
}
