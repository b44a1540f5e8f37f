//! The folder of one run on one host: sockets, token, index and report.
//!
//! The folder belongs to one user and to one agent at a time, so an agent that restarts with the same folder
//! is the same node. No other user may write to it. One that exists is taken as it is: its rights are never
//! changed, and it must be empty or that of an earlier run.
//!
//! Socket addresses hold at most 107 bytes; if the folder's own path is too long, or others may read it, its
//! sockets are in this user's folder under `/tmp`, below a hash of the path. The folder of a user is
//! `tierfeed-UID`; if another user has taken that name, it has a random suffix, and the user's processes find
//! it by its owner.
//!
//! `$XDG_RUNTIME_DIR` is not used: it is removed when the user logs out, and jobs outlive that.

pub(crate) mod beside;
pub mod history;
pub mod memberships;
pub mod rendezvous;
pub mod schedule_log;
pub mod start_marker;
pub mod trainer_file;

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{self, Path, PathBuf},
};

use nix::{
    fcntl::{Flock, FlockArg},
    unistd::{Uid, gethostname, mkdtemp},
};
use xxhash_rust::xxh3::xxh3_64;

/// `sun_path` of `unix(7)`, less the final zero.
const SOCKET_PATH_MAX: usize = 107;

/// The prefix of files by which a process asks the file system for the time.
const ARRIVAL: &str = "arrival-";

/// An upper bound of the length of socket names in a run directory.
const SOCKET_NAME_MAX: usize = 16;

const ANOTHER: &str = "name another directory: --run-dir DIR, or TIERFEED_RUN_DIR for a training that starts its \
                       agent itself";

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunDirError {
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {source}; {another}", .path.display(), another = ANOTHER)]
    Unwritable { path: PathBuf, source: io::Error },
    /// Trainers find the agent by text.
    #[error("{}: the path of a run directory must be UTF-8; {another}", .path.display(), another = ANOTHER)]
    NotText { path: PathBuf },
    #[error(
        "{}: it has other files ({name}), so it is no run directory; name one that is not there yet, such as {}",
        .path.display(), .path.join("run").display()
    )]
    Occupied { path: PathBuf, name: String },
    #[error(
        "{}: owner {owner}, mode {mode:03o}; a run directory is yours and nobody else may write to it; name one \
         that is not there yet, such as {}",
        .path.display(), .path.join("run").display()
    )]
    Writable { path: PathBuf, owner: u32, mode: u32 },
    #[error(
        "{}: another {} works in this run directory; {another}",
        .path.display(), .owner.name(), another = ANOTHER
    )]
    Busy { path: PathBuf, owner: LockOwner },
    /// Other users could have put sockets there.
    #[error(
        "{}: owner {owner}, mode {mode:03o}; a folder for sockets must be yours with mode 700",
        .path.display()
    )]
    Exposed { path: PathBuf, owner: u32, mode: u32 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir {
    path: PathBuf,
    sockets: PathBuf,
}

/// The kinds of process that lock a run directory; one of each at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockOwner {
    Agent,
    Manager,
    /// `tierfeed run`, on its node.
    Run,
}

impl LockOwner {
    const fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Manager => "manager",
            Self::Run => "run",
        }
    }
}

/// Released when it is dropped.
#[derive(Debug)]
pub struct RunDirLock {
    _lock: Flock<File>,
}

impl RunDir {
    /// Opens the folder, and creates it and its parents if they do not exist.
    ///
    /// # Errors
    ///
    /// If the folder or its folder for sockets cannot be created, if others may write to it, or if it has
    /// files of something else.
    pub fn create(path: &Path) -> Result<Self, RunDirError> {
        if !make(path)? {
            require_run_dir(path)?;
        }
        Self::made(path)
    }

    /// Creates a folder with a name that no other has: `path`, or that with a number behind it.
    ///
    /// # Errors
    ///
    /// As [`Self::create`].
    pub fn create_new(path: &Path) -> Result<Self, RunDirError> {
        let mut free = path.to_owned();
        let mut number = 1;
        while !make(&free)? {
            number += 1;
            let mut name = path.as_os_str().to_owned();
            name.push(format!("-{number}"));
            free = name.into();
        }
        Self::made(&free)
    }

    fn made(path: &Path) -> Result<Self, RunDirError> {
        let found = fs::canonicalize(path);
        let path = found.map_err(|source| RunDirError::Io { path: path.to_owned(), source })?;
        require_text(&path)?;
        let sockets = sockets_for(&path)?;
        if sockets != path {
            create_private(&sockets)?;
        }
        Ok(Self { path, sockets })
    }

    /// Creates a folder below one in `/tmp` that is private to this user.
    ///
    /// # Errors
    ///
    /// As [`Self::create`], also if another user created one of the folders.
    pub fn create_in_tmp(names: &[String]) -> Result<Self, RunDirError> {
        for len in 1..names.len() {
            create_private(&in_tmp(&names[..len])?)?;
        }
        Self::create(&in_tmp(names)?)
    }

    /// Opens an existing folder.
    ///
    /// # Errors
    ///
    /// If it does not exist, or is open to other users.
    pub fn open(path: &Path) -> Result<Self, RunDirError> {
        let failed = |source| RunDirError::Io { path: path.to_owned(), source };
        let path = fs::canonicalize(path).map_err(failed)?;
        require_text(&path)?;
        let sockets = sockets_for(&path)?;
        check_private(&sockets)?;
        Ok(Self { path, sockets })
    }

    /// Locks the folder for a process of this kind.
    ///
    /// # Errors
    ///
    /// [`RunDirError::Busy`] if another process has locked it.
    pub fn lock(&self, owner: LockOwner) -> Result<RunDirLock, RunDirError> {
        let path = self.lock_path(owner);
        let failed = |source| RunDirError::Io { path: path.clone(), source };
        let file = File::create(&path).map_err(failed)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(RunDirLock { _lock: lock }),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => {
                Err(RunDirError::Busy { path: self.path.clone(), owner })
            }
            Err((_, errno)) => Err(failed(errno.into())),
        }
    }

    fn lock_path(&self, owner: LockOwner) -> PathBuf {
        self.path.join(owner.name()).with_extension("lock")
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn agent_socket(&self) -> PathBuf {
        self.sockets.join("agent.sock")
    }

    /// The socket of an embedded manager.
    #[must_use]
    pub fn manager_socket(&self) -> PathBuf {
        self.sockets.join("manager.sock")
    }

    /// The index of the dataset, unless the job names another path.
    #[must_use]
    pub fn index(&self) -> PathBuf {
        self.path.join("dataset.index")
    }

    #[must_use]
    pub fn schedule_log(&self) -> PathBuf {
        self.path.join("schedules.jsonl")
    }

    #[must_use]
    pub fn memberships(&self) -> PathBuf {
        self.path.join("memberships.json")
    }

    #[must_use]
    pub fn start_marker(&self) -> PathBuf {
        self.path.join("begun")
    }

    /// The token of the job, which the manager writes.
    #[must_use]
    pub fn token(&self) -> PathBuf {
        self.path.join("token")
    }

    #[must_use]
    pub fn metrics_token(&self) -> PathBuf {
        self.path.join("metrics.token")
    }

    /// The address of the manager, which it writes.
    #[must_use]
    pub fn manager_address(&self) -> PathBuf {
        self.path.join("manager.address")
    }

    /// The socket at which the first process of a node waits for the others, if a launcher starts one for each
    /// rank.
    #[must_use]
    pub fn ranks_socket(&self) -> PathBuf {
        self.sockets.join("ranks.sock")
    }

    #[must_use]
    pub fn rendezvous(&self) -> PathBuf {
        self.path.join("rendezvous")
    }

    /// The exit code of a first node that failed before its manager answered, for the nodes that wait for it.
    #[must_use]
    pub fn failed(&self) -> PathBuf {
        self.path.join("failed")
    }

    /// A file by which a process asks the file system for the time.
    #[must_use]
    pub fn arrival(&self) -> PathBuf {
        self.path.join(format!("{ARRIVAL}{}", std::process::id()))
    }

    /// The run directory of a node of a job whose nodes share this one.
    #[must_use]
    pub fn of_node(&self, node: u32) -> PathBuf {
        self.path.join(format!("node-{node}"))
    }

    #[must_use]
    pub fn trainer_file(&self) -> PathBuf {
        self.path.join("trainer.json")
    }

    #[must_use]
    pub fn manager_metrics_socket(&self) -> PathBuf {
        self.sockets.join("overview.sock")
    }

    #[must_use]
    pub fn agent_metrics_socket(&self) -> PathBuf {
        self.sockets.join("observe.sock")
    }

    #[must_use]
    pub fn manager_targets(&self) -> PathBuf {
        self.path.join("prometheus-manager.json")
    }

    #[must_use]
    pub fn prometheus_targets(&self) -> PathBuf {
        self.path.join("prometheus.json")
    }

    /// The job of a training that gave it as arguments.
    #[must_use]
    pub fn job_file(&self) -> PathBuf {
        self.path.join("job.yaml")
    }

    #[must_use]
    pub fn report_page(&self) -> PathBuf {
        self.path.join("report.html")
    }

    #[must_use]
    pub fn report(&self) -> PathBuf {
        self.path.join("report.json")
    }

    /// A hash of host name and folder: the same for every process that uses the folder.
    #[must_use]
    pub fn home(&self) -> u64 {
        let host = gethostname().unwrap_or_default();
        let mut name = host.into_encoded_bytes();
        name.push(0);
        name.extend_from_slice(self.path.as_os_str().as_encoded_bytes());
        xxh3_64(&name)
    }
}

/// The path at which [`RunDir::create_in_tmp`] creates a folder.
///
/// # Errors
///
/// If this user has no private folder under `/tmp` and none can be created.
pub fn in_tmp(names: &[String]) -> Result<PathBuf, RunDirError> {
    let own = own_folder(Path::new("/tmp"))?;
    Ok(names.iter().fold(own, |path, name| path.join(name)))
}

/// A digest of what distinguishes a run from others, for the name of its folder.
#[must_use]
pub fn digest(parts: &[String]) -> String {
    format!("{:08x}", xxh3_64(parts.join("\0").as_bytes()) >> 32)
}

/// Creates the folder and its parents; `false` if it was there.
fn make(path: &Path) -> Result<bool, RunDirError> {
    let failed = |source| RunDirError::Unwritable { path: path.to_owned(), source };
    require_text(&path::absolute(path).map_err(failed)?)?;
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(source) => Err(failed(source)),
    }
}

fn require_text(path: &Path) -> Result<(), RunDirError> {
    match path.to_str() {
        Some(_) => Ok(()),
        None => Err(RunDirError::NotText { path: path.to_owned() }),
    }
}

/// Checks that an existing folder may serve a run: the files that processes of a run leave there tell that it
/// did before.
fn require_run_dir(path: &Path) -> Result<(), RunDirError> {
    let failed = |source| RunDirError::Io { path: path.to_owned(), source };
    let found = fs::metadata(path).map_err(failed)?;
    let (owner, mode) = (found.uid(), found.mode() & 0o777);
    if owner != Uid::effective().as_raw() || mode & 0o022 != 0 {
        return Err(RunDirError::Writable { path: path.to_owned(), owner, mode });
    }
    let mut strange = None;
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        let of_owner = |owner: LockOwner| name == format!("{}.lock", owner.name());
        let is_ours =
            [LockOwner::Agent, LockOwner::Manager, LockOwner::Run].into_iter().any(of_owner);
        if is_ours || name.starts_with("node-") || name.starts_with(ARRIVAL) {
            return Ok(());
        }
        strange = Some(name);
    }
    match strange {
        None => Ok(()),
        Some(name) => Err(RunDirError::Occupied { path: path.to_owned(), name }),
    }
}

fn sockets_for(path: &Path) -> Result<PathBuf, RunDirError> {
    let name = path.as_os_str().as_encoded_bytes();
    if name.len() + SOCKET_NAME_MAX < SOCKET_PATH_MAX && check_private(path).is_ok() {
        return Ok(path.to_owned());
    }
    in_tmp(&[format!("{:016x}", xxh3_64(name))])
}

/// The private folder of this user in a shared directory; created if there is none.
fn own_folder(shared: &Path) -> Result<PathBuf, RunDirError> {
    let failed = |source| RunDirError::Io { path: shared.to_owned(), source };
    let usual = shared.join(format!("tierfeed-{}", Uid::effective()));
    match create_private(&usual) {
        Ok(()) => return Ok(usual),
        Err(RunDirError::Exposed { .. }) => (),
        Err(error) => return Err(error),
    }
    let prefix = format!("tierfeed-{}-", Uid::effective());
    let find = || -> io::Result<Option<PathBuf>> {
        let entries = fs::read_dir(shared)?.filter_map(Result::ok);
        let named =
            entries.filter(|it| it.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()));
        Ok(named.map(|it| it.path()).filter(|path| check_private(path).is_ok()).min())
    };
    if let Some(path) = find().map_err(failed)? {
        return Ok(path);
    }
    tracing::warn!(
        "{} belongs to another user; this user gets another folder beside it",
        usual.display()
    );
    let template = shared.join(format!("{prefix}XXXXXX"));
    let made = mkdtemp(template.as_path());
    let made = made.map_err(|errno| failed(errno.into()))?;
    // Another process may have created one at the same time: both use the first by name.
    Ok(find().map_err(failed)?.unwrap_or(made))
}

fn create_private(path: &Path) -> Result<(), RunDirError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
        Err(source) => return Err(RunDirError::Io { path: path.to_owned(), source }),
    }
    check_private(path)
}

fn check_private(path: &Path) -> Result<(), RunDirError> {
    let failed = |source| RunDirError::Io { path: path.to_owned(), source };
    // A link could be changed after the check.
    let found = fs::symlink_metadata(path).map_err(failed)?;
    let (owner, mode) = (found.uid(), found.mode() & 0o777);
    let for_others = mode & 0o077;
    if found.is_dir() && owner == Uid::effective().as_raw() && for_others == 0 {
        return Ok(());
    }
    Err(RunDirError::Exposed { path: path.to_owned(), owner, mode })
}

#[cfg(test)]
mod tests {
    use std::os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn a_run_directory_is_private_and_holds_its_sockets() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::create(&folder.path().join("a/b")).unwrap();
        assert_eq!(fs::metadata(run.path()).unwrap().mode() & 0o777, 0o700);
        assert_eq!(run.agent_socket(), run.path().join("agent.sock"));
        assert_eq!(RunDir::open(run.path()).unwrap(), run);
    }

    /// A folder with these rights and a file of that name.
    fn folder_of_the_user(mode: u32, file: Option<&str>) -> (tempfile::TempDir, PathBuf) {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("theirs");
        fs::create_dir(&path).unwrap();
        if let Some(name) = file {
            fs::write(path.join(name), "").unwrap();
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (parent, path)
    }

    #[test]
    fn a_folder_that_was_there_keeps_its_rights_and_one_of_something_else_is_refused() {
        for (mode, file, is_taken) in [
            (0o755, None, true),
            (0o755, Some("run.lock"), true),
            (0o700, Some("agent.lock"), true),
            (0o700, Some("thesis.tex"), false),
            (0o2775, None, false),
            (0o1777, None, false),
        ] {
            let (_parent, path) = folder_of_the_user(mode, file);
            let created = RunDir::create(&path);
            assert_eq!(created.is_ok(), is_taken, "{mode:o} {file:?}: {created:?}");
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode, "{file:?}");
            let Ok(run) = created else { continue };
            let sockets = run.agent_socket().parent().unwrap().to_owned();
            assert_eq!(fs::metadata(&sockets).unwrap().mode() & 0o777, 0o700, "{mode:o}");
            assert_eq!(RunDir::open(&path).unwrap(), run);
            if sockets != run.path() {
                fs::remove_dir(sockets).unwrap();
            }
        }
    }

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let paths = [(); 3].map(|()| RunDir::create_new(&path).unwrap().path().to_owned());
        assert_eq!(paths.each_ref().map(|it| it.file_name().unwrap()), ["run", "run-2", "run-3"]);
    }

    #[test]
    fn a_path_that_is_no_text_is_refused_before_anything_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
        let error = RunDir::create(&folder.path().join(name).join("run")).unwrap_err();
        assert!(error.to_string().contains("must be UTF-8; name another directory"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn where_nothing_can_be_made_the_message_says_how_to_name_another_place() {
        let error = RunDir::create(Path::new("/proc/tierfeed/run")).unwrap_err();
        assert!(error.to_string().contains("--run-dir DIR, or TIERFEED_RUN_DIR"), "{error}");
    }

    #[test]
    fn long_paths_get_a_private_folder_for_sockets() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::create(&folder.path().join("x".repeat(120))).unwrap();
        let socket = run.agent_socket();
        assert!(socket.as_os_str().len() <= SOCKET_PATH_MAX, "{}", socket.display());
        assert_eq!(fs::metadata(socket.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        let other = RunDir::create(&folder.path().join("y".repeat(120))).unwrap();
        assert_ne!(other.agent_socket(), socket);
        for run in [run, other] {
            fs::remove_dir(run.agent_socket().parent().unwrap()).unwrap();
        }
    }

    /// Any user can create a folder with a predictable name.
    #[test]
    fn a_name_that_another_has_taken_is_replaced_by_one_that_is_found_again() {
        let shared = tempfile::tempdir().unwrap();
        let usual = own_folder(shared.path()).unwrap();
        assert_eq!(own_folder(shared.path()).unwrap(), usual);
        fs::remove_dir(&usual).unwrap();
        std::os::unix::fs::symlink("/", &usual).unwrap();
        let other = own_folder(shared.path()).unwrap();
        assert_ne!(other, usual);
        check_private(&other).unwrap();
        assert_eq!(own_folder(shared.path()).unwrap(), other);
    }

    #[test]
    fn a_link_is_no_folder_for_sockets() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert!(matches!(check_private(&link), Err(RunDirError::Exposed { .. })));
    }

    #[test]
    fn one_agent_works_in_a_run_directory() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::create(&folder.path().join("run")).unwrap();
        let run_dir_lock = run.lock(LockOwner::Agent).unwrap();
        let error = run.lock(LockOwner::Agent).unwrap_err();
        assert!(error.to_string().contains("another agent works in this run directory"));
        run.lock(LockOwner::Manager).unwrap();
        drop(run_dir_lock);
        run.lock(LockOwner::Agent).unwrap();
    }

    #[test]
    fn homes_differ_by_folder_and_stay() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::create(&folder.path().join("run")).unwrap();
        let other = RunDir::create(&folder.path().join("other")).unwrap();
        assert_eq!(run.home(), RunDir::open(run.path()).unwrap().home());
        assert_ne!(run.home(), other.home());
    }
}
