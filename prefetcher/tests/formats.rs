//! For every format, each sample that is read through its index equals the one that the format's own reader
//! reads.
//!
//! The files and the expected samples are the fixtures of the dataset crate.

#![expect(clippy::unwrap_used, reason = "a test helper fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tierfeed_core::id::SampleId;
use tierfeed_dataset::read::FileSource;
use tierfeed_dataset::{
    Dataset, Format, Index,
    format::{Compression, LitData, Npz, Parquet, Unit, webdataset},
    source::Location,
};
use xxhash_rust::xxh3::xxh3_64;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dataset/tests/fixtures")
}

fn json_of(name: &str) -> Value {
    serde_json::from_slice(&fs::read(fixtures().join(name)).unwrap()).unwrap()
}

fn directory_of(names: &[&str]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in names {
        let from = fixtures().join(name);
        fs::copy(&from, directory.path().join(from.file_name().unwrap())).unwrap();
    }
    directory
}

/// Builds an index, keeps it, opens it again and reads every sample.
fn read(source: &Path, format: Format) -> (Vec<Vec<u8>>, Vec<Option<i64>>) {
    let dataset = Dataset::new(Location::Path(source.to_owned()), format);
    let built = Index::build(&dataset, None, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"));
    let kept = tempfile::tempdir().unwrap();
    let path = kept.path().join("index");
    built.save(&path).unwrap();
    let index = Index::open(&path).unwrap();
    assert_eq!(index, built);
    index.check(&dataset).unwrap();
    assert_eq!(Index::build(&dataset, Some(&index), &mut |_| ()).unwrap(), index);
    index.check_contents(&dataset, &mut |_| ()).unwrap();
    let index = Arc::new(index);
    let source = FileSource::new(Arc::clone(&index), 4);
    let samples = (0..index.len()).map(SampleId);
    let bytes = samples.clone().map(|sample| {
        let mut bytes = vec![0xee; usize::try_from(index.size(sample).0).unwrap()];
        source.read_into(sample, &mut bytes).unwrap_or_else(|error| panic!("{error}"));
        bytes
    });
    (bytes.collect(), samples.map(|sample| index.label(sample)).collect())
}

/// Samples in the form of the fixtures: length and xxh3-64.
fn described(samples: &[Vec<u8>]) -> Vec<Value> {
    let describe = |it: &Vec<u8>| json!([it.len(), format!("{:016x}", xxh3_64(it))]);
    samples.iter().map(describe).collect()
}

/// The same from `{"len": …, "xxh3": …}`.
fn expected(samples: &Value) -> Vec<Value> {
    let samples = samples.as_array().unwrap().iter();
    samples.map(|it| json!([it["len"], it["xxh3"]])).collect()
}

#[track_caller]
fn check(source: &Path, format: Format, expected: &[Value]) {
    assert_eq!(described(&read(source, format).0), expected);
}

#[test]
fn records_of_tensorflow_with_and_without_an_index() {
    let expected = json_of("tfrecord/expected.json")["records.tfrecord"].take();
    let expected = expected.as_array().unwrap();
    let format = || Format::TfRecord(Compression::None);
    check(&fixtures().join("tfrecord/records.tfrecord"), format(), expected);
    let with_index = directory_of(&["tfrecord/records.tfrecord", "tfrecord/records.idx"]);
    check(with_index.path(), format(), expected);
    let two = directory_of(&["tfrecord/empty.tfrecord", "tfrecord/records.tfrecord"]);
    check(two.path(), format(), expected);
    let gzip = directory_of(&["tfrecord/gzip.tfrecord"]);
    let whole = fs::read(gzip.path().join("gzip.tfrecord")).unwrap();
    check(gzip.path(), Format::TfRecord(Compression::Gzip), &described(&[whole]));
}

#[test]
fn an_index_of_another_shard_is_refused() {
    let directory = directory_of(&["tfrecord/records.tfrecord"]);
    fs::write(directory.path().join("records.idx"), "0 24\n24 16\n").unwrap();
    let dataset = Dataset::new(
        Location::Path(directory.path().to_owned()),
        Format::TfRecord(Compression::None),
    );
    let error = Index::build(&dataset, None, &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("/records.idx: "), "{error}");
}

#[test]
fn samples_of_webdataset_with_their_classes() {
    let expected = json_of("webdataset/expected.json")["plain.tar"].take();
    for names in [&["webdataset/plain.tar"][..], &["webdataset/plain.tar", "webdataset/plain.idx"]]
    {
        let directory = directory_of(names);
        let (samples, labels) = read(directory.path(), Format::WebDataset);
        let expected = expected.as_array().unwrap();
        assert_eq!(samples.len(), expected.len());
        for ((sample, label), expected) in samples.iter().zip(labels).zip(expected) {
            let parts = webdataset::parts(sample).unwrap();
            for part in &parts {
                let bytes = part.bytes.to_vec();
                let extension = String::from_utf8_lossy(&part.extension);
                assert_eq!(described(&[bytes])[0], expected["members"][&*extension], "{extension}");
            }
            assert_eq!(parts.len(), expected["members"].as_object().unwrap().len());
            assert!(label.is_some());
        }
    }
}

#[test]
fn samples_of_mosaicml_with_their_classes() {
    for name in ["images", "vectors"] {
        let source = fixtures().join("mds").join(name);
        let (samples, labels) = read(&source, Format::Mds);
        let found: Vec<Value> = described(&samples)
            .into_iter()
            .zip(labels)
            .map(|(sample, label)| json!([sample[0], sample[1], label]))
            .collect();
        assert_eq!(Value::from(found), json_of("mds/expected.json")[name]);
    }
    let dataset = Dataset::new(Location::Path(fixtures().join("mds/zstd")), Format::Mds);
    let error = Index::build(&dataset, None, &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("is there only compressed (zstd"), "{error}");
    let parent = Dataset::new(Location::Path(fixtures().join("mds")), Format::Mds);
    let error = Index::build(&parent, None, &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("no index.json there, but in "), "{error}");
}

#[test]
fn samples_of_litdata() {
    let format = |sequence_length: Option<u64>| {
        Format::LitData(LitData {
            sequence_length: sequence_length.map(|it| it.try_into().unwrap()),
        })
    };
    let expected = json_of("litdata/expected.json");
    check(&fixtures().join("litdata/items"), format(None), expected["items"].as_array().unwrap());
    let tokens = Dataset::new(Location::Path(fixtures().join("litdata/tokens")), format(None));
    let error = Index::build(&tokens, None, &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("say with `sequence_length` how many are a sample"), "{error}");
}

#[test]
fn sequences_of_megatron() {
    for name in ["text", "modes"] {
        let expected = json_of("megatron/expected.json")[name].take();
        let (bin, idx) = (format!("megatron/{name}.bin"), format!("megatron/{name}.idx"));
        let both = directory_of(&[&bin, &idx]);
        check(both.path(), Format::Megatron, expected.as_array().unwrap());
        let alone = directory_of(&[&bin]);
        let dataset = Dataset::new(Location::Path(alone.path().to_owned()), Format::Megatron);
        let error = Index::build(&dataset, None, &mut |_| ());
        assert!(error.unwrap_err().to_string().contains("no .idx of the same name is beside it"));
    }
}

#[test]
fn rows_and_members_of_numpy() {
    for name in ["float", "big-endian", "unicode"] {
        let expected = expected(&json_of(&format!("npy/{name}.json"))["samples"]);
        check(&fixtures().join(format!("npy/{name}.npy")), Format::Npy, &expected);
    }
    let members = Vec::new;
    for name in ["stored", "deflated", "zip64"] {
        let expected = expected(&json_of(&format!("npz/{name}.json"))["samples"]);
        let format = Format::Npz(Npz { members: members() });
        check(&fixtures().join(format!("npz/{name}.npz")), format, &expected);
    }
    let of = |name: &str| expected(&json_of(&format!("npz/{name}.json"))["samples"]);
    let both = directory_of(&["npz/deflated.npz", "npz/stored.npz"]);
    let expected = [of("deflated"), of("stored")].concat();
    check(both.path(), Format::Npz(Npz { members: members() }), &expected);
}

#[test]
fn groups_and_chunks_of_parquet_and_batches_of_arrow() {
    let plain = fixtures().join("parquet/plain.parquet");
    let json = json_of("parquet/plain.json");
    for (unit, key) in [(Unit::RowGroup, "row_groups"), (Unit::ColumnChunk, "column_chunks")] {
        let format = Format::Parquet(Parquet { unit, columns: Vec::new() });
        check(&plain, format, &expected(&json[key]));
    }
    for name in ["file", "stream", "stream-zstd", "stream-legacy"] {
        let expected = expected(&json_of(&format!("arrow/{name}.json"))["batches"]);
        check(&fixtures().join(format!("arrow/{name}.arrow")), Format::Arrow, &expected);
    }
}

#[test]
fn environments_and_betons_are_whole() {
    for (name, format) in [("lmdb/two.mdb", Format::Lmdb), ("ffcv/bytes.beton", Format::Ffcv)] {
        let directory = directory_of(&[name]);
        check(directory.path(), format, &described(&[fs::read(fixtures().join(name)).unwrap()]));
    }
}

#[test]
fn a_deflated_sample_that_was_damaged_is_an_error_and_not_its_bytes() {
    let directory = directory_of(&["npz/deflated.npz"]);
    let path = directory.path().join("deflated.npz");
    let format = Format::Npz(Npz { members: Vec::new() });
    let dataset = Dataset::new(Location::Path(path.clone()), format);
    let index = Arc::new(Index::build(&dataset, None, &mut |_| ()).unwrap());
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let extent = index.extent(SampleId(0));
    let mut bytes = fs::read(&path).unwrap();
    bytes[usize::try_from(extent.offset + extent.stored_len / 2).unwrap()] ^= 1;
    fs::write(&path, bytes).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    let error = index.check_contents(&dataset, &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("deflated.npz: "), "{error}");
    let source = FileSource::new(Arc::clone(&index), 4);
    let mut into = vec![0; usize::try_from(extent.len).unwrap()];
    let error = source.read_into(SampleId(0), &mut into).unwrap_err().to_string();
    assert!(error.contains("deflated.npz: "), "{error}");
}
