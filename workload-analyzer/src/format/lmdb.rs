//! Checks that an object is an LMDB data file (`data.mdb`) that a trainer can open.
//!
//! An LMDB environment has no ranges to read by: its B+tree is walked by the library itself, in a
//! file that was staged as a whole. Two meta pages start the file; a commit writes the one that the
//! last commit did not, so the newer of two good ones counts, and neither may point past the end.
//!
//! Deliberately absent: the pages of the tree. The library checks those as it reads.

use super::{
    FormatError, ReadAt,
    piece::{array, malformed, read_array, u16_at, u32_at, u64_at},
};

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

/// What an LMDB data file says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Environment {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Entries of the unnamed database: keys, and the named databases if there are any.
    pub entries: u64,
    /// Bytes that the file uses; what stands behind them is free.
    pub used_bytes: u64,
    /// The transaction that was committed last.
    pub transaction: u64,
}

#[derive(Debug, Clone, Copy)]
struct Meta {
    page_bytes: u32,
    entries: u64,
    last_page: u64,
    transaction: u64,
}

/// Reads both meta pages of `object`.
///
/// # Errors
///
/// [`FormatError::Truncated`] if the pages in use do not fit, [`FormatError::Malformed`] if a meta
/// page is none.
pub fn check(object: &dyn ReadAt) -> Result<Environment, FormatError> {
    let first = meta(object, 0, 0)?;
    let second = meta(object, u64::from(first.page_bytes), 1)?;
    if first.page_bytes != second.page_bytes {
        let found = format!("of {} bytes a page", second.page_bytes);
        let at = u64::from(first.page_bytes);
        return Err(malformed("the second meta page", at, found, "both name the same page size"));
    }
    let newer = if second.transaction > first.transaction { second } else { first };
    let pages = newer.last_page.saturating_add(1);
    let used_bytes = pages.saturating_mul(u64::from(newer.page_bytes));
    let found = object.len();
    if used_bytes > found {
        return Err(FormatError::Truncated { what: "the tree", at: 0, needed: used_bytes, found });
    }
    let Meta { page_bytes, entries, transaction, .. } = newer;
    Ok(Environment { page_bytes, entries, used_bytes, transaction })
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
    Ok(Meta { page_bytes, entries: long(24 + 48 + 32), last_page, transaction: long(128) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture() -> Vec<u8> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/lmdb");
        std::fs::read(format!("{folder}/two.mdb")).unwrap()
    }

    /// The message for the fixture with these bytes at `at`.
    #[track_caller]
    fn check_refused(at: usize, bytes: &[u8], expected: &str) {
        let mut object = fixture();
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
        let mut object = fixture();
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
        let mut object = fixture();
        object.truncate(20_479);
        check(&object).unwrap_err();
        object.truncate(4096 + 151);
        assert!(
            check(&object).unwrap_err().to_string().contains("the meta page at byte 4096 ends")
        );
        assert!(check(&Vec::new()).is_err());
    }
}
