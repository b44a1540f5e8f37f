//! The `index.json` of MDS, and one shard, which is used for each that the index lists.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use tierfeed_dataset::format::mds;
use tierfeed_fuzz::{assert_rising, assert_same, assert_within, mutate_numbers, parsed, two_files};

/// More shards than this are not tried: the file is always the same.
const SHARDS_MAX: usize = 8;

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate_numbers(data, size, max_size, seed)
});

fuzz_target!(|input: &[u8]| {
    let Some((index, file)) = two_files(input) else { return };
    let shards = mds::shards(index);
    assert_same(&shards, &mds::shards(index));
    for shard in shards.iter().flatten().take(SHARDS_MAX) {
        let _ = shard.only_compressed();
        let Some(ranges) = parsed(file, |object| mds::ranges(object, shard)) else { continue };
        assert_rising(file, &ranges);
        assert_eq!(ranges.len(), shard.samples as usize);
        parsed(file, |object| mds::check(object, shard));
        let labelled = parsed(file, |object| {
            let mut labelled = ranges.clone();
            mds::labels(object, shard, &mut labelled).map(|()| labelled)
        });
        assert_within(file, &labelled.unwrap_or_default());
    }
});
