//! The meta pages of LMDB.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tierfeed_dataset::format::lmdb;
use tierfeed_fuzz::parsed;

fuzz_target!(|input: &[u8]| {
    let Some(found) = parsed(input, lmdb::check) else { return };
    assert!(found.used_bytes <= input.len() as u64, "{found:?}");
    assert!(found.used_bytes >= 2 * u64::from(found.page_bytes), "{found:?}");
    assert!(found.page_bytes.is_power_of_two(), "{found:?}");
});
