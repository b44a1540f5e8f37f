//! The inner loop of the sum: stripes of 64 bytes, stored elsewhere on the way if asked for.

use std::ptr;

use super::{Checksum, PRIME32_1, SECRET, STRIPES_PER_BLOCK, Stores};

/// What goes into the lanes at once.
pub(super) const STRIPE: usize = 64;

/// The state of the sum, aligned for vectors.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub(super) struct Accumulators([u64; 8]);

/// Where bytes come from and, if they are copied, where they go.
#[derive(Clone, Copy)]
struct Ends {
    from: *const u8,
    to: Option<*mut u8>,
    stores: Stores,
}

impl Ends {
    fn behind(self, bytes: usize) -> Self {
        let to = self.to.map(|to| to.wrapping_add(bytes));
        Self { from: self.from.wrapping_add(bytes), to, ..self }
    }
}

/// Takes `count` bytes at `from` into `sum`, and stores the very bytes at `to` if that is given.
///
/// # Safety
///
/// - `from` is valid for reads and `to` for writes of `count` bytes. Other processes may write either
///   meanwhile; the bytes are then some mix, but the same in the sum as in what is stored.
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
        // The last byte stays behind for `tail`, and the stripe before it goes through `last`.
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

/// Whether the next byte begins a stripe, and whole stripes may go straight into the lanes.
fn is_at_stripe(sum: &Checksum) -> bool {
    sum.tail_len == 0 && sum.short_len().is_none()
}

/// Takes the bytes up to the end of a stripe, at most `left`, through a buffer. Returns how many.
///
/// # Safety
///
/// As [`feed`], for `left` bytes.
unsafe fn sum_few(sum: &mut Checksum, ends: Ends, left: usize) -> usize {
    let count = left.min(STRIPE - sum.tail_len);
    let place = &mut sum.tail[sum.tail_len..sum.tail_len + count];
    // SAFETY:
    // - `from` is valid for reads of `count` bytes by the caller's promise, `place` is as long, and
    //   memory of this value alone.
    unsafe { ptr::copy_nonoverlapping(ends.from, place.as_mut_ptr(), count) };
    if let Some(to) = ends.to {
        // SAFETY:
        // - `to` is valid for writes of `count` bytes by the caller's promise; `place` as above.
        unsafe { ptr::copy_nonoverlapping(place.as_ptr(), to, count) };
    }
    // What is beyond the length of a short input is not kept: the sum is nobody's then.
    let at = usize::try_from(sum.done).unwrap_or(usize::MAX).min(sum.short.len());
    let kept = count.min(sum.short.len() - at);
    sum.short[at..at + kept].copy_from_slice(&place[..kept]);
    sum.done += count as u64;
    sum.tail_len += count;
    count
}

/// Takes whole stripes into the lanes, block by block.
///
/// # Safety
///
/// As [`feed`], for as many bytes.
unsafe fn sum_stripes(sum: &mut Checksum, mut ends: Ends, stripes: usize) {
    let mut left = stripes;
    while left > 0 {
        let count = left.min(STRIPES_PER_BLOCK - sum.stripes);
        // SAFETY:
        // - `count` stripes are part of those that the caller promised.
        // - The secret has a key for each of them: they do not go beyond the block.
        unsafe { accumulate(&mut sum.lanes, ends, sum.stripes, count) };
        sum.stripes += count;
        if sum.stripes == STRIPES_PER_BLOCK {
            sum.lanes.scramble();
            sum.stripes = 0;
        }
        ends = ends.behind(count * STRIPE);
        left -= count;
    }
    sum.done += (stripes * STRIPE) as u64;
    fence(ends.stores);
}

/// Non-temporal stores are not ordered with later ones: without this, another thread that is told that
/// the memory is written could still see the old.
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

/// Takes `count` stripes of one block into the lanes, the first being number `first`.
///
/// # Safety
///
/// As [`feed`], for `count` stripes; `first + count` is at most [`STRIPES_PER_BLOCK`].
unsafe fn accumulate(lanes: &mut Accumulators, ends: Ends, first: usize, count: usize) {
    let Ends { from, to, stores } = ends;
    let secret = SECRET[first * 8..].as_ptr();
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        let is_aligned = to.is_some_and(|to| to.align_offset(32) == 0);
        // SAFETY, for each of the three:
        // - The processor has AVX2; the rest as promised by the caller.
        match to {
            // SAFETY: as above, and `to` is aligned to a vector.
            Some(to) if stores == Stores::NonTemporal && is_aligned => unsafe {
                avx2::accumulate_past_caches(&mut lanes.0, from, to, secret, count);
            },
            // SAFETY: as above.
            Some(to) => unsafe {
                avx2::accumulate_and_store(&mut lanes.0, from, to, secret, count);
            },
            // SAFETY: as above; nothing is stored.
            None => unsafe {
                avx2::accumulate_only(&mut lanes.0, from, ptr::null_mut(), secret, count);
            },
        }
        return;
    }
    let _: (Stores, *const u8) = (stores, secret);
    for stripe in 0..count {
        let mut bytes = [0; STRIPE];
        let from = from.wrapping_add(stripe * STRIPE);
        // SAFETY:
        // - The stripe is one of those that the caller promised, and `bytes` as long.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), STRIPE) };
        if let Some(to) = to {
            let to = to.wrapping_add(stripe * STRIPE);
            // SAFETY:
            // - As above, and the caller promised the target as well.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, STRIPE) };
        }
        lanes.accumulate(&bytes, &SECRET[(first + stripe) * 8..]);
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi64, _mm256_load_si256, _mm256_loadu_si256, _mm256_mul_epu32,
        _mm256_shuffle_epi32, _mm256_srli_epi64, _mm256_store_si256, _mm256_storeu_si256,
        _mm256_stream_si256, _mm256_xor_si256,
    };

    use super::STRIPE;

    const VECTOR: usize = size_of::<__m256i>();

    /// Adds a vector of data under its key to the lanes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn mix(lanes: __m256i, data: __m256i, key: __m256i) -> __m256i {
        let keyed = _mm256_xor_si256(data, key);
        let product = _mm256_mul_epu32(keyed, _mm256_srli_epi64::<32>(keyed));
        let swapped = _mm256_shuffle_epi32::<0b01_00_11_10>(data);
        _mm256_add_epi64(lanes, _mm256_add_epi64(swapped, product))
    }

    /// Makes the loop for one way to store.
    macro_rules! accumulate {
        ($name:ident, |$to:ident, $data:ident| $store:expr) => {
            /// # Safety
            ///
            /// As `super::accumulate`; `secret` is valid for reads of a stripe at every eighth byte.
            #[target_feature(enable = "avx2")]
            pub(super) unsafe fn $name(
                lanes: &mut [u64; 8],
                from: *const u8,
                to: *mut u8,
                secret: *const u8,
                count: usize,
            ) {
                let state: *mut __m256i = lanes.as_mut_ptr().cast();
                // SAFETY:
                // - `lanes` are two vectors, aligned to a cache line.
                let mut low = unsafe { _mm256_load_si256(state) };
                // SAFETY:
                // - As above.
                let mut high = unsafe { _mm256_load_si256(state.wrapping_add(1)) };
                for stripe in 0..count {
                    let from = from.wrapping_add(stripe * STRIPE);
                    let to = to.wrapping_add(stripe * STRIPE);
                    let secret = secret.wrapping_add(stripe * 8);
                    // SAFETY:
                    // - The stripe is readable by the caller's promise; no alignment is needed.
                    let first = unsafe { _mm256_loadu_si256(from.cast()) };
                    // SAFETY:
                    // - As above.
                    let second = unsafe { _mm256_loadu_si256(from.wrapping_add(VECTOR).cast()) };
                    let ($to, $data) = (to, first);
                    $store;
                    let ($to, $data) = (to.wrapping_add(VECTOR), second);
                    $store;
                    // SAFETY:
                    // - The key of a stripe is readable by the caller's promise.
                    let key = unsafe { _mm256_loadu_si256(secret.cast()) };
                    low = mix(low, first, key);
                    // SAFETY:
                    // - As above.
                    let key = unsafe { _mm256_loadu_si256(secret.wrapping_add(VECTOR).cast()) };
                    high = mix(high, second, key);
                }
                // SAFETY:
                // - As when they were loaded.
                unsafe { _mm256_store_si256(state, low) };
                // SAFETY:
                // - As above.
                unsafe { _mm256_store_si256(state.wrapping_add(1), high) };
            }
        };
    }

    // Each SAFETY:
    // - The vector is part of a stripe that is writable by the caller's promise, and aligned where the
    //   instruction needs it.
    accumulate!(accumulate_only, |to, _data| {
        let _: *mut u8 = to;
    });
    accumulate!(accumulate_and_store, |to, data| {
        // SAFETY: see above; no alignment is needed.
        unsafe { _mm256_storeu_si256(to.cast(), data) };
    });
    accumulate!(accumulate_past_caches, |to, data| {
        // SAFETY: see above; the caller promised that `to` is aligned to a vector.
        unsafe { _mm256_stream_si256(to.cast(), data) };
    });
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

    /// Takes one stripe in, under the first 64 bytes of `secret`.
    pub(super) fn accumulate(&mut self, stripe: &[u8; STRIPE], secret: &[u8]) {
        for lane in 0..8 {
            let data = word(stripe, lane);
            let keyed = data ^ word(secret, lane);
            self.0[lane ^ 1] = self.0[lane ^ 1].wrapping_add(data);
            let product = (keyed & 0xffff_ffff) * (keyed >> 32);
            self.0[lane] = self.0[lane].wrapping_add(product);
        }
    }

    /// Ends a block.
    pub(super) fn scramble(&mut self) {
        let secret = &SECRET[SECRET.len() - STRIPE..];
        for (lane, state) in self.0.iter_mut().enumerate() {
            let mixed = *state ^ (*state >> 47) ^ word(secret, lane);
            *state = mixed.wrapping_mul(PRIME32_1);
        }
    }

    /// The sum.
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
