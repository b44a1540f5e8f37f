//! Files that others read at any moment: they find what was there before, or all that is new.

use std::{
    fs::{self, Permissions},
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use tempfile::NamedTempFile;

/// Replaces a file by one with the rights that the umask leaves.
///
/// # Errors
///
/// If the directory cannot be written; then the file is as before.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    replace(path, 0o666, content.as_ref())
}

/// Replaces a file by one that only its owner may read.
///
/// # Errors
///
/// If the directory cannot be written; then the file is as before.
pub fn write_secret(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    replace(path, 0o600, content.as_ref())
}

/// Removes a file, which need not be there.
///
/// # Errors
///
/// If it is there and cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The prefix of the extension of a new file that has no name of its own yet; a process that was killed
/// leaves such files behind.
pub(crate) const UNFINISHED: &str = "new-";

/// Whether this is the name of a new file that has no name of its own yet.
pub(crate) fn is_unfinished(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    extension.as_encoded_bytes().starts_with(UNFINISHED.as_bytes())
}

fn replace(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let mut beside = new_beside(path, mode)?;
    beside.write_all(content)?;
    // Closed first: NFS shows other hosts what was written before that.
    Ok(beside.into_temp_path().persist(path)?)
}

fn new_beside(path: &Path, mode: u32) -> io::Result<NamedTempFile> {
    let mut prefix = path.file_name().unwrap_or_default().to_owned();
    prefix.push(format!(".{UNFINISHED}"));
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    tempfile::Builder::new()
        .prefix(&prefix)
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(parent.unwrap_or(Path::new(".")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_secret_is_for_its_owner_and_nothing_is_left_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        fs::write(&path, "before").unwrap();
        write_secret(&path, "now").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "now");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_killed_process_leaves_is_known_as_unfinished() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("17.sizes");
        let left = new_beside(&path, 0o666).unwrap();
        assert!(is_unfinished(left.path()), "{left:?}");
        assert!(!is_unfinished(&path));
    }

    #[test]
    fn a_file_that_cannot_be_replaced_stays_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("taken")).unwrap();
        write(&directory.path().join("taken"), "now").unwrap_err();
        write(&directory.path().join("absent/file"), "now").unwrap_err();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
