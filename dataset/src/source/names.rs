//! Names of files and paths below a source: bytes, as the file system has them.

use std::{
    cmp::Ordering,
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

/// The list of `torchvision.datasets.folder.IMG_EXTENSIONS`.
const EXTENSIONS: [&str; 9] =
    [".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"];

/// Whether torchvision accepts a file as an image: by the end of its name alone.
///
/// # Source
///
/// `torchvision.datasets.folder.has_file_allowed_extension`: the lower-cased name ends in one of the
/// extensions. So `.jpg` alone is an image, and only ASCII letters matter, because no other letter
/// has one of these as its lower case.
pub fn is_image(name: &[u8]) -> bool {
    ends_in(name, &EXTENSIONS)
}

/// Ignores upper and lower case, as torchvision does for the endings of images.
pub(crate) fn ends_in(name: &[u8], ends: &[&str]) -> bool {
    ends.iter().any(|end| {
        let start = name.len().checked_sub(end.len());
        start.is_some_and(|start| name[start..].eq_ignore_ascii_case(end.as_bytes()))
    })
}

/// The directory of a path, which may be empty, and the name in it.
pub(crate) fn parted(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    slash.map_or((&[][..], path), |at| (&path[..at], &path[at + 1..]))
}

/// The name without its last extension.
pub(crate) fn stem_of(name: &[u8]) -> &[u8] {
    name.iter().rposition(|byte| *byte == b'.').map_or(name, |dot| &name[..dot])
}

pub(crate) fn append(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() && !name.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// The path of `name` below `root`. An empty name is the root itself: joining it would add a slash.
pub(crate) fn below(root: &Path, name: &[u8]) -> PathBuf {
    if name.is_empty() { root.to_owned() } else { root.join(OsStr::from_bytes(name)) }
}

/// A name in messages; invalid UTF-8 is replaced.
pub(crate) fn lossy(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

pub(crate) const TRAIN: [&str; 2] = ["train", "training"];
pub(crate) const HELD_OUT: [&str; 10] = [
    "val",
    "valid",
    "validation",
    "dev",
    "test",
    "testing",
    "eval",
    "evaluation",
    "holdout",
    "heldout",
];

/// Whether a word of a name is one of these, perhaps with a number, as `val2017`.
pub(crate) fn is_one_of(word: &[u8], wanted: &[&str]) -> bool {
    let len = word.iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |at| at + 1);
    wanted.iter().any(|it| word[..len].eq_ignore_ascii_case(it.as_bytes()))
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
