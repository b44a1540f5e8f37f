//! The memberships of the nodes that share what they hold, `memberships.json`: a manager that is restarted goes
//! on with them, because who holds what follows from all of them, also for a node that comes later.
//!
//! Only the latest state is written. If that fails, nodes that come after a restart ask others in vain for some
//! samples, until the memberships change for all.

use std::{
    fs::File,
    io::{self, BufReader, Read as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};
use tierfeed_core::retention::partition::Membership;

use super::{beside::WritesBeside, start_marker::StartMarker};
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

fn write(path: &Path, record: &Record) -> io::Result<()> {
    whole_file::write(path, serde_json::to_vec(record)?)
}

/// The latest memberships of a job, for the file at `path`.
#[derive(Debug)]
pub(crate) struct NotedMemberships {
    path: PathBuf,
    job: StartMarker,
    generation: Option<u32>,
    /// Those that are not written yet.
    latest: Arc<Mutex<Option<Vec<Membership>>>>,
}

impl NotedMemberships {
    /// `known` stand in the file already.
    pub(crate) fn new(path: PathBuf, job: StartMarker, known: &[Membership]) -> Self {
        Self { path, job, generation: last_of(known), latest: Arc::default() }
    }

    /// Takes note of the memberships if they have changed.
    pub(crate) fn note(&mut self, memberships: &[Membership], writes: &WritesBeside) {
        if self.generation == last_of(memberships) {
            return;
        }
        self.generation = last_of(memberships);
        let (latest, job) = (Arc::clone(&self.latest), self.job.clone());
        *lock(&latest) = Some(memberships.to_vec());
        let lost = "a restarted manager will not know who holds what";
        writes.give(self.path.clone(), lost, move |path| match lock(&latest).take() {
            Some(memberships) => write(path, &Record { job, memberships }),
            // A write before this one had them.
            None => Ok(()),
        });
    }
}

fn last_of(memberships: &[Membership]) -> Option<u32> {
    memberships.last().map(|it| it.generation)
}

fn lock<T>(latest: &Mutex<T>) -> MutexGuard<'_, T> {
    latest.lock().unwrap_or_else(PoisonError::into_inner)
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
        let writes = WritesBeside::start();
        let mut noted = NotedMemberships::new(path.clone(), job.clone(), &[]);
        (0..=4).for_each(|count| noted.note(&memberships(count), &writes));
        writes.end().await;
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
        let writes = WritesBeside::start();
        NotedMemberships::new(path.clone(), job, &memberships(2)).note(&memberships(2), &writes);
        writes.end().await;
        assert!(!path.exists());
    }
}
