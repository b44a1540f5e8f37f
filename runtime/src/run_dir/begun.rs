//! The note that a job has begun: of which job file, and with which index.
//!
//! Agents hold an order that follows from the index, so a manager that comes back needs the same one,
//! whatever became of the dataset meanwhile. The note is made when the first node joins and goes when the
//! job is known to have ended: by `tierfeed drain`, or because the command of `tierfeed run` ended well.
//! A job that was killed, stopped or failed is one that may go on.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use xxhash_rust::xxh3::xxh3_64;

/// Longer than every note.
const FILE_BYTES_MAX: u64 = 4096;

/// What a job began with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Begun {
    /// xxh3-64 of the text of the job file.
    job: u64,
    /// Of the dataset's index.
    index_fingerprint: u64,
}

impl Begun {
    /// The note of a job that begins now.
    #[must_use]
    pub fn new(job_text: &str, index_fingerprint: u64) -> Self {
        Self { job: xxh3_64(job_text.as_bytes()), index_fingerprint }
    }

    /// The fingerprint of the index that the job of this text began with, according to the note at
    /// `path`; `None` if there is no such note, or it is that of another job.
    #[must_use]
    pub fn index_of(path: &Path, job_text: &str) -> Option<u64> {
        let begun = match read(path) {
            Ok(begun) => begun,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "not a note of a job; passed over");
                return None;
            }
        };
        let same = Self::new(job_text, begun.index_fingerprint);
        (begun == same).then_some(begun.index_fingerprint)
    }

    /// Removes the note of a job that ended.
    ///
    /// # Errors
    ///
    /// If it is there and cannot be removed.
    pub fn strike(path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn write(self, path: &Path) -> io::Result<()> {
        let beside = path.with_extension("part");
        fs::write(&beside, serde_json::to_vec(&self)?)?;
        fs::rename(&beside, path)
    }
}

fn read(path: &Path) -> io::Result<Begun> {
    let mut text = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Where a manager notes that its job has begun. A note that cannot be made costs what it is for, and
/// nothing else: it is written beside the loop of the manager, for the run directory may not answer.
#[derive(Debug)]
pub(crate) struct Note {
    path: PathBuf,
    begun: Begun,
    is_made: bool,
    writing: JoinSet<()>,
    /// What comes after that which is being written. The last word counts.
    next: Option<Step>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Make,
    Strike,
}

impl Note {
    pub(crate) fn new(path: PathBuf, begun: Begun) -> Self {
        Self { path, begun, is_made: false, writing: JoinSet::new(), next: None }
    }

    /// The first node joined. Must be called within a tokio runtime.
    pub(crate) fn make(&mut self) {
        if !self.is_made {
            self.is_made = true;
            self.take(Step::Make);
        }
    }

    /// The job ended. Must be called within a tokio runtime.
    pub(crate) fn strike(&mut self) {
        self.take(Step::Strike);
    }

    /// Waits for what is being written and begins with the next; `None` if there is nothing. Nothing is
    /// lost if the wait is given up.
    pub(crate) async fn written(&mut self) -> Option<()> {
        // A thread that panicked has written nothing, as if writing had failed.
        let _ = self.writing.join_next().await?;
        if let Some(step) = self.next.take() {
            self.start(step);
        }
        Some(())
    }

    /// Waits until all is written.
    pub(crate) async fn end(&mut self) {
        while self.written().await.is_some() {}
    }

    fn take(&mut self, step: Step) {
        if self.writing.is_empty() {
            self.start(step);
        } else {
            self.next = Some(step);
        }
    }

    fn start(&mut self, step: Step) {
        let (path, begun) = (self.path.clone(), self.begun);
        self.writing.spawn_blocking(move || {
            let outcome = match step {
                Step::Make => begun.write(&path),
                Step::Strike => Begun::strike(&path),
            };
            if let Err(error) = outcome {
                let path = path.display();
                tracing::warn!(%path, %error, "a manager that comes back will index the dataset anew");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_that_of_one_job_file_until_it_is_struck() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("begun");
        assert_eq!(Begun::index_of(&path, "job"), None);
        Begun::new("job", u64::MAX).write(&path).unwrap();
        assert_eq!(Begun::index_of(&path, "job"), Some(u64::MAX));
        assert_eq!(Begun::index_of(&path, "another job"), None);
        Begun::strike(&path).unwrap();
        assert_eq!(Begun::index_of(&path, "job"), None);
        Begun::strike(&path).unwrap();
    }

    #[test]
    fn nonsense_is_no_note() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("begun");
        let right = serde_json::to_string(&Begun::new("job", 1)).unwrap();
        for text in ["", "{}", "{\"job\":1}"] {
            fs::write(&path, text).unwrap();
            assert_eq!(Begun::index_of(&path, "job"), None, "{text}");
        }
        let late = format!("{}{}}}", right.trim_end_matches('}'), " ".repeat(5000));
        fs::write(&path, late).unwrap();
        assert_eq!(Begun::index_of(&path, "job"), None, "no note is so long");
        fs::write(&path, right).unwrap();
        assert_eq!(Begun::index_of(&path, "job"), Some(1));
    }

    #[tokio::test]
    async fn a_note_is_made_once_and_what_cannot_be_struck_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("begun");
        let begun = Begun::new("job", 1);
        let mut note = Note::new(path.clone(), begun);
        note.make();
        note.end().await;
        assert_eq!(Begun::index_of(&path, "job"), Some(1));
        note.strike();
        note.make();
        note.end().await;
        assert_eq!(Begun::index_of(&path, "job"), None, "nodes that come late begin no job");
        fs::create_dir(&path).unwrap();
        Begun::strike(&path).unwrap_err();
    }
}
