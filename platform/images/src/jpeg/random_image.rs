//! Encodes baseline JPEG images of random coefficients, of any size.

use super::scan::HuffmanTable;

/// The sampling factors of the components, horizontal and vertical.
pub(super) type Components<'a> = &'a [(u8, u8)];

/// An image of so many MCUs, with restart markers if `restart_interval` is not 0.
pub(super) fn encode(
    components: Components<'_>,
    (columns, rows): (u16, u16),
    restart_interval: u16,
) -> Vec<u8> {
    let [dc, ac] = tables();
    let count = u8::try_from(components.len()).expect("a few components");
    let side = |it: fn(&(u8, u8)) -> u8| components.iter().map(it).max().expect("one") * 8;
    let (width, height) = (columns * u16::from(side(|it| it.0)), rows * u16::from(side(|it| it.1)));
    let mut bytes = vec![0xFF, 0xD8];
    segment(&mut bytes, 0xDB, &[&[0], &[1; 64][..]].concat());
    let mut frame = vec![8];
    frame.extend([height, width].iter().flat_map(|it| it.to_be_bytes()));
    frame.push(count);
    let mut scan = vec![count];
    for (id, (horizontal, vertical)) in (1..).zip(components) {
        frame.extend([id, horizontal << 4 | vertical, 0]);
        scan.extend([id, 0]);
    }
    scan.extend([0, 63, 0]);
    segment(&mut bytes, 0xC0, &frame);
    for (class, table) in [(0, &dc), (0x10, &ac)] {
        let symbols = table.counts.iter().map(|it| usize::from(*it)).sum();
        let definition = [&[class], &table.counts[1..], &table.symbols[..symbols]].concat();
        segment(&mut bytes, 0xC4, &definition);
    }
    segment(&mut bytes, 0xDD, &restart_interval.to_be_bytes());
    segment(&mut bytes, 0xDA, &scan);
    let mut encoder = Encoder { bytes, bits: 0, count: 0, random: 1 };
    let mut predictions = [0; 4];
    for mcu in 0..u32::from(columns) * u32::from(rows) {
        let interval = u32::from(restart_interval);
        if interval > 0 && mcu > 0 && mcu % interval == 0 {
            let number = u8::try_from((mcu / interval - 1) % 8).expect("below 8");
            encoder.marker(0xD0 + number);
            predictions = [0; 4];
        }
        for ((horizontal, vertical), prediction) in components.iter().zip(&mut predictions) {
            for _ in 0..horizontal * vertical {
                encoder.block(prediction, &dc, &ac);
            }
        }
    }
    encoder.marker(0xD9);
    encoder.bytes
}

fn segment(bytes: &mut Vec<u8>, marker: u8, content: &[u8]) {
    let length = u16::try_from(content.len() + 2).expect("a short segment");
    bytes.extend([0xFF, marker]);
    bytes.extend(length.to_be_bytes());
    bytes.extend(content);
}

/// The tables for DC and AC coefficients, with all symbols of T.81, some with short and some with long
/// codes.
fn tables() -> [HuffmanTable; 2] {
    let table = |numbers: &[(usize, u8)], symbols: &[u8]| {
        let mut table = HuffmanTable { counts: [0; 17], symbols: [0; 256] };
        numbers.iter().for_each(|(bits, count)| table.counts[*bits] = *count);
        table.symbols[..symbols.len()].copy_from_slice(symbols);
        table
    };
    let dc: Vec<u8> = (0..12).collect();
    let values = (0..16).flat_map(|run| (1..=10).map(move |size| run << 4 | size));
    let ac: Vec<u8> = [0, 0xF0].into_iter().chain(values).collect();
    [table(&[(4, 12)], &dc), table(&[(6, 20), (8, 80), (10, 30), (12, 20), (16, 12)], &ac)]
}

struct Encoder {
    bytes: Vec<u8>,
    /// Bits that are not yet a byte.
    bits: u64,
    count: u32,
    random: u64,
}

impl Encoder {
    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % end
    }

    fn block(&mut self, prediction: &mut i64, dc_table: &HuffmanTable, ac_table: &HuffmanTable) {
        let dc = self.below(1200).cast_signed() - 600;
        self.value(dc_table, 0, dc - *prediction);
        *prediction = dc;
        let mut place = 1;
        while place < 64 {
            let run = match self.below(100) {
                0..70 => 0,
                70..90 => 1 + self.below(3),
                90..97 => self.below(16),
                97..99 => 16,
                _ => 64,
            };
            if place + run >= 64 {
                self.symbol(ac_table, 0);
                return;
            }
            if run == 16 {
                self.symbol(ac_table, 0xF0);
                place += 16;
                continue;
            }
            let largest = if self.below(20) == 0 { 1023 } else { 15 };
            let value = 1 + self.below(largest).cast_signed();
            let value = if self.below(2) == 0 { value } else { -value };
            self.value(ac_table, run, value);
            place += run + 1;
        }
    }

    /// A symbol of a run and the size of a value, and the value.
    fn value(&mut self, table: &HuffmanTable, run: u64, value: i64) {
        let size = u64::BITS - value.unsigned_abs().leading_zeros();
        self.symbol(table, u8::try_from(run << 4 | u64::from(size)).expect("a symbol"));
        let bits = if value < 0 { value - 1 } else { value }.cast_unsigned();
        self.put(bits & ((1 << size) - 1), size);
    }

    fn symbol(&mut self, table: &HuffmanTable, symbol: u8) {
        let (mut code, mut symbols) = (0, table.symbols.iter());
        for bits in 1..=16 {
            for _ in 0..table.counts[bits as usize] {
                if symbols.next() == Some(&symbol) {
                    return self.put(code, bits);
                }
                code += 1;
            }
            code <<= 1;
        }
        panic!("no code for {symbol:#x}");
    }

    fn put(&mut self, bits: u64, count: u32) {
        self.bits = self.bits << count | bits;
        self.count += count;
        while self.count >= 8 {
            self.count -= 8;
            let byte = (self.bits >> self.count & 0xFF) as u8;
            self.bytes.push(byte);
            if byte == 0xFF {
                self.bytes.push(0);
            }
        }
    }

    fn marker(&mut self, marker: u8) {
        if self.count > 0 {
            self.put(0xFF >> self.count, 8 - self.count);
        }
        self.bytes.extend([0xFF, marker]);
    }
}
