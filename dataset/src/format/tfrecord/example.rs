//! Reads a `tf.train.Example` as protocol buffers encode it.
//!
//! Like the library of protocol buffers it takes parts of a message that comes several times together, and
//! the last of several features of one name. Source: `tensorflow/core/example/{example,feature}.proto`.

use std::collections::BTreeMap;

use crate::format::FormatError;

#[derive(Debug, Clone, PartialEq)]
pub enum Feature<'a> {
    Bytes(Vec<&'a [u8]>),
    Integers(Vec<i64>),
    Floats(Vec<f32>),
}

/// The features of a record, in the order of their names.
///
/// # Errors
///
/// [`FormatError::Malformed`] if the record is no `tf.train.Example`.
pub fn features(record: &[u8]) -> Result<Vec<(String, Feature<'_>)>, FormatError> {
    let mut found = BTreeMap::new();
    for field in Message::new(record, record) {
        if let (1, Wire::Bytes(features)) = field? {
            for entry in Message::new(record, features) {
                if let (1, Wire::Bytes(entry)) = entry? {
                    let (name, feature) = feature(record, entry)?;
                    found.insert(name, feature);
                }
            }
        }
    }
    Ok(found.into_iter().collect())
}

fn feature<'a>(record: &'a [u8], entry: &'a [u8]) -> Result<(String, Feature<'a>), FormatError> {
    let (mut name, mut value) = (String::new(), Feature::Bytes(Vec::new()));
    for field in Message::new(record, entry) {
        match field? {
            (1, Wire::Bytes(key)) => name = String::from_utf8_lossy(key).into_owned(),
            (2, Wire::Bytes(feature)) => {
                for list in Message::new(record, feature) {
                    let (number, Wire::Bytes(list)) = list? else { continue };
                    add(record, number, list, &mut value)?;
                }
            }
            _ => (),
        }
    }
    Ok((name, value))
}

/// Adds what is in a list of one of the three types. Another type replaces what was there.
fn add<'a>(
    record: &'a [u8],
    number: u64,
    list: &'a [u8],
    value: &mut Feature<'a>,
) -> Result<(), FormatError> {
    let is_same = matches!(
        (number, &value),
        (1, Feature::Bytes(_)) | (2, Feature::Floats(_)) | (3, Feature::Integers(_))
    );
    if !is_same {
        *value = match number {
            1 => Feature::Bytes(Vec::new()),
            2 => Feature::Floats(Vec::new()),
            3 => Feature::Integers(Vec::new()),
            _ => return Ok(()),
        };
    }
    for item in Message::new(record, list) {
        match (&mut *value, item?) {
            (Feature::Bytes(pieces), (1, Wire::Bytes(piece))) => pieces.push(piece),
            (Feature::Floats(floats), (1, Wire::Bytes(packed))) => {
                let (chunks, rest) = packed.as_chunks::<4>();
                if !rest.is_empty() {
                    return Err(malformed(record, packed, "a list of floats with a part of one"));
                }
                floats.extend(chunks.iter().map(|it| f32::from_le_bytes(*it)));
            }
            (Feature::Floats(floats), (1, Wire::Word32(word))) => floats.push(f32::from_bits(word)),
            (Feature::Integers(integers), (1, Wire::Bytes(packed))) => {
                let mut rest = packed;
                while !rest.is_empty() {
                    let integer = varint(record, &mut rest)?;
                    integers.push(integer.cast_signed());
                }
            }
            (Feature::Integers(integers), (1, Wire::Varint(integer))) => {
                integers.push(integer.cast_signed());
            }
            _ => (),
        }
    }
    Ok(())
}

/// A field of a message, by the four wire types that are in use.
enum Wire<'a> {
    Varint(u64),
    Word64,
    Bytes(&'a [u8]),
    Word32(u32),
}

struct Message<'a> {
    record: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Message<'a> {
    fn new(record: &'a [u8], message: &'a [u8]) -> Self {
        Self { record, rest: message }
    }

    fn field(&mut self) -> Result<(u64, Wire<'a>), FormatError> {
        let tag = varint(self.record, &mut self.rest)?;
        let wire = match tag & 7 {
            0 => Wire::Varint(varint(self.record, &mut self.rest)?),
            1 => self.take(8).map(|_| Wire::Word64)?,
            2 => {
                let len = varint(self.record, &mut self.rest)?;
                Wire::Bytes(self.take(len)?)
            }
            5 => {
                let word = self.take(4)?.first_chunk().expect("4 bytes were taken");
                Wire::Word32(u32::from_le_bytes(*word))
            }
            _ => return Err(malformed(self.record, self.rest, "a field of no known type")),
        };
        Ok((tag >> 3, wire))
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], FormatError> {
        let taken = usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len));
        let (taken, rest) = taken.ok_or_else(|| {
            malformed(self.record, self.rest, "a field that is longer than its message")
        })?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Message<'a> {
    type Item = Result<(u64, Wire<'a>), FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// A number of 7 bits a byte, the lowest first.
fn varint(record: &[u8], rest: &mut &[u8]) -> Result<u64, FormatError> {
    let mut number = 0;
    for at in 0..10 {
        let Some((byte, behind)) = rest.split_first() else {
            return Err(malformed(record, rest, "a number that is cut off"));
        };
        *rest = behind;
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(malformed(record, rest, "a number of more than 64 bits"))
}

fn malformed(record: &[u8], rest: &[u8], found: &str) -> FormatError {
    let at = rest.as_ptr().addr().saturating_sub(record.as_ptr().addr());
    FormatError::Malformed {
        what: "the record",
        at: at as u64,
        found: found.to_owned(),
        right: "a serialised tf.train.Example is right",
    }
}
