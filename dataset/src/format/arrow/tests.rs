use super::*;

fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/arrow");
    std::fs::read(format!("{folder}/{name}.arrow")).unwrap()
}

#[track_caller]
fn check_refused(object: &[u8], expected: &str) {
    let message = layout(&object.to_vec()).unwrap_err().to_string();
    assert!(message.contains(expected), "{message}");
}

fn part(object: &[u8], range: Range) -> Vec<u8> {
    let (start, len) =
        (usize::try_from(range.offset).unwrap(), usize::try_from(range.len).unwrap());
    object[start..start + len].to_vec()
}

/// Offsets of the blocks that the footer of `object` lists for its batches.
fn blocks(object: &[u8]) -> Vec<usize> {
    let found = layout(&object.to_vec()).unwrap();
    let place = |batch: &Range| {
        let offset = batch.offset.to_le_bytes();
        object.windows(8).rposition(|it| it == offset).unwrap()
    };
    found.batches.iter().map(place).collect()
}

#[test]
fn prefix_and_any_batch_are_a_stream_of_their_own() {
    for name in ["stream", "stream-legacy", "stream-dictionary", "file", "file-dictionary"] {
        let object = fixture(name);
        let found = layout(&object).unwrap();
        let prefix = found.schema.into_iter().chain(found.dictionaries.clone());
        let prefix: Vec<u8> = prefix.flat_map(|range| part(&object, range)).collect();
        for (batch, rows) in found.batches.iter().zip(&found.rows) {
            let alone = [prefix.clone(), part(&object, *batch)].concat();
            let again = layout(&alone).unwrap();
            assert_eq!(
                (again.rows, again.dictionaries.len()),
                (vec![*rows], found.dictionaries.len())
            );
        }
    }
}

#[test]
fn dictionaries_between_batches_are_refused() {
    check_refused(&fixture("stream-delta"), "between record batches; write an Arrow file");
}

#[test]
fn a_stream_ends_once() {
    let stream = fixture("stream");
    let open = &stream[..stream.len() - 8];
    assert_eq!(layout(&open.to_vec()).unwrap(), layout(&stream).unwrap());
    check_refused(&[&stream[..], &stream].concat(), "the end of the stream at byte");
    check_refused(&[open, &stream].concat(), "a second schema; a stream has one");
    let found = layout(&stream).unwrap();
    check_refused(&part(&stream, found.batches[0]), "the first message at byte 0 is no schema");
    check_refused(
        &[0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0],
        "the first message at byte 0 is no schema",
    );
}

#[test]
fn other_files_are_refused() {
    check_refused(b"", "the object at byte 0 is of 0 bytes");
    check_refused(b"FEA1 and more", "a Feather file of version 1; write it with version 2");
    check_refused(b"ARROW1\0\0", "truncated: the end of the file at byte 0");
    check_refused(b"PK\x03\x04 and more", "truncated: an Arrow message at byte 0");
    let file = fixture("file");
    check_refused(&file[..file.len() - 1], "an Arrow file ends with ARROW1; it may be cut off");
}

#[test]
fn buffers_outside_of_their_body_are_refused() {
    let stream = fixture("stream");
    let batch = layout(&stream).unwrap().batches[0];
    let start = usize::try_from(batch.offset).unwrap();
    let metadata =
        start + 8 + usize::from(stream[start + 4]) + 256 * usize::from(stream[start + 5]);
    let mut refused = 0;
    for at in (start + 8..metadata).step_by(8) {
        let mut object = stream.clone();
        object[at..at + 8].copy_from_slice(&(batch.len + 1).to_le_bytes());
        refused += usize::from(layout(&object).is_err());
    }
    // Offset and length of at least eleven buffers, and the length of the body.
    assert!(refused >= 23, "{refused}");
}

#[test]
fn footer_and_messages_of_a_file_agree() {
    let file = fixture("file");
    let blocks = blocks(&file);
    let with = |at: usize, number: i64| {
        let mut object = file.clone();
        object[at..at + 8].copy_from_slice(&number.to_le_bytes());
        object
    };
    let mut twice = file.clone();
    twice.copy_within(blocks[0]..blocks[0] + 24, blocks[1]);
    check_refused(&twice, "inside another one");
    // The schema as a block: all of it is metadata.
    let schema = i64::try_from(layout(&file).unwrap().schema.unwrap().len).unwrap();
    let block = [8, schema, 0].map(i64::to_le_bytes).concat();
    let mut another = file.clone();
    another[blocks[1]..blocks[1] + 24].copy_from_slice(&block);
    check_refused(&another, "of another kind than its block");
    check_refused(&with(blocks[1], 8), "not as long as the footer says");
    check_refused(&with(blocks[1], 0), "messages lie between magic and footer");
    check_refused(&with(blocks[1], -8), "the footer at byte");
    check_refused(&with(blocks[1], i64::MAX), "truncated: a message");
    check_refused(&with(blocks[1] + 16, i64::MAX), "truncated: a message");
    check_refused(&with(blocks[1] + 16, 8), "not as long as the footer says");
    check_refused(&with(blocks[1] + 8, 8), "not as long as the footer says");
    // As long as stated, but with another border between metadata and body.
    let mut shifted = file.clone();
    shifted[blocks[1] + 8] += 8;
    shifted[blocks[1] + 16] -= 8;
    check_refused(&shifted, "not as long as the footer says");
    let end = file.len() - 10;
    let mut object = file.clone();
    object[end..end + 4].fill(0xFF);
    check_refused(&object, "it fits between the two magics");
}

#[test]
fn tables_are_read_within_their_bytes() {
    use super::flat::Table;
    // Root at 12; its offsets, of one field at 4, at 4.
    let table = [12, 0, 0, 0, 6, 0, 8, 0, 4, 0, 0, 0, 8, 0, 0, 0, 42, 0, 0, 0];
    let root = Table::root(&table).unwrap();
    assert_eq!(root.scalar(0, [0; 4]), Some([42, 0, 0, 0]));
    assert_eq!(root.scalar(1, [7]), Some([7]));
    assert_eq!(root.scalar(0, [0; 8]), None);
    assert!(root.vector(0, 1).is_none());
    assert!(root.table(0).is_none());
    assert_eq!(root.vector(1, 16).unwrap().elements::<16>().count(), 0);
    for at in 0..table.len() {
        assert!(Table::root(&table[..at]).is_none_or(|it| it.scalar::<4>(0, [0; 4]).is_none()));
        for byte in [0x7F, 0x80, 0xFF] {
            let mut table = table;
            table[at] = byte;
            if let Some(root) = Table::root(&table) {
                for field in 0..9 {
                    let _places = (root.table(field), root.vector(field, 24));
                }
            }
        }
    }
}
