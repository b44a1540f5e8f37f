//! Checks the invariants that a checksum does not cover: the author of an index file may be
//! hostile.

use tierfeed_core::batch::SAMPLE_BYTES_MAX;

use super::{DIRECTORY_BYTES, Image, Kind, OBJECT_BYTES, Section, u32_at, u64_at};
use crate::{
    format::{Encoding, objects::Classes},
    index::{Damage, draft::SourceKind},
    source::listing::split_etag,
};

/// The order matters: each check relies on those before.
pub(in crate::index) fn check_invariants(image: &Image) -> Result<(), Damage> {
    refuse_wrong_texts(image)?;
    refuse_wrong_name_ends(image)?;
    refuse_wrong_directories(image)?;
    refuse_escapes(image)?;
    refuse_wrong_counts(image)?;
    refuse_wrong_places(image)
}

fn refuse_wrong_texts(image: &Image) -> Result<(), Damage> {
    if str::from_utf8(image.section(Section::Format)).is_err() {
        return Err(Damage::Format);
    }
    let source = image.source();
    let is_right = match image.header.source_kind() {
        SourceKind::FileSystem => source.starts_with(b"/") && !source.contains(&0),
        SourceKind::Bucket => str::from_utf8(source).is_ok_and(|url| url.contains("://")),
    };
    if is_right { Ok(()) } else { Err(Damage::Escape) }
}

fn refuse_wrong_name_ends(image: &Image) -> Result<(), Damage> {
    let rises_to = |rows: Section, width: usize, at: usize, names: Section| {
        let mut last = 0;
        let rises = image.section(rows).chunks_exact(width).all(|row| {
            let end = u64_at(row, at);
            let is_right = end >= last;
            last = end;
            is_right
        });
        rises && last == image.section(names).len() as u64
    };
    let is_right = rises_to(Section::Objects, OBJECT_BYTES, 16, Section::ObjectNames)
        && rises_to(Section::Directories, DIRECTORY_BYTES, 0, Section::DirectoryNames);
    if is_right { Ok(()) } else { Err(Damage::Names) }
}

/// Directories start at object 0 and ascend; with classes every object lies in one.
fn refuse_wrong_directories(image: &Image) -> Result<(), Damage> {
    let objects = image.objects();
    let rows = image.section(Section::Directories);
    let mut last = 0;
    for (number, row) in rows.chunks_exact(DIRECTORY_BYTES).enumerate() {
        let first = u64_at(row, 8);
        let is_right = if number == 0 { first == 0 } else { first >= last };
        if !is_right || first > objects as u64 {
            return Err(Damage::Directories);
        }
        last = first;
    }
    if objects > 0 && image.directories() == 0 {
        return Err(Damage::Directories);
    }
    let in_a_class = || {
        (0..image.directories()).all(|number| {
            image.objects_of(number).is_empty() || !image.directory_name(number).is_empty()
        })
    };
    match image.header.classes() {
        Classes::Directories if image.header.has_labels() || !in_a_class() => Err(Damage::Classes),
        _ => Ok(()),
    }
}

fn refuse_escapes(image: &Image) -> Result<(), Damage> {
    let is_bucket = image.header.source_kind() == SourceKind::Bucket;
    let mut directories = (0..image.directories()).map(|number| image.directory_name(number));
    if !directories.all(|name| name.is_empty() || is_bucket || stays_below(name)) {
        return Err(Damage::Escape);
    }
    let is_the_source = |name: &[u8]| name.is_empty() && image.objects() == 1;
    let names = image.section(Section::ObjectNames);
    let mut start = 0;
    for row in image.section(Section::Objects).chunks_exact(OBJECT_BYTES) {
        let end = super::index(u64_at(row, 16));
        let (name, etag) = split_etag(&names[start..end]);
        let is_name = if is_bucket { !name.contains(&b'/') } else { is_file_name(name) };
        if !(is_name || is_the_source(name)) || (etag.is_some() && !is_bucket) {
            return Err(Damage::Escape);
        }
        start = end;
    }
    Ok(())
}

/// Counts of samples are consistent, and records and ranges lie within their objects.
fn refuse_wrong_counts(image: &Image) -> Result<(), Damage> {
    let header = &image.header;
    let is_plain = !header.has_encodings() && !header.has_labels();
    let is_right = match header.kind {
        Kind::Objects => header.samples == header.objects && is_plain && header.record_bytes == 0,
        Kind::Records => is_plain && header.record_bytes > 0,
        Kind::Ranges => header.record_bytes == 0,
    };
    if !is_right {
        return Err(Damage::Format);
    }
    if header.samples == 0 || header.samples > u64::from(u32::MAX) {
        return Err(Damage::Records);
    }
    let counts = image.section(Section::Counts).chunks_exact(4);
    let samples: u64 = counts.map(|count| u64::from(u32_at(count, 0))).sum();
    if header.kind != Kind::Objects && samples != header.samples {
        return Err(Damage::Records);
    }
    Ok(())
}

fn refuse_wrong_places(image: &Image) -> Result<(), Damage> {
    let mut total = 0_u64;
    let mut sample = 0;
    if image.header.record_bytes > SAMPLE_BYTES_MAX.0 {
        return Err(Damage::Sizes);
    }
    for number in 0..image.objects() {
        let size = image.object(number).size;
        let bytes = match image.header.kind {
            Kind::Objects if size > SAMPLE_BYTES_MAX.0 => return Err(Damage::Sizes),
            Kind::Objects => Some(size),
            Kind::Records => records_of(image, number, size),
            Kind::Ranges => ranges_of(image, &mut sample, image.count(number), size),
        };
        let sum = bytes.ok_or(Damage::Records)?.checked_add(total);
        total = sum.ok_or(Damage::Sizes)?;
    }
    Ok(())
}

/// The bytes of the records of an object, if they lie within it.
fn records_of(image: &Image, object: usize, size: u64) -> Option<u64> {
    let bytes = image.header.record_bytes.checked_mul(u64::from(image.count(object)))?;
    (image.start(object).checked_add(bytes)? <= size).then_some(bytes)
}

/// The decoded bytes of the next `count` samples, if they lie within `size` and none is too long.
fn ranges_of(image: &Image, sample: &mut u32, count: u32, size: u64) -> Option<u64> {
    let mut total = 0_u64;
    for _ in 0..count {
        let (offset, len) = image.place(*sample);
        if offset.checked_add(len)? > size {
            return None;
        }
        let decoded = match image.encoding(*sample) {
            Encoding::Plain => len,
            Encoding::Deflate { len, .. } => len,
        };
        if decoded > SAMPLE_BYTES_MAX.0 {
            return None;
        }
        total = total.checked_add(decoded)?;
        *sample += 1;
    }
    Some(total)
}

/// Whether a name, appended to a directory, refers to a path in or below it.
fn stays_below(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'/').all(is_file_name)
}

fn is_file_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&0) && !name.contains(&b'/')
}
