use std::num::NonZeroU64;

use proptest::prelude::*;
use serde_json::{Value, json};
use tierfeed_dataset::format::{
    FormatError, Range, Records,
    litdata::{Chunk, Content, Index, index, ranges, token_blocks},
};

use crate::{
    assert_sound,
    damage::{NO_BIT, NO_LENGTH, any_damage, bits_accepted, lengths_accepted},
    expected, fixture, samples,
};

/// The block length of `scripts/fixtures/litdata.py`.
const BLOCK_TOKENS: u64 = 8;

fn index_of(dataset: &str) -> Vec<u8> {
    fixture(&format!("litdata/{dataset}/index.json"))
}

fn dataset(name: &str) -> (Index, Vec<Vec<u8>>) {
    let index = index(&index_of(name)).unwrap();
    let chunks = index.chunks.iter();
    let chunks = chunks.map(|chunk| fixture(&format!("litdata/{name}/{}", chunk.filename)));
    let objects = chunks.collect();
    (index, objects)
}

fn first(name: &str) -> (Chunk, Vec<u8>) {
    let (mut index, mut objects) = dataset(name);
    (index.chunks.remove(0), objects.remove(0))
}

fn nonzero(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

fn blocks(records: Records) -> Vec<Range> {
    let Records { offset, record_bytes, count } = records;
    (0..count).map(|block| Range::plain(offset + block * record_bytes, record_bytes)).collect()
}

#[test]
fn items_are_what_litdata_decodes() {
    let (index, objects) = dataset("items");
    assert_eq!(index.content, Content::Items);
    let mut found = Vec::new();
    for (chunk, object) in index.chunks.iter().zip(&objects) {
        let ranges = ranges(object, chunk).unwrap();
        found.extend(samples(object, &ranges).as_array().unwrap().clone());
    }
    assert_eq!(Value::Array(found), expected("litdata", "items"));
}

#[test]
fn blocks_of_tokens_are_what_litdata_reads() {
    let (index, objects) = dataset("tokens");
    let Content::Tokens { token_bytes, .. } = index.content else { panic!("{:?}", index.content) };
    assert_eq!(token_bytes, nonzero(4));
    let mut found = Vec::new();
    for (chunk, object) in index.chunks.iter().zip(&objects) {
        let records = token_blocks(object, chunk, token_bytes, nonzero(BLOCK_TOKENS)).unwrap();
        found.extend(samples(object, &blocks(records)).as_array().unwrap().clone());
    }
    assert_eq!(Value::Array(found), expected("litdata", "tokens"));
}

#[test]
fn blocks_may_be_larger_than_a_chunk() {
    let (chunk, object) = first("tokens");
    for tokens in [44, 1 << 62, u64::MAX] {
        let records = token_blocks(&object, &chunk, nonzero(4), nonzero(tokens)).unwrap();
        assert_eq!(records.count, 0);
    }
    let records = token_blocks(&object, &chunk, nonzero(4), nonzero(43)).unwrap();
    assert_eq!(records, Records { offset: 16, record_bytes: 172, count: 1 });
}

#[test]
fn tokens_that_do_not_fill_the_chunk_are_refused() {
    let (chunk, object) = first("tokens");
    let one = NonZeroU64::MIN;
    for token_bytes in [2, 8, u64::MAX] {
        assert!(token_blocks(&object, &chunk, nonzero(token_bytes), one).is_err());
    }
    for tokens in [None, Some(42), Some(44), Some(u64::MAX)] {
        let chunk = Chunk { tokens, ..chunk.clone() };
        assert!(token_blocks(&object, &chunk, nonzero(4), one).is_err(), "{tokens:?}");
    }
    let parse = |object: &[u8]| {
        token_blocks(&object, &Chunk { bytes: 0, ..chunk.clone() }, nonzero(4), one).map(blocks)
    };
    assert_eq!(lengths_accepted(&object, &parse), NO_LENGTH);
    assert_eq!(
        bits_accepted(&object, 0..8, &parse),
        NO_BIT,
        "the number of items, the first offset"
    );
    assert_eq!(bits_accepted(&object, 12..16, &parse), NO_BIT, "the last offset");
}

#[test]
fn chunks_that_cannot_be_read_by_ranges_say_what_to_do() {
    let message = index(&index_of("zstd")).unwrap_err().to_string();
    let expected = "the chunks are compressed (zstd), items cannot be read alone; write the dataset \
                    without `compression`";
    assert_eq!(message, expected);
    let (chunk, object) = first("rows");
    let message = ranges(&object, &chunk).unwrap_err().to_string();
    assert!(message.starts_with("the chunk holds its rows as one Arrow table"), "{message}");
}

#[test]
fn a_copy_of_the_rows_behind_the_items_is_passed_over() {
    let (chunk, mut object) = first("items");
    let whole = ranges(&object, &chunk).unwrap();
    object.extend(b"rows!");
    assert!(ranges(&object, &chunk).is_err(), "no magic");
    object.extend(5_u32.to_le_bytes());
    object.extend(b"LDARW01\0");
    assert_eq!(ranges(&object, &chunk).unwrap(), whole);
    let len = object.len();
    for (at, byte, what) in [(len - 12, 4, "a gap"), (len - 3, b'2', "another magic")] {
        let mut object = object.clone();
        object[at] = byte;
        assert!(ranges(&object, &chunk).is_err(), "{what}");
    }
}

#[test]
fn a_chunk_that_is_cut_off_is_refused() {
    let (chunk, object) = first("items");
    // Older writers store the size without the table.
    for bytes in [chunk.bytes, 0] {
        let chunk = Chunk { bytes, ..chunk.clone() };
        assert_eq!(lengths_accepted(&object, &|object| ranges(&object, &chunk)), NO_LENGTH);
    }
    assert_eq!(bits_accepted(&object, 0..4, &|object| ranges(&object, &chunk)), NO_BIT);
    assert_eq!(bits_accepted(&object, 20..24, &|object| ranges(&object, &chunk)), NO_BIT);
}

#[test]
fn a_wrong_index_is_refused_with_the_key() {
    type Change = (fn(&mut Value), &'static str);
    let cases: [Change; 9] = [
        (
            |index| index["chunks"][1]["filename"] = json!("/etc/passwd"),
            "chunks[1].filename is \"/etc/passwd\"",
        ),
        (
            |index| index["chunks"][1]["filename"] = json!("chunk-0-0.bin"),
            "chunks[1].filename is \"chunk-0-0.bin\" again",
        ),
        (
            |index| index["chunks"][0]["chunk_size"] = json!(-1),
            "chunks[0].chunk_size is wrong (invalid value",
        ),
        (|index| index["config"] = json!(null), "config is wrong"),
        (|index| index["config"]["encryption"] = json!({}), "the chunks are encrypted; write"),
        (
            |index| index["config"]["item_loader"] = json!("ParquetLoader"),
            "the chunks are Parquet files; say",
        ),
        (
            |index| index["config"]["item_loader"] = json!("Mine"),
            "the chunks are for the loader Mine",
        ),
        (
            |index| index["config"]["data_format"] = json!(["no_header_tensor:21"]),
            "config.data_format[0] is \"no_header_tensor:21\"",
        ),
        (|index| index["config"]["data_format"] = json!(null), "config.data_format[0] is \"\""),
    ];
    for (change, expected) in cases {
        let mut json = serde_json::from_slice(&index_of("tokens")).unwrap();
        change(&mut json);
        let message = index(json.to_string().as_bytes()).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
}

fn sound(result: Result<Vec<Range>, FormatError>, len: usize) {
    assert_sound(&result.unwrap_or_default(), len);
}

proptest! {
    #[test]
    fn nothing_leads_outside_of_the_object(
        object in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..100),
            prop::collection::vec(prop_oneof![Just(0_u8), 0..40_u8], 0..100),
            any_damage(first("items").1),
            any_damage(first("rows").1),
        ],
        items in prop_oneof![0..6_u32, any::<u32>()],
        tokens in prop::option::of(prop_oneof![0..400_u64, any::<u64>()]),
        block in 1..u64::MAX,
    ) {
        let (chunk, _) = first("items");
        for items in [chunk.items, items] {
            let chunk = Chunk { items, tokens, bytes: 0, ..chunk.clone() };
            sound(ranges(&object, &chunk), object.len());
            for block in [block, block % 50 + 1] {
                let records = token_blocks(&object, &chunk, nonzero(2), nonzero(block));
                sound(records.map(blocks), object.len());
            }
        }
    }

    #[test]
    fn no_index_makes_the_parser_panic(json in any_damage(index_of("tokens"))) {
        if let Ok(index) = index(&json) {
            for chunk in index.chunks {
                prop_assert!(chunk.filename.split('/').all(|part| part != ".."));
            }
        }
    }
}
