//! Allocates private memory for measurements, strictly bound to one node.
//!
//! It starts on a huge page, is bound strictly (a measurement on the wrong node is useless) after
//! the free room was checked, and every page is touched before it is handed out: untouched memory
//! reads as one shared zero page, far too fast.
//!
//! The last page of each mapping differs from its neighbours (`MADV_DONTDUMP`): otherwise the
//! kernel would merge two adjacent buffers, and `smaps` would not show for each of them how much
//! lies in huge pages.

use std::path::Path;

use memmap2::{Advice, MmapOptions, MmapRaw};
use tierfeed_units::{Bytes, Locality};

use crate::{
    capacity::{self, Purpose},
    error::{AllocateError, Step},
    mapping::Mapping,
    placement::{Placement, page_bytes},
    policy::Mode,
    region::{self, Pages},
};

const HUGE_PAGE_BYTES: u64 = 2 << 20;
const WORD_BYTES: u64 = size_of::<u64>() as u64;

/// Private memory of this process, as words that this value owns exclusively.
#[derive(Debug)]
pub struct Anonymous {
    /// Longer than the words by up to one huge page, so that they can start on one. It never leaves
    /// this value: only the borrower of [`Self::words_mut`] writes it.
    mapping: Mapping,
    start: Bytes,
    len: Bytes,
    placement: Placement,
}

impl Anonymous {
    /// Allocates and touches memory, and reads its placement back.
    ///
    /// The length is rounded up to whole words of 8 bytes. All words are zero.
    ///
    /// # Errors
    ///
    /// [`AllocateError::NoRoom`] before anything is taken if it would not fit;
    /// [`AllocateError::Misplaced`] if fewer than 99 % of the pages came to lie on the node asked for.
    /// Nothing stays allocated after an error.
    pub fn allocate(len: Bytes, locality: Locality, pages: Pages) -> Result<Self, AllocateError> {
        let mapped = Bytes(len.0.saturating_add(HUGE_PAGE_BYTES));
        let _claim = match len {
            Bytes(0) => return Err(AllocateError::Empty),
            _ => capacity::claim(Path::new("/"), locality, mapped, Purpose::Other)?,
        };
        let count = usize::try_from(mapped.0).map_err(|_| AllocateError::TooLarge { len })?;
        let anonymous = MmapOptions::new()
            .len(count)
            .map_anon()
            .map_err(|source| AllocateError::System { step: Step::Map, len, source })?;
        let raw = MmapRaw::from(anonymous);
        region::advise_pages(&raw, pages);
        keep_apart(&raw);
        let policy = region::set_policy(&raw, locality, len, Mode::Strict)?;
        let mapping = Mapping::new(raw);
        region::populate(&mapping).map_err(|source| AllocateError::System {
            step: Step::Populate,
            len,
            source,
        })?;
        let placement = region::verify(mapping.raw(), locality, policy)?;
        let address = mapping.raw().as_ptr() as u64;
        let start = Bytes(address.next_multiple_of(HUGE_PAGE_BYTES) - address);
        Ok(Self { mapping, start, len: Bytes(len.0.next_multiple_of(WORD_BYTES)), placement })
    }

    /// The placement that was read back after the allocation.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// Length of the words, in bytes.
    #[must_use]
    pub fn len(&self) -> Bytes {
        self.len
    }

    /// Always false: there is at least one word.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len.0 == 0
    }

    /// How many bytes lie in huge pages that are mapped as such, if the kernel reports it: 0 for
    /// [`Pages::Small`], nearly all for [`Pages::Huge`] where the kernel grants them.
    ///
    /// The result may exceed the length of the memory by up to one huge page.
    #[must_use]
    pub fn huge_page_bytes(&self) -> Option<Bytes> {
        let apart = last_page(self.mapping.raw());
        self.mapping.huge_page_bytes_within(Bytes(apart as u64))
    }

    /// The words, for reading.
    #[must_use]
    #[expect(unsafe_code, reason = "private memory as a slice")]
    pub fn words(&self) -> &[u64] {
        let (start, count) = self.range();
        // SAFETY:
        // - `start` is valid for reads of `count` words, aligned to a huge page, and part of one
        //   mapping that `self` owns: see `range`.
        // - All pages are touched and anonymous, so every word is initialised.
        // - While the slice lives `self` is borrowed, so `words_mut` cannot be called, and the mapping is
        //   private and never leaves `self`.
        unsafe { std::slice::from_raw_parts(start, count) }
    }

    /// The words, for writing.
    #[must_use]
    #[expect(unsafe_code, reason = "private memory as a slice")]
    pub fn words_mut(&mut self) -> &mut [u64] {
        let (start, count) = self.range();
        // SAFETY:
        // - `start` is valid for reads and writes of `count` words, aligned to a huge page, and part of
        //   one mapping that `self` owns: see `range`.
        // - All pages are touched and anonymous, so every word is initialised.
        // - `self` is borrowed mutably while the slice lives, the mapping is private and never leaves
        //   `self`: there is no other access.
        unsafe { std::slice::from_raw_parts_mut(start, count) }
    }

    fn range(&self) -> (*mut u64, usize) {
        let start = self.mapping.as_ptr_range(self.start, self.len);
        let start = start.expect("the mapping is a huge page longer than the words");
        let words = usize::try_from(self.len.0 / WORD_BYTES);
        (start.cast(), words.expect("a mapped length fits in the address space"))
    }
}

/// Gives the last page a flag that its neighbour lacks, so that the kernel does not merge the
/// mappings.
fn keep_apart(raw: &MmapRaw) {
    let start = last_page(raw);
    // If the kernel refuses, `huge_page_bytes` returns `None`.
    let _ = raw.advise_range(Advice::DontDump, start, raw.len() - start);
}

/// The offset of the last page, which holds no words: the mapping is one huge page longer than
/// they, and they start less than that behind its start.
fn last_page(raw: &MmapRaw) -> usize {
    (raw.len() - 1) / page_bytes() * page_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocate(len: Bytes, pages: Pages) -> Anonymous {
        Anonymous::allocate(len, Locality::Anywhere, pages).unwrap()
    }

    /// Two buffers of a kind are adjacent; the kernel would show them as one mapping.
    #[test]
    fn small_pages_are_proved_small() {
        let buffers = [Bytes(1), Bytes::mib(6), Bytes(4097)].map(|len| allocate(len, Pages::Small));
        for buffer in &buffers {
            assert_eq!(buffer.huge_page_bytes(), Some(Bytes(0)), "{}", buffer.len());
        }
    }

    #[test]
    fn huge_pages_are_proved_huge() {
        let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        if !enabled.is_ok_and(|it| it.contains("[madvise]") || it.contains("[always]")) {
            return;
        }
        let buffers = [Bytes::mib(8), Bytes::mib(6)].map(|len| allocate(len, Pages::Huge));
        for buffer in &buffers {
            // The number that the kernel grants depends on the fragmentation of the host; the
            // report does not.
            let found = buffer.huge_page_bytes().unwrap();
            assert!(found.0.is_multiple_of(HUGE_PAGE_BYTES) && found <= buffer.len(), "{found}");
        }
    }

    #[test]
    fn words_never_lie_on_the_page_that_is_kept_apart() {
        for len in [1, 8, 4095, 4096, 4097, (2 << 20) - 8, 2 << 20, (2 << 20) + 8] {
            let buffer = allocate(Bytes(len), Pages::Small);
            let apart = last_page(buffer.mapping.raw()) as u64;
            assert!(buffer.start.0 + buffer.len.0 <= apart, "{len} B");
        }
    }
}
