//! Arrays of `NumPy`.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use tierfeed_dataset::format::npy;
use tierfeed_fuzz::{assert_records_within, mutate_numbers, parsed};

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate_numbers(data, size, max_size, seed)
});

fuzz_target!(|input: &[u8]| {
    let Some(array) = parsed(input, npy::records) else { return };
    assert_records_within(input.len() as u64, array.records);
    assert_eq!(array.shape.first(), Some(&array.records.count));
    let end = array.records.offset + array.records.record_bytes * array.records.count;
    assert_eq!(end, input.len() as u64, "the rows fill the file");
});
