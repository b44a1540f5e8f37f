use serde_json::{Value, json};

use super::*;

fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/hdf5");
    std::fs::read(format!("{folder}/{name}")).unwrap()
}

fn object() -> Vec<u8> {
    fixture("arrays.h5")
}

fn changed(dataset: &str, change: impl FnOnce(&mut Value)) -> Result<Dataset, FormatError> {
    let answer = fixture(&format!("arrays.{dataset}.index"));
    let mut answer = serde_json::from_slice(&answer).unwrap();
    change(&mut answer);
    parse(&serde_json::to_vec(&answer).unwrap(), &object())
}

#[track_caller]
fn check_refused(found: Result<Dataset, FormatError>, expected: &str) {
    let message = found.unwrap_err().to_string();
    assert!(message.contains(expected), "{message}");
}

#[test]
fn the_signature_is_found_where_the_format_allows_it() {
    let file = |at: usize| [vec![0; at], SIGNATURE.to_vec()].concat();
    for at in [0, 512, 1024, 2048, 1 << 20] {
        assert_eq!(check_signature(&file(at)).unwrap(), at as u64);
    }
    for object in [file(8), file(513), file(1536), vec![0; 4096], Vec::new()] {
        check_signature(&object).unwrap_err();
    }
    check_signature(&file(512)[..519].to_vec()).unwrap_err();
    let answer = fixture("arrays.flat.index");
    check_refused(parse(&answer, &vec![0; 23_096]), "the signature of HDF5 at byte 0 is nowhere");
}

#[test]
fn rows_lie_in_the_object() {
    let with = |key: &'static str, value: Value| changed("flat", move |it| it[key] = value);
    assert!(with("offset_bytes", json!(23_096 - 20)).is_ok());
    check_refused(with("offset_bytes", json!(23_096 - 19)), "truncated: the dataset at byte 23077");
    check_refused(with("offset_bytes", json!(u64::MAX)), "truncated: the dataset");
    check_refused(with("shape", json!([u64::MAX])), "fewer than 2^64 bytes");
    check_refused(with("shape", json!([])), "there are axes");
    check_refused(with("shape", json!([5, 0])), "whose rows have no bytes");
    check_refused(with("item_bytes", json!(0)), "elements have bytes");
    check_refused(with("item_bytes", json!(-4)), "no such document");
    check_refused(with("layout", json!("compact")), "no such document");
    check_refused(with("layout", json!("chunked")), "is without a field");
    check_refused(with("more", json!(1)), "no such document");
}

#[test]
fn chunks_tile_the_dataset() {
    let tile = "chunks tile the dataset in row-major order";
    check_refused(changed("chunked", |it| it["chunks"][1]["coordinates"] = json!([0, 4])), tile);
    check_refused(changed("chunked", |it| it["chunks"][1]["coordinates"] = json!([0])), tile);
    check_refused(changed("chunked", |it| it["chunks"][0]["coordinates"] = json!([1, 0])), tile);
    let swapped = changed("chunked", |it| it["chunks"].as_array_mut().unwrap().swap(0, 1));
    check_refused(swapped, tile);
    let fewer = changed("chunked", |it| drop(it["chunks"].as_array_mut().unwrap().pop()));
    check_refused(fewer, "of which 8 of 9 chunks were written");
    check_refused(
        changed("chunked", |it| it["shape"] = json!([u64::MAX, 5])),
        "9 of 18446744073709551615",
    );
    let huge = json!([u64::MAX, u64::MAX]);
    check_refused(changed("chunked", |it| it["shape"] = huge), "9 of more than 2^64 chunks");
    check_refused(changed("chunked", |it| it["chunk"] = json!([3])), "the shape of a chunk");
    check_refused(changed("chunked", |it| it["chunk"] = json!([3, 0])), "the shape of a chunk");
    let filters = changed("chunked", |it| it["filters"] = json!(vec!["x"; 33]));
    check_refused(filters, "with 33 filters");
}

#[test]
fn chunks_lie_in_the_object_and_apart() {
    let with = |dataset, key: &'static str, value: Value| {
        changed(dataset, move |it| it["chunks"][1][key] = value)
    };
    check_refused(with("gzip", "offset_bytes", json!(u64::MAX)), "truncated: a chunk");
    check_refused(with("gzip", "stored_bytes", json!(u64::MAX)), "truncated: a chunk");
    check_refused(with("gzip", "offset_bytes", json!(2844)), "a chunk at byte 2844 is inside");
    check_refused(with("chunked", "stored_bytes", json!(23)), "23 bytes long, without a filter");
    check_refused(with("gzip", "stored_bytes", json!(0)), "0 bytes long; what filters leave");
}

#[test]
fn filters_that_were_left_out_are_not_counted() {
    let filtered = |change: fn(&mut Value)| match changed("gzip", change).unwrap().samples {
        Samples::Chunks(chunks) => chunks.filtered,
        Samples::Rows(_) => panic!("the dataset has chunks"),
    };
    assert_eq!(filtered(|_| ()), 3);
    assert_eq!(filtered(|it| it["chunks"][0]["filter_mask"] = json!(1)), 3);
    let bare = |it: &mut Value| {
        it["chunks"][0]["filter_mask"] = json!(3);
        it["chunks"][0]["stored_bytes"] = json!(60);
        it["chunks"][0]["offset_bytes"] = json!(9000);
    };
    assert_eq!(filtered(bare), 2);
}
