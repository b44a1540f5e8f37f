//! The `.idx` of Megatron, and its `.bin`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tierfeed_dataset::format::megatron;
use tierfeed_fuzz::{assert_rising, parsed, two_files};

fuzz_target!(|input: &[u8]| {
    let Some((index, tokens)) = two_files(input) else { return };
    let Some(ranges) = parsed(index, |object| megatron::ranges(object, &tokens)) else { return };
    assert_rising(tokens, &ranges);
    let bytes: u64 = ranges.iter().map(|range| range.len).sum();
    assert_eq!(bytes, tokens.len() as u64, "the sequences fill the .bin");
});
