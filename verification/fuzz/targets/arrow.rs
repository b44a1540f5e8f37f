//! Arrow IPC, files and streams.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tierfeed_dataset::format::arrow;
use tierfeed_fuzz::{assert_within, parsed};

fuzz_target!(|input: &[u8]| {
    let Some(layout) = parsed(input, arrow::layout) else { return };
    assert_within(input, &layout.batches);
    assert_within(input, &layout.dictionaries);
    assert_within(input, layout.schema.as_slice());
    assert_within(input, layout.footer.as_slice());
    assert_eq!(layout.batches.len(), layout.rows.len());
    assert!(layout.schema.is_some() || layout.footer.is_some(), "no schema anywhere");
});
