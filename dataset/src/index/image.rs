//! The binary form of an index, in memory and in its file: a header of counts, then the sections.
//!
//! All numbers are little-endian. Sections that a kind of index does not need are empty.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | magic |
//! | 4, 4, 4, 4 | version; samples are objects (0), records (1) or ranges (2); flags; 0 |
//! | 8, 8 | bytes of a record, samples |
//! | 6 x 8 | counts: bytes of the format, bytes of the source, directories, bytes of their names, objects, bytes of their names |
//! | 24 each | object: size, time, end of its name |
//! | 4 each | object: its samples (not if samples are objects) |
//! | 8 each | object: where its first record starts (records) |
//! | 16 each | sample: where it starts, its stored bytes (ranges) |
//! | 16 each | sample: bytes when decoded, CRC-32 of them, 1 if deflated (flag 1) |
//! | 4 or 8 each | sample: label, the smallest number for none (flag 2; 8 with flag 16) |
//! | 16 each | directory: end of its name, first object |
//! | … | format (behind it a zero and what the files say about samples as JSON, if they say something), source, names of directories, names of objects |
//! | 8 | fingerprint: xxh3-64 of everything before |
//! | 8 each | directory: time |
//! | 8 | checksum: xxh3-64 of the fingerprint and of the times |
//!
//! The time of a directory matters for whether an index is stale, and not for its content: so the
//! times follow the fingerprint.

use std::{fmt, ops::Range};

use tierfeed_numa_memory::FileBytes;

use super::draft::{Contents, NO_LABEL, SourceKind};
use crate::{
    format::{Encoding, objects::Classes},
    source::{Listed, listing::split_etag},
};

mod check;
mod encode;
mod header;
mod open;
mod save;
mod source_file;

pub(super) use check::check_invariants;
pub(super) use encode::encode;
pub(super) use open::{open, parse};
pub(super) use save::save;
pub(super) use source_file::Access;

/// Like PNG's: a byte that is no ASCII, and line ends that a text transfer would change.
const MAGIC: [u8; 8] = *b"\x89tfidx\r\n";
const VERSION: u32 = 4;
const HEADER_BYTES: usize = 8 + 4 * 4 + 2 * 8 + 6 * 8;
const OBJECT_BYTES: usize = 24;
const PLACE_BYTES: usize = 16;
const ENCODING_BYTES: usize = 16;
const DIRECTORY_BYTES: usize = 16;
const SUMS_BYTES: usize = 16;
/// The time of a directory that has none.
const NO_TIME: i64 = i64::MIN;

const FLAG_ENCODINGS: u32 = 1;
const FLAG_LABELS: u32 = 2;
const FLAG_BUCKET: u32 = 4;
const FLAG_CLASSES: u32 = 8;
/// A label does not fit in four bytes.
const FLAG_WIDE_LABELS: u32 = 16;
const FLAGS: u32 = FLAG_ENCODINGS | FLAG_LABELS | FLAG_BUCKET | FLAG_CLASSES | FLAG_WIDE_LABELS;

/// The label of a sample without one, where labels have four bytes.
const NO_NARROW_LABEL: i32 = i32::MIN;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Objects,
    Records,
    Ranges,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    flags: u32,
    pub(super) record_bytes: u64,
    pub(super) samples: u64,
    format: u64,
    source: u64,
    pub(super) directories: u64,
    directory_names: u64,
    pub(super) objects: u64,
    object_names: u64,
}

impl Header {
    pub(super) fn source_kind(&self) -> SourceKind {
        if self.flags & FLAG_BUCKET == 0 { SourceKind::FileSystem } else { SourceKind::Bucket }
    }

    pub(super) fn classes(&self) -> Classes {
        if self.flags & FLAG_CLASSES == 0 { Classes::None } else { Classes::Directories }
    }

    pub(super) fn has_labels(&self) -> bool {
        self.flags & FLAG_LABELS != 0
    }

    fn label_bytes(&self) -> usize {
        if self.flags & FLAG_WIDE_LABELS == 0 { 4 } else { 8 }
    }

    fn has_encodings(&self) -> bool {
        self.flags & FLAG_ENCODINGS != 0
    }

    /// Bytes of each section, in the order of [`Section`].
    fn sections(&self) -> [u64; SECTIONS] {
        let objects_unless = |condition: bool| if condition { 0 } else { self.objects };
        let samples_if = |condition: bool| if condition { self.samples } else { 0 };
        let times = |count: u64, bytes: usize| count.saturating_mul(bytes as u64);
        [
            times(self.objects, OBJECT_BYTES),
            times(objects_unless(self.kind == Kind::Objects), 4),
            times(objects_unless(self.kind != Kind::Records), 8),
            times(samples_if(self.kind == Kind::Ranges), PLACE_BYTES),
            times(samples_if(self.has_encodings()), ENCODING_BYTES),
            times(samples_if(self.has_labels()), self.label_bytes()),
            times(self.directories, DIRECTORY_BYTES),
            self.format,
            self.source,
            self.directory_names,
            self.object_names,
            8,
            times(self.directories, 8),
            8,
        ]
    }

    /// Bytes of the whole index; the largest number if 64 bits cannot count them.
    fn total(&self) -> u64 {
        let header = HEADER_BYTES as u64;
        self.sections().iter().fold(header, |sum, section| sum.saturating_add(*section))
    }

    /// The places of the sections, for a header whose total is a length that fits in memory.
    fn places(&self) -> [Range<usize>; SECTIONS] {
        let mut end = HEADER_BYTES;
        self.sections().map(|bytes| {
            let start = end;
            end += index(bytes);
            start..end
        })
    }
}

/// A part of an index behind its header, in the order in which they lie.
#[derive(Debug, Clone, Copy)]
enum Section {
    Objects,
    Counts,
    Starts,
    Places,
    Encodings,
    Labels,
    Directories,
    Format,
    Source,
    DirectoryNames,
    ObjectNames,
    Fingerprint,
    Times,
    Checksum,
}

const SECTIONS: usize = Section::Checksum as usize + 1;

enum Storage {
    Memory(Vec<u8>),
    File(FileBytes),
}

impl Storage {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Memory(bytes) => bytes,
            Self::File(bytes) => bytes,
        }
    }
}

/// An index whose bytes were built or checked here, so that all its invariants hold.
pub(super) struct Image {
    storage: Storage,
    pub(super) header: Header,
    at: [Range<usize>; SECTIONS],
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("header", &self.header).finish_non_exhaustive()
    }
}

impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        self.storage.bytes() == other.storage.bytes()
    }
}

impl Eq for Image {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ObjectRow {
    pub(super) size: u64,
    pub(super) mtime_ns: i64,
    name_end: u64,
}

impl Image {
    fn section(&self, section: Section) -> &[u8] {
        &self.storage.bytes()[self.at[section as usize].clone()]
    }

    pub(super) fn format(&self) -> &str {
        self.format_section().split_once('\0').map_or(self.format_section(), |(format, _)| format)
    }

    pub(super) fn contents(&self) -> Contents {
        let contents = self.format_section().split_once('\0');
        contents.and_then(|(_, it)| serde_json::from_str(it).ok()).unwrap_or_default()
    }

    fn format_section(&self) -> &str {
        str::from_utf8(self.section(Section::Format)).expect("it was checked")
    }

    pub(super) fn source(&self) -> &[u8] {
        self.section(Section::Source)
    }

    pub(super) fn fingerprint(&self) -> u64 {
        u64_at(self.section(Section::Fingerprint), 0)
    }

    pub(super) fn objects(&self) -> usize {
        self.section(Section::Objects).len() / OBJECT_BYTES
    }

    pub(super) fn object(&self, number: usize) -> ObjectRow {
        let row = &self.section(Section::Objects)[number * OBJECT_BYTES..];
        let mtime_ns = u64_at(row, 8).cast_signed();
        ObjectRow { size: u64_at(row, 0), mtime_ns, name_end: u64_at(row, 16) }
    }

    /// The name of an object in its directory, and in a bucket its `ETag`.
    pub(super) fn object_name(&self, number: usize) -> (&[u8], Option<&str>) {
        let start = number.checked_sub(1).map_or(0, |before| self.object(before).name_end);
        let names = self.section(Section::ObjectNames);
        split_etag(&names[index(start)..index(self.object(number).name_end)])
    }

    /// Number of samples of an object; one if samples are objects.
    pub(super) fn count(&self, object: usize) -> u32 {
        match self.header.kind {
            Kind::Objects => 1,
            _ => u32_at(self.section(Section::Counts), object * 4),
        }
    }

    pub(super) fn start(&self, object: usize) -> u64 {
        u64_at(self.section(Section::Starts), object * 8)
    }

    /// Start of a sample in its object, and its stored bytes.
    pub(super) fn place(&self, sample: u32) -> (u64, u64) {
        let row = &self.section(Section::Places)[sample as usize * PLACE_BYTES..];
        (u64_at(row, 0), u64_at(row, 8))
    }

    pub(super) fn encoding(&self, sample: u32) -> Encoding {
        if !self.header.has_encodings() {
            return Encoding::Plain;
        }
        let row = &self.section(Section::Encodings)[sample as usize * ENCODING_BYTES..];
        match u32_at(row, 12) {
            0 => Encoding::Plain,
            _ => Encoding::Deflate { len: u64_at(row, 0), crc32: u32_at(row, 8) },
        }
    }

    pub(super) fn label(&self, sample: u32) -> Option<i64> {
        if !self.header.has_labels() {
            return None;
        }
        let labels = self.section(Section::Labels);
        let at = sample as usize * self.header.label_bytes();
        match self.header.label_bytes() {
            4 => {
                let label = u32_at(labels, at).cast_signed();
                (label != NO_NARROW_LABEL).then_some(label.into())
            }
            _ => Some(u64_at(labels, at).cast_signed()).filter(|label| *label != NO_LABEL),
        }
    }

    pub(super) fn directories(&self) -> usize {
        self.section(Section::Directories).len() / DIRECTORY_BYTES
    }

    pub(super) fn directory_name(&self, number: usize) -> &[u8] {
        let end_of = |number: usize| {
            let rows = self.section(Section::Directories);
            index(u64_at(rows, number * DIRECTORY_BYTES))
        };
        let start = number.checked_sub(1).map_or(0, end_of);
        &self.section(Section::DirectoryNames)[start..end_of(number)]
    }

    pub(super) fn directory_mtime_ns(&self, number: usize) -> Option<i64> {
        let times = self.section(Section::Times);
        let time = u64_at(times, number * 8).cast_signed();
        (time != NO_TIME).then_some(time)
    }

    pub(super) fn first_object(&self, directory: usize) -> usize {
        let rows = self.section(Section::Directories);
        index(u64_at(rows, directory * DIRECTORY_BYTES + 8))
    }

    pub(super) fn objects_of(&self, directory: usize) -> Range<usize> {
        let next = directory + 1;
        let end = if next < self.directories() { self.first_object(next) } else { self.objects() };
        self.first_object(directory)..end
    }

    /// Whether an object is as it is listed now.
    pub(super) fn is_as_listed(&self, number: usize, listed: &Listed) -> bool {
        let (row, (_, etag)) = (self.object(number), self.object_name(number));
        (row.size, row.mtime_ns, etag) == (listed.size, listed.mtime_ns, listed.etag.as_deref())
    }

    pub(super) fn directory_of(&self, object: usize) -> usize {
        let (mut low, mut high) = (0, self.directories());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.first_object(middle) <= object { low = middle + 1 } else { high = middle }
        }
        low.checked_sub(1).expect("the first directory starts at object 0")
    }

    /// The path of an object below the source; empty if the source is the object.
    pub(super) fn object_path(&self, number: usize) -> Vec<u8> {
        let mut path = self.directory_name(self.directory_of(number)).to_vec();
        let (name, _) = self.object_name(number);
        if !path.is_empty() && !name.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }
}

fn index(position: u64) -> usize {
    usize::try_from(position).expect("positions were checked against a length in memory")
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes are 4 bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes are 8 bytes"))
}

#[cfg(test)]
mod tests;
