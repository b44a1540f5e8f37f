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
