use proptest::prelude::*;
use serde_json::{Value, json};
use tierfeed_dataset::format::{
    FormatError, Range,
    mds::{self, Shard, check, labels, ranges, shards},
};

use crate::{
    assert_sound,
    damage::{NO_BIT, NO_LENGTH, any_damage, bits_accepted, lengths_accepted},
    described, expected, fixture, slice,
};

fn index_of(dataset: &str) -> Vec<u8> {
    fixture(&format!("mds/{dataset}/index.json"))
}

fn dataset(name: &str) -> Vec<(Shard, Vec<u8>)> {
    let shards = shards(&index_of(name)).unwrap().into_iter();
    shards
        .map(|shard| (shard.clone(), fixture(&format!("mds/{name}/{}", shard.basename))))
        .collect()
}

fn first(name: &str) -> (Shard, Vec<u8>) {
    dataset(name).remove(0)
}

#[test]
fn samples_and_classes_are_what_mosaicml_reads() {
    for name in ["images", "vectors"] {
        let mut found = Vec::new();
        for (shard, object) in dataset(name) {
            let mut ranges = ranges(&object, &shard).unwrap();
            labels(&object, &shard, &mut ranges).unwrap();
            for range in ranges {
                let mut sample = described(slice(&object, range));
                sample.as_array_mut().unwrap().push(json!(range.label));
                found.push(sample);
            }
        }
        assert_eq!(Value::Array(found), expected("mds", name));
    }
}

#[test]
fn hashes_are_compared_and_those_that_are_unknown_are_named() {
    for (shard, object) in dataset("images") {
        let checked = check(&object, &shard).unwrap();
        assert_eq!(checked.verified, ["xxh3_64", "xxh64"]);
        assert_eq!(checked.unknown, ["sha1"]);
        let checked = |object: &[u8]| check(&object, &shard).map(|_| Vec::new());
        assert_eq!(bits_accepted(&object, 0..40, &checked), NO_BIT);
    }
    let (mut shard, object) = first("images");
    for (name, _) in shard.hashes.clone() {
        let other = (name.clone(), "0".repeat(16));
        shard.hashes = vec![other];
        let result = check(&object, &shard);
        assert_eq!(result.is_ok(), name == "sha1", "{name}");
    }
}

#[test]
fn a_shard_that_is_cut_off_or_longer_is_refused() {
    for (shard, object) in dataset("images") {
        let as_indexed = |object: &[u8]| ranges(&object, &shard);
        assert_eq!(lengths_accepted(&object, &as_indexed), NO_LENGTH);
        let as_long =
            |object: &[u8]| ranges(&object, &Shard { bytes: object.len() as u64, ..shard.clone() });
        assert_eq!(lengths_accepted(&object, &as_long), NO_LENGTH);
        let longer = [object.as_slice(), &[0]].concat();
        assert!(as_indexed(&longer).is_err());
        assert!(as_long(&longer).is_err());
        let other = Shard { bytes: shard.bytes - 1, ..shard.clone() };
        assert!(ranges(&object, &other).is_err());
    }
}

#[test]
fn a_damaged_table_is_refused_unless_it_is_still_a_table() {
    let (shard, object) = first("images");
    let parse = |object: &[u8]| ranges(&object, &shard);
    // The number of samples, and the offset of the last end.
    assert_eq!(bits_accepted(&object, 0..4, &parse), NO_BIT);
    assert_eq!(bits_accepted(&object, 20..24, &parse), NO_BIT);
    // Some borders between samples only move: the hashes detect it.
    for (byte, bit) in bits_accepted(&object, 4..20, &parse) {
        let mut damaged = object.clone();
        damaged[byte] ^= 1 << bit;
        assert!(check(&damaged, &shard).is_err());
    }
    let cases = [
        (0, 5, "the number of samples at byte 0 is 5, but 4 in the index"),
        (4, 0, "the offset of a sample at byte 4 is 0; the samples start where the table ends"),
        (4, 23, "the offset of a sample at byte 4 is 23"),
        (8, 30, "the offset of a sample at byte 8 is 30; no offset is less"),
        (12, u32::MAX, "truncated: a sample at byte"),
        (20, 1875, "the end of the last sample at byte 1875 is byte 1875, but the shard ends"),
    ];
    for (at, word, expected) in cases {
        let mut damaged = object.clone();
        damaged[at..at + 4].copy_from_slice(&u32::to_le_bytes(word));
        let message = parse(&damaged).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn an_empty_sample_is_refused_as_its_reader_does() {
    let (shard, mut object) = first("images");
    object.copy_within(4..8, 8);
    let message = ranges(&object, &shard).unwrap_err().to_string();
    assert!(message.contains("empty, which MDSReader takes for missing"), "{message}");
}

#[test]
fn shards_that_are_only_compressed_say_what_to_do() {
    let zstd = shards(&index_of("zstd")).unwrap();
    let compressed = zstd[0].compressed.as_ref().unwrap();
    assert_eq!(compressed.basename, "shard.00000.mds.zstd");
    let message = zstd[0].only_compressed().unwrap().to_string();
    assert!(message.contains("shard.00000.mds is there only compressed (zstd)"), "{message}");
    assert!(first("images").0.only_compressed().is_none());
}

#[test]
fn shards_of_another_format_say_what_to_do() {
    let message = shards(&index_of("json")).unwrap_err().to_string();
    assert_eq!(
        message,
        "shards[0].format is \"json\"; write the dataset with MDSWriter; JSON and CSV have no index \
         of samples here"
    );
}

fn changed(change: &dyn Fn(&mut Value)) -> Result<Vec<Shard>, FormatError> {
    let mut index = serde_json::from_slice(&index_of("images")).unwrap();
    change(&mut index);
    shards(index.to_string().as_bytes())
}

#[test]
fn a_wrong_index_is_refused_with_the_key() {
    type Change = (fn(&mut Value), &'static str);
    let cases: [Change; 9] = [
        (|index| index["version"] = json!(1), "version is 1; only version 2 is known"),
        (|index| index["shards"][1]["version"] = json!(3), "shards[1].version is 3"),
        (
            |index| index["shards"][1]["samples"] = json!(-1),
            "shards[1].samples is wrong (invalid value",
        ),
        (|index| index["shards"][1]["samples"] = json!(1_u64 << 32), "shards[1].samples is wrong"),
        (|index| index["shards"][2]["raw_data"] = json!(null), "shards[2].raw_data is missing"),
        (
            |index| index["shards"][0]["column_sizes"] = json!([]),
            "shards[0].column_names is 5 long",
        ),
        (
            |index| index["shards"][0]["raw_data"]["basename"] = json!("../../etc/passwd"),
            "shards[0].raw_data.basename is \"../../etc/passwd\"; a name must lead to a file below",
        ),
        (
            |index| index["shards"][1]["raw_data"]["basename"] = json!("shard.00000.mds"),
            "shards[1].raw_data.basename is \"shard.00000.mds\" again",
        ),
        (|index| *index = json!([]), "index.json is wrong"),
    ];
    for (change, expected) in cases {
        let message = changed(&change).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
    assert_eq!(changed(&|_| ()).unwrap().len(), 4);
}

#[test]
fn a_label_needs_a_column_of_integers_and_is_that_of_its_sample() {
    let (shard, object) = first("images");
    let whole = ranges(&object, &shard).unwrap();
    let label_of = |change: &dyn Fn(&mut Value), object: &[u8]| {
        let shard = changed(change).unwrap().remove(0);
        let mut ranges = whole.clone();
        labels(&object, &shard, &mut ranges)
            .map(|()| ranges.iter().map(|it| it.label).collect::<Vec<_>>())
    };
    let none = vec![None; whole.len()];
    assert_eq!(label_of(&|_| (), &object).unwrap(), [Some(0), Some(1), Some(2), Some(3)]);
    let renamed = |index: &mut Value| index["shards"][0]["column_names"][2] = json!("target");
    assert_eq!(label_of(&renamed, &object).unwrap(), [Some(0), Some(1), Some(2), Some(3)]);
    let unnamed = |index: &mut Value| index["shards"][0]["column_names"][2] = json!("klass");
    assert_eq!(label_of(&unnamed, &object).unwrap(), none);
    let text = |index: &mut Value| index["shards"][0]["column_encodings"][2] = json!("str");
    assert_eq!(label_of(&text, &object).unwrap(), none);
    // The class of sample 2, behind three sizes, an empty answer and a caption of 4 bytes.
    let at = usize::try_from(whole[2].offset).unwrap() + 12 + 4;
    for class in [-1, -100, i64::from(u32::MAX), 1 << 32, i64::MIN] {
        let mut object = object.clone();
        object[at..at + 8].copy_from_slice(&class.to_le_bytes());
        let label = (class != i64::MIN).then_some(class);
        assert_eq!(label_of(&|_| (), &object).unwrap(), [Some(0), Some(1), label, Some(3)]);
        let unsigned = |index: &mut Value| {
            index["shards"][0]["column_encodings"][2] = json!("uint64");
        };
        let label = label.filter(|class| *class >= 0);
        assert_eq!(label_of(&unsigned, &object).unwrap(), [Some(0), Some(1), label, Some(3)]);
    }
    let mut object = object.clone();
    let size_at = usize::try_from(whole[2].offset).unwrap();
    for size in [u32::MAX, 10_000, 1528] {
        object[size_at..size_at + 4].copy_from_slice(&size.to_le_bytes());
        let message = label_of(&|_| (), &object).unwrap_err().to_string();
        assert!(message.contains("too short for its columns"), "{message}");
    }
    let huge = |index: &mut Value| index["shards"][0]["column_sizes"][0] = json!(u64::MAX);
    assert!(label_of(&huge, &object).is_err());
}

proptest! {
    #[test]
    fn nothing_leads_outside_of_the_object(
        object in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..100),
            prop::collection::vec(prop_oneof![Just(0_u8), 0..40_u8], 0..100),
            any_damage(first("images").1),
        ],
        samples in prop_oneof![0..6_u32, any::<u32>()],
    ) {
        let (shard, _) = first("images");
        let bytes = object.len() as u64;
        for shard in [Shard { bytes, ..shard.clone() }, Shard { bytes, samples, ..shard }] {
            if let Ok(mut ranges) = ranges(&object, &shard) {
                assert_sound(&ranges, object.len());
                let _short_samples_are_found = labels(&object, &shard, &mut ranges);
                assert_sound(&ranges, object.len());
            }
        }
    }

    #[test]
    fn labels_take_any_ranges(offset in any::<u64>(), len in any::<u64>(), near in 0..2000_u64) {
        let (shard, object) = first("images");
        for (offset, len) in [(offset, len), (near, len), (near, near)] {
            let _most_are_errors = labels(&object, &shard, &mut [Range::plain(offset, len)]);
        }
    }

    #[test]
    fn no_index_makes_the_parser_panic(index in any_damage(index_of("images"))) {
        for shard in mds::shards(&index).unwrap_or_default() {
            prop_assert!(shard.basename.split('/').all(|part| part != ".."));
        }
    }
}
