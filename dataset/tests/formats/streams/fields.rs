//! Samples of several fields, taken apart.

use proptest::prelude::*;
use tierfeed_dataset::format::{
    fields::{self, Field, FieldError, Value},
    tfrecord::Feature,
};
use tierfeed_transform::{Container, container::Column};

/// A message of protocol buffers: a field of bytes.
fn part(number: u8, content: &[u8]) -> Vec<u8> {
    let mut len = content.len();
    let mut bytes = vec![number << 3 | 2];
    while len > 0x7f {
        bytes.push(u8::try_from(len & 0x7f).unwrap() | 0x80);
        len >>= 7;
    }
    bytes.push(u8::try_from(len).unwrap());
    [bytes, content.to_vec()].concat()
}

fn feature(name: &str, list: u8, items: &[u8]) -> Vec<u8> {
    let value = part(2, &part(list, items));
    part(1, &[part(1, name.as_bytes()), value].concat())
}

fn example(features: &[Vec<u8>]) -> Vec<u8> {
    part(1, &features.concat())
}

fn mds() -> Container {
    let column = |name: &str, encoding: &str, size| Column {
        name: name.to_owned(),
        encoding: encoding.to_owned(),
        size,
    };
    let columns = [
        column("caption", "str", None),
        column("class", "int", Some(8)),
        column("image", "jpeg", None),
    ];
    Container::Columns { columns: columns.to_vec() }
}

fn row(caption: &[u8], class: i64, image: &[u8]) -> Vec<u8> {
    let size = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap().to_le_bytes();
    [&size(caption)[..], &size(image), caption, &class.to_le_bytes(), image].concat()
}

fn values<'a>(fields: &'a [Field<'_>]) -> Vec<(&'a str, &'a Value<'a>)> {
    fields.iter().map(|field| (&*field.name, &field.value)).collect()
}

#[test]
fn features_of_every_type_are_read_packed_and_apart() {
    let pieces = [part(1, b"\xff\xd8\xff jpeg"), part(1, b"two")].concat();
    let floats =
        [part(1, &[0, 0, 0x80, 0x3f, 0, 0, 0, 0x40]), vec![0x0d, 0, 0, 0x40, 0x40]].concat();
    let negative = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let integers = [part(1, &[&[5, 0x80, 1][..], &negative].concat()), vec![0x08, 9]].concat();
    let record = example(&[
        feature("z", 1, &pieces),
        feature("f", 2, &floats),
        feature("i", 3, &integers),
        feature("none", 3, b""),
    ]);
    let fields = fields::split(&Container::TfRecord, &record).unwrap();
    let expected = [
        ("f", &Value::Feature(Feature::Floats(vec![1.0, 2.0, 3.0]))),
        ("i", &Value::Feature(Feature::Integers(vec![5, 128, -1, 9]))),
        ("none", &Value::Feature(Feature::Integers(Vec::new()))),
        ("z", &Value::Feature(Feature::Bytes(vec![b"\xff\xd8\xff jpeg", b"two"]))),
    ];
    assert_eq!(values(&fields), expected);
}

#[test]
fn the_last_of_two_features_of_one_name_counts() {
    let record = [
        example(&[feature("a", 3, &part(1, &[1])), feature("b", 3, &part(1, &[2]))]),
        example(&[feature("a", 1, &part(1, b"later"))]),
    ]
    .concat();
    let fields = fields::split(&Container::TfRecord, &record).unwrap();
    let expected = [
        ("a", &Value::Feature(Feature::Bytes(vec![b"later"]))),
        ("b", &Value::Feature(Feature::Integers(vec![2]))),
    ];
    assert_eq!(values(&fields), expected);
}

#[test]
fn the_only_image_is_found() {
    let jpeg = b"\xff\xd8\xff";
    let alone = example(&[feature("text", 1, &part(1, b"a")), feature("photo", 1, &part(1, jpeg))]);
    let named = example(&[feature("image/encoded", 1, &part(1, b"damaged"))]);
    let transformed = |record| fields::transformed(&Container::TfRecord, record, None);
    assert_eq!(transformed(&alone).unwrap(), jpeg);
    assert_eq!(transformed(&named).unwrap(), b"damaged");
    assert_eq!(fields::transformed(&mds(), &row(b"ab", 3, b"img"), None).unwrap(), b"img");
    let two = example(&[feature("a", 1, &part(1, jpeg)), feature("b", 1, &part(1, jpeg))]);
    for (record, images) in [(&two, 2), (&example(&[feature("a", 3, &part(1, &[1]))]), 0)] {
        let refused = transformed(record);
        let is_so =
            matches!(&refused, Err(FieldError::Unclear { images: found, .. }) if *found == images);
        assert!(is_so, "{refused:?}");
    }
}

#[test]
fn bytes_that_begin_as_an_image_do_not_count_beside_a_field_that_is_one() {
    let png = b"\x89PNG\r\n\x1a\n";
    let column = |name: &str, encoding: &str| Column {
        name: name.to_owned(),
        encoding: encoding.to_owned(),
        size: None,
    };
    let columns = vec![column("image", "jpeg"), column("mask", "bytes")];
    let sample = [&3_u32.to_le_bytes()[..], &8_u32.to_le_bytes(), b"img", png].concat();
    let found = fields::transformed(&Container::Columns { columns }, &sample, None);
    assert_eq!(found.unwrap(), b"img");
    let record = example(&[
        feature("image/encoded", 1, &part(1, b"img")),
        feature("mask", 1, &part(1, png)),
    ]);
    assert_eq!(fields::transformed(&Container::TfRecord, &record, None).unwrap(), b"img");
}

#[test]
fn a_field_that_was_named_must_be_one_piece_of_bytes() {
    let record = example(&[
        feature("label", 3, &part(1, &[1])),
        feature("two", 1, &[part(1, b"a"), part(1, b"b")].concat()),
    ]);
    for name in ["label", "two"] {
        let refused = fields::transformed(&Container::TfRecord, &record, Some(name));
        assert!(matches!(refused, Err(FieldError::NoBytes { .. })), "{refused:?}");
    }
    let refused = fields::transformed(&Container::TfRecord, &record, Some("image")).unwrap_err();
    assert!(refused.to_string().ends_with("it has label, two"), "{refused}");
}

#[test]
fn columns_are_exactly_the_bytes_of_a_sample() {
    let whole = row(b"caption", -1, b"image");
    let fields = fields::split(&mds(), &whole).unwrap();
    let bytes = |at: usize| match &fields[at].value {
        Value::Encoded { bytes, .. } => *bytes,
        other => panic!("{other:?}"),
    };
    assert_eq!([bytes(0), bytes(1), bytes(2)], [&b"caption"[..], &[0xff; 8], b"image"]);
    for wrong in [&whole[..whole.len() - 1], &[&whole[..], &[0]].concat(), &whole[..7], b""] {
        assert!(fields::split(&mds(), wrong).is_err(), "{wrong:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        for container in [Container::WebDataset, Container::TfRecord, mds()] {
            let fields = fields::split(&container, &bytes);
            let _ = fields.map(|fields| fields::chosen(&fields, None).map(|at| fields[at].clone()));
        }
    }

    #[test]
    fn a_damaged_sample_makes_no_parser_panic(
        at in any::<prop::sample::Index>(), byte in any::<u8>(), len in any::<prop::sample::Index>(),
    ) {
        let record = example(&[
            feature("image/encoded", 1, &part(1, &[7; 200])),
            feature("f", 2, &part(1, &[0; 8])),
            feature("i", 3, &part(1, &[1, 2, 0xff, 1])),
        ]);
        for (container, whole) in [(Container::TfRecord, record), (mds(), row(b"caption", 3, &[7; 200]))] {
            let mut damaged = whole.clone();
            damaged[at.index(whole.len())] = byte;
            let _ = fields::transformed(&container, &damaged, None);
            let _ = fields::transformed(&container, &whole[..len.index(whole.len())], None);
        }
    }
}
