use super::*;

/// Fields of a structure in the compact protocol, in their order.
#[derive(Default, Clone)]
struct Fields {
    bytes: Vec<u8>,
    last: u8,
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
    bytes
}

fn zigzag(number: i64) -> Vec<u8> {
    varint(((number << 1) ^ (number >> 63)).cast_unsigned())
}

fn text(text: &str) -> Vec<u8> {
    [varint(text.len() as u64), text.as_bytes().to_vec()].concat()
}

impl Fields {
    fn with(mut self, id: u8, kind: u8, value: &[u8]) -> Self {
        self.bytes.push((id - self.last) << 4 | kind);
        self.last = id;
        self.bytes.extend(value);
        self
    }

    fn number(self, id: u8, number: i64) -> Self {
        self.with(id, 6, &zigzag(number))
    }

    fn text(self, id: u8, value: &str) -> Self {
        self.with(id, 8, &text(value))
    }

    fn structure(self, id: u8, fields: Fields) -> Self {
        self.with(id, 12, &fields.end())
    }

    fn list(self, id: u8, kind: u8, elements: &[Vec<u8>]) -> Self {
        let head = [vec![0xF0 | kind], varint(elements.len() as u64)].concat();
        self.with(id, 9, &[head, elements.concat()].concat())
    }

    fn structures(self, id: u8, elements: Vec<Fields>) -> Self {
        self.list(id, 12, &elements.into_iter().map(Fields::end).collect::<Vec<_>>())
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

fn chunk(path: &[&str], start: i64, len: i64) -> Fields {
    let path: Vec<Vec<u8>> = path.iter().map(|part| text(part)).collect();
    let metadata = Fields::default().list(3, 8, &path).number(7, len).number(9, start);
    Fields::default().number(2, 0).structure(3, metadata)
}

fn group(rows: i64, chunks: Vec<Fields>) -> Fields {
    Fields::default().structures(1, chunks).number(3, rows)
}

fn metadata(rows: i64, groups: Vec<Fields>) -> Fields {
    Fields::default().number(1, 2).number(3, rows).structures(4, groups)
}

/// A file of 100 bytes of pages and this footer.
fn file(footer: &[u8]) -> Vec<u8> {
    let len = u32::try_from(footer.len()).unwrap().to_le_bytes();
    [b"PAR1", &[1; 100][..], footer, &len, b"PAR1"].concat()
}

fn layout(footer: Fields) -> Result<Layout, FormatError> {
    ranges(&file(&footer.end()), Unit::ColumnChunk, &[])
}

#[track_caller]
fn check_refused(found: Result<Layout, FormatError>, expected: &str) {
    let message = found.unwrap_err().to_string();
    assert!(message.contains(expected), "{message}");
}

fn two_columns(rows: i64, start: i64) -> Fields {
    group(rows, vec![chunk(&["a"], start, 10), chunk(&["b", "c"], start + 10, 20)])
}

#[test]
fn chunks_and_rows_are_as_the_footer_says() {
    let footer = metadata(7, vec![two_columns(4, 4), two_columns(3, 34)]);
    let found = layout(footer).unwrap();
    let expected = [(4, 10), (14, 20), (34, 10), (44, 20)].map(|it| Range::plain(it.0, it.1));
    assert_eq!(found.ranges, expected);
    assert_eq!(found.rows, [4, 4, 3, 3]);
    assert_eq!(found.columns, ["a", "b.c"]);
    assert_eq!(found.footer.offset, 104);
}

#[test]
fn a_dictionary_page_starts_a_chunk_where_there_is_one() {
    let with = |dictionary: i64, data: i64| {
        let path = [text("a")];
        let inner = Fields::default().list(3, 8, &path).number(7, 10).number(9, data);
        let chunk = Fields::default().structure(3, inner.number(11, dictionary));
        layout(metadata(1, vec![group(1, vec![chunk])])).unwrap().ranges[0].offset
    };
    assert_eq!(with(8, 12), 8);
    // Offsets that writers use if there is no dictionary page, and if there are no other pages.
    assert_eq!(with(0, 12), 12);
    assert_eq!(with(-1, 12), 12);
    assert_eq!(with(20, 12), 12);
    assert_eq!(with(8, 0), 8);
}

#[test]
fn chunks_outside_of_the_pages_are_refused() {
    let one = |start, len| layout(metadata(1, vec![group(1, vec![chunk(&["a"], start, len)])]));
    assert_eq!(one(4, 100).unwrap().ranges, [Range::plain(4, 100)]);
    let right = "chunks lie between magic and footer";
    check_refused(one(4, 101), right);
    check_refused(one(104, 1), right);
    check_refused(one(i64::MAX, 1), right);
    check_refused(one(i64::MAX, i64::MAX), right);
    check_refused(one(-4, 1), "the footer at byte");
    check_refused(one(4, -1), "the footer at byte");
    // A chunk without bytes has no position.
    assert_eq!(one(i64::MAX, 0).unwrap().ranges, [Range::plain(4, 0)]);
}

#[test]
fn chunks_and_row_groups_that_overlap_are_refused() {
    let groups = vec![two_columns(4, 4), two_columns(3, 33)];
    check_refused(layout(metadata(7, groups)), "a column chunk at byte 33 is inside another one");
    // The chunks are disjoint, but the row groups are not.
    let mixed = |start| group(1, vec![chunk(&["a"], start, 5), chunk(&["b"], start + 20, 5)]);
    let footer = metadata(2, vec![mixed(4), mixed(14)]).end();
    let found = ranges(&file(&footer), Unit::RowGroup, &[]);
    check_refused(found, "a row group at byte 14 is inside another one");
    ranges(&file(&footer), Unit::RowGroup, &["a".to_owned()]).unwrap();
    ranges(&file(&footer), Unit::ColumnChunk, &[]).unwrap();
}

#[test]
fn row_groups_that_contradict_each_other_are_refused() {
    let other = group(3, vec![chunk(&["a"], 34, 10), chunk(&["b", "d"], 44, 20)]);
    let expected = "of other columns than the first: the one at index 1";
    check_refused(layout(metadata(7, vec![two_columns(4, 4), other])), expected);
    let fewer = group(3, vec![chunk(&["a"], 34, 10)]);
    check_refused(layout(metadata(7, vec![two_columns(4, 4), fewer])), expected);
    let rows = layout(metadata(8, vec![two_columns(4, 4), two_columns(3, 34)]));
    check_refused(rows, "the number of rows at byte 104 is 8, and the row groups have 7");
    let huge = || group(i64::MAX, vec![chunk(&["a"], 4, 0)]);
    check_refused(
        layout(metadata(1, vec![huge(), huge(), huge()])),
        "is 1, and the row groups have 27670116110564327421",
    );
}

#[test]
fn files_without_rows_or_columns_are_told_apart() {
    let empty = layout(metadata(0, vec![])).unwrap();
    assert_eq!((empty.ranges, empty.rows), (vec![], vec![]));
    let zero_rows = layout(metadata(0, vec![group(0, vec![chunk(&["a"], 4, 0)])])).unwrap();
    assert_eq!((zero_rows.ranges, zero_rows.rows), (vec![Range::plain(4, 0)], vec![0]));
    check_refused(layout(metadata(3, vec![group(3, vec![])])), "a file without columns");
}

#[test]
fn columns_that_are_not_there_or_twice_are_named() {
    let footer = file(&metadata(4, vec![two_columns(4, 4)]).end());
    let select = |columns: &[&str]| {
        let columns: Vec<String> = columns.iter().map(|&it| it.to_owned()).collect();
        ranges(&footer, Unit::ColumnChunk, &columns)
    };
    assert_eq!(select(&["b.c", "a"]).unwrap().columns, ["b.c", "a"]);
    assert_eq!(select(&["b"]).unwrap().columns, ["b.c"]);
    check_refused(select(&["b.cc"]), "no column `b.cc`: there are `a`, `b.c`; select columns");
    check_refused(select(&["b."]), "no column `b.`");
    check_refused(select(&["b", "b.c"]), "the column `b.c`, selected twice");
}

#[test]
fn what_needs_a_key_or_another_file_is_refused() {
    let mut object = file(&metadata(4, vec![two_columns(4, 4)]).end());
    let end = object.len();
    object[end - 1] = b'E';
    check_refused(ranges(&object, Unit::RowGroup, &[]), "whose footer is encrypted");
    let encrypted = "a Parquet file with encrypted columns; write it without encryption";
    let footer = metadata(4, vec![two_columns(4, 4)]).structure(8, Fields::default());
    check_refused(layout(footer), encrypted);
    let column = Fields::default().number(2, 0).structure(8, Fields::default());
    check_refused(layout(metadata(1, vec![group(1, vec![column])])), encrypted);
    let column = Fields::default().text(1, "part-0.parquet");
    let column = Fields { bytes: [column.bytes, vec![0x2C]].concat(), last: 3 };
    let inner = Fields::default().list(3, 8, &[text("a")]).number(7, 1).number(9, 4).end();
    let column = Fields { bytes: [column.bytes, inner].concat(), last: 3 };
    let found = layout(metadata(1, vec![group(1, vec![column])]));
    check_refused(found, "whose columns are in `part-0.parquet`");
}

#[test]
fn writers_that_miscount_are_refused() {
    let by = |writer| layout(metadata(4, vec![two_columns(4, 4)]).text(6, writer));
    check_refused(by("parquet-mr version 1.2.8-SNAPSHOT"), "which miscounts");
    check_refused(by("parquet-mr version 1.0"), "which miscounts");
    for writer in ["parquet-mr version 1.2.9", "parquet-mr version 1.13.1 (build x)", "impala 1.0"]
    {
        by(writer).unwrap();
    }
}

#[test]
fn a_footer_takes_no_more_time_and_memory_than_its_bytes() {
    // Two thousand million truth values, claimed to fit in seven bytes.
    let footer = metadata(0, vec![]).with(13, 9, &[0xF1, 0xFF, 0xFF, 0xFF, 0xFF, 0x07]);
    check_refused(layout(footer), "the footer at byte");
    let footer = Fields::default().number(3, 1).with(4, 9, &[0xFC, 0xFF, 0xFF, 0xFF, 0xFF, 0x07]);
    check_refused(layout(footer), "the footer at byte");
    let footer = metadata(0, vec![]).with(13, 11, &[0xFF, 0xFF, 0xFF, 0xFF, 0x07, 0x88]);
    check_refused(layout(footer), "the footer at byte");
    // A schema nested as deep as there are bytes, and lists in lists.
    let deep = metadata(0, vec![]).with(13, 12, &vec![0x1C; 100_000]);
    check_refused(layout(deep), "the footer at byte");
    let deep = metadata(0, vec![]).with(13, 9, &vec![0x19; 100_000]);
    check_refused(layout(deep), "the footer at byte");
    let text = metadata(0, vec![]).with(6, 8, &varint(u64::MAX));
    check_refused(layout(text), "the footer at byte");
    let long = metadata(0, vec![]).with(13, 6, &[0xFF; 11]);
    check_refused(layout(long), "the footer at byte");
}

#[test]
fn fields_of_every_kind_are_passed_over() {
    let map = [&[2, 0x85][..], &text("k"), &zigzag(-5), &text("l"), &zigzag(i64::MIN)].concat();
    let inner = Fields::default().with(1, 1, &[]).with(2, 2, &[]).with(3, 7, &[0; 8]).end();
    let footer = metadata(4, vec![two_columns(4, 4)])
        .with(5, 9, &[0x23, 1, 2])
        .with(6, 8, &text("me"))
        .with(7, 10, &[0x15, 9])
        .with(9, 11, &map)
        .with(10, 12, &inner)
        .with(11, 13, &[0; 16])
        .with(12, 3, &[9])
        .with(14, 4, &zigzag(3))
        .with(15, 9, &[0x21, 1, 2])
        .with(15 + 1, 11, &[0]);
    assert_eq!(layout(footer).unwrap().ranges.len(), 2);
}

#[test]
fn what_is_no_parquet_file_is_refused() {
    let found = |object: &[u8]| ranges(&object.to_vec(), Unit::RowGroup, &[]);
    check_refused(found(b""), "truncated: the end of the file");
    check_refused(found(b"PAR1"), "truncated: the end of the file");
    check_refused(found(b"PAR1PAR1"), "the footer at byte 0 is of 827474256 bytes");
    check_refused(found(b"PAR1\0\0\0\0PAR1"), "the footer at byte 4 is damaged");
    check_refused(found(b"PAR1\x01\0\0\0PAR1"), "it fits between the two PAR1");
    check_refused(found(b"PAR1\0\0\0\0PAR2"), "the magic at byte 8 is `PAR2`");
}
