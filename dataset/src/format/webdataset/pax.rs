//! Reads the records of a PAX extension header.
//!
//! A record is `length keyword=value\n`, where the length counts all of it, in decimal. It is
//! parsed by that length and not by lines, as a value may have line breaks.

use std::str;

use super::FormatError;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) sparse: bool,
}

/// Parses `records`, which start at byte `at` of the object.
pub(super) fn parse(mut records: &[u8], at: u64) -> Result<Pax, FormatError> {
    let mut pax = Pax::default();
    // Some writers pad with zeros.
    while records.first().is_some_and(|byte| *byte != 0) {
        let (keyword, value, rest) = record(records).ok_or_else(|| malformed(at, records))?;
        match keyword {
            // Like Python's tarfile: slashes at the end are not part of the name.
            b"path" => pax.path = Some(without_slashes(value).to_vec()),
            b"size" => pax.size = Some(decimal(value).ok_or_else(|| malformed(at, records))?),
            _ => pax.sparse |= keyword.starts_with(b"GNU.sparse."),
        }
        records = rest;
    }
    Ok(pax)
}

/// Keyword and value of the first record, and the following bytes.
fn record(records: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let digits = records.iter().position(|byte| *byte == b' ')?;
    let len = usize::try_from(decimal(&records[..digits])?).ok()?;
    let (record, rest) = records.split_at_checked(len)?;
    let record = record.get(digits + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some((&record[..equals], &record[equals + 1..], rest))
}

fn without_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    &path[..end]
}

/// Parses digits only: `str::parse` would accept a sign.
fn decimal(digits: &[u8]) -> Option<u64> {
    let only_digits = digits.iter().all(u8::is_ascii_digit);
    str::from_utf8(digits).ok().filter(|_| only_digits)?.parse().ok()
}

fn malformed(at: u64, records: &[u8]) -> FormatError {
    FormatError::Malformed {
        what: "a PAX header",
        at,
        found: format!(
            "broken from {:?} on",
            records[..records.len().min(40)].escape_ascii().to_string()
        ),
        right: "its records are `length keyword=value` and a line break",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_by_their_lengths() {
        let records = b"21 SCHILY.xattr.a=\n\n\n10 path=\xff\n13 path=a\n//\n15 size=123456\n\0\0";
        let expected = Pax { path: Some(b"a\n".to_vec()), size: Some(123_456), sparse: false };
        assert_eq!(parse(records, 0).unwrap(), expected);
        assert!(parse(b"22 GNU.sparse.major=1\n", 0).unwrap().sparse);
    }

    #[test]
    fn broken_records_are_refused() {
        let cases: [&[u8]; 11] = [
            b"path=a\n",
            b"8 path=a\n",
            b"11 path=a\n",
            b"10 path=a ",
            b"10 path a\n",
            b"0 path=a\n",
            b"2 path=a\n",
            b"+10 path=a\n",
            b" path=a\n",
            b"99999999999999999999 path=a\n",
            b"11 size=-1\n",
        ];
        for records in cases {
            assert!(parse(records, 0).is_err(), "{}", records.escape_ascii());
        }
        assert!(parse(b"10 path=a\n", 0).is_ok());
    }
}
