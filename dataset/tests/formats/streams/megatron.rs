use proptest::prelude::*;
use tierfeed_dataset::format::megatron::ranges;

use crate::{
    assert_sound,
    damage::{NO_BIT, NO_LENGTH, any_damage, bits_accepted, lengths_accepted},
    expected, fixture, samples,
};

fn dataset(name: &str) -> (Vec<u8>, Vec<u8>) {
    (fixture(&format!("megatron/{name}.idx")), fixture(&format!("megatron/{name}.bin")))
}

#[test]
fn samples_are_what_megatron_reads() {
    for name in ["text", "modes"] {
        let (index, object) = dataset(name);
        let ranges = ranges(&index, &object).unwrap();
        assert_eq!(samples(&object, &ranges), expected("megatron", name));
    }
}

#[test]
fn an_index_or_a_bin_that_is_cut_off_or_longer_is_refused() {
    for name in ["text", "modes"] {
        let (index, object) = dataset(name);
        let by_index = |index: &[u8]| ranges(&index, &object);
        // The modes of the sequences do not affect their positions.
        let without_modes = (name == "modes").then(|| index.len() - 5);
        let accepted = (0..index.len()).filter(|len| by_index(&index[..*len]).is_ok());
        assert!(accepted.eq(without_modes), "{name}");
        assert!(by_index(&[index.as_slice(), &[0]].concat()).is_err());
        let by_object = |object: &[u8]| ranges(&index, &object);
        assert_eq!(lengths_accepted(&object, &by_object), NO_LENGTH);
        assert!(by_object(&[object.as_slice(), &[0]].concat()).is_err());
    }
}

#[test]
fn every_damaged_bit_of_the_tables_is_found() {
    let (index, object) = dataset("text");
    let parse = |index: &[u8]| ranges(&index, &object);
    // All but the borders of documents, which are not used.
    assert_eq!(bits_accepted(&index, 0..94, &parse), NO_BIT);
    let cases = [
        (9, 2_u64.to_le_bytes().to_vec(), "the index is MMIDIDX\\x00\\x00 of version 2"),
        (0, b"X".to_vec(), "the index is XMIDIDX"),
        (17, vec![0], "the type of the tokens is 0"),
        (17, vec![9], "the type of the tokens is 9"),
        (
            18,
            u64::MAX.to_le_bytes().to_vec(),
            "the index is 118 bytes long for 18446744073709551615",
        ),
        (26, (1_u64 << 61).to_le_bytes().to_vec(), "the index is 118 bytes long for 5"),
        (34, (-1_i32).to_le_bytes().to_vec(), "sequence 0 is -1 tokens at byte 0"),
        (34, i32::MAX.to_le_bytes().to_vec(), "sequence 1 is 0 tokens at byte 6, the one before"),
        (54, (-1_i64).to_le_bytes().to_vec(), "sequence 0 is 3 tokens at byte -1"),
        (
            86,
            i64::MAX.to_le_bytes().to_vec(),
            "sequence 4 is 25 tokens at byte 9223372036854775807",
        ),
        (86, 0_i64.to_le_bytes().to_vec(), "sequence 4 is 25 tokens at byte 0, the one before"),
    ];
    for (at, bytes, expected) in cases {
        let mut index = index.clone();
        index.splice(at..at + bytes.len(), bytes);
        let message = parse(&index).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
}

proptest! {
    #[test]
    fn nothing_leads_outside_of_the_object(
        index in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..100),
            any_damage(dataset("text").0),
            any_damage(dataset("modes").0),
        ],
        cut in 0..150_usize,
    ) {
        let (_, mut object) = dataset("text");
        object.truncate(cut);
        for object in [object, dataset("modes").1] {
            if let Ok(ranges) = ranges(&index, &object) {
                assert_sound(&ranges, object.len());
            }
        }
    }
}
