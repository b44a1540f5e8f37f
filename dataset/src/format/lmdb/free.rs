//! Checks whether the pages that a data file lacks at its end are free.
//!
//! A page that was allocated and freed by one transaction is never written, so a valid file may end
//! before its last page. Each page is in use or on the free list, which is a B+tree of its own:
//! keys are transactions, values are lists of pages. It is read only for files that end early.

use std::{collections::BTreeSet, ops::Range};

use crate::format::{
    FormatError, ReadAt,
    piece::{malformed, read, u16_at, u32_at, u64_at},
};

const WHAT: &str = "a page of the free list";

/// `PAGEHDRSZ` and `NODESIZE` of `mdb.c`.
const HEADER_BYTES: usize = 16;
const NODE_BYTES: usize = 8;

/// `P_BRANCH` and `P_LEAF`: the kind of a page. `F_BIGDATA`: the value has pages of its own.
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const BIG: u16 = 0x01;

/// `P_INVALID`: an empty tree has no root.
pub(super) const NO_PAGE: u64 = u64::MAX;

const NUMBERS_AT_ONCE: u64 = 8192;

/// A traversal of the free list.
pub(super) struct FreeList<'a> {
    object: &'a dyn ReadAt,
    page_bytes: u32,
    missing: Range<u64>,
    found: BTreeSet<u64>,
    /// Bytes that may still be read: a valid list has no page twice.
    left: u64,
}

impl<'a> FreeList<'a> {
    pub(super) fn new(object: &'a dyn ReadAt, page_bytes: u32, missing: Range<u64>) -> Self {
        Self { object, page_bytes, missing, found: BTreeSet::new(), left: object.len() }
    }

    /// Whether the list whose tree starts at page `root` contains all missing pages.
    pub(super) fn has_all_missing(mut self, root: u64) -> Result<bool, FormatError> {
        let mut pages = if root == NO_PAGE { Vec::new() } else { vec![root] };
        while let Some(page) = pages.pop() {
            self.page(page, &mut pages)?;
        }
        Ok(self.found.len() as u64 == self.missing.end.saturating_sub(self.missing.start))
    }

    /// Reads one page of the tree, and adds those below it to `pages`.
    fn page(&mut self, page: u64, pages: &mut Vec<u64>) -> Result<(), FormatError> {
        let at = page.saturating_mul(u64::from(self.page_bytes));
        let bytes = self.take(at, u64::from(self.page_bytes))?;
        let broken = || malformed(WHAT, at, "damaged", "the last transaction wrote it");
        let kind = u16_at(&bytes, 10).ok_or_else(broken)? & (BRANCH | LEAF);
        let lower = usize::from(u16_at(&bytes, 12).ok_or_else(broken)?);
        if u64_at(&bytes, 0) != Some(page) || !matches!(kind, BRANCH | LEAF) {
            return Err(broken());
        }
        for place in (HEADER_BYTES..lower).step_by(2) {
            let node = usize::from(u16_at(&bytes, place).ok_or_else(broken)?);
            let low = u32_at(&bytes, node).ok_or_else(broken)?;
            let (flags, key) =
                u16_at(&bytes, node + 4).zip(u16_at(&bytes, node + 6)).ok_or_else(broken)?;
            if kind == BRANCH {
                pages.push(u64::from(low) | u64::from(flags) << 32);
                continue;
            }
            let value = node + NODE_BYTES + usize::from(key);
            if flags & BIG == 0 {
                self.list(at + value as u64, u64::from(low))?;
            } else {
                let page = u64_at(&bytes, value).ok_or_else(broken)?;
                let at = page.saturating_mul(u64::from(self.page_bytes));
                self.list(at.saturating_add(HEADER_BYTES as u64), u64::from(low))?;
            }
        }
        Ok(())
    }

    /// Reads a value of `len` bytes: the number of pages, then their numbers.
    fn list(&mut self, at: u64, len: u64) -> Result<(), FormatError> {
        let count = self.take(at, 8)?;
        let count = u64_at(&count, 0).unwrap_or_default();
        if count.checked_add(1).and_then(|it| it.checked_mul(8)).is_none_or(|it| it > len) {
            let found = format!("of {count} pages in {len} bytes");
            return Err(malformed(WHAT, at, found, "a list is as long as its pages"));
        }
        let mut read = 0;
        while read < count {
            let part = (count - read).min(NUMBERS_AT_ONCE);
            let bytes = self.take(at + 8 + read * 8, part * 8)?;
            let (numbers, _) = bytes.as_chunks::<8>();
            let numbers = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes));
            self.found.extend(numbers.filter(|number| self.missing.contains(number)));
            read += part;
        }
        Ok(())
    }

    fn take(&mut self, at: u64, len: u64) -> Result<Vec<u8>, FormatError> {
        let bytes = read(self.object, WHAT, at, len, u32::MAX)?;
        self.left = self.left.checked_sub(len).ok_or_else(|| {
            malformed(WHAT, at, "read twice", "each page is in one place of the tree")
        })?;
        Ok(bytes)
    }
}
