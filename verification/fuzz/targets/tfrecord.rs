//! `TFRecord` files: the file unchanged, and with valid checksums of its lengths; and as the features of a record.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tierfeed_dataset::format::{Range, tfrecord};
use tierfeed_fuzz::{assert_rising, parsed};

fuzz_target!(|input: &[u8]| {
    let _any_bytes_may_be_asked = tfrecord::features(input);
    check(input);
    let mut repaired = input.to_vec();
    repair(&mut repaired);
    check(&repaired);
});

fn check(file: &[u8]) {
    if let Some(ranges) = parsed(file, tfrecord::ranges) {
        assert_rising(file, &ranges);
        let framed: u64 = ranges.iter().map(|range| range.len + 16).sum();
        assert_eq!(framed, file.len() as u64, "the records fill the file");
        parsed(file, |object| tfrecord::check(object, &ranges));
    }
    if let Some(range) = parsed(file, tfrecord::compressed) {
        assert_eq!(range, Range::plain(0, file.len() as u64));
    }
}

/// Writes a valid checksum for each length that can be followed, so that the lengths are accepted.
fn repair(file: &mut [u8]) {
    let mut at = 0;
    while let Some(head) = file.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<12>) {
        let (len, crc) = head.split_at_mut(8);
        let masked = crc32c::crc32c(len).rotate_right(15).wrapping_add(0xa282_ead8);
        crc.copy_from_slice(&masked.to_le_bytes());
        let len = u64::from_le_bytes(len.try_into().expect("8 bytes"));
        let Some(next) =
            usize::try_from(len).ok().and_then(|len| at.checked_add(len)?.checked_add(16))
        else {
            break;
        };
        at = next;
    }
}
