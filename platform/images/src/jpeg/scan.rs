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
mod code;

use bits::Bits;
use code::Code;

/// Coefficients of a block, in rows.
pub(super) type Block = [i16; 64];

/// The library accepts no more blocks of an MCU.
pub(super) const BLOCKS_MAX: usize = 10;
const COMPONENTS_MAX: usize = 4;
const CODES_MAX: u32 = 4;

/// Where a coefficient stands that the code has at some place. No sound scan goes beyond the last; the
/// library writes there what does.
///
/// **Source**: ITU-T T.81, figure A.6.
const ORDER: [u8; 128] = {
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

/// A Huffman code as a JPEG file defines it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Definition {
    /// How many symbols have codes of each number of bits; of none, none have.
    pub(super) counts: [u8; 17],
    /// The symbols, by the length of their codes.
    pub(super) symbols: [u8; 256],
}

/// What of a component is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needed {
    /// Only that its codes are passed.
    Nothing,
    /// The first coefficient of each block.
    Mean,
    /// Each coefficient.
    All,
}

/// A component of a scan.
#[derive(Clone, Copy)]
pub(super) struct Component {
    /// Number of the code of first coefficients.
    pub(super) first: u32,
    /// Number of the code of other coefficients.
    pub(super) others: u32,
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
    first: usize,
    others: usize,
    needed: Needed,
}

/// The state of a scan that is being decoded.
pub(super) struct Scan {
    first: [Code; CODES_MAX as usize],
    others: [Code; CODES_MAX as usize],
    blocks: [BlockPlan; BLOCKS_MAX],
    blocks_count: usize,
    columns: u32,
    needed: (u32, u32),
    column: u32,
    /// The first coefficients of the last blocks.
    means: [i32; COMPONENTS_MAX],
    restart_interval: u32,
    until_restart: u32,
    /// Number of the restart marker that is due.
    restart: u8,
    bits: Bits,
}

impl Default for Scan {
    fn default() -> Self {
        let nothing = BlockPlan { component: 0, first: 0, others: 0, needed: Needed::Nothing };
        Self {
            first: Default::default(),
            others: Default::default(),
            blocks: [nothing; BLOCKS_MAX],
            blocks_count: 0,
            columns: 0,
            needed: (0, 0),
            column: 0,
            means: [0; COMPONENTS_MAX],
            restart_interval: 0,
            until_restart: 0,
            restart: 0,
            bits: Bits::default(),
        }
    }
}

impl Scan {
    /// Takes the code of a number for first coefficients.
    pub(super) fn define_first(
        &mut self,
        number: u32,
        definition: &Definition,
    ) -> Result<(), Unsound> {
        self.first.get_mut(number as usize).ok_or(Unsound)?.define(definition)
    }

    /// Takes the code of a number for other coefficients.
    pub(super) fn define_others(
        &mut self,
        number: u32,
        definition: &Definition,
    ) -> Result<(), Unsound> {
        self.others.get_mut(number as usize).ok_or(Unsound)?.define(definition)
    }

    /// Begins a scan, whose codes are defined.
    pub(super) fn begin(&mut self, plan: &Plan<'_>) -> Result<(), Unsound> {
        self.blocks_count = 0;
        if plan.components.len() > COMPONENTS_MAX {
            return Err(Unsound);
        }
        for (number, component) in plan.components.iter().enumerate() {
            if component.first.max(component.others) >= CODES_MAX {
                return Err(Unsound);
            }
            let block = BlockPlan {
                component: number,
                first: component.first as usize,
                others: component.others as usize,
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
        self.means = [0; COMPONENTS_MAX];
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

    /// Decodes the next MCU into blocks of zeros, or passes it if there are none. `bytes` are the same
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
                self.means = [0; COMPONENTS_MAX];
                self.until_restart = self.restart_interval;
            }
            self.until_restart -= 1;
        }
        self.bits.fill(bytes);
        let is_needed = self.column >= self.needed.0 && self.column < self.needed.1;
        self.column = if self.column + 1 == self.columns { 0 } else { self.column + 1 };
        match blocks {
            Some(blocks) if is_needed => self.keep(blocks),
            _ => self.pass(),
        }
    }

    fn keep(&mut self, blocks: &mut [&mut Block]) -> Result<(), Unsound> {
        let mut cursor = self.bits.cursor();
        for (plan, block) in self.blocks[..self.blocks_count].iter().zip(blocks) {
            let difference = self.first[plan.first].first(&mut cursor)?;
            let mean = &mut self.means[plan.component];
            *mean = mean.wrapping_add(difference);
            let others = &self.others[plan.others];
            if plan.needed != Needed::Nothing {
                // The library keeps 16 bits as well.
                #[expect(clippy::cast_possible_truncation, reason = "of damaged data alone")]
                let mean = *mean as i16;
                block[0] = mean;
            }
            if plan.needed == Needed::All {
                others.keep(&mut cursor, block)?;
            } else {
                others.pass(&mut cursor)?;
            }
        }
        let cursor = cursor.end();
        self.bits.advance(cursor)
    }

    fn pass(&mut self) -> Result<(), Unsound> {
        let mut cursor = self.bits.cursor();
        for plan in &self.blocks[..self.blocks_count] {
            let difference = self.first[plan.first].first(&mut cursor)?;
            let mean = &mut self.means[plan.component];
            *mean = mean.wrapping_add(difference);
            self.others[plan.others].pass(&mut cursor)?;
        }
        let cursor = cursor.end();
        self.bits.advance(cursor)
    }
}
