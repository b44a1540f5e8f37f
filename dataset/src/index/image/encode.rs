//! Encodes a draft as the bytes of an index.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::{
    FLAG_BUCKET, FLAG_CLASSES, FLAG_ENCODINGS, FLAG_LABELS, FLAG_WIDE_LABELS, Header, Image, Kind,
    MAGIC, NO_NARROW_LABEL, NO_TIME, Storage, VERSION,
};
use crate::{
    format::{Encoding, objects::Classes},
    index::draft::{Contents, Draft, NO_LABEL, Samples, SourceKind},
};

/// Encodes a draft whose samples lie within its objects.
pub(in crate::index) fn encode(draft: Draft) -> Image {
    let header = header_of(&draft);
    let total = usize::try_from(header.total()).expect("a draft lies in memory");
    let mut bytes = Vec::with_capacity(total);
    put_header(&header, &mut bytes);
    let format = format_section(&draft);
    let Draft { root, listing, samples, .. } = draft;
    for object in &listing.objects {
        bytes.extend(object.size.to_le_bytes());
        bytes.extend(object.mtime_ns.to_le_bytes());
        bytes.extend(object.name_end.to_le_bytes());
    }
    put_samples(samples, header.flags, &mut bytes);
    let mut name_end = 0_u64;
    for directory in &listing.directories {
        name_end += directory.name.len() as u64;
        bytes.extend(name_end.to_le_bytes());
        bytes.extend((directory.first_object as u64).to_le_bytes());
    }
    bytes.extend(format.as_bytes());
    bytes.extend(root);
    for directory in &listing.directories {
        bytes.extend(&directory.name);
    }
    bytes.extend(&listing.names);
    let fingerprint = xxh3_64(&bytes);
    let mut checksum = Xxh3::new();
    checksum.update(&fingerprint.to_le_bytes());
    bytes.extend(fingerprint.to_le_bytes());
    for directory in &listing.directories {
        let time = directory.mtime_ns.unwrap_or(NO_TIME).to_le_bytes();
        checksum.update(&time);
        bytes.extend(time);
    }
    bytes.extend(checksum.digest().to_le_bytes());
    debug_assert_eq!(bytes.len(), total, "the header counts what follows it");
    Image { storage: Storage::Memory(bytes), at: header.places(), header }
}

/// The text of the format, and behind a zero what the objects say, if they say something.
fn format_section(draft: &Draft) -> String {
    if draft.contents == Contents::default() {
        return draft.format.clone();
    }
    let contents = serde_json::to_string(&draft.contents).expect("texts and numbers are JSON");
    format!("{}\0{contents}", draft.format)
}

fn header_of(draft: &Draft) -> Header {
    let mut flags = 0;
    let (kind, record_bytes, samples) = match &draft.samples {
        Samples::Objects => (Kind::Objects, 0, draft.listing.objects.len()),
        Samples::Records(table) => {
            let samples = table.counts.iter().map(|count| *count as usize).sum();
            (Kind::Records, table.record_bytes, samples)
        }
        Samples::Ranges(table) => {
            flags |= if table.encodings.is_empty() { 0 } else { FLAG_ENCODINGS };
            flags |= match &*table.labels {
                [] => 0,
                labels if labels.iter().all(|it| narrow(*it).is_some()) => FLAG_LABELS,
                _ => FLAG_LABELS | FLAG_WIDE_LABELS,
            };
            (Kind::Ranges, 0, table.places.len())
        }
    };
    flags |= if draft.kind == SourceKind::Bucket { FLAG_BUCKET } else { 0 };
    flags |= if draft.classes == Classes::Directories { FLAG_CLASSES } else { 0 };
    let directories = &draft.listing.directories;
    Header {
        kind,
        flags,
        record_bytes,
        samples: samples as u64,
        format: format_section(draft).len() as u64,
        source: draft.root.len() as u64,
        directories: directories.len() as u64,
        directory_names: directories.iter().map(|directory| directory.name.len() as u64).sum(),
        objects: draft.listing.objects.len() as u64,
        object_names: draft.listing.names.len() as u64,
    }
}

fn put_header(header: &Header, bytes: &mut Vec<u8>) {
    let kind = match header.kind {
        Kind::Objects => 0_u32,
        Kind::Records => 1,
        Kind::Ranges => 2,
    };
    bytes.extend(MAGIC);
    for word in [VERSION, kind, header.flags, 0] {
        bytes.extend(word.to_le_bytes());
    }
    let counts = [
        header.record_bytes,
        header.samples,
        header.format,
        header.source,
        header.directories,
        header.directory_names,
        header.objects,
        header.object_names,
    ];
    for count in counts {
        bytes.extend(count.to_le_bytes());
    }
}

fn narrow(label: i64) -> Option<i32> {
    match label {
        NO_LABEL => Some(NO_NARROW_LABEL),
        _ => i32::try_from(label).ok().filter(|label| *label != NO_NARROW_LABEL),
    }
}

fn put_samples(samples: Samples, flags: u32, bytes: &mut Vec<u8>) {
    match samples {
        Samples::Objects => {}
        Samples::Records(table) => {
            bytes.extend(table.counts.iter().flat_map(|count| count.to_le_bytes()));
            bytes.extend(table.starts.iter().flat_map(|start| start.to_le_bytes()));
        }
        Samples::Ranges(table) => {
            bytes.extend(table.counts.iter().flat_map(|count| count.to_le_bytes()));
            for (offset, len) in &table.places {
                bytes.extend(offset.to_le_bytes());
                bytes.extend(len.to_le_bytes());
            }
            for encoding in &table.encodings {
                let (len, crc32, deflated) = match encoding {
                    Encoding::Plain => (0, 0, 0_u32),
                    Encoding::Deflate { len, crc32 } => (*len, *crc32, 1),
                };
                bytes.extend(len.to_le_bytes());
                bytes.extend(crc32.to_le_bytes());
                bytes.extend(deflated.to_le_bytes());
            }
            let labels = table.labels.iter();
            if flags & FLAG_WIDE_LABELS == 0 {
                let narrow = |label: &i64| narrow(*label).unwrap_or(NO_NARROW_LABEL);
                bytes.extend(labels.flat_map(|label| narrow(label).to_le_bytes()));
            } else {
                bytes.extend(labels.flat_map(|label| label.to_le_bytes()));
            }
        }
    }
}
