//! The files behind `tierfeed://`: read in order by pipelines of TensorFlow that know nothing of tierfeed.
//!
//! A thin layer: no agent takes part. What it adds to reading files plainly:
//!
//! 1. A file of this machine is read ahead in large blocks, into the page cache of the kernel, while
//!    TensorFlow parses what it has.
//! 2. The order in which a pass opened its files is remembered. When the next pass opens one, those that
//!    followed it are read ahead.
//! 3. An object of a bucket is read in large blocks, of which each file keeps one.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    os::{
        fd::{AsRawFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::UNIX_EPOCH,
};

use crate::{
    buckets::{Access, Buckets, Object},
    c_api::{Code, Failure},
};

/// How far a file is read ahead of TensorFlow, which reads pieces of 256 KiB.
const AHEAD_BYTES: u64 = 16 << 20;

/// Files that are read ahead of the one that is opened.
const FILES_AHEAD: usize = 2;

/// Files of a pass that are remembered.
const FILES_REMEMBERED: usize = 1 << 16;

/// The prefix of the addresses.
const SCHEME: &str = "tierfeed://";

/// The stores of buckets (as `SCHEMES` of `tierfeed/fsspec/`, without `http`, which lists nothing), as an address and as a URL calls them.
const STORES: [(&str, &str); 7] = [
    ("s3", "s3"),
    ("s3a", "s3a"),
    ("gs", "gs"),
    ("gcs", "gs"),
    ("az", "az"),
    ("abfs", "abfs"),
    ("abfss", "abfss"),
];

/// The bytes of an object that are read at once: TensorFlow reads 256 KiB.
const BLOCK_BYTES: u64 = 8 << 20;

/// A file that TensorFlow reads.
pub(crate) enum Opened {
    Local(LocalFile),
    Remote(RemoteFile),
}

/// A file of this machine.
pub(crate) struct LocalFile {
    file: File,
    len: u64,
    /// Up to where the kernel was told to read.
    announced: AtomicU64,
}

/// An object of a bucket.
pub(crate) struct RemoteFile {
    buckets: Arc<Buckets>,
    bucket: String,
    object: Object,
    /// The block that was read last, and where it starts.
    block: Mutex<Option<(u64, Arc<Vec<u8>>)>>,
}

/// A block, and where the byte that was asked for is in it.
type Located = (Arc<Vec<u8>>, usize);

/// What an address means.
enum Address<'a> {
    Local(&'a Path),
    /// The URL of a bucket, and a key in it.
    Bucket(String, &'a str),
}

/// What is known of a path.
pub(crate) struct Entry {
    pub(crate) len: u64,
    pub(crate) modified_ns: i64,
    pub(crate) is_directory: bool,
}

/// What this process read by these addresses.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Figures {
    /// Files that were opened.
    pub(crate) opened: u64,
    /// Files of which reading began before they were opened.
    pub(crate) foreseen: u64,
}

/// The files that passes opened.
#[derive(Default)]
struct Passes {
    /// Those of the pass before, and which came after each.
    earlier: Vec<Arc<Path>>,
    place_in_earlier: BTreeMap<Arc<Path>, usize>,
    /// Those of this pass, in order.
    current: Vec<Arc<Path>>,
    place_in_current: BTreeMap<Arc<Path>, usize>,
    /// Those that are read ahead and were not opened yet.
    foreseen: BTreeSet<Arc<Path>>,
    figures: Figures,
}

static PASSES: Mutex<Option<Passes>> = Mutex::new(None);
static BUCKETS: Mutex<Option<Arc<Buckets>>> = Mutex::new(None);

/// The path that an address means.
pub(crate) fn path_of(address: &OsStr) -> &OsStr {
    let bytes = address.as_bytes();
    OsStr::from_bytes(bytes.strip_prefix(SCHEME.as_bytes()).unwrap_or(bytes))
}

/// Opens a file. The kernel begins to read one of this machine, and those that will follow.
pub(crate) fn open(path: &OsStr) -> Result<Opened, Failure> {
    let place = match Address::of(path)? {
        Address::Local(place) => place,
        Address::Bucket(bucket, key) => {
            let buckets = buckets()?;
            let object = buckets.stat(&bucket, key)?;
            with_passes(|it| it.figures.opened += 1);
            let block = Mutex::new(None);
            return Ok(Opened::Remote(RemoteFile { buckets, bucket, object, block }));
        }
    };
    let of_file = |error| failure(path, &error);
    let file = File::open(place).map_err(of_file)?;
    let metadata = file.metadata().map_err(of_file)?;
    if metadata.is_dir() {
        let message = format!("{SCHEME}{} is a directory", path.display());
        return Err(Failure::new(Code::FailedPrecondition, message));
    }
    let opened = LocalFile { file, len: metadata.len(), announced: AtomicU64::new(0) };
    opened.read_ahead(0);
    for next in with_passes(|it| it.note(place)) {
        // A file that is gone is noticed when it is opened.
        if let Ok(file) = File::open(&next) {
            announce(&file, 0, AHEAD_BYTES);
        }
    }
    Ok(Opened::Local(opened))
}

impl LocalFile {
    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Tells the kernel to read what follows `offset`, once for each half of what is read ahead.
    pub(crate) fn read_ahead(&self, offset: u64) {
        let announced = self.announced.load(Ordering::Relaxed);
        let wanted = offset.saturating_add(AHEAD_BYTES).min(self.len);
        let is_due = wanted == self.len || wanted >= announced.saturating_add(AHEAD_BYTES / 2);
        if wanted > announced && is_due {
            self.announced.store(wanted, Ordering::Relaxed);
            announce(&self.file, announced.max(offset), wanted - announced.max(offset));
        }
    }
}

impl RemoteFile {
    /// The block with the byte at `offset`, and where that byte is in it; `None` behind the end.
    pub(crate) fn block(&self, offset: u64) -> Result<Option<Located>, Failure> {
        if offset >= self.object.size {
            return Ok(None);
        }
        let mut kept = self.block.lock().unwrap_or_else(PoisonError::into_inner);
        let start = offset - offset % BLOCK_BYTES;
        let block = match &*kept {
            Some((known, block)) if *known == start => Arc::clone(block),
            _ => {
                let end = self.object.size.min(start + BLOCK_BYTES);
                let read = self.buckets.read(&self.bucket, &self.object, (start, end))?;
                let block = Arc::new(read);
                *kept = Some((start, Arc::clone(&block)));
                block
            }
        };
        Ok(Some((block, usize::try_from(offset - start).unwrap_or(usize::MAX))))
    }
}

/// The error of a read.
pub(crate) fn unreadable(offset: u64, error: &io::Error) -> Failure {
    Failure::new(Code::DataLoss, format!("cannot read at byte {offset} of a file: {error}"))
}

/// What is at a path.
pub(crate) fn stat(path: &OsStr) -> Result<Entry, Failure> {
    let place = match Address::of(path)? {
        Address::Local(place) => place,
        Address::Bucket(bucket, key) => return stat_of_object(&bucket, key),
    };
    let metadata = fs::metadata(place).map_err(|error| failure(path, &error))?;
    let modified = metadata.modified().ok().and_then(|it| it.duration_since(UNIX_EPOCH).ok());
    Ok(Entry {
        len: metadata.len(),
        modified_ns: modified.map_or(0, |it| i64::try_from(it.as_nanos()).unwrap_or(i64::MAX)),
        is_directory: metadata.is_dir(),
    })
}

/// An object, or a directory if others lie below its key.
fn stat_of_object(bucket: &str, key: &str) -> Result<Entry, Failure> {
    let buckets = buckets()?;
    let missing = match buckets.stat(bucket, key) {
        Ok(Object { size, mtime_ns, .. }) => {
            return Ok(Entry { len: size, modified_ns: mtime_ns, is_directory: false });
        }
        Err(missing) if missing.code == Code::NotFound => missing,
        Err(failure) => return Err(failure),
    };
    let found = buckets.children(bucket, key)?;
    if found.objects.is_empty() && found.directories.is_empty() {
        return Err(missing);
    }
    Ok(Entry { len: 0, modified_ns: 0, is_directory: true })
}

/// The names in a directory, sorted.
pub(crate) fn children(path: &OsStr) -> Result<Vec<OsString>, Failure> {
    let mut names = Vec::new();
    match Address::of(path)? {
        Address::Local(place) => {
            let of_path = |error| failure(path, &error);
            for entry in fs::read_dir(place).map_err(of_path)? {
                names.push(entry.map_err(of_path)?.file_name());
            }
        }
        Address::Bucket(bucket, key) => {
            let found = buckets()?.children(&bucket, key)?;
            let keys = found.objects.into_iter().map(|it| it.key).chain(found.directories);
            names.extend(keys.filter_map(|key| key.rsplit('/').next().map(OsString::from)));
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// How buckets are reached from now on.
pub(crate) fn reach_buckets(access: Access) {
    *BUCKETS.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(Buckets::new(access)));
}

fn buckets() -> Result<Arc<Buckets>, Failure> {
    let buckets = BUCKETS.lock().unwrap_or_else(PoisonError::into_inner);
    let message = "buckets are reached after tierfeed.tensorflow.register_files()";
    buckets.clone().ok_or_else(|| Failure::new(Code::FailedPrecondition, message))
}

pub(crate) fn figures() -> Figures {
    with_passes(|it| it.figures)
}

fn with_passes<T>(work: impl FnOnce(&mut Passes) -> T) -> T {
    let mut passes = PASSES.lock().unwrap_or_else(PoisonError::into_inner);
    work(passes.get_or_insert_with(Passes::default))
}

impl Passes {
    /// Notes that a file is opened; returns those that are to be read ahead.
    fn note(&mut self, path: &Path) -> Vec<PathBuf> {
        self.figures.opened += 1;
        self.figures.foreseen += u64::from(self.foreseen.remove(path));
        let is_again = self.place_in_current.contains_key(path);
        if is_again || self.current.len() == FILES_REMEMBERED {
            self.earlier = std::mem::take(&mut self.current);
            self.place_in_earlier = std::mem::take(&mut self.place_in_current);
            self.foreseen.clear();
        }
        let path: Arc<Path> = path.into();
        self.place_in_current.insert(Arc::clone(&path), self.current.len());
        self.current.push(Arc::clone(&path));
        let Some(place) = self.place_in_earlier.get(&path) else { return Vec::new() };
        let following = self.earlier.iter().skip(place + 1).take(FILES_AHEAD);
        let unopened = following.filter(|next| !self.place_in_current.contains_key(*next));
        let mut next = Vec::new();
        for path in unopened {
            if self.foreseen.insert(Arc::clone(path)) {
                next.push(path.to_path_buf());
            }
        }
        next
    }
}

impl<'a> Address<'a> {
    fn of(path: &'a OsStr) -> Result<Self, Failure> {
        if path.as_bytes().starts_with(b"/") {
            return Ok(Self::Local(Path::new(path)));
        }
        let known = path.to_str().unwrap_or_default().split_once('/').and_then(|(name, rest)| {
            let (_, scheme) = STORES.iter().find(|(known, _)| *known == name)?;
            Some((scheme, rest.split_once('/').unwrap_or((rest, ""))))
        });
        if let Some((scheme, (bucket, key))) = known.filter(|(_, (bucket, _))| !bucket.is_empty()) {
            return Ok(Self::Bucket(format!("{scheme}://{bucket}"), key.trim_end_matches('/')));
        }
        let message = format!(
            "{SCHEME}{} is neither a file, {SCHEME}/data/train, nor in a bucket, {SCHEME}s3/bucket/train",
            path.display()
        );
        Err(Failure::new(Code::InvalidArgument, message))
    }
}

fn failure(path: &OsStr, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => Code::NotFound,
        io::ErrorKind::PermissionDenied => Code::PermissionDenied,
        io::ErrorKind::NotADirectory => Code::FailedPrecondition,
        _ => Code::Unavailable,
    };
    Failure::new(code, format!("{SCHEME}{}: {error}", path.display()))
}

/// Lets the kernel read into its page cache, without a wait for it.
fn announce(file: &File, offset: u64, len: u64) {
    let advice = rustix::fs::Advice::WillNeed;
    // Advice that the file system does not take costs speed only.
    let _ = rustix::fs::fadvise(file, offset, std::num::NonZeroU64::new(len), advice);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(opened: &[&str]) -> (Passes, Vec<Vec<PathBuf>>) {
        let mut passes = Passes::default();
        let ahead = opened.iter().map(|path| passes.note(Path::new(path))).collect();
        (passes, ahead)
    }

    #[test]
    fn the_files_of_a_pass_are_foreseen_in_the_next_one() {
        let (passes, ahead) = passes(&["/a", "/b", "/c", "/d", "/a", "/b", "/c", "/d"]);
        assert!(ahead[..4].iter().all(Vec::is_empty));
        assert_eq!(ahead[4], ["/b", "/c"].map(PathBuf::from));
        assert_eq!(ahead[5], [PathBuf::from("/d")]);
        assert!(ahead[6..].iter().all(Vec::is_empty));
        assert_eq!((passes.figures.opened, passes.figures.foreseen), (8, 3));
    }

    #[test]
    fn another_order_is_followed_as_far_as_it_repeats() {
        let (passes, ahead) = passes(&["/a", "/b", "/c", "/d", "/c", "/a", "/b", "/d"]);
        assert_eq!(ahead[4], [PathBuf::from("/d")]);
        assert_eq!(ahead[5], [PathBuf::from("/b")]);
        assert_eq!(passes.figures.foreseen, 2);
    }
}
