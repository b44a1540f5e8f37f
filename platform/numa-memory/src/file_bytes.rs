//! Maps a file for reading, as a slice: for files that are replaced and never written in place.

use std::{fs::File, io, ops::Deref};

use memmap2::Mmap;

/// The bytes of a file, read from the page cache when they are accessed.
///
/// Only for files whose writers replace the file by a new one. If such a file is truncated in
/// place, an access to the missing part ends the process by SIGBUS; if it is written in place, a
/// reader sees a mixture of old and new bytes.
#[derive(Debug)]
pub struct FileBytes {
    map: Mmap,
}

impl FileBytes {
    /// Maps `file` with its present length.
    ///
    /// # Errors
    ///
    /// If the system cannot map it, as for a pipe.
    pub fn map(file: &File) -> io::Result<Self> {
        // SAFETY:
        // - `Mmap` owns the mapping and is never handed out mutably.
        // - The caller guarantees that no process writes the file in place, as documented above:
        //   tierfeed itself only ever renames a finished file to this name.
        let map = unsafe { Mmap::map(file)? };
        Ok(Self { map })
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_mapped_file_is_its_bytes_even_after_another_took_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("a"), directory.path().join("b"));
        std::fs::write(&path, b"first").unwrap();
        let bytes = FileBytes::map(&File::open(&path).unwrap()).unwrap();
        File::create(&other).unwrap().write_all(b"second").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(&*bytes, b"first");
    }

    #[test]
    fn an_empty_file_is_no_bytes() {
        let file = tempfile::tempfile().unwrap();
        assert!(FileBytes::map(&file).unwrap().is_empty());
    }
}
