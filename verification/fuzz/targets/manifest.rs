//! The list of files of the format `manifest`, read against an existing directory.
#![no_main]

use std::{
    fs::{self, File},
    os::{fd::AsRawFd as _, unix::fs::FileExt as _},
    path::{Path, PathBuf},
    sync::LazyLock,
};

use libfuzzer_sys::fuzz_target;
use tierfeed_core::id::SampleId;
use tierfeed_dataset::{Dataset, Format, Index, format::Files, source::Location};

/// A directory with files that a list may name.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dataset/tests/fixtures/litdata");

/// A file without a name, so that no file is left behind.
static MANIFEST: LazyLock<File> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("tierfeed-fuzz-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path);
    fs::remove_file(path).expect("it was just made");
    file.expect("the directory of temporary files can be written")
});

static DATASET: LazyLock<Dataset> = LazyLock::new(|| {
    let source = Path::new(SOURCE).canonicalize().expect("the fixtures are there");
    let manifest = PathBuf::from(format!("/proc/self/fd/{}", MANIFEST.as_raw_fd()));
    Dataset::new(Location::Path(source), Format::Files(Files::Manifest(manifest)))
});

fuzz_target!(|input: &[u8]| {
    MANIFEST.set_len(0).expect("it is open for writing");
    MANIFEST.write_all_at(input, 0).expect("it is open for writing");
    let Ok(index) = Index::build(&DATASET, None, &mut |_| ()) else { return };
    let lines = input.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    assert_eq!(lines.count(), index.len() as usize, "a line is a sample");
    let Location::Path(source) = &DATASET.source else { unreachable!("it is a directory") };
    for sample in (0..index.len()).map(SampleId) {
        let extent = index.extent(sample);
        assert!(extent.path.starts_with(source) && extent.len == extent.object_size, "{extent:?}");
        assert!(!extent.path.components().any(|part| part.as_os_str() == ".."), "{extent:?}");
    }
});
