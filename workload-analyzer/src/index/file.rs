//! The index as a file: a header of counts, the sections they count, a checksum of all that.
//!
//! All numbers are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | magic |
//! | 4, 4 | version, format (0 image folder, 1 raw) |
//! | 8 | bytes of a record, 0 for image folders |
//! | 6 x 8 | counts: bytes of the source's name, classes, directories, objects, bytes of the names of classes and directories, bytes of the names of objects |
//! | … | the source's name |
//! | 12 each | class: end of its name, first object |
//! | 16 each | directory: end of its name, time |
//! | 24 each | object: size, time, end of its name |
//! | … | names of classes, then of directories |
//! | … | names of objects |
//! | 8 | xxh3-64 of everything before |
//!
//! What is read is not trusted: lengths are compared before anything is allocated, and an index whose
//! names lead out of its source is refused.

mod read;
mod write;

use xxhash_rust::xxh3::Xxh3;

use super::layout::Layout;

pub(super) use read::read;
pub(super) use write::write;

/// As PNG's: a byte that is no ASCII, and line ends that a text transfer would break.
const MAGIC: [u8; 8] = *b"\x89tfidx\r\n";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 8 + 4 + 4 + 8 + 6 * 8;
const CLASS_BYTES: usize = 12;
const DIRECTORY_BYTES: usize = 16;
const OBJECT_BYTES: usize = 24;
const CHECKSUM_BYTES: usize = 8;

/// The checksum that the file of `layout` would have without its directories.
///
/// When a directory changed matters to whether an index is stale, and not to what it says.
pub(super) fn fingerprint(layout: &Layout) -> u64 {
    let mut hash = Xxh3::new();
    let never_fails = write::sections(layout, &[], &mut |bytes| {
        hash.update(bytes);
        Ok(())
    });
    never_fails.expect("hashing does no I/O");
    hash.digest()
}

#[cfg(test)]
mod tests;
