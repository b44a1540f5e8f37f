//! Allocates private memory for measurements, strictly on one node.
//!
//! It starts on a huge page, is bound strictly (a measurement on the wrong node is worth nothing)
//! after the room was checked, and every page is touched before it is handed out: untouched memory
//! reads as one shared zero page, at absurd speed.

use std::path::Path;

use memmap2::{MmapOptions, MmapRaw};
use tierfeed_core::{tier::Locality, units::Bytes};

use crate::{
    capacity,
    error::{AllocateError, Step},
    mapping::Mapping,
    placement::Placement,
    policy::Mode,
    region::{self, Pages},
};

const HUGE_PAGE_BYTES: u64 = 2 << 20;
const WORD_BYTES: u64 = size_of::<u64>() as u64;

/// Private memory of this process, as words that this value alone owns.
#[derive(Debug)]
pub struct Anonymous {
    /// Longer than the words by up to one huge page, so that they can start on one. It never leaves
    /// this value: nobody but the borrower of [`Self::words_mut`] writes it.
    mapping: Mapping,
    start: Bytes,
    len: Bytes,
    placement: Placement,
}

impl Anonymous {
    /// Allocates and touches memory, and reads back where it lies.
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
            _ => capacity::claim(Path::new("/"), locality, mapped)?,
        };
        let count = usize::try_from(mapped.0).map_err(|_| AllocateError::TooLarge { len })?;
        let anonymous = MmapOptions::new()
            .len(count)
            .map_anon()
            .map_err(|source| AllocateError::System { step: Step::Map, len, source })?;
        let raw = MmapRaw::from(anonymous);
        region::advise_pages(&raw, pages);
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

    /// Where it lies.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// How long it is.
    #[must_use]
    pub fn len(&self) -> Bytes {
        self.len
    }

    /// Never: there is at least one word.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len.0 == 0
    }

    /// How much of it lies in huge pages that are mapped as such, if the kernel says.
    ///
    /// It may be up to one huge page more than the memory is long.
    #[must_use]
    pub fn huge_page_bytes(&self) -> Option<Bytes> {
        self.mapping.huge_page_bytes()
    }

    /// The memory.
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

    /// The memory, for writing.
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
