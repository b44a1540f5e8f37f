//! A Huffman code, as tables.

use super::{Block, Definition, ORDER, Unsound, bits::Cursor};

/// Codes of up to so many bits are found by one load. Two of them with their values, and the bits of
/// one more, are in one window: 2 x (10 + 15) + 10 of 64.
const LOOKUP_BITS: u32 = 10;

/// A symbol and its code.
///
/// Four bytes, from the lowest on: bits of code and value together, bits of the code, how far the value
/// is from the highest bits (64 less its bits, or 0 if it has none), and places that it goes on, with the
/// flags. The first three are amounts by which 64 bits are shifted.
#[derive(Clone, Copy)]
struct Entry(u32);

impl Entry {
    /// The code is longer than the table knows, or no symbol's.
    const LONG: u32 = 1 << 31;
    /// Nothing follows in the block.
    const END: u32 = 1 << 30;
    /// Zeros, and no value.
    const ZEROS: u32 = 1 << 29;

    fn new(symbol: u8, code_bits: u32) -> Self {
        let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
        let flags = match (run, size) {
            (15, 0) => Self::ZEROS,
            (_, 0) => Self::END,
            _ => 0,
        };
        Self(
            (code_bits + size)
                | code_bits << 8
                | ((64 - size) % 64) << 16
                | (run + 1) << 24
                | flags,
        )
    }

    #[inline]
    fn has_value(self) -> bool {
        self.0 & (Self::END | Self::ZEROS) == 0
    }

    /// Whether it is found at once, and has a value.
    #[inline]
    fn is_plain(self) -> bool {
        self.0 < Self::ZEROS
    }

    #[inline]
    fn is_end(self) -> bool {
        self.0 & Self::END != 0
    }

    #[inline]
    fn is_long(self) -> bool {
        self.0 >= Self::LONG
    }

    #[inline]
    fn bits(self) -> u32 {
        self.0 & 0x3F
    }

    #[inline]
    fn places(self) -> usize {
        (self.0 >> 24 & 0x1F) as usize
    }

    /// The value behind the code, where it has one.
    #[inline]
    fn value(self, next: u64) -> i16 {
        let behind = next.wrapping_shl(self.0 >> 8);
        // Values that begin with 0 are negative, and have the complement of their bits.
        let flips = (behind >> 63).wrapping_sub(1);
        let bits = (behind ^ flips).wrapping_shr(self.0 >> 16);
        #[expect(clippy::cast_possible_truncation, reason = "it has at most 15 bits and a sign")]
        let value = (bits ^ flips).wrapping_sub(flips) as i16;
        value
    }
}

/// A code, made ready for decoding.
pub(super) struct Code {
    definition: Option<Definition>,
    lookup: Box<[Entry; 1 << LOOKUP_BITS]>,
    /// By the number of bits, the first of the numbers of 16 bits that begins with a longer code.
    limits: [u32; 17],
    /// By the number of bits, what to add to a code for the place of its symbol.
    offsets: [u32; 17],
}

impl Default for Code {
    fn default() -> Self {
        let lookup = vec![Entry(Entry::LONG); 1 << LOOKUP_BITS].into_boxed_slice();
        Self {
            definition: None,
            lookup: lookup.try_into().unwrap_or_else(|_| unreachable!("its length is the type's")),
            limits: [0; 17],
            offsets: [0; 17],
        }
    }
}

impl Code {
    /// Takes a definition, for which most images have the same one.
    pub(super) fn define(&mut self, definition: &Definition) -> Result<(), Unsound> {
        if self.definition.as_ref() == Some(definition) {
            return Ok(());
        }
        self.definition = None;
        self.lookup.fill(Entry(Entry::LONG));
        let (mut code, mut place) = (0u32, 0u32);
        for bits in 1..=16 {
            self.offsets[bits as usize] = place.wrapping_sub(code);
            for _ in 0..definition.counts[bits as usize] {
                let symbol = *definition.symbols.get(place as usize).ok_or(Unsound)?;
                if bits <= LOOKUP_BITS {
                    let spread = LOOKUP_BITS - bits;
                    let range = (code << spread) as usize..((code + 1) << spread) as usize;
                    self.lookup.get_mut(range).ok_or(Unsound)?.fill(Entry::new(symbol, bits));
                }
                code += 1;
                place += 1;
            }
            // A code of ones alone is none.
            if definition.counts[bits as usize] > 0 && code >= 1 << bits {
                return Err(Unsound);
            }
            self.limits[bits as usize] = code << (16 - bits);
            code <<= 1;
        }
        self.definition = Some(definition.clone());
        Ok(())
    }

    /// The entry of a long code.
    #[cold]
    fn long(&self, next: u64) -> Result<Entry, Unsound> {
        let next = (next >> 48) as u32;
        let longer = LOOKUP_BITS + 1..=16;
        let bits = longer.into_iter().find(|it| next < self.limits[*it as usize]).ok_or(Unsound)?;
        let place = (next >> (16 - bits)).wrapping_add(self.offsets[bits as usize]);
        let definition = self.definition.as_ref().ok_or(Unsound)?;
        let symbol = definition.symbols.get(place as usize).ok_or(Unsound)?;
        Ok(Entry::new(*symbol, bits))
    }

    /// The entry of the bits that come next.
    #[inline]
    fn next(&self, cursor: &Cursor<'_>) -> Entry {
        let place = (cursor.next() >> (64 - LOOKUP_BITS)) as usize;
        self.lookup[place]
    }

    /// Reads how much the first coefficient of a block is above the last one.
    #[inline]
    pub(super) fn first(&self, cursor: &mut Cursor<'_>) -> Result<i32, Unsound> {
        cursor.refill();
        let mut entry = self.next(cursor);
        if entry.is_long() {
            entry = self.long(cursor.next())?;
        }
        // The code of a difference of 0 has no value behind it.
        let value = if entry.has_value() { i32::from(entry.value(cursor.next())) } else { 0 };
        cursor.pass(entry.bits());
        Ok(value)
    }

    /// Reads the other coefficients of a block.
    #[inline]
    pub(super) fn keep(&self, cursor: &mut Cursor<'_>, block: &mut Block) -> Result<(), Unsound> {
        self.each(cursor, |next, entry, place| {
            block[usize::from(ORDER[place % ORDER.len()]) % block.len()] = entry.value(next);
        })
    }

    /// Passes the other coefficients of a block.
    #[inline]
    pub(super) fn pass(&self, cursor: &mut Cursor<'_>) -> Result<(), Unsound> {
        self.each(cursor, |_, _, _| {})
    }

    /// Calls `found` with each entry, the bits that begin with its code, and its place.
    #[inline]
    fn each(
        &self,
        cursor: &mut Cursor<'_>,
        mut found: impl FnMut(u64, Entry, usize),
    ) -> Result<(), Unsound> {
        let mut place = 0;
        cursor.refill();
        'symbols: while place < 63 {
            for refills in [false, true] {
                let mut entry = self.next(cursor);
                // While the entry is loaded, which takes the most time of all.
                if refills {
                    cursor.refill();
                }
                let is_plain = entry.is_plain();
                if !is_plain {
                    cursor.refill();
                    if entry.is_long() {
                        entry = self.long(cursor.next())?;
                    }
                    if entry.is_end() {
                        cursor.pass(entry.bits());
                        break 'symbols;
                    }
                }
                place += entry.places();
                if is_plain || entry.has_value() {
                    found(cursor.next(), entry, place);
                }
                cursor.pass(entry.bits());
                if !is_plain {
                    cursor.refill();
                    continue 'symbols;
                }
                if place >= 63 {
                    break 'symbols;
                }
            }
        }
        Ok(())
    }
}
