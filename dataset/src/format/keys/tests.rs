use std::{num::NonZeroU64, path::PathBuf};

use super::*;
use crate::{
    format::{Compression, Hdf5, LitData, Npz, Parquet, Raw, Rest, Unit},
    source::{Address, Identity},
};

fn of(format: &str) -> DatasetKeys {
    DatasetKeys::new("/data", format)
}

fn at(source: &str) -> DatasetKeys {
    DatasetKeys::new(source, "mds")
}

impl DatasetKeys {
    fn listing(mut self, name: &str, values: &[&str]) -> Self {
        self.set(name, values.iter().map(|it| (*it).to_owned()).collect());
        self
    }
}

#[track_caller]
fn check(keys: &DatasetKeys, expected: &Format) {
    assert_eq!(keys.format(Path::new("/jobs")).as_ref(), Ok(expected), "{keys:?}");
}

#[track_caller]
fn check_refused(keys: &DatasetKeys, expected: &str) {
    let error = keys.format(Path::new("/jobs")).unwrap_err();
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[track_caller]
fn check_source_refused(keys: &DatasetKeys, expected: &str) {
    let error = keys.location(Path::new("/jobs")).unwrap_err();
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[test]
fn every_format_has_its_name_and_its_keys() {
    check(&of("image-folder"), &Format::ImageFolder);
    check(
        &of("files").with("glob", "**/*.npz"),
        &Format::Files(Files::Glob("**/*.npz".to_owned())),
    );
    check(
        &of("files").with("manifest", "list.txt"),
        &Format::Files(Files::Manifest(PathBuf::from("/jobs/list.txt"))),
    );
    check(
        &of("raw").with("record_bytes", "3073").with("header_bytes", "1 KiB"),
        &Format::Raw(Raw { header_bytes: Bytes(1_024), ..Raw::of_records(Bytes(3_073)) }),
    );
    check(&of("tfrecord"), &Format::TfRecord(Compression::None));
    check(&of("tfrecord").with("compression", "gzip"), &Format::TfRecord(Compression::Gzip));
    check(&of("webdataset"), &Format::WebDataset);
    check(&of("mds"), &Format::Mds);
    check(&of("litdata"), &Format::LitData(LitData { sequence_length: None }));
    let tokens = of("litdata").with("sequence_length", "2048");
    check(&tokens, &Format::LitData(LitData { sequence_length: NonZeroU64::new(2_048) }));
    check(&of("megatron"), &Format::Megatron);
    check(&of("npy"), &Format::Npy);
    check(&of("npz"), &Format::Npz(Npz { members: Vec::new() }));
    check(
        &of("npz").listing("members", &["x", "y"]),
        &Format::Npz(Npz { members: vec!["x".to_owned(), "y".to_owned()] }),
    );
    let row_groups = Parquet { unit: Unit::RowGroup, columns: Vec::new() };
    check(&of("parquet"), &Format::Parquet(row_groups));
    check(
        &of("parquet").with("unit", "column-chunk").listing("columns", &["a.b"]),
        &Format::Parquet(Parquet { unit: Unit::ColumnChunk, columns: vec!["a.b".to_owned()] }),
    );
    check(&of("arrow"), &Format::Arrow);
    check(
        &of("hdf5").with("dataset", "/train/x"),
        &Format::Hdf5(Hdf5 { dataset: "/train/x".to_owned() }),
    );
    check(&of("lmdb"), &Format::Lmdb);
    check(&of("ffcv"), &Format::Ffcv);
}

#[test]
fn every_name_gives_the_format_of_this_name() {
    for name in FORMATS {
        let keys = match name {
            "files" => of(name).with("glob", "*"),
            "raw" => of(name).with("record_bytes", "1"),
            "hdf5" => of(name).with("dataset", "x"),
            _ => of(name),
        };
        assert_eq!(keys.format(Path::new("")).unwrap().name(), name);
    }
}

#[test]
fn tokens_make_records_of_a_sequence_and_drop_the_rest() {
    for (dtype, bytes) in [("uint16", 2), ("int8", 1), ("uint32", 4), ("int64", 8), ("bfloat16", 2)]
    {
        let keys = of("raw").with("dtype", dtype).with("sequence_length", "1025");
        let raw = Raw { rest: Rest::Drop, ..Raw::of_records(Bytes(1_025 * bytes)) };
        check(&keys, &Format::Raw(raw));
    }
}

#[test]
fn a_format_without_a_key_that_it_needs_names_the_key() {
    check_refused(&of("files"), "the dataset has `format: files`, which needs `glob`, which files");
    check_refused(&of("raw"), "the dataset has `format: raw`, which needs `record_bytes`");
    check_refused(&of("hdf5"), "the dataset has `format: hdf5`, which needs `dataset`");
    let dtype = of("raw").with("dtype", "uint16");
    check_refused(&dtype, "the dataset has `format: raw`, which needs `sequence_length`");
    let length = of("raw").with("sequence_length", "8");
    check_refused(&length, "the dataset has `format: raw`, which needs `dtype`");
}

#[test]
fn a_key_of_another_format_is_refused_for_every_key_and_format() {
    let keys: Vec<_> = of_contents().filter(|key| !key.formats().is_empty()).collect();
    assert_eq!(keys.len(), 9);
    for key in keys {
        let owners = key.formats();
        for format in FORMATS.into_iter().filter(|format| !owners.contains(format)) {
            let said =
                format!("{} is for `format: {}` only; remove it", key.name, owners.join(" or "));
            check_refused(&of(format).with(key.name, "1"), &said);
        }
    }
    let tokens = of("mds").with("sequence_length", "1");
    check_refused(&tokens, "sequence_length is for `format: raw or litdata` only; remove it");
}

#[test]
fn two_keys_that_say_the_same_are_refused() {
    let files = of("files").with("glob", "*").with("manifest", "a");
    check_refused(&files, "manifest stands beside `glob`");
    let raw = of("raw").with("record_bytes", "8").with("dtype", "int8");
    check_refused(&raw, "dtype stands beside `record_bytes`");
    let raw = of("raw").with("record_bytes", "8").with("sequence_length", "1");
    check_refused(&raw, "sequence_length stands beside `record_bytes`");
}

#[test]
fn a_value_that_no_format_knows_is_refused() {
    check_refused(&of("zip"), "format is `zip`; expected one of image-folder, files, raw,");
    let keys = of("files").with("glob", "/etc/*");
    check_refused(&keys, "glob is `/etc/*`; expected a pattern");
    let keys = of("raw").with("dtype", "u16").with("sequence_length", "1");
    check_refused(&keys, "dtype is `u16`; expected one of uint8,");
    let keys = of("raw").with("dtype", "int64").with("sequence_length", "18446744073709551615");
    check_refused(&keys, "sequence_length is `18446744073709551615`; it must be between 1 and");
    let keys = of("raw").with("header_bytes", "-1").with("record_bytes", "1");
    check_refused(&keys, "header_bytes is `-1`; expected a whole number of bytes");
    let keys = of("tfrecord").with("compression", "zlib");
    check_refused(&keys, "compression is `zlib`; expected one of none, gzip");
    let keys = of("parquet").with("unit", "page");
    check_refused(&keys, "unit is `page`; expected one of row-group, column-chunk");
    let keys = of("npz").listing("members", &[]);
    check_refused(&keys, "members is empty; list a name");
    let keys = of("parquet").listing("columns", &["a", "a"]);
    check_refused(&keys, "columns is `a`; each name may be listed once");
    let keys = of("parquet").listing("columns", &[""]);
    check_refused(&keys, "columns is ``; expected a name");
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
        let expected = Address::from(url.to_owned());
        assert_eq!(at(url).location(Path::new("/jobs")), Ok(Location::Bucket(expected)));
    }
    let keys = at("gs://bucket").with("anonymous", "false");
    let Ok(Location::Bucket(bucket)) = keys.location(Path::new("/jobs")) else {
        panic!("{keys:?}")
    };
    assert_eq!(bucket.access.identity, Identity::Configured);
}

#[test]
fn keys_of_buckets_are_for_buckets() {
    let with_endpoint = |source| at(source).with("endpoint", "http://h:1");
    for source in ["/data", "file:///data", "https://host/data"] {
        check_source_refused(
            &with_endpoint(source),
            "endpoint is for sources that start with s3://, gs://, az:// only; remove it",
        );
    }
    for source in ["/data", "gs://bucket", "https://host/data"] {
        let keys = at(source).with("region", "eu");
        check_source_refused(&keys, "region is for sources that start with s3:// only; remove it");
    }
    let keys = at("data").with("anonymous", "true");
    check_source_refused(&keys, "anonymous is for sources that start with s3://, gs://,");
    for endpoint in ["host:9000", "http://", "ftp://host", ""] {
        let keys = at("s3://bucket").with("endpoint", endpoint);
        check_source_refused(
            &keys,
            &format!("endpoint is `{endpoint}`; expected the URL of a server"),
        );
    }
    for source in ["s3://", "s3:///key", "https:///x"] {
        check_source_refused(
            &at(source),
            &format!("source is `{source}`; expected a bucket or a host"),
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
            &format!("source is `{shown}`; a URL holds no credentials"),
        );
    }
    let keys = at("s3://bucket").with("endpoint", "http://u:hunter2@h:9000");
    check_source_refused(&keys, "endpoint is `http://***@h:9000`; a URL holds no credentials");
    let unknown = at("ftp://user:hunter2@host/x").location(Path::new("")).unwrap_err();
    assert!(!unknown.to_string().contains("hunter2"));
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
        let said = keys.location(Path::new("/jobs")).unwrap_err().to_string();
        proptest::prop_assert!(!said.contains(&secret), "{}", said);
    }
}
