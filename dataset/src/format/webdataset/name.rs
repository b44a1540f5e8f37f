//! Splits the name of a member like webdataset.

/// Splits a name into key and extension; `None` if webdataset skips it.
///
/// The first dot of the last component divides them. For a component that starts with a dot the key
/// is the folder, if that has no dot; webdataset's expression for it also skips names with a line
/// break in a folder unless nothing before the extension has a dot.
pub(super) fn split(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let component = name.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let dot = component + name[component..].iter().position(|byte| *byte == b'.')?;
    let (key, extension) = (&name[..dot], &name[dot + 1..]);
    let folder = match key.iter().rposition(|byte| *byte == b'.') {
        None => 0,
        Some(last_dot) => {
            last_dot + 1 + key[last_dot + 1..].iter().position(|byte| *byte == b'/')? + 1
        }
    };
    let line_break = key[..folder].contains(&b'\n');
    (folder < dot && !line_break).then_some((key, extension))
}

/// Whether webdataset skips a member because of its name: `__…__`, or in a top folder with such a
/// name.
pub(super) fn is_meta(name: &[u8]) -> bool {
    let (top, alone) = match name.iter().position(|byte| *byte == b'/') {
        Some(slash) => (&name[..slash], false),
        None => (name.strip_suffix(b"\n").unwrap_or(name), true),
    };
    let framed = top.starts_with(b"__") && top.ends_with(b"__");
    framed && (alone || top.len() >= 4)
}

/// An extension in the form of webdataset.
pub(super) fn lower_case(extension: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(extension) {
        Ok(text) => text.to_lowercase().into_bytes(),
        Err(_) => extension.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_like_metadata_is_skipped() {
        for name in ["__a__", "____", "__", "__a.b__", "__a__/b.jpg", "__a__\n", "____/x"] {
            assert!(is_meta(name.as_bytes()), "{name:?}");
        }
        for name in ["__meta__.json", "a__", "__a", "a/__b__", "__/a.jpg", "___/a.jpg", "__a__b/c"]
        {
            assert!(!is_meta(name.as_bytes()), "{name:?}");
        }
    }

    /// Every name of up to `len` of four characters, in the order of the fixture.
    fn names(len: u32) -> impl Iterator<Item = Vec<u8>> {
        let letters = b"a./\n";
        (0..=len).flat_map(move |len| {
            (0..4_usize.pow(len)).map(move |number| {
                (0..len).rev().map(|digit| letters[number >> (2 * digit) & 3]).collect()
            })
        })
    }

    #[test]
    fn names_are_split_as_webdataset_splits_them() {
        let fixture = include_bytes!("../../../tests/fixtures/webdataset/splits.json");
        let expected: Vec<i32> = serde_json::from_slice(fixture).unwrap();
        assert_eq!(names(6).count(), expected.len());
        for (name, expected) in names(6).zip(expected) {
            let found = split(&name).map_or(-1, |(key, _)| i32::try_from(key.len()).unwrap());
            assert_eq!(found, expected, "{}", name.escape_ascii());
        }
    }

    #[test]
    fn extensions_are_in_lower_case() {
        assert_eq!(lower_case(b"SEG.Png"), b"seg.png");
        assert_eq!(lower_case("ÄÖ".as_bytes()), "äö".as_bytes());
        assert_eq!(lower_case(b"\xffJPG"), b"\xffjpg");
    }
}
