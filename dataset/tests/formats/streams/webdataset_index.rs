use proptest::prelude::*;
use tierfeed_dataset::format::webdataset::{from_index, parts, ranges};

use crate::{
    assert_sound,
    damage::any_damage,
    fixture, slice,
    webdataset::{lossy, shard},
};

fn index_of_plain() -> String {
    String::from_utf8(fixture("webdataset/plain.idx")).unwrap()
}

/// An index without names.
fn version_1_1(index: &str) -> String {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let lines = index.lines().skip(1).map(|line| {
        words(line).chunks(4).map(|member| member[..3].join(" ")).collect::<Vec<_>>().join(" ")
    });
    format!("v1.1 6\n{}\n", lines.collect::<Vec<_>>().join("\n"))
}

#[test]
fn dalis_index_says_the_same() {
    let object = shard("plain.tar");
    let expected = ranges(&object).unwrap();
    let index = index_of_plain();
    assert_eq!(from_index(index.as_bytes(), &object).unwrap(), expected);
    assert_eq!(from_index(version_1_1(&index).as_bytes(), &object).unwrap(), expected);
}

#[test]
fn an_index_with_other_members_between_gives_the_same_places() {
    for name in ["pax.tar", "odd.tar"] {
        let object = shard(name);
        let expected = ranges(&object).unwrap();
        let mut index = format!("v1.1 {}\n", expected.len());
        for range in &expected {
            let start = object.as_ptr() as usize;
            let parts = parts(slice(&object, *range)).unwrap().into_iter();
            let members = parts.map(|part| {
                let offset = part.bytes.as_ptr() as usize - start;
                format!("{} {offset} {}", lossy(&part.extension), part.bytes.len())
            });
            index += &(members.collect::<Vec<_>>().join(" ") + "\n");
        }
        let found = from_index(index.as_bytes(), &object).unwrap();
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn an_index_of_another_shard_is_refused_with_line_and_value() {
    let object = shard("plain.tar");
    let right = index_of_plain();
    let cases = [
        ("v1.2 6", "v1.3 6", "line 1 is \"v1.3 6\"; the first line must be"),
        ("v1.2 6", "v1.2 7", "line 1 is 7 samples, but 6 lines follow"),
        ("v1.2 6\n", "", "line 1 is \"cls 512 1 train/0000.cls jpg"),
        (
            "jpg 1536 0",
            "jpg 1537 0",
            "line 2 is an offset of 1537, but the member before ends at 1024",
        ),
        ("jpg 1536 0", "jpg 1024 0", "line 2 is an offset of 1024"),
        ("cls 512 1", "cls 0 1", "line 2 is an offset of 0"),
        ("jpg 1536 0", "jpg 2048 0", "line 2 is a size of 0, but the member has 7 bytes"),
        ("jpg 4096 300", "jpg 4096 301", "line 3 is a size of 301, but the member has 300 bytes"),
        (
            "train/0003.cls",
            "train/3.cls",
            "line 5 is the name train/3.cls, but the member is called train/0003.cls",
        ),
        ("json 23552 7", "json 30720 7", "line 7 is 7 bytes at 30720, but the shard has 30720"),
        ("json 23552 7", "json 24064 7", "line 7 is an offset of 24064, where no member"),
        ("json 23552 7", "json 23552 18446744073709551615", "line 7 is 18446744073709551615 bytes"),
        ("json 23552 7 train/0005.json", "json 23552 7", "line 7 is \"cls 20480"),
        ("json 23552 7 train/0005.json", "json 23552 7 a b.json", "line 7 is \"cls 20480"),
        ("\ncls 6144", "\n\ncls 6144", "line 4 is empty"),
    ];
    for (from, to, expected) in cases {
        let index = right.replacen(from, to, 1);
        assert_ne!(index, right);
        let message = from_index(index.as_bytes(), &object).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
    let twice = right.replacen("jpg 1536", "cls 1536", 1);
    assert!(from_index(twice.as_bytes(), &object).is_err());
    let message = from_index(b"v1.2 1\ncls \xff", &object).unwrap_err().to_string();
    assert!(message.starts_with("line 2 is not UTF-8"), "{message}");
    assert!(from_index(right.as_bytes(), &Vec::new()).is_err());
}

proptest! {
    #[test]
    fn no_index_leads_outside_of_the_object(
        index in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..100),
            any_damage(index_of_plain().into_bytes()),
            any_damage(version_1_1(&index_of_plain()).into_bytes()),
        ],
        object in prop_oneof![Just(shard("plain.tar")), any_damage(shard("plain.tar"))],
    ) {
        if let Ok(ranges) = from_index(&index, &object) {
            assert_sound(&ranges, object.len());
        }
    }
}
