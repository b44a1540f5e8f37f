//! The run directories of earlier runs: finds live ones and removes old ones.
//!
//! A run directory is live while a process has locked it ([`RunDir::lock`]). Manager and agent lock it
//! before they listen, so a live one need not answer yet.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. No directory is removed that a process has locked.
//! 2. Of those that have ended, the newest stay.

use std::{
    cmp::Reverse,
    fs::{self, File},
    io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::SystemTime,
};

use nix::fcntl::{Flock, FlockArg};

use super::{LockOwner, RunDir, RunDirError};

impl RunDir {
    /// Whether a manager or an agent answers here.
    #[must_use]
    pub fn answers(&self) -> bool {
        // Manager and agent serve these sockets for as long as they run.
        let sockets = [self.manager_metrics_socket(), self.agent_metrics_socket()];
        sockets.iter().any(|socket| UnixStream::connect(socket).is_ok())
    }

    /// When a process last locked it; `None` if none has.
    fn locked_at(&self) -> Option<SystemTime> {
        let locks = [LockOwner::Manager, LockOwner::Agent].map(|owner| self.lock_path(owner));
        locks.iter().filter_map(|lock| fs::metadata(lock).ok()?.modified().ok()).max()
    }

    /// Locks it for its removal; `None` if a process has locked it. Keeps the times of the lock files.
    fn lock_all(&self) -> Option<Vec<Flock<File>>> {
        let locks = [LockOwner::Manager, LockOwner::Agent].map(|owner| self.lock_path(owner));
        let there = locks.iter().filter(|lock| lock.exists());
        let lock = |path: &PathBuf| {
            let file = File::options().write(true).open(path).ok()?;
            Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()
        };
        there.map(lock).collect()
    }
}

/// The run directories below `runs`, and of `others`, in which a process answers; the one that was locked last first.
///
/// # Errors
///
/// If `runs` exists and cannot be listed.
pub fn live(runs: &Path, others: &[PathBuf]) -> Result<Vec<RunDir>, RunDirError> {
    let listed = below(runs)?.into_iter().chain(others.iter().cloned());
    let mut live = begun(listed).filter(|(_, run_dir)| run_dir.answers()).collect::<Vec<_>>();
    live.sort_by_key(|(time, _)| Reverse(*time));
    Ok(live.into_iter().map(|(_, run_dir)| run_dir).collect())
}

/// Those that a process has locked, with the time of the last lock.
fn begun(paths: impl IntoIterator<Item = PathBuf>) -> impl Iterator<Item = (SystemTime, RunDir)> {
    let opened = paths.into_iter().filter_map(|path| RunDir::open(&path).ok());
    opened.filter_map(|run_dir| Some((run_dir.locked_at()?, run_dir)))
}

/// The run directory below `runs` that was locked last.
///
/// # Errors
///
/// If `runs` exists and cannot be listed.
pub fn newest(runs: &Path) -> Result<Option<RunDir>, RunDirError> {
    Ok(begun(below(runs)?).max_by_key(|(time, _)| *time).map(|(_, run_dir)| run_dir))
}

/// Removes the run directories below `runs` that no process has locked, except for the newest `kept`.
/// Returns the number of removed ones.
///
/// # Errors
///
/// If `runs` exists and cannot be listed.
pub fn prune(runs: &Path, kept: usize) -> Result<usize, RunDirError> {
    // A directory that was never locked belongs to a run that starts now, or is no run directory.
    let begun = begun(below(runs)?);
    let ended = begun.filter_map(|(time, run_dir)| Some((time, run_dir.lock_all()?, run_dir)));
    let mut ended: Vec<_> = ended.collect();
    ended.sort_by_key(|(time, _, _)| *time);
    let surplus = ended.len().saturating_sub(kept);
    let mut removed = 0;
    for (_, _locked, run_dir) in ended.drain(..surplus) {
        match run_dir.remove() {
            Ok(()) => removed += 1,
            Err(error) => tracing::debug!(%error, "an old run directory is left behind"),
        }
    }
    Ok(removed)
}

impl RunDir {
    fn remove(&self) -> Result<(), RunDirError> {
        let failed = |path: &Path, source| RunDirError::Io { path: path.to_owned(), source };
        if self.sockets != self.path {
            fs::remove_dir_all(&self.sockets).map_err(|source| failed(&self.sockets, source))?;
        }
        fs::remove_dir_all(&self.path).map_err(|source| failed(&self.path, source))
    }
}

/// The folders in a folder; none if it does not exist.
fn below(folder: &Path) -> Result<Vec<PathBuf>, RunDirError> {
    let failed = |source| RunDirError::Io { path: folder.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let paths: Vec<_> = paths.collect::<Result<_, _>>().map_err(failed)?;
    Ok(paths.into_iter().filter(|path| path.is_dir() && !path.is_symlink()).collect())
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, time::Duration};

    use super::*;

    /// A run that was begun so many seconds after 1970, and has ended.
    fn ended(runs: &Path, name: &str, second: u64) -> RunDir {
        let run_dir = RunDir::create(&runs.join(name)).unwrap();
        drop(run_dir.lock(LockOwner::Manager).unwrap());
        set_begun(&run_dir, second);
        fs::write(run_dir.report(), "{}").unwrap();
        run_dir
    }

    fn set_begun(run_dir: &RunDir, second: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        let lock = File::options().write(true).open(run_dir.lock_path(LockOwner::Manager)).unwrap();
        lock.set_modified(time).unwrap();
    }

    fn names(runs: &Path) -> Vec<String> {
        let mut names: Vec<_> = below(runs)
            .unwrap()
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_newest_of_those_that_ended_stay_and_all_that_run() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path();
        for (name, second) in [("a", 1), ("d", 4), ("c", 3), ("b", 2)] {
            ended(runs, name, second);
        }
        let working = ended(runs, "oldest", 0);
        let run_dir_lock = working.lock(LockOwner::Agent).unwrap();
        set_begun(&working, 0);
        fs::create_dir(runs.join("not ours")).unwrap();
        assert_eq!(prune(runs, 2).unwrap(), 2);
        assert_eq!(names(runs), ["c", "d", "not ours", "oldest"]);
        drop(run_dir_lock);
        assert_eq!(prune(runs, 2).unwrap(), 1);
        assert_eq!(names(runs), ["d", "not ours", "oldest"], "its agent began last");
        assert_eq!(prune(&runs.join("nowhere"), 2).unwrap(), 0);
    }

    #[test]
    fn the_sockets_of_a_long_path_go_with_its_directory() {
        let folder = tempfile::tempdir().unwrap();
        let run_dir = ended(folder.path(), &"x".repeat(120), 1);
        assert!(run_dir.sockets != run_dir.path && run_dir.sockets.exists());
        assert_eq!(prune(folder.path(), 0).unwrap(), 1);
        assert!(!run_dir.sockets.exists());
    }

    #[test]
    fn a_run_that_answers_is_found_although_another_ended_later() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path();
        assert_eq!(live(runs, &[]).unwrap(), []);
        let lives = ended(runs, "live", 1);
        let _listens = UnixListener::bind(lives.manager_metrics_socket()).unwrap();
        let dead = ended(runs, "dead", 2);
        // What a killed process leaves.
        drop(UnixListener::bind(dead.manager_metrics_socket()).unwrap());
        assert_eq!(live(runs, &[]).unwrap(), std::slice::from_ref(&lives));
        assert_eq!(newest(runs).unwrap(), Some(dead));
        let beside = folder.path().join("beside");
        let agent = ended(&beside, "agent", 3);
        let _also = UnixListener::bind(agent.agent_metrics_socket()).unwrap();
        let others = [agent.path().to_owned()];
        assert_eq!(live(runs, &others).unwrap(), [agent, lives], "the newest first");
    }
}
