//! The samples of an image folder are those of torchvision's `ImageFolder`, in its order.
//!
//! The expected list was printed by Python 3.11 on the same tree, with the loop of
//! `torchvision.datasets.folder.make_dataset`: `sorted(os.walk(directory, followlinks=True))`, then
//! `sorted(names)`.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt, path::Path};

use tierfeed_core::id::SampleId;
use tierfeed_dataset::{Dataset, Format, Index, source::Location};

/// Classes and directories with an unusual order: digits as text, capitals first, `sub-x` between
/// `sub` and the content of `sub`, a byte that is no UTF-8 before U+E000.
const FILES: [&[u8]; 17] = [
    b"b_second/img10.jpg",
    b"b_second/img9.JPG",
    b"b_second/img2.png",
    b"b_second/notes.txt",
    b"b_second/sub/z.webp",
    b"b_second/sub/deep/q.tif",
    b"b_second/sub-x/a.jpg",
    b"b_second/sub2/a.jpg",
    b"A_first/z.bmp",
    b"A_first/\xc3\xa9.jpeg",
    b"A_first/.png",
    b"A_first/zero.PPM",
    b"stray.jpg",
    b"10/x.pgm",
    b"9/x.tiff",
    b"\xc3\x84/\xee\x80\x80.jpg",
    b"\xc3\x84/\xff.jpg",
];

const EXPECTED: [(u32, &[u8]); 17] = [
    (0, b"10/x.pgm"),
    (1, b"9/file-link.png"),
    (1, b"9/x.tiff"),
    (2, b"A_first/.png"),
    (2, b"A_first/z.bmp"),
    (2, b"A_first/zero.PPM"),
    (2, b"A_first/\xc3\xa9.jpeg"),
    (3, b"b_second/img10.jpg"),
    (3, b"b_second/img2.png"),
    (3, b"b_second/img9.JPG"),
    (3, b"b_second/sub/z.webp"),
    (3, b"b_second/sub-x/a.jpg"),
    (3, b"b_second/sub/deep/q.tif"),
    (3, b"b_second/sub2/a.jpg"),
    (4, b"linked/linked.jpg"),
    (5, b"\xc3\x84/\xff.jpg"),
    (5, b"\xc3\x84/\xee\x80\x80.jpg"),
];

#[test]
fn samples_and_labels_come_in_the_order_of_torchvision() {
    let write = |path: &Path, bytes: &[u8]| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    for file in FILES {
        // As long as its name, so that a confusion of files shows in the sizes.
        write(&root.join(OsStr::from_bytes(file)), file);
    }
    fs::write(root.join("A_first/zero.PPM"), b"").unwrap();
    write(&directory.path().join("outside/linked.jpg"), b"linked");
    std::os::unix::fs::symlink("../outside", root.join("linked")).unwrap();
    std::os::unix::fs::symlink("../../outside/linked.jpg", root.join("9/file-link.png")).unwrap();

    let dataset = Dataset::new(Location::Path(root.clone()), Format::ImageFolder);
    let index = Index::build(&dataset, None, &mut |_| ()).unwrap();

    assert_eq!(index.class_names(), ["10", "9", "A_first", "b_second", "linked", "\u{c4}"]);
    assert_eq!(index.len() as usize, EXPECTED.len());
    for (sample, (label, name)) in (0..).map(SampleId).zip(EXPECTED) {
        let extent = index.extent(sample);
        let path = root.join(OsStr::from_bytes(name));
        let bytes = fs::read(&path).unwrap();
        assert_eq!((index.label(sample), &extent.path), (Some(i64::from(label)), &path));
        assert_eq!((extent.offset, extent.len), (0, bytes.len() as u64));
        assert_eq!((extent.object_size, index.size(sample).0), (extent.len, extent.len));
    }
}
