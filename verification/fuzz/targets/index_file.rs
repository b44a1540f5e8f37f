//! Index files, unchanged and with valid checksums; all samples of a file that opens are read.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use tierfeed_core::id::SampleId;
use tierfeed_dataset::{Index, format::Encoding};
use tierfeed_fuzz::assert_same;
use xxhash_rust::xxh3::xxh3_64;

/// Offset of the number of directories in the header.
const DIRECTORIES_AT: usize = 56;
/// A few bytes may claim four billion records for an object; not all of them are read.
const WALKED_MAX: u32 = 4096;

fuzz_target!(|input: &[u8]| {
    check(input);
    if let Some(repaired) = repaired(input) {
        check(&repaired);
    }
});

fn check(file: &[u8]) {
    let parse = || Index::parse(file.to_vec(), Path::new("fuzz.index"));
    let index = parse();
    assert_same(&index, &parse());
    if let Ok(index) = index {
        walk(&index);
    }
}

fn walk(index: &Index) {
    let (classes, _) =
        (index.class_names().len(), (index.source(), index.format(), index.fingerprint()));
    if index.len() <= WALKED_MAX {
        assert_eq!(index.sizes().map(|size| size.0).sum::<u64>(), index.total().0);
    }
    let first = index.len().min(WALKED_MAX);
    let last = index.len().saturating_sub(WALKED_MAX).max(first);
    for sample in (0..first).chain(last..index.len()).map(SampleId) {
        let extent = index.extent(sample);
        let end = extent.offset.checked_add(extent.stored_len);
        assert!(end.is_some_and(|end| end <= extent.object_size), "{extent:?}");
        match extent.encoding {
            Encoding::Plain => assert_eq!(extent.len, extent.stored_len),
            Encoding::Deflate { len, .. } => assert_eq!(extent.len, len),
        }
        assert_eq!(extent.len, index.size(sample).0);
        let source = index.source();
        assert!(
            source.contains("://")
                || extent.path.starts_with(&source)
                || source.contains('\u{fffd}')
        );
        assert!(!index.object_name(sample).is_empty());
        let label = index.label(sample);
        let class = label.and_then(|label| usize::try_from(label).ok());
        assert!(classes == 0 || class.is_some_and(|class| class < classes), "{label:?}");
    }
}

/// The file with its fingerprint and its checksum computed.
fn repaired(file: &[u8]) -> Option<Vec<u8>> {
    let directories = file.get(DIRECTORIES_AT..)?.first_chunk().copied().map(u64::from_le_bytes)?;
    let times = usize::try_from(directories).ok()?.checked_mul(8)?;
    let checksum_at = file.len().checked_sub(8)?;
    let fingerprint_at = checksum_at.checked_sub(times)?.checked_sub(8)?;
    let mut repaired = file.to_vec();
    let fingerprint = xxh3_64(&repaired[..fingerprint_at]);
    repaired[fingerprint_at..][..8].copy_from_slice(&fingerprint.to_le_bytes());
    let checksum = xxh3_64(&repaired[fingerprint_at..checksum_at]);
    repaired[checksum_at..].copy_from_slice(&checksum.to_le_bytes());
    Some(repaired)
}
