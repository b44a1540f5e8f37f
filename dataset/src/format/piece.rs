//! Reads bounded parts of an object, and the little-endian numbers in them.
//!
//! A length that an object claims is compared with the object's length, and with a limit of the
//! format, before memory is taken for it.

use std::io;

use super::{FormatError, Range, ReadAt};

/// Checks that `len` bytes at `at` lie within the object, and returns their end.
pub(super) fn end_of(
    object: &dyn ReadAt,
    what: &'static str,
    at: u64,
    len: u64,
) -> Result<u64, FormatError> {
    let needed = at.saturating_add(len);
    let found = object.len();
    if needed > found {
        return Err(FormatError::Truncated { what, at, needed, found });
    }
    Ok(needed)
}

pub(super) fn read(
    object: &dyn ReadAt,
    what: &'static str,
    at: u64,
    len: u64,
    most: u32,
) -> Result<Vec<u8>, FormatError> {
    end_of(object, what, at, len)?;
    let taken = u32::try_from(len).ok().filter(|&len| len <= most);
    let Some(len) = taken.and_then(|len| usize::try_from(len).ok()) else {
        let found = format!("{len} bytes long");
        return Err(malformed(what, at, found, "no writer makes one of that size"));
    };
    let mut bytes = vec![0; len];
    object.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

pub(super) fn read_array<const N: usize>(
    object: &dyn ReadAt,
    what: &'static str,
    at: u64,
) -> Result<[u8; N], FormatError> {
    end_of(object, what, at, N as u64)?;
    let mut bytes = [0; N];
    object.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

/// An object with one part read ahead: in a bucket every read is a request.
pub(super) struct Window<'a> {
    object: &'a dyn ReadAt,
    part: Vec<u8>,
    at: u64,
}

impl<'a> Window<'a> {
    pub(super) fn head(object: &'a dyn ReadAt, most: u32) -> Result<Self, FormatError> {
        let len = object.len().min(u64::from(most));
        Ok(Self { object, part: read(object, "the start", 0, len, most)?, at: 0 })
    }

    pub(super) fn tail(object: &'a dyn ReadAt, most: u32) -> Result<Self, FormatError> {
        let len = object.len().min(u64::from(most));
        let at = object.len() - len;
        Ok(Self { object, part: read(object, "the end", at, len, most)?, at })
    }
}

impl ReadAt for Window<'_> {
    fn len(&self) -> u64 {
        self.object.len()
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let start = offset.checked_sub(self.at).and_then(|start| usize::try_from(start).ok());
        let found = start.and_then(|start| self.part.get(start..start.checked_add(into.len())?));
        match found {
            Some(found) => into.copy_from_slice(found),
            None => self.object.read_exact_at(into, offset)?,
        }
        Ok(())
    }
}

pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

pub(super) fn malformed(
    what: &'static str,
    at: u64,
    found: impl Into<String>,
    right: &'static str,
) -> FormatError {
    FormatError::Malformed { what, at, found: found.into(), right }
}

pub(super) fn expect_checksum(
    what: &'static str,
    at: u64,
    found: u32,
    computed: u32,
) -> Result<(), FormatError> {
    if found == computed {
        return Ok(());
    }
    Err(FormatError::Checksum { what, at, found, computed })
}

/// Refuses ranges that share a byte; those without bytes share none.
pub(super) fn refuse_overlap<'a>(
    what: &'static str,
    ranges: impl IntoIterator<Item = &'a Range>,
) -> Result<(), FormatError> {
    let mut spans: Vec<(u64, u64)> = ranges
        .into_iter()
        .filter(|range| range.len > 0)
        .map(|range| (range.offset, range.offset.saturating_add(range.len)))
        .collect();
    spans.sort_unstable();
    match spans.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        None => Ok(()),
        Some(pair) => {
            let found = format!("inside another one, which ends at byte {}", pair[0].1);
            Err(malformed(what, pair[1].0, found, "no two may share a byte"))
        }
    }
}

pub(super) fn some_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 8;
    let mut names = names.into_iter();
    let shown: Vec<String> =
        names.by_ref().take(SHOWN).map(|name| format!("`{}`", name.escape_debug())).collect();
    match (shown.is_empty(), names.count()) {
        (true, _) => "none".to_owned(),
        (false, 0) => shown.join(", "),
        (false, rest) => format!("{} and {rest} more", shown.join(", ")),
    }
}
