//! Reads tables of `FlatBuffers`, the encoding of Arrow's metadata.
//!
//! Every offset is checked when it is used, so nothing unchecked is trusted, and no more is read
//! than is needed.
//!
//! # Source
//!
//! `docs/source/internals.md` of `FlatBuffers`.

use crate::format::piece::{array, u16_at, u32_at};

/// A table: fields by number, each of which may be absent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The offsets of the fields, two bytes each.
    offsets: &'a [u8],
}

/// A vector, before its elements are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vector<'a> {
    /// From the first element to the end of the buffer.
    elements: &'a [u8],
    len: usize,
}

impl<'a> Table<'a> {
    pub(super) fn root(bytes: &'a [u8]) -> Option<Self> {
        Self::new(bytes, follow(bytes, 0)?)
    }

    fn new(bytes: &'a [u8], at: usize) -> Option<Self> {
        let back = i32::from_le_bytes(array(bytes, at)?);
        let start = i64::try_from(at).ok()?.checked_sub(i64::from(back))?;
        let start = usize::try_from(start).ok()?;
        let len = usize::from(u16_at(bytes, start)?);
        let offsets = bytes.get(start..start.checked_add(len)?)?.get(4..)?;
        Some(Self { bytes, at, offsets })
    }

    /// The offset of the value of field `number`, `None` if it is absent.
    fn place(&self, number: usize) -> Option<usize> {
        let offset = u16_at(self.offsets, number * 2).filter(|&offset| offset != 0)?;
        self.at.checked_add(usize::from(offset))
    }

    /// The `N` bytes of field `number`, or `absent` if it is absent.
    pub(super) fn scalar<const N: usize>(&self, number: usize, absent: [u8; N]) -> Option<[u8; N]> {
        match self.place(number) {
            None => Some(absent),
            Some(place) => array(self.bytes, place),
        }
    }

    pub(super) fn table(&self, number: usize) -> Option<Self> {
        Self::new(self.bytes, follow(self.bytes, self.place(number)?)?)
    }

    pub(super) fn buffer_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn has(&self, number: usize) -> bool {
        self.place(number).is_some()
    }

    /// The text that field `number` refers to, empty if absent.
    pub(super) fn text(&self, number: usize) -> Option<&'a [u8]> {
        Some(self.vector(number, 1)?.elements)
    }

    /// The tables that the vector of field `number` refers to, none if absent.
    pub(super) fn tables(&self, number: usize) -> Option<Vec<Self>> {
        let Some(place) = self.place(number) else { return Some(Vec::new()) };
        let vector = self.vector(number, 4)?;
        let first = follow(self.bytes, place)?.checked_add(4)?;
        let table = |index: usize| {
            Self::new(self.bytes, follow(self.bytes, first.checked_add(index * 4)?)?)
        };
        (0..vector.len).map(table).collect()
    }

    /// The vector of elements of `element_bytes` that field `number` refers to, empty if absent.
    pub(super) fn vector(&self, number: usize, element_bytes: usize) -> Option<Vector<'a>> {
        let Some(place) = self.place(number) else {
            return Some(Vector { elements: &[], len: 0 });
        };
        let at = follow(self.bytes, place)?;
        let len = usize::try_from(u32_at(self.bytes, at)?).ok()?;
        let end = at.checked_add(4)?.checked_add(len.checked_mul(element_bytes)?)?;
        Some(Vector { elements: self.bytes.get(at + 4..end)?, len })
    }
}

impl<'a> Vector<'a> {
    /// The elements, of `N` bytes each, the size that [`Table::vector`] was given.
    pub(super) fn elements<const N: usize>(self) -> impl Iterator<Item = &'a [u8; N]> {
        let (elements, rest) = self.elements.as_chunks::<N>();
        assert!(rest.is_empty() && elements.len() == self.len, "the element size is the same");
        elements.iter()
    }
}

fn follow(bytes: &[u8], at: usize) -> Option<usize> {
    let offset = usize::try_from(u32_at(bytes, at)?).ok()?;
    at.checked_add(offset)
}
