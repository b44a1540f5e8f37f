//! The inner loop of the sum: stripes of 64 bytes, copied in the same pass on request.

use std::ptr;

#[cfg(target_arch = "x86_64")]
use super::avx2::{store, take};
use super::{Checksum, PRIME32_1, SECRET, STRIPE, STRIPES_PER_BLOCK, Stores};

/// The state of the sum, aligned for vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(align(64))]
pub(super) struct Accumulators([u64; 8]);

/// The source of the bytes and, if they are copied, the destination.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) from: *const u8,
    pub(super) to: Option<*mut u8>,
    pub(super) stores: Stores,
}

impl Ends {
    fn behind(self, bytes: usize) -> Self {
        let to = self.to.map(|to| to.wrapping_add(bytes));
        Self { from: self.from.wrapping_add(bytes), to, ..self }
    }
}

/// Adds `count` bytes at `from` to `sum`, and stores the same bytes at `to` if that is given.
///
/// # Safety
///
/// - `from` is valid for reads and `to` for writes of `count` bytes. Other processes may write
///   either meanwhile; the bytes are then a mixture, but the same in the sum as in the copy.
/// - They do not overlap as addresses of this process.
pub(crate) unsafe fn feed(
    sum: &mut Checksum,
    from: *const u8,
    to: Option<*mut u8>,
    count: usize,
    stores: Stores,
) {
    let mut ends = Ends { from, to, stores };
    let mut left = count;
    while left > 0 {
        if sum.tail_len == STRIPE {
            sum.take_tail();
        }
        // The last byte is kept for `tail`, and the stripe before it goes through `last`.
        let bulk = if is_at_stripe(sum) { (left - 1) / STRIPE } else { 0 };
        let taken = if bulk > 1 {
            let stripes = bulk - 1;
            // SAFETY:
            // - `stripes` stripes are fewer bytes than the `left` that the caller promised.
            unsafe { sum_stripes(sum, ends, stripes) };
            stripes * STRIPE
        } else {
            // SAFETY:
            // - `left` bytes are left of those that the caller promised.
            unsafe { sum_few(sum, ends, left) }
        };
        ends = ends.behind(taken);
        left -= taken;
    }
}

/// As [`feed`], of a slice, without a copy.
pub(super) fn feed_slice(sum: &mut Checksum, bytes: &[u8]) {
    // SAFETY:
    // - A slice is valid for reads of its length.
    unsafe { feed(sum, bytes.as_ptr(), None, bytes.len(), Stores::Cached) };
}

/// Whether the next byte begins a stripe, so that whole stripes may be added directly to the lanes.
fn is_at_stripe(sum: &Checksum) -> bool {
    sum.tail_len == 0 && sum.short_len().is_none()
}

/// Adds the bytes up to the end of a stripe, at most `left`, through a buffer. Returns their
/// number.
///
/// # Safety
///
/// As [`feed`], for `left` bytes.
unsafe fn sum_few(sum: &mut Checksum, ends: Ends, left: usize) -> usize {
    let count = left.min(STRIPE - sum.tail_len);
    let place = &mut sum.tail[sum.tail_len..sum.tail_len + count];
    // SAFETY:
    // - `from` is valid for reads of `count` bytes by the caller's promise, and `place` is as long.
    unsafe { read_once(ends.from, place) };
    if let Some(to) = ends.to {
        // SAFETY:
        // - `to` is valid for writes of `count` bytes by the caller's promise; `place` as above.
        unsafe { ptr::copy_nonoverlapping(place.as_ptr(), to, count) };
    }
    // Bytes beyond the length of a short input are not kept: the sum is meaningless then.
    let at = usize::try_from(sum.done).unwrap_or(usize::MAX).min(sum.short.len());
    let kept = count.min(sum.short.len() - at);
    sum.short[at..at + kept].copy_from_slice(&place[..kept]);
    sum.done += count as u64;
    sum.tail_len += count;
    count
}

/// Fills `bytes` from memory that others may write meanwhile, and reads each byte there exactly
/// once.
///
/// A plain copy does not guarantee that: if it is followed by a copy of the copy, compilers copy
/// the origin twice instead.
///
/// # Safety
///
/// `from` is valid for reads of as many bytes as there are in `bytes`.
unsafe fn read_once(from: *const u8, bytes: &mut [u8]) {
    let words = bytes.len() / WORD;
    let (whole, rest) = bytes.split_at_mut(words * WORD);
    for (number, place) in whole.chunks_exact_mut(WORD).enumerate() {
        let word = from.wrapping_add(number * WORD).cast::<Word>();
        // SAFETY:
        // - The word lies inside of the bytes that the caller promised, and needs no alignment.
        place.copy_from_slice(&unsafe { word.read_volatile() }.0.to_ne_bytes());
    }
    for (number, place) in rest.iter_mut().enumerate() {
        // SAFETY:
        // - The byte is one of those that the caller promised.
        *place = unsafe { from.wrapping_add(words * WORD + number).read_volatile() };
    }
}

/// The unit of a read, at any address.
#[repr(C, packed)]
struct Word(u64);

const WORD: usize = size_of::<Word>();

/// Adds whole stripes to the lanes.
///
/// # Safety
///
/// As [`feed`], for as many bytes.
unsafe fn sum_stripes(sum: &mut Checksum, ends: Ends, stripes: usize) {
    // SAFETY:
    // - As promised by the caller; `stripes` of a sum is always inside a block.
    unsafe { accumulate(&mut sum.lanes, ends, sum.stripes, stripes) };
    sum.stripes = (sum.stripes + stripes) % STRIPES_PER_BLOCK;
    sum.done += (stripes * STRIPE) as u64;
    fence(ends.stores);
}

/// Orders non-temporal stores before later ones: without this, another thread that learns that the
/// memory is written could still read the old bytes.
fn fence(stores: Stores) {
    #[cfg(target_arch = "x86_64")]
    if stores == Stores::NonTemporal {
        // SAFETY:
        // - SSE is part of the target, and a fence touches no memory.
        unsafe { std::arch::x86_64::_mm_sfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _: Stores = stores;
}

/// Adds `count` stripes to the lanes, the first being number `first` of its block, with the widest
/// vectors for which there is a loop.
///
/// # Safety
///
/// As [`feed`], for `count` stripes; `first` is less than [`STRIPES_PER_BLOCK`].
unsafe fn accumulate(lanes: &mut Accumulators, ends: Ends, first: usize, count: usize) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY:
        // - The processor has AVX2; the rest as promised by the caller.
        unsafe { accumulate_avx2(lanes, ends, first, count) };
        return;
    }
    // SAFETY:
    // - As promised by the caller.
    unsafe { accumulate_anywhere(lanes, ends, first, count) };
}

/// As [`accumulate`], on a processor with AVX2.
///
/// # Safety
///
/// As [`accumulate`], and the processor has AVX2.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn accumulate_avx2(
    lanes: &mut Accumulators,
    ends: Ends,
    first: usize,
    count: usize,
) {
    let Ends { from, to, stores } = ends;
    let lanes = &mut lanes.0;
    let Some(to) = to else {
        // SAFETY:
        // - As promised by the caller; nothing is stored.
        return unsafe { take::<{ store::NOWHERE }>(lanes, from, ptr::null_mut(), first, count) };
    };
    if stores == Stores::NonTemporal && to.align_offset(32) == 0 {
        // SAFETY:
        // - As promised by the caller, and `to` is aligned to a vector.
        unsafe { take::<{ store::PAST_CACHES }>(lanes, from, to, first, count) };
    } else {
        // SAFETY:
        // - As promised by the caller.
        unsafe { take::<{ store::CACHED }>(lanes, from, to, first, count) };
    }
}

/// As [`accumulate`], without vectors.
///
/// # Safety
///
/// As [`accumulate`].
pub(super) unsafe fn accumulate_anywhere(
    lanes: &mut Accumulators,
    ends: Ends,
    first: usize,
    count: usize,
) {
    let mut number = first;
    for stripe in 0..count {
        let Ends { from, to, .. } = ends.behind(stripe * STRIPE);
        let mut bytes = [0; STRIPE];
        // SAFETY:
        // - The stripe is one of those that the caller promised, and `bytes` as long.
        unsafe { read_once(from, &mut bytes) };
        if let Some(to) = to {
            // SAFETY:
            // - As above, and the caller promised the target as well.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, STRIPE) };
        }
        lanes.accumulate(&bytes, &SECRET[number * 8..]);
        number += 1;
        if number == STRIPES_PER_BLOCK {
            lanes.scramble();
            number = 0;
        }
    }
}

impl Accumulators {
    pub(super) const fn new() -> Self {
        Self([
            0xC2B2_AE3D,
            0x9E37_79B1_85EB_CA87,
            0xC2B2_AE3D_27D4_EB4F,
            0x1656_67B1_9E37_79F9,
            0x85EB_CA77_C2B2_AE63,
            0x85EB_CA77,
            0x27D4_EB2F_1656_67C5,
            0x9E37_79B1,
        ])
    }

    /// Adds one stripe, with the first 64 bytes of `secret`.
    pub(super) fn accumulate(&mut self, stripe: &[u8; STRIPE], secret: &[u8]) {
        for lane in 0..8 {
            let data = word(stripe, lane);
            let keyed = data ^ word(secret, lane);
            self.0[lane ^ 1] = self.0[lane ^ 1].wrapping_add(data);
            let product = (keyed & 0xffff_ffff) * (keyed >> 32);
            self.0[lane] = self.0[lane].wrapping_add(product);
        }
    }

    /// Mixes the lanes at the end of a block.
    pub(super) fn scramble(&mut self) {
        let secret = &SECRET[SECRET.len() - STRIPE..];
        for (lane, state) in self.0.iter_mut().enumerate() {
            let mixed = *state ^ (*state >> 47) ^ word(secret, lane);
            *state = mixed.wrapping_mul(PRIME32_1);
        }
    }

    /// Merges the lanes into the sum.
    pub(super) fn merge(&self, secret: &[u8], start: u64) -> u64 {
        let fold = |pair: usize| {
            let low = self.0[2 * pair] ^ word(secret, 2 * pair);
            let high = self.0[2 * pair + 1] ^ word(secret, 2 * pair + 1);
            let product = u128::from(low) * u128::from(high);
            let [low, high] = [product, product >> 64].map(|half| half & u128::from(u64::MAX));
            u64::try_from(low ^ high).expect("both are cut to 64 bits")
        };
        let sum = (0..4).fold(start, |sum, pair| sum.wrapping_add(fold(pair)));
        let sum = (sum ^ (sum >> 37)).wrapping_mul(0x1656_6791_9E37_79F9);
        sum ^ (sum >> 32)
    }
}

fn word(bytes: &[u8], index: usize) -> u64 {
    let at = index * 8;
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes are eight bytes"))
}
