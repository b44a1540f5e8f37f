//! Prefetches memory before it is read, so that the load does not wait.
//!
//! Hardware prefetchers stop at the end of every page, and small pages are not adjacent in physical
//! memory: loops over memory prefetch the line one page ahead.

/// Distance of the prefetch in bytes. Measured for copies of 100 KiB: one page is better than half
/// a page, and two are no better.
pub(crate) const PREFETCH_DISTANCE_BYTES: usize = 4096;

/// Prefetches a cache line and the translation of its page. It is a hint, so any address is valid.
#[inline]
pub(crate) fn prefetch_line(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    #[allow(unused_unsafe, reason = "newer compilers know that a hint is safe")]
    // SAFETY:
    // - Nothing is read that the program sees. SSE is part of the target.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _: *const u8 = line;
}
