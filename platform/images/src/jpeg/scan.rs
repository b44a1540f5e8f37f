//! Decodes the Huffman codes of a baseline scan, one MCU after another.
//!
//! Most of the time of decoding a JPEG image goes into these codes. This code is quicker than the
//! library's, and skips the blocks that no pixel of the region needs. It knows sound scans only: where
//! data ends early, no symbol has a code, or a restart marker is not the one that is due, it gives up,
//! and the library decodes the image from its beginning. So what becomes of damage is decided in one
//! place.
//!
//! 1. Of a scan for which it does not give up, its coefficients are those of libjpeg.
//! 2. For any bytes it reads and writes in bounds, and ends.

mod bits;
mod huffman;

use bits::Bits;
use huffman::DerivedTable;

/// The coefficients of a block, row by row.
pub(super) type Block = [i16; 64];

/// The library accepts no more blocks of an MCU.
pub(super) const BLOCKS_MAX: usize = 10;
const COMPONENTS_MAX: usize = 4;
const TABLES_MAX: u32 = 4;

/// Where in a block the coefficient stands whose number in the scan this is. A sound scan has 64 of a
/// block; further ones are written to the last place, as the library does.
///
/// **Source**: ITU-T T.81, figure A.6.
const ZIGZAG: [u8; 128] = {
    let mut order = [63; 128];
    let (mut row, mut column) = (0, 0);
    let mut place = 0;
    while place < 64 {
        order[place] = row * 8 + column;
        place += 1;
        // Up and to the right on even diagonals, down and to the left on odd ones.
        if (row + column) % 2 == 0 {
            match (row, column) {
                (_, 7) => row += 1,
                (0, _) => column += 1,
                _ => (row, column) = (row - 1, column + 1),
            }
        } else {
            match (row, column) {
                (7, _) => column += 1,
                (_, 0) => row += 1,
                _ => (row, column) = (row + 1, column - 1),
            }
        }
    }
    order
};

/// A Huffman table as a JPEG file has it (DHT).
#[derive(Clone, PartialEq, Eq)]
pub(super) struct HuffmanTable {
    /// At index `n`, how many symbols have a code of `n` bits (BITS). Index 0 is not used.
    pub(super) counts: [u8; 17],
    /// The symbols, those with the shortest codes first (HUFFVAL).
    pub(super) symbols: [u8; 256],
}

/// What of a component is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needed {
    /// Nothing: its codes are skipped.
    Nothing,
    /// The DC coefficient of each block.
    Dc,
    /// All coefficients.
    All,
}

/// A component of a scan.
#[derive(Clone, Copy)]
pub(super) struct Component {
    /// Number of its table for DC coefficients.
    pub(super) dc_table: u32,
    /// Number of its table for AC coefficients.
    pub(super) ac_table: u32,
    /// Its blocks in an MCU.
    pub(super) blocks: u32,
    pub(super) needed: Needed,
}

/// What the headers say of a scan, and what is needed of it.
pub(super) struct Plan<'a> {
    pub(super) components: &'a [Component],
    /// MCUs of a row.
    pub(super) columns: u32,
    /// The columns that hold the region: the first of them, and the one after the last.
    pub(super) needed: (u32, u32),
    /// MCUs between restart markers, 0 if there are none.
    pub(super) restart_interval: u32,
}

/// Data that is left to the library.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unsound;

#[derive(Clone, Copy)]
struct BlockPlan {
    component: usize,
    dc_table: usize,
    ac_table: usize,
    needed: Needed,
}

/// The state of a scan that is being decoded.
pub(super) struct Scan {
    dc_tables: [DerivedTable; TABLES_MAX as usize],
    ac_tables: [DerivedTable; TABLES_MAX as usize],
    blocks: [BlockPlan; BLOCKS_MAX],
    blocks_count: usize,
    columns: u32,
    needed: (u32, u32),
    column: u32,
    /// The DC coefficient of the last block of each component, to which the next one is a difference.
    predictions: [i32; COMPONENTS_MAX],
    restart_interval: u32,
    until_restart: u32,
    /// Number of the restart marker that is due.
    restart: u8,
    bits: Bits,
}

impl Default for Scan {
    fn default() -> Self {
        let nothing = BlockPlan { component: 0, dc_table: 0, ac_table: 0, needed: Needed::Nothing };
        Self {
            dc_tables: Default::default(),
            ac_tables: Default::default(),
            blocks: [nothing; BLOCKS_MAX],
            blocks_count: 0,
            columns: 0,
            needed: (0, 0),
            column: 0,
            predictions: [0; COMPONENTS_MAX],
            restart_interval: 0,
            until_restart: 0,
            restart: 0,
            bits: Bits::default(),
        }
    }
}

impl Scan {
    /// Sets a table for DC coefficients.
    pub(super) fn set_dc(&mut self, number: u32, table: &HuffmanTable) -> Result<(), Unsound> {
        self.dc_tables.get_mut(number as usize).ok_or(Unsound)?.set(table)
    }

    /// Sets a table for AC coefficients.
    pub(super) fn set_ac(&mut self, number: u32, table: &HuffmanTable) -> Result<(), Unsound> {
        self.ac_tables.get_mut(number as usize).ok_or(Unsound)?.set(table)
    }

    /// Begins a scan, whose tables are set.
    pub(super) fn begin(&mut self, plan: &Plan<'_>) -> Result<(), Unsound> {
        self.blocks_count = 0;
        if plan.components.len() > COMPONENTS_MAX {
            return Err(Unsound);
        }
        for (number, component) in plan.components.iter().enumerate() {
            if component.dc_table.max(component.ac_table) >= TABLES_MAX {
                return Err(Unsound);
            }
            let block = BlockPlan {
                component: number,
                dc_table: component.dc_table as usize,
                ac_table: component.ac_table as usize,
                needed: component.needed,
            };
            for _ in 0..component.blocks {
                *self.blocks.get_mut(self.blocks_count).ok_or(Unsound)? = block;
                self.blocks_count += 1;
            }
        }
        self.columns = plan.columns;
        self.needed = plan.needed;
        self.column = 0;
        self.predictions = [0; COMPONENTS_MAX];
        self.restart_interval = plan.restart_interval;
        self.until_restart = plan.restart_interval;
        self.restart = 0;
        self.bits.begin();
        Ok(())
    }

    /// How many blocks an MCU has.
    pub(super) fn blocks(&self) -> usize {
        self.blocks_count
    }

    /// How many bytes were read, none of them behind a marker that ends the scan.
    pub(super) fn read(&self) -> usize {
        self.bits.read()
    }

    /// Decodes the next MCU into blocks of zeros, or skips it if there are none. `bytes` are the same
    /// each time: all from the beginning of the scan.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        blocks: Option<&mut [&mut Block]>,
    ) -> Result<(), Unsound> {
        if self.restart_interval > 0 {
            if self.until_restart == 0 {
                self.bits.restart(bytes, self.restart)?;
                self.restart = (self.restart + 1) % 8;
                self.predictions = [0; COMPONENTS_MAX];
                self.until_restart = self.restart_interval;
            }
            self.until_restart -= 1;
        }
        self.bits.fill(bytes);
        let is_needed = self.column >= self.needed.0 && self.column < self.needed.1;
        self.column = if self.column + 1 == self.columns { 0 } else { self.column + 1 };
        match blocks {
            Some(blocks) if is_needed => self.decode_mcu(blocks),
            _ => self.skip_mcu(),
        }
    }

    fn decode_mcu(&mut self, blocks: &mut [&mut Block]) -> Result<(), Unsound> {
        let mut cursor = self.bits.cursor();
        for (plan, block) in self.blocks[..self.blocks_count].iter().zip(blocks) {
            let difference = self.dc_tables[plan.dc_table].dc_difference(&mut cursor)?;
            let dc = &mut self.predictions[plan.component];
            *dc = dc.wrapping_add(difference);
            let ac_table = &self.ac_tables[plan.ac_table];
            if plan.needed != Needed::Nothing {
                // The library keeps 16 bits as well.
                #[expect(clippy::cast_possible_truncation, reason = "of damaged data alone")]
                let dc = *dc as i16;
                block[0] = dc;
            }
            if plan.needed == Needed::All {
                ac_table.decode_ac(&mut cursor, block)?;
            } else {
                ac_table.skip_ac(&mut cursor)?;
            }
        }
        let cursor = cursor.end();
        self.bits.advance(cursor)
    }

    fn skip_mcu(&mut self) -> Result<(), Unsound> {
        let mut cursor = self.bits.cursor();
        for plan in &self.blocks[..self.blocks_count] {
            let difference = self.dc_tables[plan.dc_table].dc_difference(&mut cursor)?;
            let dc = &mut self.predictions[plan.component];
            *dc = dc.wrapping_add(difference);
            self.ac_tables[plan.ac_table].skip_ac(&mut cursor)?;
        }
        let cursor = cursor.end();
        self.bits.advance(cursor)
    }
}
