//! Takes the positions of samples from the index that DALI's `wds2idx` writes.
//!
//! The first line is `v1.2 N`; each of the `N` others is a sample: `extension offset size name` for each
//! member (`v1.1`: without the name), where the offset is that of the data. The index decides which members
//! form a sample; the rules for its members are the same. The tar is read where there is a gap between
//! members, and to check that the index belongs to this shard: all headers where a read costs little, else
//! those of the first member, of the last, and of others evenly between.

use std::str;

use super::{End, FormatError, Member, Members, Range, ReadAt, Samples, name};
use crate::read_at::is_near;

const BLOCK_BYTES: u64 = 512;
/// Number of members that are compared with their headers where each read is a request.
const COMPARED: usize = 64;

struct Entry<'a> {
    line: usize,
    extension: Vec<u8>,
    offset: u64,
    size: u64,
    /// Present from version 1.2 on.
    name: Option<&'a str>,
}

impl Entry<'_> {
    fn wrong(&self, found: String, right: &'static str) -> FormatError {
        wrong(self.line, found, right)
    }
}

/// The positions of the samples of a shard, according to its index.
///
/// The label is that of [`super::ranges`].
///
/// # Errors
///
/// [`FormatError::Index`] with line and value if the index is invalid, or not that of this shard;
/// the errors of [`super::ranges`] if a part of the shard that is read is damaged.
pub fn from_index(index: &[u8], object: &dyn ReadAt) -> Result<Vec<Range>, FormatError> {
    let entries = parse(index)?;
    let mut members = Members::new(object, 0, End::Anywhere);
    let mut samples = Samples::default();
    let mut end = 0;
    for (number, entry) in entries.iter().enumerate() {
        let member = member(entry, end, object.len(), &mut members)?;
        if is_near(object) || is_compared(number, entries.len()) {
            compare(entry, &member, &mut members)?;
        }
        end = member.end;
        // A line is a sample, independent of the names of its members.
        samples.add(&entry.line.to_le_bytes(), entry.extension.clone(), &member)?;
        if samples.wants_class() {
            samples.set_class(members.class(&member)?);
        }
    }
    Ok(samples.finish())
}

/// The member of an entry whose predecessor ends at `end`.
fn member(
    entry: &Entry<'_>,
    end: u64,
    object_len: u64,
    members: &mut Members<'_>,
) -> Result<Member, FormatError> {
    let header = entry.offset.checked_sub(BLOCK_BYTES);
    let header = header.filter(|header| *header >= end && header.is_multiple_of(BLOCK_BYTES));
    let header = header.ok_or_else(|| {
        let found = format!("an offset of {}, but the member before ends at {end}", entry.offset);
        entry.wrong(found, "offsets rise, and are multiples of 512 with a header before each")
    })?;
    let padded = entry.size.checked_next_multiple_of(BLOCK_BYTES);
    let member_end = padded.and_then(|len| entry.offset.checked_add(len));
    let member_end = member_end.filter(|end| *end <= object_len).ok_or_else(|| {
        let Entry { offset, size, .. } = entry;
        let found = format!("{size} bytes at {offset}, but the shard has {object_len}");
        entry.wrong(found, "write the index again, it is not that of this shard")
    })?;
    let start = if header == end { end } else { start_of(entry, end, members)? };
    let name = entry.name.unwrap_or_default().into();
    Ok(Member::from_index(start, entry.offset, entry.size, member_end, name))
}

/// The start of the headers of an entry, if there is more than one header between it and `end`.
fn start_of(entry: &Entry<'_>, end: u64, members: &mut Members<'_>) -> Result<u64, FormatError> {
    members.seek(end);
    while let Some(member) = members.next()? {
        if member.data == entry.offset {
            return Ok(member.start);
        }
        if member.end > entry.offset - BLOCK_BYTES {
            break;
        }
    }
    let found = format!("an offset of {}, where no member of the shard starts", entry.offset);
    Err(entry.wrong(found, "write the index again, it is not that of this shard"))
}

fn compare(
    entry: &Entry<'_>,
    expected: &Member,
    members: &mut Members<'_>,
) -> Result<(), FormatError> {
    members.seek(expected.start);
    let right = "write the index again, it is not that of this shard";
    let Some(found) = members.next()?.filter(|found| found.data == entry.offset) else {
        return Err(
            entry.wrong(format!("an offset of {}, where no member starts", entry.offset), right)
        );
    };
    if found.len != entry.size {
        let found = format!("a size of {}, but the member has {} bytes", entry.size, found.len);
        return Err(entry.wrong(found, right));
    }
    let Some(name) = entry.name else { return Ok(()) };
    // wds2idx writes the output of GNU tar, which escapes special characters.
    let comparable =
        found.plain_name && found.name.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'\\');
    if comparable && found.name != name.as_bytes() {
        let found =
            format!("the name {name}, but the member is called {}", found.name.escape_ascii());
        return Err(entry.wrong(found, right));
    }
    Ok(())
}

fn is_compared(number: usize, count: usize) -> bool {
    let step = count.div_ceil(COMPARED).max(1);
    number.is_multiple_of(step) || number + 1 == count
}

fn parse(index: &[u8]) -> Result<Vec<Entry<'_>>, FormatError> {
    let text = str::from_utf8(index).map_err(|error| {
        let line = index[..error.valid_up_to()].split(|byte| *byte == b'\n').count();
        wrong(line, "not UTF-8".into(), "an index that wds2idx writes is text")
    })?;
    let mut lines = text.lines().zip(1..);
    let right = "the first line must be `v1.2 N` or `v1.1 N`, with N samples";
    let (head, _) = lines.next().ok_or_else(|| wrong(1, "missing".into(), right))?;
    let (named, count) = head_line(head).ok_or_else(|| wrong(1, shown(head), right))?;
    let mut entries = Vec::new();
    let mut samples = 0_u64;
    for (line, number) in lines {
        entries_of(line, number, named, &mut entries)?;
        samples += 1;
    }
    if samples == count {
        return Ok(entries);
    }
    Err(wrong(1, format!("{count} samples, but {samples} lines follow"), "a line for each sample"))
}

/// Whether members have names, and the number of samples.
fn head_line(line: &str) -> Option<(Names, u64)> {
    let (version, count) = line.trim_end().split_once(' ')?;
    let names = match version {
        "v1.2" => Names::Given,
        "v1.1" => Names::Left,
        _ => return None,
    };
    Some((names, count.parse().ok()?))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Given,
    Left,
}

fn entries_of<'a>(
    line: &'a str,
    number: usize,
    names: Names,
    entries: &mut Vec<Entry<'a>>,
) -> Result<(), FormatError> {
    let right = match names {
        Names::Given => {
            "each sample is `extension offset size name` per member, without blanks in names"
        }
        Names::Left => "each sample is `extension offset size` per member",
    };
    let before = entries.len();
    let mut words = line.split_ascii_whitespace();
    while let Some(extension) = words.next() {
        let entry = (|| {
            let offset = words.next()?.parse().ok()?;
            let size = words.next()?.parse().ok()?;
            let name = if names == Names::Given { Some(words.next()?) } else { None };
            let extension = name::lower_case(extension.as_bytes());
            Some(Entry { line: number, extension, offset, size, name })
        })();
        entries.push(entry.ok_or_else(|| wrong(number, shown(line), right))?);
    }
    if entries.len() > before { Ok(()) } else { Err(wrong(number, "empty".into(), right)) }
}

fn shown(line: &str) -> String {
    format!("{:?}", line.chars().take(80).collect::<String>())
}

fn wrong(line: usize, found: String, right: &'static str) -> FormatError {
    FormatError::Index { place: format!("line {line}"), found, right }
}
