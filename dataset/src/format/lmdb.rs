//! Checks that an object is an LMDB data file (`data.mdb`) that a trainer can open.
//!
//! An LMDB environment cannot be read by ranges: the library itself searches its B+tree, in a file
//! that was staged as a whole. Two meta pages start the file; a commit writes the older one, so the
//! newer one is valid. Pages in use lie in the file; the library maps it, and a trainer that reads
//! past its end is killed.
//!
//! Deliberately absent: the pages of the tree. The library checks those when it reads them.

mod free;

use self::free::FreeList;
use super::{
    DatasetFormat, Format, FormatError, Found, Kind, Parsed, ReadAt,
    piece::{array, malformed, read_array, u16_at, u32_at, u64_at},
};
use crate::source::{Opened, names::ends_in};

/// `MDB_MAGIC` of LMDB's `mdb.c`.
const MAGIC: u32 = 0xBEEF_C0DE;

/// `MDB_DATA_VERSION` of every release of LMDB 0.9.
const VERSION: u32 = 1;

/// `P_META` of `mdb.c`: the page is a meta page.
const META_PAGE: u16 = 0x08;

/// Header of a page, then `MDB_meta`: magic, version, address, size of the map, two trees, last
/// page, transaction.
const META_BYTES: usize = 16 + 136;

/// The smallest page that LMDB makes, and the largest (`MAX_PAGESIZE`).
const PAGE_BYTES: std::ops::RangeInclusive<u32> = 512..=0x8000;

pub(super) static KIND: Kind = Kind {
    alike: Some(".lmdb"),
    ..Kind::by_name("lmdb", |_| Ok(Format::Lmdb), is_data_file, ".mdb, .lmdb")
};

fn is_data_file(name: &[u8]) -> bool {
    ends_in(name, &[".mdb", ".lmdb"]) && !name.ends_with(b"lock.mdb")
}

pub(super) struct Lmdb;

impl DatasetFormat for Lmdb {
    fn parse(&self, object: &dyn Opened, _index: Option<&[u8]>) -> Result<Parsed, FormatError> {
        check(object).map(|_| Found::Whole.into())
    }
}

/// The properties of an LMDB data file, according to its meta pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Environment {
    pub page_bytes: u32,
    /// Entries of the unnamed database: keys, and the named databases if there are any.
    pub entries: u64,
    /// Bytes of the file that may be in use; the bytes behind them are not.
    pub used_bytes: u64,
    pub transaction: u64,
}

#[derive(Debug, Clone, Copy)]
struct Meta {
    page_bytes: u32,
    entries: u64,
    last_page: u64,
    transaction: u64,
    /// Page number of the root of the list of free pages.
    free_root: u64,
}

/// Reads both meta pages of `object`.
///
/// # Errors
///
/// [`FormatError::Truncated`] if the pages in use do not fit, [`FormatError::Malformed`] if a meta
/// page is invalid.
pub fn check(object: &dyn ReadAt) -> Result<Environment, FormatError> {
    let first = meta(object, 0, 0)?;
    let second = meta(object, u64::from(first.page_bytes), 1)?;
    if first.page_bytes != second.page_bytes {
        let found = format!("of {} bytes a page", second.page_bytes);
        let at = u64::from(first.page_bytes);
        return Err(malformed("the second meta page", at, found, "both name the same page size"));
    }
    let newer = if second.transaction > first.transaction { second } else { first };
    let Meta { page_bytes, entries, transaction, last_page, free_root } = newer;
    let pages = last_page.saturating_add(1);
    let needed = pages.saturating_mul(u64::from(page_bytes));
    let found = object.len();
    if needed > found {
        let missing = found / u64::from(page_bytes)..pages;
        if !FreeList::new(object, page_bytes, missing).has_all_missing(free_root)? {
            return Err(FormatError::Truncated { what: "the tree", at: 0, needed, found });
        }
    }
    Ok(Environment { page_bytes, entries, used_bytes: needed.min(found), transaction })
}

fn meta(object: &dyn ReadAt, at: u64, page: u64) -> Result<Meta, FormatError> {
    let what = "the meta page";
    let bytes: [u8; META_BYTES] = read_array(object, what, at)?;
    let (head, meta) = bytes.split_at(16);
    let word = |place| u32_at(meta, place).expect("the array is long enough");
    let long = |place| u64_at(meta, place).expect("the array is long enough");
    if word(0) != MAGIC {
        let found = format!("marked {:#010x}", word(0));
        let right = "an LMDB data file of a 64-bit little-endian machine has 0xbeefc0de there";
        return Err(malformed(what, at + 16, found, right));
    }
    if word(4) != VERSION {
        let found = format!("of version {}", word(4));
        return Err(malformed(what, at + 20, found, "version 1 is read"));
    }
    let number = array(head, 0).map(u64::from_le_bytes);
    let is_meta = u16_at(head, 10).is_some_and(|flags| flags & META_PAGE != 0);
    if number != Some(page) || !is_meta {
        let right = "the first two pages are meta pages, with their numbers";
        return Err(malformed(what, at, "another page", right));
    }
    let page_bytes = word(24);
    if !PAGE_BYTES.contains(&page_bytes) || !page_bytes.is_power_of_two() {
        let found = format!("of {page_bytes} bytes a page");
        return Err(malformed(what, at + 40, found, "a power of two from 512 to 32768"));
    }
    let last_page = long(120);
    if last_page < 1 {
        return Err(malformed(what, at + 136, "the last page", "there are two meta pages"));
    }
    let (free_root, entries, transaction) = (long(24 + 40), long(24 + 48 + 32), long(128));
    Ok(Meta { page_bytes, entries, last_page, transaction, free_root })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> Vec<u8> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/lmdb");
        std::fs::read(format!("{folder}/{name}.mdb")).unwrap()
    }

    #[track_caller]
    fn check_refused(at: usize, bytes: &[u8], expected: &str) {
        let mut object = fixture("two");
        object[at..at + bytes.len()].copy_from_slice(bytes);
        let message = check(&object).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn either_meta_page_that_is_none_is_refused() {
        for page in [0, 4096] {
            check_refused(page + 16, b"x", "the meta page at byte");
            check_refused(page + 20, &[2], "of version 2; version 1 is read");
            check_refused(page, &[7], "another page; the first two pages are meta pages");
            check_refused(page + 10, &[0], "another page; the first two pages are meta pages");
            check_refused(page + 40, &[0, 0], "of 0 bytes a page; a power of two");
            check_refused(page + 40, &[0, 0x30], "of 12288 bytes a page");
            check_refused(page + 40, &[0, 0, 1], "of 65536 bytes a page");
        }
        check_refused(40, &[0, 0x20], "the meta page at byte 8208 is marked");
        check_refused(4096 + 40, &[0, 0x20], "the second meta page at byte 4096 is of 8192 bytes");
    }

    #[test]
    fn the_newer_meta_page_counts() {
        // The last transaction was written to the first page, the one before to the second.
        let mut object = fixture("two");
        let found = check(&object).unwrap();
        assert_eq!((found.transaction, found.entries), (2, 10));
        object[16 + 128] = 0;
        let found = check(&object).unwrap();
        assert_eq!((found.transaction, found.entries), (1, 5));
    }

    #[test]
    fn pages_in_use_lie_in_the_file() {
        check_refused(16 + 120, &[5], "truncated: the tree at byte 0 ends at byte 24576");
        check_refused(16 + 120, &[0xFF; 8], "truncated: the tree");
        check_refused(16 + 120, &[0], "there are two meta pages");
        let mut object = fixture("two");
        object.truncate(20_479);
        check(&object).unwrap_err();
        object.truncate(4096 + 151);
        assert!(
            check(&object).unwrap_err().to_string().contains("the meta page at byte 4096 ends")
        );
        assert!(check(&Vec::new()).is_err());
    }

    #[test]
    fn pages_that_are_free_may_be_missing() {
        let object = fixture("short");
        let found = check(&object).unwrap();
        assert_eq!(found.used_bytes, object.len() as u64);
        // With one page less, a page in use is missing.
        for len in [object.len() - 1, object.len() - 4096] {
            let message = check(&object[..len].to_vec()).unwrap_err().to_string();
            assert!(message.starts_with("truncated: "), "{message}");
        }
        // The free list counts only if it is valid.
        let newer = if object[16 + 128] > object[4096 + 16 + 128] { 0 } else { 4096 };
        let root = usize::from(object[newer + 16 + 24 + 40]) * 4096;
        for (place, expected) in [(0, "damaged"), (10, "damaged"), (16, "the free list at byte")] {
            let mut damaged = object.clone();
            damaged[root + place] ^= 1;
            let message = check(&damaged).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_free_list_that_leads_back_to_itself_ends() {
        let object = fixture("short");
        let newer = if object[16 + 128] > object[4096 + 16 + 128] { 0 } else { 4096 };
        let page = object[newer + 16 + 24 + 40];
        let root = usize::from(page) * 4096;
        let mut object = object;
        // A branch of one node, whose page is the branch.
        object[root + 10] = 1;
        object[root + 12..root + 14].copy_from_slice(&18_u16.to_le_bytes());
        object[root + 16..root + 18].copy_from_slice(&32_u16.to_le_bytes());
        object[root + 32..root + 40].copy_from_slice(&[page, 0, 0, 0, 0, 0, 8, 0]);
        let message = check(&object).unwrap_err().to_string();
        assert!(message.contains("read twice; each page is in one place"), "{message}");
    }
}
