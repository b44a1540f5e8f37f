//! WebDataset shards: tars whose members form a sample if they share a name up to the extension.
//!
//! A sample is the part of the tar from the first header of its first member to the end of the
//! padding of its last one, so that the bytes of a sample are a tar (without end mark) that
//! `webdataset` reads as that one sample. Members are grouped as `webdataset` 1.0 does it:
//!
//! - The key is the name up to the first dot after the last slash, folders included; the extension
//!   is the rest, in lower case. Names without both are skipped, and so are folders, links, devices
//!   and names `__…__`, also in a folder with such a name.
//! - Consecutive members with one key are a sample; an extension that comes twice in it is an
//!   error. If the key comes again after another one, that is another sample.
//! - A sample whose member `__bad__` is not empty is left out.
//! - The shard ends with its first block of zeros.
//!
//! Four rules are stricter. A shard that ends without a block of zeros is an error, as it may have
//! been truncated between two members; so is a damaged header, which `webdataset` takes for the
//! end. Sparse members are an error, as their bytes are not those of the file. Tars that are
//! compressed as a whole are an error, as samples cannot be read one by one.
//!
//! 1. The ranges ascend and do not overlap.
//! 2. A range starts with the first extension header (long name, PAX) of its first member.
//! 3. Every header that is used has a correct checksum.
//!
//! Source: `webdataset/tariterators.py` of webdataset 1.0.2.

mod index;
mod member;
mod name;
mod pax;

use std::{collections::BTreeSet, io};

pub use index::from_index;

use self::member::{End, Member, Members};
use super::{
    Checksums, DatasetFormat, Format, FormatError, Found, Kind, Parsed, Range, ReadAt,
    objects::{Candidates, Objects, ObjectsError, is_index},
    read_ahead::for_each_piece,
};
use crate::source::{Opened, names::ends_in};

/// Largest size of a `.cls` member that may be a class: a number with blanks around it.
const CLASS_BYTES_MAX: u64 = 32;
/// Number of bytes behind the end mark that are looked at: `tar` fills the last 10 KiB with zeros.
const BEHIND_BYTES_MAX: u64 = 1 << 20;
/// Keys that webdataset itself adds to a sample.
const RESERVED: [&[u8]; 2] = [b"__key__", b"__url__"];
const BAD: &[u8] = b"__bad__";
const CLASS: &[u8] = b"cls";

pub(super) static KIND: Kind = Kind {
    is_beside: is_index,
    alike: Some(".tar"),
    ..Kind::by_name(
        "webdataset",
        |_| Ok(Format::WebDataset),
        |name| ends_in(name, &[".tar"]),
        ".tar",
    )
};

pub(super) struct WebDataset;

impl DatasetFormat for WebDataset {
    fn objects(&self, found: Candidates<'_>) -> Result<Objects, ObjectsError> {
        Ok(found.with_indexes())
    }

    fn parse(&self, object: &dyn Opened, index: Option<&[u8]>) -> Result<Parsed, FormatError> {
        let ranges = match index {
            None => ranges(object)?,
            Some(index) => from_index(index, object)?,
        };
        let note = behind_end(object, &ranges)?;
        Ok(Parsed { note, ..Found::Ranges(ranges).into() })
    }

    fn has_checksums(&self) -> bool {
        true
    }

    fn check(&self, object: &dyn ReadAt, ranges: &[Range]) -> Result<Checksums, FormatError> {
        check(object, ranges).map(|()| Checksums::Hold)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part<'a> {
    /// Its extension in lower case, without the dot before it: `jpg`, `seg.png`.
    pub extension: Vec<u8>,
    pub bytes: &'a [u8],
}

/// The positions of the samples of a shard, in order.
///
/// The label is the number in the member `cls`.
///
/// # Errors
///
/// [`FormatError::Truncated`] if the tar is cut off, [`FormatError::Checksum`] and
/// [`FormatError::Malformed`] if it is damaged or no tar, [`FormatError::Unsupported`] if it is
/// compressed or has sparse files.
pub fn ranges(object: &dyn ReadAt) -> Result<Vec<Range>, FormatError> {
    let mut members = Members::new(object, 0, End::Marked);
    let mut samples = Samples::default();
    while let Some(member) = members.next().map_err(|error| named(object, error))? {
        let Some((key, extension)) = member.split() else { continue };
        samples.add(&key, extension, &member)?;
        if samples.wants_class() {
            samples.set_class(members.class(&member)?);
        }
    }
    Ok(samples.finish())
}

/// A note on bytes behind the end of a shard whose samples are `found`, as after `cat a.tar b.tar`; readers
/// of tar do not see them. `None` if there are none.
///
/// # Errors
///
/// Those of [`ranges`].
pub fn behind_end(object: &dyn ReadAt, found: &[Range]) -> Result<Option<String>, FormatError> {
    let start = found.last().map_or(0, |last| last.offset + last.len);
    let mut members = Members::new(object, start, End::Anywhere);
    while members.next()?.is_some() {}
    let mut at = members.at();
    let end = object.len().min(at.saturating_add(BEHIND_BYTES_MAX));
    let mut piece = [0; 4096];
    while at < end {
        let len = usize::try_from(end - at).map_or(piece.len(), |left| left.min(piece.len()));
        object.read_exact_at(&mut piece[..len], at)?;
        if piece[..len].iter().any(|byte| *byte != 0) {
            return Ok(Some(format!(
                "{} bytes behind the end mark of the tar at byte {} are not all zeros, and neither tar nor webdataset \
                 reads them; join shards with `tar --concatenate`",
                object.len() - members.at(),
                members.at()
            )));
        }
        at += len as u64;
    }
    Ok(None)
}

/// Reads all of a shard and compares its headers with their checksums and with `expected`.
///
/// The data of a tar has no checksum, so only its readability can be checked.
///
/// # Errors
///
/// Those of [`ranges`]; [`FormatError::Malformed`] if `expected` are not the samples of the shard.
pub fn check(object: &dyn ReadAt, expected: &[Range]) -> Result<(), FormatError> {
    let found = ranges(object)?;
    let place = |range: &Range| (range.offset, range.len);
    if found.iter().map(place).ne(expected.iter().map(place)) {
        return Err(FormatError::Malformed {
            what: "the first of the samples",
            at: found.first().map_or(0, |range| range.offset),
            found: format!(
                "of {} that lie elsewhere than {} expected",
                found.len(),
                expected.len()
            ),
            right: "build the index of the dataset again",
        });
    }
    Ok(for_each_piece(object, 0, object.len(), &mut |_| ())?)
}

/// The members of a sample, from its bytes.
///
/// # Errors
///
/// Those of [`ranges`]; [`FormatError::Malformed`] if the bytes are more than one sample.
pub fn parts(sample: &[u8]) -> Result<Vec<Part<'_>>, FormatError> {
    let mut members = Members::new(&sample, 0, End::Anywhere);
    let mut samples = Samples::default();
    let mut parts = Vec::new();
    while let Some(member) = members.next()? {
        let Some((key, extension)) = member.split() else { continue };
        samples.add(&key, extension.clone(), &member)?;
        if samples.count() > 1 {
            return Err(FormatError::Malformed {
                what: "a member",
                at: member.start,
                found: format!("of another sample ({})", key.escape_ascii()),
                right: "the bytes must be those of one sample",
            });
        }
        let [start, end] = [member.data, member.data + member.len].map(usize::try_from);
        let bytes = start.ok().zip(end.ok()).and_then(|(start, end)| sample.get(start..end));
        let bytes = bytes.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        parts.push(Part { extension, bytes });
    }
    Ok(parts)
}

#[derive(Default)]
struct Samples {
    done: Vec<Range>,
    current: Option<Sample>,
}

struct Sample {
    key: Vec<u8>,
    extensions: BTreeSet<Vec<u8>>,
    start: u64,
    end: u64,
    label: Option<i64>,
    /// Whether the last added member may be the class.
    class_is_last: bool,
    bad: bool,
}

impl Samples {
    fn add(&mut self, key: &[u8], extension: Vec<u8>, member: &Member) -> Result<(), FormatError> {
        let current = match &mut self.current {
            Some(current) if current.key == key => current,
            _ => {
                self.close();
                self.current.insert(Sample::starting(key, member.start))
            }
        };
        if RESERVED.contains(&extension.as_slice()) || current.extensions.contains(&extension) {
            return Err(FormatError::Malformed {
                what: "the name of a member",
                at: member.start,
                found: format!(
                    "{}, the second {} of its sample",
                    member.name.escape_ascii(),
                    extension.escape_ascii()
                ),
                right: "webdataset takes each extension once per sample",
            });
        }
        current.end = member.end;
        current.bad |= extension == BAD && member.len > 0;
        current.class_is_last = extension == CLASS && member.len <= CLASS_BYTES_MAX;
        current.extensions.insert(extension);
        Ok(())
    }

    fn wants_class(&self) -> bool {
        self.current.as_ref().is_some_and(|sample| sample.class_is_last)
    }

    fn set_class(&mut self, class: Option<i64>) {
        if let Some(sample) = &mut self.current {
            sample.label = class;
        }
    }

    fn count(&self) -> usize {
        self.done.len() + usize::from(self.current.is_some())
    }

    fn close(&mut self) {
        let Some(sample) = self.current.take().filter(|sample| !sample.bad) else { return };
        let label = sample.label;
        self.done.push(Range { label, ..Range::plain(sample.start, sample.end - sample.start) });
    }

    fn finish(mut self) -> Vec<Range> {
        self.close();
        self.done
    }
}

impl Sample {
    fn starting(key: &[u8], start: u64) -> Self {
        let extensions = BTreeSet::new();
        let key = key.to_vec();
        Self { key, extensions, start, end: start, label: None, class_is_last: false, bad: false }
    }
}

/// The error for an object that is no tar, according to its first bytes.
fn named(object: &dyn ReadAt, error: FormatError) -> FormatError {
    let mut magic = [0; 6];
    if object.read_exact_at(&mut magic, 0).is_err() || magic_is_of_tar(object) {
        return error;
    }
    let compression = match magic {
        [0x1f, 0x8b, ..] => "gzip",
        [b'B', b'Z', b'h', ..] => "bzip2",
        [0xfd, b'7', b'z', b'X', b'Z', 0] => "xz",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        _ => return error,
    };
    FormatError::Unsupported {
        what: format!(
            "the shard is compressed as a whole ({compression}), samples cannot be read alone"
        ),
        instead: "decompress the shards; what they hold is mostly compressed already",
    }
}

fn magic_is_of_tar(object: &dyn ReadAt) -> bool {
    const AT: u64 = 257;
    let mut magic = [0; 5];
    object.read_exact_at(&mut magic, AT).is_ok() && magic == *b"ustar"
}
