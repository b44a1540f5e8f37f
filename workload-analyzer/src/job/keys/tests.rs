use std::num::NonZeroU64;

use std::path::{Path, PathBuf};

use tierfeed_core::units::Bytes;

use super::{format::FORMATS_IN_WORDS, *};
use tierfeed_dataset::{
    format::{Compression, Files, Format, Hdf5, LitData, Npz, Parquet, Raw, Rest, Unit},
    source::{Bucket, Identity, Location},
};

fn of(format: &str) -> DatasetKeys {
    DatasetKeys { format: format.to_owned(), ..DatasetKeys::default() }
}

fn at(source: &str) -> DatasetKeys {
    DatasetKeys { source: source.to_owned(), ..DatasetKeys::default() }
}

#[expect(clippy::unnecessary_wraps, reason = "as keys are held")]
fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

#[expect(clippy::unnecessary_wraps, reason = "as keys are held")]
fn list(values: &[&str]) -> Option<Vec<String>> {
    Some(values.iter().map(|value| (*value).to_owned()).collect())
}

#[track_caller]
fn check(keys: &DatasetKeys, expected: &Format) {
    assert_eq!(keys.format(Path::new("/jobs")).as_ref(), Ok(expected), "{keys:?}");
}

fn said(error: KeyError) -> String {
    match error {
        KeyError::Invalid { key, value, reason } => format!("{key} is {value}; {reason}"),
        KeyError::Conflict { key, conflict } => format!("{} {conflict}", key.unwrap_or("dataset")),
    }
}

#[track_caller]
fn check_refused(keys: &DatasetKeys, expected: &str) {
    let error = keys.format(Path::new("/jobs")).unwrap_err();
    assert!(said(error.clone()).starts_with(expected), "{}", said(error));
}

#[track_caller]
fn check_source_refused(keys: &DatasetKeys, expected: &str) {
    let error = keys.location(Path::new("/jobs")).unwrap_err();
    assert!(said(error.clone()).starts_with(expected), "{}", said(error));
}

#[test]
fn every_format_has_its_name_and_its_keys() {
    check(&of("image-folder"), &Format::ImageFolder);
    check(
        &DatasetKeys { glob: text("**/*.npz"), ..of("files") },
        &Format::Files(Files::Glob("**/*.npz".to_owned())),
    );
    check(
        &DatasetKeys { manifest: text("list.txt"), ..of("files") },
        &Format::Files(Files::Manifest(PathBuf::from("/jobs/list.txt"))),
    );
    check(
        &DatasetKeys { record_bytes: text("3073"), header_bytes: text("1 KiB"), ..of("raw") },
        &Format::Raw(Raw { header_bytes: Bytes(1_024), ..Raw::of_records(Bytes(3_073)) }),
    );
    check(&of("tfrecord"), &Format::TfRecord(Compression::None));
    check(
        &DatasetKeys { compression: text("gzip"), ..of("tfrecord") },
        &Format::TfRecord(Compression::Gzip),
    );
    check(&of("webdataset"), &Format::WebDataset);
    check(&of("mds"), &Format::Mds);
    check(&of("litdata"), &Format::LitData(LitData { sequence_length: None }));
    let tokens = DatasetKeys { sequence_length: Some(2_048), ..of("litdata") };
    check(&tokens, &Format::LitData(LitData { sequence_length: NonZeroU64::new(2_048) }));
    check(&of("megatron"), &Format::Megatron);
    check(&of("npy"), &Format::Npy);
    check(&of("npz"), &Format::Npz(Npz { members: Vec::new() }));
    check(
        &DatasetKeys { members: list(&["x", "y"]), ..of("npz") },
        &Format::Npz(Npz { members: vec!["x".to_owned(), "y".to_owned()] }),
    );
    let row_groups = Parquet { unit: Unit::RowGroup, columns: Vec::new() };
    check(&of("parquet"), &Format::Parquet(row_groups));
    check(
        &DatasetKeys { unit: text("column-chunk"), columns: list(&["a.b"]), ..of("parquet") },
        &Format::Parquet(Parquet { unit: Unit::ColumnChunk, columns: vec!["a.b".to_owned()] }),
    );
    check(&of("arrow"), &Format::Arrow);
    check(
        &DatasetKeys { dataset: text("/train/x"), ..of("hdf5") },
        &Format::Hdf5(Hdf5 { dataset: "/train/x".to_owned() }),
    );
    check(&of("lmdb"), &Format::Lmdb);
    check(&of("ffcv"), &Format::Ffcv);
}

/// [`FORMATS`] is the list in error messages, and each name gives the format of this name.
#[test]
fn every_name_gives_the_format_of_this_name() {
    let reason = Reason::NotOneOf { allowed: FORMATS_IN_WORDS };
    assert_eq!(reason.to_string(), format!("expected one of {}", FORMATS.join(", ")));
    let complete = |format: &str| DatasetKeys {
        glob: (format == "files").then(|| "*".to_owned()),
        record_bytes: (format == "raw").then(|| "1".to_owned()),
        dataset: (format == "hdf5").then(|| "x".to_owned()),
        ..of(format)
    };
    for name in FORMATS {
        assert_eq!(complete(name).format(Path::new("")).unwrap().name(), name);
    }
}

#[test]
fn tokens_make_records_of_a_sequence_and_drop_the_rest() {
    for (dtype, bytes) in [("uint16", 2), ("int8", 1), ("uint32", 4), ("int64", 8), ("bfloat16", 2)]
    {
        let keys = DatasetKeys { dtype: text(dtype), sequence_length: Some(1_025), ..of("raw") };
        let raw = Raw { rest: Rest::Drop, ..Raw::of_records(Bytes(1_025 * bytes)) };
        check(&keys, &Format::Raw(raw));
    }
}

#[test]
fn a_format_without_a_key_that_it_needs_names_the_key() {
    check_refused(&of("files"), "dataset has `format: files`, which needs `glob`, which files");
    check_refused(&of("raw"), "dataset has `format: raw`, which needs `record_bytes`");
    check_refused(&of("hdf5"), "dataset has `format: hdf5`, which needs `dataset`");
    let dtype = DatasetKeys { dtype: text("uint16"), ..of("raw") };
    check_refused(&dtype, "dataset has `format: raw`, which needs `sequence_length`");
    let length = DatasetKeys { sequence_length: Some(8), ..of("raw") };
    check_refused(&length, "dataset has `format: raw`, which needs `dtype`");
}

#[test]
fn a_key_of_another_format_is_refused_for_every_key_and_format() {
    let keys: [(&str, &str, DatasetKeys); 9] = [
        ("record_bytes", "raw", DatasetKeys { record_bytes: text("1"), ..of("") }),
        ("dtype", "raw", DatasetKeys { dtype: text("int8"), ..of("") }),
        ("sequence_length", "raw or litdata", DatasetKeys { sequence_length: Some(1), ..of("") }),
        ("header_bytes", "raw", DatasetKeys { header_bytes: text("1"), ..of("") }),
        ("compression", "tfrecord", DatasetKeys { compression: text("gzip"), ..of("") }),
        ("members", "npz", DatasetKeys { members: list(&["x"]), ..of("") }),
        ("unit", "parquet", DatasetKeys { unit: text("row-group"), ..of("") }),
        ("columns", "parquet", DatasetKeys { columns: list(&["x"]), ..of("") }),
        ("dataset", "hdf5", DatasetKeys { dataset: text("x"), ..of("") }),
    ];
    for (key, owner, keys) in keys {
        let is_foreign = |format: &&str| owner.split(" or ").all(|owner| owner != *format);
        for format in FORMATS.into_iter().filter(is_foreign) {
            let keys = DatasetKeys { format: format.to_owned(), ..keys.clone() };
            check_refused(&keys, &format!("{key} is for `format: {owner}` only; remove it"));
        }
    }
}

#[test]
fn two_keys_that_say_the_same_are_refused() {
    let files = DatasetKeys { glob: text("*"), manifest: text("a"), ..of("files") };
    check_refused(&files, "manifest stands beside `glob`");
    let raw = DatasetKeys { record_bytes: text("8"), dtype: text("int8"), ..of("raw") };
    check_refused(&raw, "dtype stands beside `record_bytes`");
    let raw = DatasetKeys { record_bytes: text("8"), sequence_length: Some(1), ..of("raw") };
    check_refused(&raw, "sequence_length stands beside `record_bytes`");
}

#[test]
fn a_value_that_no_format_knows_is_refused() {
    check_refused(&of("zip"), "format is zip; expected one of image-folder, files, raw,");
    let keys = DatasetKeys { glob: text("/etc/*"), ..of("files") };
    check_refused(&keys, "glob is /etc/*; expected a pattern");
    let keys = DatasetKeys { dtype: text("u16"), sequence_length: Some(1), ..of("raw") };
    check_refused(&keys, "dtype is u16; expected one of uint8,");
    let keys = DatasetKeys { dtype: text("int64"), sequence_length: Some(u64::MAX), ..of("raw") };
    check_refused(&keys, "sequence_length is 18446744073709551615; it must be between 1 and");
    let keys = DatasetKeys { header_bytes: text("-1"), record_bytes: text("1"), ..of("raw") };
    check_refused(&keys, "header_bytes is -1; expected a whole number of bytes");
    let keys = DatasetKeys { compression: text("zlib"), ..of("tfrecord") };
    check_refused(&keys, "compression is zlib; expected one of none, gzip");
    let keys = DatasetKeys { unit: text("page"), ..of("parquet") };
    check_refused(&keys, "unit is page; expected one of row-group, column-chunk");
    let keys = DatasetKeys { members: list(&[]), ..of("npz") };
    check_refused(&keys, "members is empty; list a name");
    let keys = DatasetKeys { columns: list(&["a", "a"]), ..of("parquet") };
    check_refused(&keys, "columns is a; each name may be listed once");
    let keys = DatasetKeys { columns: list(&[""]), ..of("parquet") };
    check_refused(&keys, "columns is ; expected a name");
}

#[test]
fn a_url_of_a_store_is_a_bucket_as_it_stands() {
    for url in [
        "s3://bucket",
        "s3://bucket/a%20b/",
        "gs://bucket/train",
        "az://container/train",
        "https://host:8443/data",
        "http://127.0.0.1:9000/data/a@b",
    ] {
        let expected = Bucket {
            url: url.to_owned(),
            endpoint: None,
            region: None,
            identity: Identity::Configured,
        };
        assert_eq!(at(url).location(Path::new("/jobs")), Ok(Location::Bucket(expected)));
    }
    let keys = DatasetKeys { anonymous: Some(false), ..at("gs://bucket") };
    let Ok(Location::Bucket(bucket)) = keys.location(Path::new("/jobs")) else {
        panic!("{keys:?}")
    };
    assert_eq!(bucket.identity, Identity::Configured);
}

#[test]
fn keys_of_buckets_are_for_buckets() {
    let with_endpoint = |source| DatasetKeys { endpoint: text("http://h:1"), ..at(source) };
    for source in ["/data", "file:///data", "https://host/data"] {
        check_source_refused(
            &with_endpoint(source),
            "endpoint is for sources that start with s3://, gs://, az:// only; remove it",
        );
    }
    for source in ["/data", "gs://bucket", "https://host/data"] {
        let keys = DatasetKeys { region: text("eu"), ..at(source) };
        check_source_refused(&keys, "region is for sources that start with s3:// only; remove it");
    }
    let keys = DatasetKeys { anonymous: Some(true), ..at("data") };
    check_source_refused(&keys, "anonymous is for sources that start with s3://, gs://,");
    for endpoint in ["host:9000", "http://", "ftp://host", ""] {
        let keys = DatasetKeys { endpoint: text(endpoint), ..at("s3://bucket") };
        check_source_refused(
            &keys,
            &format!("endpoint is {endpoint}; expected the URL of a server"),
        );
    }
    for source in ["s3://", "s3:///key", "https:///x"] {
        check_source_refused(
            &at(source),
            &format!("source is {source}; expected a bucket or a host"),
        );
    }
}

#[test]
fn no_credential_passes_and_none_is_repeated() {
    let cases = [
        ("s3://AKIA:hunter2@bucket/train", "s3://***@bucket/train"),
        ("s3://AKIA:hunt/er2@bucket/train", "s3://***"),
        ("https://user:hunter2@host:8443/x", "https://***@host:8443/x"),
        ("https://user:hunter2/@host/x", "https://***"),
        ("https://hunter2@host/x", "https://***@host/x"),
        ("az://container/x?sig=hunter2", "az://container/x?***"),
        ("https://host/x?X-Amz-Signature=hunter2", "https://host/x?***"),
        ("https://host/x#hunter2", "https://host/x?***"),
    ];
    for (source, shown) in cases {
        check_source_refused(
            &at(source),
            &format!("source is {shown}; a URL holds no credentials"),
        );
    }
    let keys = DatasetKeys { endpoint: text("http://u:hunter2@h:9000"), ..at("s3://bucket") };
    check_source_refused(&keys, "endpoint is http://***@h:9000; a URL holds no credentials");
    let unknown = at("ftp://user:hunter2@host/x").location(Path::new("")).unwrap_err();
    assert!(!said(unknown).contains("hunter2"));
}

proptest::proptest! {
    #[test]
    fn any_source_is_read_without_a_panic_or_a_leak(
        scheme in "(s3|gs|az|https?|ftp)://",
        secret in "[a-zA-Z0-9+/]{1,12}",
        rest in "[a-z/:]{0,12}",
    ) {
        let secret = format!("0x{secret}");
        let keys = at(&format!("{scheme}user:{secret}@{rest}"));
        let said = said(keys.location(Path::new("/jobs")).unwrap_err());
        proptest::prop_assert!(!said.contains(&secret), "{}", said);
    }
}
