//! The order in which Python sorts file names, and which names torchvision accepts as images.

use std::cmp::Ordering;

/// The list of `torchvision.datasets.folder.IMG_EXTENSIONS`.
const EXTENSIONS: [&[u8]; 9] =
    [b".jpg", b".jpeg", b".png", b".ppm", b".bmp", b".pgm", b".tif", b".tiff", b".webp"];

/// Whether torchvision accepts a file as an image: by the end of its name alone.
///
/// # Source
///
/// `torchvision.datasets.folder.has_file_allowed_extension`: the lower-cased name ends in one of the
/// extensions. So `.jpg` alone is an image, and only ASCII letters matter, because no other letter
/// has one of these as its lower case.
pub fn is_image(name: &[u8]) -> bool {
    EXTENSIONS.iter().any(|extension| {
        let start = name.len().checked_sub(extension.len());
        start.is_some_and(|start| name[start..].eq_ignore_ascii_case(extension))
    })
}

/// Compares two file names as `sorted()` does in Python.
///
/// # Source
///
/// Python compares code points, which for UTF-8 is the order of the bytes; a byte that is not UTF-8
/// is the code point U+DC00 plus the byte (PEP 383), above most characters and below U+E000.
pub fn python_order(left: &[u8], right: &[u8]) -> Ordering {
    if str::from_utf8(left).is_ok() && str::from_utf8(right).is_ok() {
        left.cmp(right)
    } else {
        code_points(left).cmp(code_points(right))
    }
}

fn code_points(name: &[u8]) -> impl Iterator<Item = u32> + '_ {
    name.utf8_chunks().flat_map(|chunk| {
        let escaped = chunk.invalid().iter().map(|byte| 0xDC00 + u32::from(*byte));
        chunk.valid().chars().map(u32::from).chain(escaped)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_told_by_the_end_of_their_name() {
        for name in ["a.jpg", "a.JPEG", "a.b.WebP", ".png", "a.tif", "a.TIFF", "x.ppm", "y.pgm"] {
            assert!(is_image(name.as_bytes()), "{name}");
        }
        for name in ["jpg", "a.jpg.txt", "a.gif", "", "a.jpe", "\u{130}.t\u{130}f"] {
            assert!(!is_image(name.as_bytes()), "{name}");
        }
        assert!(is_image(b"\xff.bmp"));
    }

    /// The expected order was printed by `sorted(os.fsdecode(n) for n in names)` of Python 3.11.
    #[test]
    fn names_sort_as_in_python() {
        let sorted: [&[u8]; 13] = [
            b"",
            b"10",
            b"9",
            b"B",
            b"a",
            b"a-b",
            b"a/b",
            "\u{e9}".as_bytes(),
            "\u{ff}a".as_bytes(),
            b"\xe9",
            b"\xff",
            "\u{e000}".as_bytes(),
            "\u{1f600}".as_bytes(),
        ];
        for (left_place, left) in sorted.iter().enumerate() {
            for (right_place, right) in sorted.iter().enumerate() {
                assert_eq!(
                    python_order(left, right),
                    left_place.cmp(&right_place),
                    "{left:?} {right:?}"
                );
            }
        }
    }
}
