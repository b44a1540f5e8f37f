//! DALI's index of a shard of `WebDataset`, and the shard.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use tierfeed_dataset::format::webdataset;
use tierfeed_fuzz::{assert_rising, mutate_numbers, parsed, two_files};

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate_numbers(data, size, max_size, seed)
});

fuzz_target!(|input: &[u8]| {
    let Some((index, shard)) = two_files(input) else { return };
    if let Some(ranges) = parsed(shard, |object| webdataset::from_index(index, object)) {
        assert_rising(shard, &ranges);
    }
});
