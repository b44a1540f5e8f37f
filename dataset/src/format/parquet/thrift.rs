//! Parses Thrift's compact protocol, the encoding of Parquet's footer.
//!
//! Every step consumes at least one byte, for elements of lists too. So the parser ends with the
//! bytes, independent of the claimed number of elements, and takes no memory for a claim.
//!
//! # Source
//!
//! `doc/specs/thrift-compact-protocol.md` of Apache Thrift.

/// Largest depth of nested structures; Parquet's own need eight.
const DEPTH_MAX: u32 = 32;

/// A position in bytes of the compact protocol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A field of a structure, before its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) id: i16,
    kind: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) at: usize,
}

pub(super) type Walked<T> = Result<T, Stop>;

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;
const UUID: u8 = 13;

impl<'a> Walk<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn stop(&self) -> Stop {
        Stop { at: self.at }
    }

    fn byte(&mut self) -> Walked<u8> {
        let byte = *self.bytes.get(self.at).ok_or(self.stop())?;
        self.at += 1;
        Ok(byte)
    }

    fn bytes(&mut self, len: u64) -> Walked<&'a [u8]> {
        let end = usize::try_from(len).ok().and_then(|len| self.at.checked_add(len));
        let found = end.and_then(|end| self.bytes.get(self.at..end)).ok_or(self.stop())?;
        self.at += found.len();
        Ok(found)
    }

    fn varint(&mut self) -> Walked<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                return Err(self.stop());
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.stop())
    }

    fn zigzag(&mut self) -> Walked<i64> {
        let number = self.varint()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    /// Calls `each` with every field of the structure that starts here; it must consume the field's
    /// value.
    pub(super) fn fields(
        &mut self,
        mut each: impl FnMut(&mut Self, Field) -> Walked<()>,
    ) -> Walked<()> {
        let mut last = 0_i16;
        while let Some(field) = self.field(last)? {
            last = field.id;
            each(self, field)?;
        }
        Ok(())
    }

    /// The next field of a structure, `None` at its end.
    fn field(&mut self, last: i16) -> Walked<Option<Field>> {
        let head = self.byte()?;
        let (delta, kind) = (i16::from(head >> 4), head & 0x0F);
        if head == 0 {
            return Ok(None);
        }
        if kind == 0 || kind > UUID {
            return Err(self.stop());
        }
        let id = match delta {
            0 => i16::try_from(self.zigzag()?).ok(),
            _ => last.checked_add(delta),
        };
        id.map(|id| Some(Field { id, kind })).ok_or(self.stop())
    }

    pub(super) fn number(&mut self, field: Field) -> Walked<i64> {
        match field.kind {
            I16 | I32 | I64 => self.zigzag(),
            _ => Err(self.stop()),
        }
    }

    pub(super) fn text(&mut self, field: Field) -> Walked<&'a str> {
        if field.kind == BINARY { self.element_text() } else { Err(self.stop()) }
    }

    /// The next element of a list, a text.
    pub(super) fn element_text(&mut self) -> Walked<&'a str> {
        let start = self.stop();
        let len = self.varint()?;
        std::str::from_utf8(self.bytes(len)?).map_err(|_| start)
    }

    /// Checks that the value of `field` is a structure, which [`fields`](Self::fields) reads.
    pub(super) fn structure(&self, field: Field) -> Walked<()> {
        if field.kind == STRUCT { Ok(()) } else { Err(self.stop()) }
    }

    /// The number of structures in the list that is the value of `field`.
    pub(super) fn structures(&mut self, field: Field) -> Walked<usize> {
        self.list_of(STRUCT, field)
    }

    /// The number of texts in the list that is the value of `field`.
    pub(super) fn texts(&mut self, field: Field) -> Walked<usize> {
        self.list_of(BINARY, field)
    }

    fn list_of(&mut self, wanted: u8, field: Field) -> Walked<usize> {
        if field.kind != LIST {
            return Err(self.stop());
        }
        let (kind, len) = self.list()?;
        if kind == wanted || len == 0 { Ok(len) } else { Err(self.stop()) }
    }

    /// The type of a list's elements, and their number.
    fn list(&mut self) -> Walked<(u8, usize)> {
        let head = self.byte()?;
        let len = match head >> 4 {
            15 => self.varint()?,
            short => u64::from(short),
        };
        Ok((head & 0x0F, usize::try_from(len).map_err(|_| self.stop())?))
    }

    pub(super) fn skip(&mut self, field: Field) -> Walked<()> {
        match field.kind {
            TRUE | FALSE => Ok(()),
            kind => self.skip_value(kind, DEPTH_MAX),
        }
    }

    fn skip_value(&mut self, kind: u8, depth: u32) -> Walked<()> {
        let depth = depth.checked_sub(1).ok_or(self.stop())?;
        match kind {
            TRUE | FALSE | BYTE => self.byte().map(drop),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.bytes(8).map(drop),
            UUID => self.bytes(16).map(drop),
            BINARY => {
                let len = self.varint()?;
                self.bytes(len).map(drop)
            }
            LIST | SET => {
                let (kind, len) = self.list()?;
                (0..len).try_for_each(|_| self.skip_value(kind, depth))
            }
            MAP => self.skip_map(depth),
            STRUCT => self.fields(|walk, field| match field.kind {
                TRUE | FALSE => Ok(()),
                kind => walk.skip_value(kind, depth),
            }),
            _ => Err(self.stop()),
        }
    }

    fn skip_map(&mut self, depth: u32) -> Walked<()> {
        let len = self.varint()?;
        if len == 0 {
            return Ok(());
        }
        let kinds = self.byte()?;
        for _ in 0..len {
            self.skip_value(kinds >> 4, depth)?;
            self.skip_value(kinds & 0x0F, depth)?;
        }
        Ok(())
    }
}
