//! The `index.json` of `LitData`, and one chunk, which is used for each that the index lists.
#![no_main]

use std::num::NonZeroU64;

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use tierfeed_dataset::format::litdata::{self, Content};
use tierfeed_fuzz::{
    assert_records_within, assert_rising, assert_same, mutate_numbers, parsed, two_files,
};

/// More chunks than this are not tried: the file is always the same.
const CHUNKS_MAX: usize = 8;

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate_numbers(data, size, max_size, seed)
});

fuzz_target!(|input: &[u8]| {
    let Some((index, file)) = two_files(input) else { return };
    let found = litdata::index(index);
    assert_same(&found, &litdata::index(index));
    let Ok(index) = found else { return };
    for chunk in index.chunks.iter().take(CHUNKS_MAX) {
        if let Some(ranges) = parsed(file, |object| litdata::ranges(object, chunk)) {
            assert_rising(file, &ranges);
            assert_eq!(ranges.len(), chunk.items as usize);
        }
        let Content::Tokens { token_bytes, .. } = index.content else { continue };
        for block_tokens in [1, 7, u64::MAX].map(|tokens| NonZeroU64::new(tokens).expect("above 0"))
        {
            let blocks = parsed(file, |object| {
                litdata::token_blocks(object, chunk, token_bytes, block_tokens)
            });
            if let Some(records) = blocks {
                assert_records_within(file.len() as u64, records);
            }
        }
    }
});
