//! Shards of `WebDataset`: the tar unchanged, and with valid checksums of its headers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tierfeed_dataset::format::webdataset;
use tierfeed_fuzz::{assert_rising, parsed, slice};

const BLOCK: usize = 512;
const CHECKSUM: std::ops::Range<usize> = 148..156;

fuzz_target!(|input: &[u8]| {
    check(input);
    let mut repaired = input.to_vec();
    repair(&mut repaired);
    check(&repaired);
});

fn check(shard: &[u8]) {
    let _ = webdataset::parts(shard);
    let Some(ranges) = parsed(shard, webdataset::ranges) else { return };
    assert_rising(shard, &ranges);
    webdataset::check(&shard, &ranges).expect("the shard was parsed before");
    for range in &ranges {
        let sample = slice(shard, range);
        let parts = webdataset::parts(sample).expect("a sample is a tar of its own");
        assert!(!parts.is_empty(), "a sample without parts at {range:?}");
        let bytes: usize = parts.iter().map(|part| part.bytes.len()).sum();
        assert!(bytes < sample.len(), "the parts lie beside their headers");
    }
}

/// Writes a valid checksum into every block that looks like a header.
fn repair(tar: &mut [u8]) {
    for block in tar.chunks_exact_mut(BLOCK).filter(|block| &block[257..262] == b"ustar") {
        block[CHECKSUM].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}
