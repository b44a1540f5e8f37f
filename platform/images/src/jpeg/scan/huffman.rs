//! A Huffman table in the form that decodes quickly, which libjpeg calls a derived table.

use super::{Block, HuffmanTable, Unsound, ZIGZAG, bits::Cursor};

/// Codes of up to so many bits are found by one load. Two of them with their values, and the bits of
/// one more, are in one window: 2 x (10 + 15) + 10 of 64.
const LOOKUP_BITS: u32 = 10;

/// A symbol and its code.
///
/// Four bytes, from the lowest on:
///
/// 0. bits of code and value together;
/// 1. bits of the code;
/// 2. by how much 64 bits are shifted to leave those of the value: 64 less its bits, or 0 if it has none;
/// 3. how many coefficients it goes on by, and the flags.
#[derive(Clone, Copy)]
struct Entry(u32);

impl Entry {
    /// The code is longer than [`LOOKUP_BITS`], or no symbol has it.
    const LONG: u32 = 1 << 31;
    /// End of block (EOB): the coefficients that remain are 0.
    const END: u32 = 1 << 30;
    /// Sixteen zeros (ZRL), and no value.
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

    /// Whether the code is short and has a value.
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

/// A Huffman table, made ready for decoding.
pub(super) struct DerivedTable {
    table: Option<HuffmanTable>,
    lookup: Box<[Entry; 1 << LOOKUP_BITS]>,
    /// At index `n`, the smallest number of 16 bits that does not begin with a code of `n` bits or fewer.
    limits: [u32; 17],
    /// At index `n`, what to add to a code of `n` bits to get the index of its symbol.
    offsets: [u32; 17],
}

impl Default for DerivedTable {
    fn default() -> Self {
        let lookup = vec![Entry(Entry::LONG); 1 << LOOKUP_BITS].into_boxed_slice();
        Self {
            table: None,
            lookup: lookup.try_into().unwrap_or_else(|_| unreachable!("its length is the type's")),
            limits: [0; 17],
            offsets: [0; 17],
        }
    }
}

impl DerivedTable {
    /// Sets the table. Most images have the same one, for which nothing is done again.
    pub(super) fn set(&mut self, table: &HuffmanTable) -> Result<(), Unsound> {
        if self.table.as_ref() == Some(table) {
            return Ok(());
        }
        self.table = None;
        self.lookup.fill(Entry(Entry::LONG));
        let (mut code, mut place) = (0u32, 0u32);
        for bits in 1..=16 {
            self.offsets[bits as usize] = place.wrapping_sub(code);
            for _ in 0..table.counts[bits as usize] {
                let symbol = *table.symbols.get(place as usize).ok_or(Unsound)?;
                if bits <= LOOKUP_BITS {
                    let spread = LOOKUP_BITS - bits;
                    let range = (code << spread) as usize..((code + 1) << spread) as usize;
                    self.lookup.get_mut(range).ok_or(Unsound)?.fill(Entry::new(symbol, bits));
                }
                code += 1;
                place += 1;
            }
            // A code of ones alone is none.
            if table.counts[bits as usize] > 0 && code >= 1 << bits {
                return Err(Unsound);
            }
            self.limits[bits as usize] = code << (16 - bits);
            code <<= 1;
        }
        self.table = Some(table.clone());
        Ok(())
    }

    /// The entry of a long code.
    #[cold]
    fn long(&self, next: u64) -> Result<Entry, Unsound> {
        let next = (next >> 48) as u32;
        let longer = LOOKUP_BITS + 1..=16;
        let bits = longer.into_iter().find(|it| next < self.limits[*it as usize]).ok_or(Unsound)?;
        let place = (next >> (16 - bits)).wrapping_add(self.offsets[bits as usize]);
        let table = self.table.as_ref().ok_or(Unsound)?;
        let symbol = table.symbols.get(place as usize).ok_or(Unsound)?;
        Ok(Entry::new(*symbol, bits))
    }

    /// The entry of the next bits.
    #[inline]
    fn next(&self, cursor: &Cursor<'_>) -> Entry {
        let place = (cursor.next() >> (64 - LOOKUP_BITS)) as usize;
        self.lookup[place]
    }

    /// Reads the difference of a DC coefficient to the one of the last block.
    #[inline]
    pub(super) fn dc_difference(&self, cursor: &mut Cursor<'_>) -> Result<i32, Unsound> {
        cursor.refill();
        let mut entry = self.next(cursor);
        if entry.is_long() {
            entry = self.long(cursor.next())?;
        }
        // The code of a difference of 0 has no value behind it.
        let value = if entry.has_value() { i32::from(entry.value(cursor.next())) } else { 0 };
        cursor.skip(entry.bits());
        Ok(value)
    }

    /// Reads the AC coefficients of a block.
    #[inline]
    pub(super) fn decode_ac(
        &self,
        cursor: &mut Cursor<'_>,
        block: &mut Block,
    ) -> Result<(), Unsound> {
        self.each(cursor, |next, entry, place| {
            block[usize::from(ZIGZAG[place % ZIGZAG.len()]) % block.len()] = entry.value(next);
        })
    }

    /// Skips the AC coefficients of a block.
    #[inline]
    pub(super) fn skip_ac(&self, cursor: &mut Cursor<'_>) -> Result<(), Unsound> {
        self.each(cursor, |_, _, _| {})
    }

    /// Calls `found` with each entry that has a value, the bits that begin with its code, and the number
    /// of its coefficient in the scan.
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
                // This overlaps with the load of the entry, which takes the longest.
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
                        cursor.skip(entry.bits());
                        break 'symbols;
                    }
                }
                place += entry.places();
                if is_plain || entry.has_value() {
                    found(cursor.next(), entry, place);
                }
                cursor.skip(entry.bits());
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

#[cfg(test)]
mod tests {
    use super::{super::bits::Bits, *};

    /// One symbol for each length of a code: a code of `n` bits is `n - 1` ones and a zero, and its symbol
    /// is of a value of `n - 1` bits.
    fn unary() -> HuffmanTable {
        let mut table = HuffmanTable { counts: [1; 17], symbols: [0; 256] };
        table.counts[0] = 0;
        (0..16).for_each(|symbol| table.symbols[usize::from(symbol)] = symbol);
        table
    }

    fn derived(table: &HuffmanTable) -> Result<DerivedTable, Unsound> {
        let mut derived = DerivedTable::default();
        derived.set(table).map(|()| derived)
    }

    /// The difference that 64 bits begin with.
    fn difference(table: &DerivedTable, bits: u64) -> Result<i32, Unsound> {
        let stuffed = bits
            .to_be_bytes()
            .into_iter()
            .flat_map(|byte| [byte, 0].into_iter().take(1 + usize::from(byte == 0xFF)));
        let mut reader = Bits::default();
        reader.fill(&stuffed.collect::<Vec<_>>());
        table.dc_difference(&mut reader.cursor())
    }

    #[test]
    fn codes_of_each_length_have_their_symbol_and_value() {
        let table = derived(&unary()).expect("a sound table");
        for size in 0..16 {
            let code = !(u64::MAX >> size);
            let largest = (1 << size) - 1;
            let ones = ((1_u64 << size) - 1) << (63 - 2 * size);
            assert_eq!(difference(&table, code | ones), Ok(largest), "{size} bits");
            assert_eq!(difference(&table, code), Ok(-largest), "{size} bits");
        }
        assert_eq!(difference(&table, u64::MAX), Err(Unsound));
    }

    #[test]
    fn tables_that_are_no_prefix_code_are_unsound() {
        let changed = |bits: usize, count| {
            let mut table = unary();
            table.counts[bits] = count;
            derived(&table).map(|_| ())
        };
        assert_eq!(changed(1, 1), Ok(()));
        assert_eq!(changed(1, 2), Err(Unsound), "its last code has ones only");
        assert_eq!(changed(1, 3), Err(Unsound), "there are two codes of one bit");
        assert_eq!(changed(16, 2), Err(Unsound), "its last code has ones only");
        let mut table = HuffmanTable { counts: [0; 17], symbols: [0; 256] };
        (table.counts[15], table.counts[16]) = (255, 2);
        assert_eq!(derived(&table).map(|_| ()), Err(Unsound), "there are 256 symbols");
    }
}
