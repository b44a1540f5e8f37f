use proptest::prelude::*;
use tierfeed_dataset::format::{
    FormatError, Range,
    tfrecord::{check, compressed, from_dali_index, ranges},
};

use crate::{
    assert_sound,
    damage::{NO_BIT, any_damage, bits_accepted, lengths_accepted},
    described, expected, fixture, samples,
};

fn parse(object: &[u8]) -> Result<Vec<Range>, FormatError> {
    ranges(&object)
}

fn records() -> Vec<u8> {
    fixture("tfrecord/records.tfrecord")
}

#[test]
fn samples_are_what_tensorflow_reads() {
    for name in ["records.tfrecord", "empty.tfrecord"] {
        let object = fixture(&format!("tfrecord/{name}"));
        let ranges = ranges(&object).unwrap();
        assert_eq!(samples(&object, &ranges), expected("tfrecord", name));
        check(&object, &ranges).unwrap();
    }
}

#[test]
fn dalis_index_says_the_same() {
    let found = from_dali_index(&fixture("tfrecord/records.idx"), &records()).unwrap();
    assert_eq!(found, ranges(&records()).unwrap());
    assert_eq!(from_dali_index(b"", &Vec::new()).unwrap(), []);
}

#[test]
fn compressed_files_are_one_sample_on_request_and_an_error_else() {
    for (name, kind) in [("gzip.tfrecord", "GZIP"), ("zlib.tfrecord", "ZLIB")] {
        let object = fixture(&format!("tfrecord/{name}"));
        let message = ranges(&object).unwrap_err().to_string();
        assert!(message.contains(kind) && message.contains("compression: gzip"), "{message}");
        let whole = compressed(&object).unwrap();
        assert_eq!(samples(&object, &[whole])[0], described(&object));
    }
    let message = compressed(&records()).unwrap_err().to_string();
    assert!(message.contains("neither that of GZIP nor that of ZLIB"), "{message}");
    assert!(compressed(&Vec::new()).is_err());
}

#[test]
fn a_file_that_is_cut_off_inside_a_record_is_refused() {
    let object = records();
    let starts = ranges(&object).unwrap().into_iter().map(|range| range.offset - 12);
    let starts = starts.map(|start| usize::try_from(start).unwrap()).collect::<Vec<_>>();
    assert_eq!(lengths_accepted(&object, &parse), starts);
}

#[test]
fn every_damaged_bit_is_found_in_lengths_by_ranges_and_in_data_by_check() {
    let object = records();
    let whole = ranges(&object).unwrap();
    for range in &whole {
        let start = usize::try_from(range.offset).unwrap();
        let end = start + usize::try_from(range.len).unwrap();
        assert_eq!(bits_accepted(&object, start - 12..start, &parse), NO_BIT);
        let checked = |object: &[u8]| {
            assert_eq!(ranges(&object).unwrap(), whole);
            check(&object, &whole).map(|()| Vec::new())
        };
        // All of the checksum, and some of the data.
        assert_eq!(bits_accepted(&object, start..end.min(start + 20), &checked), NO_BIT);
        assert_eq!(bits_accepted(&object, end..end + 4, &checked), NO_BIT);
    }
}

#[test]
fn lengths_that_lead_outside_are_refused_even_with_a_right_checksum() {
    for len in [5, u64::MAX, u64::MAX - 3, u64::MAX - 12, u64::MAX - 16, 1 << 63] {
        let mut object = len.to_le_bytes().to_vec();
        let crc = crc32c(&object).rotate_right(15).wrapping_add(0xa282_ead8);
        object.extend(crc.to_le_bytes());
        object.extend([0; 8]);
        let error = ranges(&object).unwrap_err();
        assert!(matches!(error, FormatError::Truncated { at: 0, found: 20, .. }), "{len}: {error}");
    }
}

/// CRC-32C bit by bit, as the test must not use the code under test.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
    let crc =
        bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)));
    !crc
}

#[test]
fn an_index_of_another_file_is_refused_with_line_and_value() {
    let object = records();
    let right = String::from_utf8(fixture("tfrecord/records.idx")).unwrap();
    let cases = [
        (
            right.replace("23 16\n", "23 17\n"),
            "line 3 is an offset of 39, but the record before ends at 40",
        ),
        (right.replace("0 23\n23 16\n", "0 24\n24 15\n"), "line 2 is a size of 15"),
        (
            right.replace("0 23\n23 16\n", "0 22\n22 17\n"),
            "line 1 is a size of 22, but the file has a record of 7 bytes",
        ),
        (
            right.replace("23 16\n39 17\n", "23 17\n40 16\n"),
            "line 2 is a size of 17, but the file has a record of 0 bytes",
        ),
        (right.replace("56 130", "56"), "line 4 is \"56\""),
        (right.replace("56 130", "56 130 1"), "line 4 is \"56 130 1\""),
        (right.replace("56 130", "56 -130"), "line 4 is \"56 -130\""),
        (right.replace("56 130\n", "56 130\n\n"), "line 5 is \"\""),
        (
            right.replace("3299 374", "3299 375"),
            "line 8 is a record of 375 bytes at 3299, but the file has 3673",
        ),
        (
            right.replace("3299 374", &format!("3299 {}", u64::MAX)),
            "line 8 is a record of 18446744073709551615 bytes",
        ),
        (
            right.replace("3299 374\n", ""),
            "line 7 is the last, its record ends at 3299, but the file has 3673 bytes",
        ),
        (String::new(), "line 1 is the last, its record ends at 0"),
    ];
    for (index, expected) in cases {
        assert_ne!(index, right);
        let message = from_dali_index(index.as_bytes(), &object).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
    assert!(from_dali_index(right.as_bytes(), &Vec::new()).is_err());
}

proptest! {
    #[test]
    fn nothing_leads_outside_of_the_object(
        object in prop_oneof![prop::collection::vec(any::<u8>(), 0..200), any_damage(records())],
    ) {
        if let Ok(ranges) = ranges(&object) {
            assert_sound(&ranges, object.len());
            let _damaged_data_may_be_found = check(&object, &ranges);
        }
    }

    #[test]
    fn no_index_leads_outside_of_the_object(
        index in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..100),
            any_damage(fixture("tfrecord/records.idx")),
        ],
        object in prop_oneof![Just(records()), any_damage(records())],
    ) {
        if let Ok(ranges) = from_dali_index(&index, &object) {
            assert_sound(&ranges, object.len());
        }
    }

    #[test]
    fn check_takes_any_ranges(offset in any::<u64>(), len in any::<u64>(), near in 0..4000_u64) {
        for range in [Range::plain(offset, len), Range::plain(near, len), Range::plain(near, near)] {
            prop_assert!(check(&records(), &[range]).is_err());
        }
    }
}
