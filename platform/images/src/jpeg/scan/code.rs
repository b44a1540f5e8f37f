//! A Huffman code, as tables.

use super::{Block, Definition, ORDER, Unsound, bits::Cursor};

/// Codes of up to so many bits are found by one load. A longer code, such a code, and their values have
/// no more bits than one refill gives: (16 + 15) + (10 + 15) of 56.
const LOOKUP_BITS: u32 = 10;

/// A symbol and its code.
///
/// From the lowest bit on: bits of code and value together (8), bits of the value (8), how many places
/// it goes on (8), and the flags.
#[derive(Clone, Copy)]
struct Entry(u32);

impl Entry {
    /// The code is longer than the table knows, or no symbol's.
    const LONG: u32 = 1 << 31;
    /// Nothing follows in the block.
    const END: u32 = 1 << 30;

    fn new(symbol: u8, code_bits: u32) -> Self {
        let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
        // A run of 15 zeros before a value of no bits stands for 16 zeros.
        let end = if size == 0 && run != 15 { Self::END } else { 0 };
        Self((code_bits + size) | size << 8 | (run + 1) << 16 | end)
    }

    #[inline]
    fn is_plain(self) -> bool {
        self.0 < Self::END
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
        self.0 & 0xFF
    }

    #[inline]
    fn places(self) -> usize {
        (self.0 >> 16 & 0xFF) as usize
    }

    /// The value behind the code, from its first bit on.
    #[inline]
    fn value(self, cursor: &Cursor<'_>) -> i32 {
        let range = 1 << (self.0 >> 8 & 0xF);
        let bits = cursor.peek(self.bits()).cast_signed() & (range - 1);
        // Those of the lower half are negative.
        if bits < range >> 1 { bits + 1 - range } else { bits }
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

    #[cold]
    fn long(&self, cursor: &mut Cursor<'_>) -> Result<Entry, Unsound> {
        cursor.refill();
        let next = cursor.peek(16);
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
        self.lookup[cursor.peek(LOOKUP_BITS) as usize % (1 << LOOKUP_BITS)]
    }

    /// Reads how much the first coefficient of a block is above the last one.
    #[inline]
    pub(super) fn first(&self, cursor: &mut Cursor<'_>) -> Result<i32, Unsound> {
        cursor.refill();
        let mut entry = self.next(cursor);
        if entry.is_long() {
            entry = self.long(cursor)?;
        }
        let value = entry.value(cursor);
        cursor.pass(entry.bits());
        Ok(value)
    }

    /// Reads the other coefficients of a block.
    #[inline]
    pub(super) fn keep(&self, cursor: &mut Cursor<'_>, block: &mut Block) -> Result<(), Unsound> {
        self.each(cursor, |cursor, entry, place| {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "it has at most 15 bits and a sign"
            )]
            let value = entry.value(cursor) as i16;
            block[usize::from(ORDER[place % ORDER.len()]) % block.len()] = value;
        })
    }

    /// Passes the other coefficients of a block.
    #[inline]
    pub(super) fn pass(&self, cursor: &mut Cursor<'_>) -> Result<(), Unsound> {
        self.each(cursor, |_, _, _| {})
    }

    #[inline]
    fn each(
        &self,
        cursor: &mut Cursor<'_>,
        mut found: impl FnMut(&Cursor<'_>, Entry, usize),
    ) -> Result<(), Unsound> {
        let mut place = 0;
        loop {
            cursor.refill();
            for _ in 0..2 {
                let mut entry = self.next(cursor);
                if !entry.is_plain() {
                    if entry.is_long() {
                        entry = self.long(cursor)?;
                    }
                    if entry.is_end() {
                        cursor.pass(entry.bits());
                        return Ok(());
                    }
                }
                place += entry.places();
                found(cursor, entry, place);
                cursor.pass(entry.bits());
                if place >= 63 {
                    return Ok(());
                }
            }
        }
    }
}
