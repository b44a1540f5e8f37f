//! Archives of arrays: their directory, and the inflated members.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tierfeed_dataset::format::{Encoding, npz};
use tierfeed_fuzz::{assert_within, parsed, slice};

/// Largest expansion of a byte of a deflate stream.
const GAIN_MAX: u64 = 1032;
/// Longer members are left to the check, which inflates in pieces.
const LEN_MAX: u64 = 4 << 20;

fuzz_target!(|input: &[u8]| {
    let Some(ranges) = parsed(input, |object| npz::ranges(object, &[])) else { return };
    assert_within(input, &ranges);
    let is_sound = parsed(input, |object| npz::check(object, &[])).is_some();
    for range in &ranges {
        let Encoding::Deflate { len, crc32 } = range.encoding else { continue };
        let stored = slice(input, range);
        if len > range.len.saturating_mul(GAIN_MAX) || len > LEN_MAX {
            // Not tried: the caller allocates the memory, so the caller decides.
            assert!(!is_sound || len <= range.len.saturating_mul(GAIN_MAX), "{range:?}");
            continue;
        }
        let mut into = vec![0; usize::try_from(len).expect("at most 4 MiB")];
        let inflated = npz::inflate(stored, len, crc32, &mut into);
        assert!(inflated.is_ok() || !is_sound, "{range:?} of a sound archive: {inflated:?}");
    }
});
