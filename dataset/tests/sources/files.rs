//! Files below a directory.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, SystemTime},
};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tierfeed_dataset::source::{FileStore, Listed, Location, Selection, SourceError, Store, open};
use tierfeed_test_needs::again_without_file_rights;

use crate::listed::{All, Ending, directories, list, objects, paths};

struct Tree {
    directory: tempfile::TempDir,
}

impl Tree {
    fn new(files: &[&str]) -> Self {
        let tree = Self { directory: tempfile::tempdir().unwrap() };
        fs::create_dir(tree.root()).unwrap();
        files.iter().for_each(|file| tree.write(file.as_bytes(), file.as_bytes()));
        tree
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    fn path(&self, name: &[u8]) -> PathBuf {
        self.root().join(OsStr::from_bytes(name))
    }

    fn write(&self, name: &[u8], bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn store(&self) -> Box<dyn Store> {
        open(&Location::Path(self.root())).unwrap()
    }

    fn refusal(&self) -> SourceError {
        list(&*self.store()).unwrap_err()
    }
}

fn mtime_ns(path: &Path) -> i64 {
    let metadata = fs::metadata(path).unwrap();
    metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec()
}

#[test]
fn directories_and_names_come_in_the_order_of_python_with_sizes_and_times() {
    let tree = Tree::new(&["b/z", "b/a", "b-x/a", "b/c/q", "a10", "a9", "B/x", "\u{e000}"]);
    tree.write(b"\xff", b"12345");
    fs::create_dir(tree.path(b"empty")).unwrap();
    let listing = list(&*tree.store()).unwrap();
    assert_eq!(directories(&listing), ["", "B", "b", "b-x", "b/c", "empty"]);
    let found = objects(&listing);
    let expected: [&[u8]; 9] =
        [b"a10", b"a9", b"\xff", "\u{e000}".as_bytes(), b"B/x", b"b/a", b"b/z", b"b-x/a", b"b/c/q"];
    assert_eq!(found.iter().map(|it| &it.path[..]).collect::<Vec<_>>(), expected);
    for Listed { path, size, mtime_ns: time, etag } in found {
        let path = tree.path(&path);
        assert_eq!((size, time), (fs::metadata(&path).unwrap().len(), mtime_ns(&path)), "{path:?}");
        assert_eq!(etag, None);
    }
    for directory in listing.directories {
        assert_eq!(directory.mtime_ns, Some(mtime_ns(&tree.path(&directory.name))));
    }
}

/// More names than are queried at a time, with a common prefix.
#[test]
fn a_large_directory_is_listed_whole_and_in_order() {
    let tree = Tree::new(&[]);
    let mut expected = Vec::new();
    for number in 0..5_000_u32 {
        let name = format!("image-of-the-set-{}", number.wrapping_mul(2_654_435_761) % 1_000_003);
        tree.write(name.as_bytes(), &vec![0; number as usize % 7]);
        expected.push((name, u64::from(number % 7)));
    }
    expected.sort();
    expected.dedup();
    assert_eq!(expected.len(), 5_000);
    let mut reports = Vec::new();
    let listing = tree.store().list(&All, &mut |objects| reports.push(objects)).unwrap();
    assert_eq!(paths(&listing), expected.iter().map(|it| it.0.clone()).collect::<Vec<_>>());
    let sizes: Vec<u64> = listing.objects.iter().map(|it| it.size).collect();
    assert_eq!(sizes, expected.iter().map(|it| it.1).collect::<Vec<_>>());
    assert!(reports.is_sorted() && reports.last().is_some_and(|it| *it <= 5_000), "{reports:?}");
}

#[test]
fn a_tree_of_many_directories_gives_the_same_listing_again_and_again() {
    let tree = Tree::new(&[]);
    for number in 0..600 {
        tree.write(format!("{}/{}/{number}", number % 20, number % 7).as_bytes(), b"x");
    }
    let first = list(&*tree.store()).unwrap();
    assert_eq!((first.directories.len(), first.objects.len()), (1 + 20 + 140, 600));
    assert_eq!(list(&*tree.store()).unwrap(), first);
}

#[test]
fn only_what_is_selected_is_entered_and_taken() {
    let tree = Tree::new(&["a.tar", "b.txt", ".git/c.tar", "d/e.tar", "d/.f/g.tar"]);
    // Names that are not selected are not queried, not even for their existence.
    symlink("nowhere", tree.path(b"d/dead.txt")).unwrap();
    let _pipe = UnixListener::bind(tree.path(b"socket.txt")).unwrap();
    let listing = tree.store().list(&Ending(b".tar"), &mut |_| ()).unwrap();
    assert_eq!(paths(&listing), ["a.tar", "d/e.tar"]);
    assert_eq!(directories(&listing), ["", "d"]);
}

#[test]
fn links_to_files_and_directories_are_what_they_lead_to() {
    let tree = Tree::new(&["a/file"]);
    fs::create_dir(tree.directory.path().join("outside")).unwrap();
    fs::write(tree.directory.path().join("outside/x"), b"123").unwrap();
    symlink("../outside", tree.path(b"linked")).unwrap();
    symlink("../../outside/x", tree.path(b"a/link")).unwrap();
    // The same directory twice, but not below itself.
    symlink("a", tree.path(b"again")).unwrap();
    let listing = list(&*tree.store()).unwrap();
    assert_eq!(paths(&listing), ["a/file", "a/link", "again/file", "again/link", "linked/x"]);
    assert_eq!(objects(&listing)[1].size, 3);
}

#[test]
fn a_link_that_leads_back_is_named_with_what_it_leads_to() {
    let tree = Tree::new(&["a/b/file"]);
    symlink("..", tree.path(b"a/b/back")).unwrap();
    let error = tree.refusal();
    assert!(
        matches!(&error, SourceError::LinkLoop { path, ancestor }
            if *path == tree.path(b"a/b/back") && *ancestor == tree.path(b"a")),
        "{error}"
    );
    let text = error.to_string();
    assert!(text.contains("a/b/back: a symbolic link that leads back to"), "{text}");
}

#[test]
fn a_link_to_nothing_is_an_error_if_it_is_taken() {
    let tree = Tree::new(&["a/x"]);
    symlink("nowhere", tree.path(b"a/dead")).unwrap();
    symlink("itself", tree.path(b"a/itself")).unwrap();
    let error = tree.refusal();
    assert!(
        matches!(&error, SourceError::DeadLink { path } if *path == tree.path(b"a/dead")),
        "{error}"
    );
    fs::remove_file(tree.path(b"a/dead")).unwrap();
    let error = tree.refusal();
    assert!(
        matches!(&error, SourceError::Unreadable { path, .. } if *path == tree.path(b"a/itself")),
        "{error}"
    );
}

#[test]
fn what_is_no_file_is_an_error_if_it_is_taken() {
    let tree = Tree::new(&["a/x"]);
    let _listener = UnixListener::bind(tree.path(b"a/socket")).unwrap();
    let error = tree.refusal();
    assert!(
        matches!(&error, SourceError::NotAFile { path } if *path == tree.path(b"a/socket")),
        "{error}"
    );
    let store = FileStore::new("/dev/null".into());
    assert!(matches!(list(&store), Err(SourceError::NotAFile { .. })));
}

/// Errors in many directories and in several parts of a large one.
#[test]
fn the_error_is_the_first_in_the_order_of_the_listing() {
    let tree = Tree::new(&[]);
    for number in 0..40 {
        tree.write(format!("m/{number}/x").as_bytes(), b"");
        symlink("nowhere", tree.path(format!("m/{number}/dead").as_bytes())).unwrap();
    }
    for number in 0..3_000 {
        symlink("nowhere", tree.path(format!("m/{}", 9_999 - number).as_bytes())).unwrap();
    }
    let is_first = |first: &[u8]| {
        for _ in 0..5 {
            let error = tree.refusal();
            assert!(
                matches!(&error, SourceError::DeadLink { path } if *path == tree.path(first)),
                "{error}"
            );
        }
    };
    is_first(b"m/7000");
    tree.write(b"b/c/d", b"");
    symlink("nowhere", tree.path(b"b/c/dead")).unwrap();
    is_first(b"b/c/dead");
    // `b-` sorts below `b/`, but a directory comes before the content of the next one.
    symlink("nowhere", tree.path(b"b/z")).unwrap();
    is_first(b"b/z");
}

#[test]
fn a_source_that_is_one_file_is_a_listing_of_it() {
    let tree = Tree::new(&["train.tar"]);
    let path = tree.path(b"train.tar");
    let store = FileStore::new(path.clone());
    let listing = store.list(&Ending(b".bin"), &mut |_| ()).unwrap();
    assert_eq!(
        (paths(&listing), directories(&listing)),
        (vec![String::new()], vec![String::new()])
    );
    assert_eq!(listing.directories[0].mtime_ns, None);
    let object = &objects(&listing)[0];
    assert_eq!((object.size, object.mtime_ns), (9, mtime_ns(&path)));
    let opened = store.open(object).unwrap();
    let mut bytes = [0; 3];
    opened.read_exact_at(&mut bytes, 6).unwrap();
    assert_eq!((&bytes, opened.len()), (b"tar", 9));
    opened.verify().unwrap();
}

#[test]
fn a_source_that_is_not_there_is_named() {
    let tree = Tree::new(&["file"]);
    for name in ["nothing", "file/below"] {
        let error = list(&FileStore::new(tree.path(name.as_bytes()))).unwrap_err();
        assert!(matches!(&error, SourceError::NoSource { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(name) && text.contains("no such file or directory"), "{text}");
    }
}

#[test]
fn a_directory_that_may_not_be_read_is_named_with_the_rights_it_needs() {
    let tree = Tree::new(&["a/x", "b/x"]);
    let closed = tree.path(b"b");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o0)).unwrap();
    let outcome = list(&*tree.store());
    let is_root = fs::read_dir(&closed).is_ok();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
    if is_root {
        assert!(outcome.is_ok());
        return again_without_file_rights(
            "files::a_directory_that_may_not_be_read_is_named_with_the_rights_it_needs",
        );
    }
    let error = outcome.unwrap_err();
    assert!(matches!(&error, SourceError::Denied { path } if *path == closed), "{error}");
}

/// Removes a directory and a file after they were listed, before they are queried.
struct Removes<'a> {
    tree: &'a Tree,
    directory: &'static [u8],
    file: &'static [u8],
}

impl Selection for Removes<'_> {
    fn enters(&self, path: &[u8]) -> bool {
        if path == self.directory {
            fs::remove_dir(self.tree.path(path)).unwrap();
        }
        true
    }

    fn takes(&self, path: &[u8]) -> bool {
        if path == self.file {
            fs::remove_file(self.tree.path(path)).unwrap();
        }
        true
    }
}

#[test]
fn what_vanishes_during_the_walk_is_a_change_and_named() {
    let names: [(&'static [u8], &'static [u8]); 2] = [(b"gone", b""), (b"", b"a/gone")];
    for (directory, file) in names {
        let tree = Tree::new(&["a/gone", "b/x"]);
        fs::create_dir(tree.path(b"gone")).unwrap();
        let removes = Removes { tree: &tree, directory, file };
        let error = tree.store().list(&removes, &mut |_| ()).unwrap_err();
        assert!(matches!(&error, SourceError::Changed { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("gone: changed while it was indexed"), "{text}");
    }
}

/// Writes a file into a directory whose names have been read.
struct Writes<'a>(&'a Tree);

impl Selection for Writes<'_> {
    fn enters(&self, _: &[u8]) -> bool {
        true
    }

    fn takes(&self, path: &[u8]) -> bool {
        if path == b"a/x" {
            self.0.write(b"a/new", b"");
        }
        true
    }
}

#[test]
fn a_file_that_comes_while_its_directory_is_listed_leaves_the_listed_time_behind() {
    let tree = Tree::new(&["a/x"]);
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::open(tree.path(b"a")).unwrap().set_modified(long_ago).unwrap();
    let listing = tree.store().list(&Writes(&tree), &mut |_| ()).unwrap();
    assert_eq!(listing.directories[1].mtime_ns, Some(1_000_000_000_000_000_000));
    assert!(mtime_ns(&tree.path(b"a")) > 1_000_000_000_000_000_000);
}

struct Panics(AtomicUsize);

impl Selection for Panics {
    fn enters(&self, _: &[u8]) -> bool {
        true
    }

    fn takes(&self, _: &[u8]) -> bool {
        assert!(self.0.fetch_add(1, Ordering::Relaxed) != 3, "a selection that panics");
        true
    }
}

#[test]
fn a_selection_that_panics_does_not_leave_the_other_threads_waiting() {
    let tree = Tree::new(&["a/1", "a/2", "b/1", "b/2", "c/1", "c/2"]);
    let outcome = std::panic::catch_unwind(|| {
        let _ = FileStore::new(tree.root()).list(&Panics(AtomicUsize::new(0)), &mut |_| ());
    });
    assert!(outcome.is_err());
}

#[test]
fn a_file_that_is_not_what_was_listed_is_not_opened() {
    let tree = Tree::new(&["a/x"]);
    let store = tree.store();
    let object = objects(&list(&*store).unwrap()).remove(0);
    store.open(&object).unwrap();
    let longer = Listed { size: object.size + 1, ..object.clone() };
    let older = Listed { mtime_ns: object.mtime_ns - 1, ..object.clone() };
    for changed in [longer, older] {
        let error = store.open(&changed).unwrap_err();
        assert!(matches!(&error, SourceError::Changed { .. }), "{error}");
    }
    fs::remove_file(tree.path(b"a/x")).unwrap();
    assert!(matches!(store.open(&object), Err(SourceError::Changed { .. })));
    // Opening a pipe blocks until it is opened for writing, unless the flags prevent it.
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, tree.path(b"a/x"), FileType::Fifo, mode, 0).unwrap();
    assert!(matches!(store.open(&object), Err(SourceError::NotAFile { .. })));
}

#[test]
fn writing_and_replacing_are_noticed_when_all_has_been_read() {
    let tree = Tree::new(&["written", "replaced", "removed"]);
    let store = tree.store();
    let listed = objects(&list(&*store).unwrap());
    let opened: Vec<_> = listed.iter().map(|it| store.open(it).unwrap()).collect();
    opened.iter().for_each(|it| it.verify().unwrap());
    fs::OpenOptions::new().append(true).open(tree.path(b"written")).unwrap().set_len(1).unwrap();
    fs::write(tree.path(b"other"), b"another").unwrap();
    fs::rename(tree.path(b"other"), tree.path(b"replaced")).unwrap();
    fs::remove_file(tree.path(b"removed")).unwrap();
    for opened in opened {
        let error = opened.verify().unwrap_err();
        assert!(matches!(&error, SourceError::Changed { .. }), "{error}");
    }
}

#[test]
fn one_object_is_looked_at_as_it_is_listed() {
    let tree = Tree::new(&["a/x"]);
    let store = tree.store();
    let listed = objects(&list(&*store).unwrap()).remove(0);
    assert_eq!(store.stat(b"a/x").unwrap(), listed);
    assert!(matches!(store.stat(b"a/y"), Err(SourceError::NoSource { .. })));
    assert!(matches!(store.stat(b"a"), Err(SourceError::NotAFile { .. })));
    assert!(matches!(store.stat(b"../root/a/x"), Err(SourceError::Outside { .. })));
}

#[test]
fn a_name_that_leads_out_of_the_source_is_refused() {
    let tree = Tree::new(&["x"]);
    let object = objects(&list(&*tree.store()).unwrap()).remove(0);
    for path in [&b"../root/x"[..], b"/etc/passwd", b"a/../x", b".."] {
        let object = Listed { path: path.to_vec(), ..object.clone() };
        let error = tree.store().open(&object).unwrap_err();
        assert!(matches!(&error, SourceError::Outside { .. }), "{error}");
    }
}
