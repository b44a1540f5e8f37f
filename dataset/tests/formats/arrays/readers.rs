//! Every sample has the bytes that the format's own reader reads.

use std::{
    io,
    sync::atomic::{AtomicUsize, Ordering},
};

use tierfeed_dataset::format::{
    Encoding, Range, ReadAt, arrow, ffcv,
    hdf5::{self, Samples},
    lmdb, npy, npz,
    parquet::{self, Unit},
};

use super::{bytes, check_bytes, check_range, json, numbers, read, stems, texts};

#[test]
fn rows_of_npy_are_what_numpy_reads() {
    for name in stems("npy", "json") {
        let object = bytes(&format!("npy/{name}.npy"));
        let expected = json(&format!("npy/{name}.json"));
        let array = npy::records(&object).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(array.dtype, expected["dtype"].as_str().unwrap(), "{name}");
        assert_eq!(array.shape, numbers(&expected["shape"]), "{name}");
        let samples = expected["samples"].as_array().unwrap();
        let records = array.records;
        assert_eq!(records.count, samples.len() as u64, "{name}");
        for (index, sample) in (0..).zip(samples) {
            let offset = records.offset + index * records.record_bytes;
            check_range(&object, Range::plain(offset, records.record_bytes), sample, &name);
        }
    }
}

#[test]
fn members_of_npz_are_what_numpy_reads() {
    for name in stems("npz", "json") {
        let object = bytes(&format!("npz/{name}.npz"));
        let expected = json(&format!("npz/{name}.json"));
        let ranges = npz::ranges(&object, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
        let samples = expected["samples"].as_array().unwrap();
        assert_eq!(ranges.len(), samples.len(), "{name}");
        for (range, sample) in ranges.iter().zip(samples) {
            let stored = read(&object, *range);
            let found = match range.encoding {
                Encoding::Plain => stored,
                Encoding::Deflate { len, crc32 } => {
                    assert_eq!(u64::from(crc32), sample["crc32"].as_u64().unwrap());
                    let mut into = vec![0xAA; usize::try_from(len).unwrap()];
                    npz::inflate(&stored, len, crc32, &mut into).unwrap();
                    into
                }
            };
            let is_deflated = range.encoding != Encoding::Plain;
            assert_eq!(is_deflated, sample["deflated"].as_bool().unwrap(), "{name}");
            check_bytes(&found, sample, &name);
            let array = npy::records(&found).unwrap();
            assert_eq!(array.shape, numbers(&sample["shape"]));
        }
        npz::check(&object, &[]).unwrap();
    }
}

#[test]
fn members_of_npz_come_in_the_order_asked_for() {
    let object = bytes("npz/stored.npz");
    let all = npz::ranges(&object, &[]).unwrap();
    let members = ["größe/x", "images.npy"].map(str::to_owned);
    assert_eq!(npz::ranges(&object, &members).unwrap(), [all[3], all[0]]);
}

#[test]
fn units_of_parquet_are_where_pyarrow_says() {
    for name in stems("parquet", "json") {
        let object = bytes(&format!("parquet/{name}.parquet"));
        let expected = json(&format!("parquet/{name}.json"));
        for (unit, key) in [(Unit::RowGroup, "row_groups"), (Unit::ColumnChunk, "column_chunks")] {
            let layout = parquet::ranges(&object, unit, &[]).unwrap();
            let samples = expected[key].as_array().unwrap();
            assert_eq!(layout.ranges.len(), samples.len(), "{name}");
            assert_eq!(layout.columns, texts(&expected["columns"]), "{name}");
            for ((range, rows), sample) in layout.ranges.iter().zip(&layout.rows).zip(samples) {
                assert_eq!(range.offset, sample["offset"].as_u64().unwrap(), "{name}");
                assert_eq!(*rows, sample["rows"].as_u64().unwrap(), "{name}");
                check_range(&object, *range, sample, &name);
            }
            assert_eq!(layout.footer.offset + layout.footer.len, object.len() as u64);
        }
    }
}

#[test]
fn columns_of_parquet_are_selected_by_path_or_group() {
    let object = bytes("parquet/plain.parquet");
    let all = parquet::ranges(&object, Unit::ColumnChunk, &[]).unwrap();
    let columns = ["seen", "box"].map(str::to_owned);
    let some = parquet::ranges(&object, Unit::ColumnChunk, &columns).unwrap();
    assert_eq!(some.columns, ["seen", "box.x", "box.at.y"]);
    let per_group = all.columns.len();
    let place = |path: &str| all.columns.iter().position(|it| it == path).unwrap();
    let expected: Vec<_> = all
        .ranges
        .chunks(per_group)
        .flat_map(|group| some.columns.iter().map(|path| group[place(path)]))
        .collect();
    assert_eq!(some.ranges, expected);
    // The columns in between are included when a row group is one sample.
    let hulls = parquet::ranges(&object, Unit::RowGroup, &columns).unwrap();
    for (hull, chunks) in hulls.ranges.iter().zip(all.ranges.chunks(per_group)) {
        let (first, last) = (chunks[place("box.x")], chunks[place("seen")]);
        assert_eq!(*hull, Range::plain(first.offset, last.offset + last.len - first.offset));
    }
    assert_eq!(hulls.rows, [10, 10, 5]);
}

#[test]
fn messages_of_arrow_are_what_pyarrow_reads() {
    for name in stems("arrow", "json") {
        let object = bytes(&format!("arrow/{name}.arrow"));
        let expected = json(&format!("arrow/{name}.json"));
        let layout = arrow::layout(&object).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(layout.footer.is_some(), name.starts_with("file"), "{name}");
        match layout.schema {
            Some(schema) => check_range(&object, schema, &expected["schema"], &name),
            None => assert!(expected["schema"].is_null(), "{name}"),
        }
        assert_eq!(layout.rows, numbers(&expected["rows"]), "{name}");
        for (found, key) in [(&layout.dictionaries, "dictionaries"), (&layout.batches, "batches")] {
            let expected = expected[key].as_array().unwrap();
            assert_eq!(found.len(), expected.len(), "{name}: {key}");
            for (range, expected) in found.iter().zip(expected) {
                check_range(&object, *range, expected, &name);
            }
        }
    }
}

#[test]
fn lmdb_says_what_the_library_says() {
    for name in stems("lmdb", "json") {
        let expected = json(&format!("lmdb/{name}.json"));
        let found = lmdb::check(&bytes(&format!("lmdb/{name}.mdb"))).unwrap();
        let number = |key: &str| expected[key].as_u64().unwrap();
        assert_eq!(u64::from(found.page_bytes), number("page_bytes"), "{name}");
        assert_eq!(found.entries, number("entries"), "{name}");
        assert_eq!(found.transaction, number("transaction"), "{name}");
        assert_eq!(found.used_bytes, number("used_bytes"), "{name}");
    }
}

#[test]
fn ffcv_says_what_was_written() {
    let expected = json("ffcv/bytes.json");
    let found = ffcv::check(&bytes("ffcv/bytes.beton")).unwrap();
    let number = |key: &str| expected[key].as_u64().unwrap();
    assert_eq!(found.samples, number("samples"));
    assert_eq!(u64::from(found.fields), number("fields"));
    assert_eq!(u64::from(found.page_bytes), number("page_bytes"));
    assert_eq!(found.allocations, number("allocations"));
}

#[test]
fn samples_of_hdf5_are_what_h5py_reads() {
    let mut filtered = 0;
    for stem in stems("hdf5", "json") {
        let object = bytes(&format!("hdf5/{stem}.h5"));
        for (path, expected) in json(&format!("hdf5/{stem}.json")).as_object().unwrap() {
            let index = format!("hdf5/{stem}.{}.index", path.replace('/', "-"));
            let dataset = match hdf5::parse(&bytes(&index), &object) {
                Err(error) if path == "holes" => {
                    let expected = "a dataset of which 1 of 3 chunks were written; \
                                    write them all: a chunk that is not there has no bytes to read";
                    assert_eq!(error.to_string(), expected);
                    continue;
                }
                dataset => dataset.unwrap_or_else(|error| panic!("{index}: {error}")),
            };
            assert_eq!(dataset.path, format!("/{path}"));
            assert_eq!(dataset.shape, numbers(&expected["shape"]));
            match dataset.samples {
                Samples::Rows(records) => {
                    assert_eq!(records.offset, expected["offset"].as_u64().unwrap());
                    let rows = expected["rows"].as_array().unwrap();
                    assert_eq!(records.count, rows.len() as u64);
                    for (row, expected) in (0..).zip(rows) {
                        let offset = records.offset + row * records.record_bytes;
                        let range = Range::plain(offset, records.record_bytes);
                        check_range(&object, range, expected, &index);
                    }
                }
                Samples::Chunks(found) => {
                    let chunks = expected["chunks"].as_array().unwrap();
                    assert_eq!(found.chunks.len(), chunks.len());
                    filtered += found.filtered;
                    for (chunk, expected) in found.chunks.iter().zip(chunks) {
                        assert_eq!(chunk.coordinates, numbers(&expected["coordinates"]));
                        let mask = u64::from(chunk.filter_mask);
                        assert_eq!(mask, expected["filter_mask"].as_u64().unwrap());
                        check_range(&object, chunk.range, expected, &index);
                    }
                }
            }
        }
    }
    // Three of `gzip`, two of the file with a user block.
    assert_eq!(filtered, 5);
}

struct Counted {
    bytes: Vec<u8>,
    reads: AtomicUsize,
}

impl ReadAt for Counted {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.read_exact_at(into, offset)
    }
}

#[track_caller]
fn check_reads(name: &str, expected: usize, parse: impl FnOnce(&Counted)) {
    let object = Counted { bytes: bytes(name), reads: AtomicUsize::new(0) };
    parse(&object);
    assert_eq!(object.reads.into_inner(), expected, "{name}");
}

#[test]
fn an_object_is_read_in_few_requests() {
    check_reads("npy/float.npy", 1, |it| drop(npy::records(it).unwrap()));
    check_reads("parquet/plain.parquet", 1, |it| {
        parquet::ranges(it, Unit::RowGroup, &[]).unwrap();
    });
    // One for the directory, and one for the header of each member.
    check_reads("npz/stored.npz", 5, |it| drop(npz::ranges(it, &[]).unwrap()));
    check_reads("npz/zip64.npz", 5, |it| drop(npz::ranges(it, &[]).unwrap()));
    // One for the magic, the schema and each of three batches; then the footer of a file, and the
    // end mark of a stream.
    check_reads("arrow/file.arrow", 6, |it| drop(arrow::layout(it).unwrap()));
    check_reads("arrow/stream.arrow", 6, |it| drop(arrow::layout(it).unwrap()));
    check_reads("lmdb/two.mdb", 2, |it| assert!(lmdb::check(it).is_ok()));
    check_reads("ffcv/bytes.beton", 2, |it| assert!(ffcv::check(it).is_ok()));
}
