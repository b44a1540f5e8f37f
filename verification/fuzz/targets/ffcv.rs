//! The header and the allocation table of FFCV.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tierfeed_dataset::format::ffcv;
use tierfeed_fuzz::parsed;

fuzz_target!(|input: &[u8]| {
    let Some(found) = parsed(input, ffcv::check) else { return };
    let pieces = found.allocations.checked_mul(24);
    assert!(pieces.is_some_and(|bytes| bytes <= input.len() as u64), "{found:?}");
    assert!(found.samples <= input.len() as u64, "{found:?}");
    assert!(found.page_bytes.is_power_of_two(), "{found:?}");
});
