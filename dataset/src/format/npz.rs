//! Reads `.npz` files: zip archives whose members are `.npy` files.
//!
//! A sample is one complete member: header and elements, what `numpy.load(io.BytesIO(sample))`
//! reads. Stored members (`numpy.savez`) are ranges of the archive, unchanged; deflated ones
//! (`numpy.savez_compressed`) are ranges to inflate.
//!
//! The directory at the end of the archive has the offsets of the members, and the header before
//! each member repeats its entry; they must agree, and no byte may belong to two members, so that
//! no two readers of one archive see different samples. Bytes before the archive, which some tools
//! put there, are refused for the same reason.
//!
//! # Source
//!
//! APPNOTE 6.3.10 of the ZIP format; `numpy/lib/_npyio_impl.py` for the names of members.

mod check;
mod directory;
mod end;
mod local;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use self::check::inflate;
use self::directory::{Directory, Entry};
use super::{
    Checksums, DatasetFormat, Encoding, Format, FormatError, Found, Kind, Parsed, Range, ReadAt,
    keys::Key,
    piece::{refuse_overlap, some_of},
};
use crate::source::{Opened, names::ends_in};

pub(super) static KIND: Kind = Kind {
    keys: &[&MEMBERS],
    alike: Some(".npz"),
    ..Kind::by_name(
        "npz",
        |given| Ok(Format::Npz(Npz { members: given.names(&MEMBERS, "x.npy")? })),
        |name| ends_in(name, &[".npz"]),
        ".npz",
    )
};

static MEMBERS: Key =
    Key { is_list: true, ..Key::new("members", "NAME", "an array that is a sample") };

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Npz {
    /// The arrays that are samples; all of them if empty.
    pub members: Vec<String>,
}

impl DatasetFormat for Npz {
    fn settings(&self) -> String {
        match &self.members[..] {
            [] => String::new(),
            members => format!("arrays {members:?}"),
        }
    }

    fn parse(&self, object: &dyn Opened, _index: Option<&[u8]>) -> Result<Parsed, FormatError> {
        ranges(object, &self.members).map(|ranges| Found::Ranges(ranges).into())
    }

    fn has_checksums(&self) -> bool {
        true
    }

    fn check(&self, object: &dyn ReadAt, _ranges: &[Range]) -> Result<Checksums, FormatError> {
        check(object, &self.members).map(|()| Checksums::Hold)
    }
}

/// Finds the named members, in the given order, or all in the order of the archive if none is
/// named.
///
/// A member is named as in the archive, or without its `.npy`, as NumPy names it.
///
/// # Errors
///
/// [`FormatError::Unsupported`] if a member is missing, named twice, encrypted, or stored with
/// another method than deflate; [`FormatError::Truncated`] and [`FormatError::Malformed`] if the
/// archive is damaged.
pub fn ranges(object: &dyn ReadAt, members: &[String]) -> Result<Vec<Range>, FormatError> {
    Ok(find(object, members)?.into_iter().map(|member| member.range).collect())
}

/// Reads the members that [`ranges`] finds, inflates those that are deflated, and compares their
/// CRC-32.
///
/// Takes 128 KiB in addition to the directory, for members of any length.
///
/// # Errors
///
/// As [`ranges`]; [`FormatError::Checksum`] if a CRC-32 does not match, [`FormatError::Malformed`]
/// if a deflated member is damaged or does not have its stated length.
pub fn check(object: &dyn ReadAt, members: &[String]) -> Result<(), FormatError> {
    find(object, members)?.iter().try_for_each(|member| check::member(object, member))
}

#[derive(Debug)]
struct Member {
    range: Range,
    /// CRC-32 of the inflated member.
    crc32: u32,
}

fn find(object: &dyn ReadAt, members: &[String]) -> Result<Vec<Member>, FormatError> {
    let directory = directory::list(object)?;
    let mut spans = Vec::new();
    let mut found = Vec::new();
    for index in chosen(&directory, members)? {
        let entry = &directory.entries[index];
        let encoding = encoding(entry)?;
        let (span, offset) = local::span(object, entry, directory.start)?;
        spans.push(span);
        let range = Range { offset, len: entry.stored_len, encoding, label: None };
        found.push(Member { range, crc32: entry.crc32 });
    }
    refuse_overlap("a member", &spans)?;
    Ok(found)
}

fn encoding(entry: &Entry) -> Result<Encoding, FormatError> {
    if entry.is_encrypted {
        return Err(FormatError::Unsupported {
            what: format!("{}, which is encrypted", quoted(entry)),
            instead: "save the arrays without a password",
        });
    }
    match entry.method {
        directory::STORED => Ok(Encoding::Plain),
        directory::DEFLATED => Ok(Encoding::Deflate { len: entry.len, crc32: entry.crc32 }),
        method => Err(FormatError::Unsupported {
            what: format!("{}, which is compressed with method {method}", quoted(entry)),
            instead: "save it with numpy.savez or numpy.savez_compressed",
        }),
    }
}

fn quoted(entry: &Entry) -> String {
    format!("the member {}", some_of([entry.name.as_str()]))
}

fn chosen(directory: &Directory, members: &[String]) -> Result<Vec<usize>, FormatError> {
    let entries = &directory.entries;
    if members.is_empty() {
        // Case-sensitive, like NumPy.
        let is_other = |entry: &&Entry| !entry.name.as_bytes().ends_with(b".npy");
        return match entries.iter().find(is_other) {
            None => Ok((0..entries.len()).collect()),
            Some(other) => Err(FormatError::Unsupported {
                what: format!("{}, which is no .npy file", quoted(other)),
                instead: "name the members that are samples",
            }),
        };
    }
    let by_name: BTreeMap<&str, usize> =
        entries.iter().enumerate().map(|(index, entry)| (entry.name.as_str(), index)).collect();
    let mut taken = vec![false; entries.len()];
    let mut indexes = Vec::with_capacity(members.len());
    for member in members {
        let found = by_name.get(member.as_str());
        let found = found.or_else(|| by_name.get(format!("{member}.npy").as_str()));
        let Some(&index) = found else {
            let there = some_of(entries.iter().map(|entry| entry.name.as_str()));
            return Err(FormatError::Unsupported {
                what: format!("no member {}: there are {there}", some_of([member.as_str()])),
                instead: "name members that are there, or none to take all",
            });
        };
        if std::mem::replace(&mut taken[index], true) {
            return Err(FormatError::Unsupported {
                what: format!("{}, which is named twice", quoted(&entries[index])),
                instead: "name each member once",
            });
        }
        indexes.push(index);
    }
    Ok(indexes)
}
