//! DALI's index of a `TFRecord` file, and the file.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use tierfeed_dataset::format::tfrecord;
use tierfeed_fuzz::{assert_rising, mutate_numbers, parsed, two_files};

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate_numbers(data, size, max_size, seed)
});

fuzz_target!(|input: &[u8]| {
    let Some((index, file)) = two_files(input) else { return };
    let Some(ranges) = parsed(file, |object| tfrecord::from_dali_index(index, object)) else {
        return;
    };
    assert_rising(file, &ranges);
    if let (Some(walked), true) = (parsed(file, tfrecord::ranges), ranges.len() <= 64) {
        assert_eq!(walked, ranges, "a short index is compared with every record");
    }
});
