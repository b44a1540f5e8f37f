//! Reads the memory modules from the tables that the firmware leaves in memory (SMBIOS, also "DMI").
//!
//! The tables are structures of a fixed part and a list of strings, one after the other. Only the two
//! kinds about memory are read, and no serial numbers. Firmware is careless: whatever is out of range
//! is skipped, and 0 and all ones mean unknown.
//!
//! Source: DMTF DSP0134 (System Management BIOS), 7.17 and 7.18.

use std::fs;

use super::memory_module::{MemoryHardware, Module, Source};
use crate::sysroot::Sysroot;

const PHYSICAL_MEMORY_ARRAY: u8 = 16;
const MEMORY_DEVICE: u8 = 17;
const END_OF_TABLE: u8 = 127;

/// The memory that the tables of the firmware describe, or `None` where they cannot be read.
pub(crate) fn read(sysroot: Sysroot<'_>) -> Option<MemoryHardware> {
    let table = fs::read(sysroot.join("sys/firmware/dmi/tables/DMI")).unwrap_or_default();
    parse(&table)
}

/// The memory that the tables in `bytes` describe, or `None` if they describe no slot for it.
pub(crate) fn parse(bytes: &[u8]) -> Option<MemoryHardware> {
    let structures = structures(bytes);
    let arrays: Vec<&Structure<'_>> = structures
        .iter()
        .filter(|it| it.kind == PHYSICAL_MEMORY_ARRAY && it.byte(0x05) == Some(SYSTEM_MEMORY))
        .collect();
    let handles: Vec<Option<u16>> = arrays.iter().map(|array| array.word(0x02)).collect();
    let slots: Vec<&Structure<'_>> = structures
        .iter()
        .filter(|it| it.kind == MEMORY_DEVICE)
        .filter(|slot| handles.is_empty() || handles.contains(&slot.word(0x04)))
        .collect();
    if slots.is_empty() {
        return None;
    }
    Some(MemoryHardware {
        source: Source::Dmi,
        slots: u32::try_from(slots.len()).ok(),
        capacity_bytes_max: arrays
            .iter()
            .filter_map(|array| capacity(array))
            .reduce(u64::saturating_add),
        error_correction: arrays.iter().find_map(|array| correction(array.byte(0x06)?)),
        modules: slots.into_iter().filter_map(module).collect(),
    })
}

const SYSTEM_MEMORY: u8 = 3;

/// One structure of the table.
struct Structure<'table> {
    kind: u8,
    fixed: &'table [u8],
    strings: Vec<&'table [u8]>,
}

impl Structure<'_> {
    fn byte(&self, at: usize) -> Option<u8> {
        self.fixed.get(at).copied()
    }

    fn word(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(self.fixed.get(at..at + 2)?.try_into().ok()?))
    }

    fn double(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.fixed.get(at..at + 4)?.try_into().ok()?))
    }

    fn quad(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(self.fixed.get(at..at + 8)?.try_into().ok()?))
    }

    /// The string whose number, from 1, stands at `at`.
    fn string(&self, at: usize) -> Option<String> {
        let number = usize::from(self.byte(at)?).checked_sub(1)?;
        let text = String::from_utf8_lossy(self.strings.get(number)?);
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }
}

fn structures(mut bytes: &[u8]) -> Vec<Structure<'_>> {
    let mut found = Vec::new();
    while let Some((structure, rest)) = split_first(bytes) {
        if structure.kind == END_OF_TABLE {
            break;
        }
        found.push(structure);
        bytes = rest;
    }
    found
}

/// The strings end with an empty one; where there are none, two zeros stand alone.
fn split_first(bytes: &[u8]) -> Option<(Structure<'_>, &[u8])> {
    const HEADER: usize = 4;
    let (&kind, &len) = (bytes.first()?, bytes.get(1)?);
    let fixed = bytes.get(..usize::from(len)).filter(|fixed| fixed.len() >= HEADER)?;
    let mut rest = &bytes[fixed.len()..];
    let mut strings = Vec::new();
    loop {
        let end = rest.iter().position(|byte| *byte == 0)?;
        let (text, behind) = (&rest[..end], &rest[end + 1..]);
        rest = behind;
        if text.is_empty() {
            break;
        }
        strings.push(text);
    }
    if strings.is_empty() {
        rest = rest.strip_prefix(&[0]).unwrap_or(rest);
    }
    Some((Structure { kind, fixed, strings }, rest))
}

fn capacity(array: &Structure<'_>) -> Option<u64> {
    const SEE_EXTENDED: u32 = 0x8000_0000;
    match array.double(0x07)? {
        SEE_EXTENDED => array.quad(0x0F),
        kibibytes => Some(u64::from(kibibytes) << 10),
    }
    .filter(|bytes| *bytes > 0)
}

/// An empty slot has size 0.
fn module(slot: &Structure<'_>) -> Option<Module> {
    let size = slot.word(0x0C)?;
    if size == 0 {
        return None;
    }
    Some(Module {
        size_bytes: size_of(slot, size),
        kind: slot.byte(0x12).and_then(kind).map(str::to_owned),
        technology: slot.byte(0x28).and_then(technology).map(str::to_owned),
        data_bits: slot.word(0x0A).filter(|bits| !matches!(bits, 0 | 0xFFFF)),
        ranks: slot.byte(0x1B).map(|attributes| attributes & 0x0F).filter(|ranks| *ranks > 0),
        rated_transfers_per_s: speed(slot, 0x15, 0x54),
        configured_transfers_per_s: speed(slot, 0x20, 0x58),
        slot: slot.string(0x10),
        bank: slot.string(0x11),
    })
}

/// In MiB, in KiB with the highest bit set, or elsewhere; all ones are unknown.
fn size_of(slot: &Structure<'_>, size: u16) -> Option<u64> {
    const UNKNOWN: u16 = 0xFFFF;
    const SEE_EXTENDED: u16 = 0x7FFF;
    const IN_KIBIBYTES: u16 = 0x8000;
    match size {
        UNKNOWN => None,
        SEE_EXTENDED => Some(u64::from(slot.double(0x1C)? & 0x7FFF_FFFF) << 20),
        size if size & IN_KIBIBYTES != 0 => Some(u64::from(size & !IN_KIBIBYTES) << 10),
        mebibytes => Some(u64::from(mebibytes) << 20),
    }
}

/// In millions of transfers per second.
fn speed(slot: &Structure<'_>, at: usize, extended: usize) -> Option<u64> {
    let speed = match slot.word(at)? {
        0xFFFF => slot.double(extended)? & 0x7FFF_FFFF,
        speed => u32::from(speed),
    };
    Some(u64::from(speed) * 1_000_000).filter(|speed| *speed > 0)
}

fn kind(code: u8) -> Option<&'static str> {
    Some(match code {
        0x0F => "SDRAM",
        0x12 => "DDR",
        0x13 => "DDR2",
        0x18 => "DDR3",
        0x1A => "DDR4",
        0x1B => "LPDDR",
        0x1C => "LPDDR2",
        0x1D => "LPDDR3",
        0x1E => "LPDDR4",
        0x20 => "HBM",
        0x21 => "HBM2",
        0x22 => "DDR5",
        0x23 => "LPDDR5",
        0x24 => "HBM3",
        _ => return None,
    })
}

fn technology(code: u8) -> Option<&'static str> {
    Some(match code {
        0x03 => "DRAM",
        0x04 => "NVDIMM-N",
        0x05 => "NVDIMM-F",
        0x06 => "NVDIMM-P",
        0x07 => "Optane",
        _ => return None,
    })
}

fn correction(code: u8) -> Option<String> {
    let name = match code {
        0x03 => "none",
        0x04 => "parity",
        0x05 => "single-bit",
        0x06 => "multi-bit",
        0x07 => "crc",
        _ => return None,
    };
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn structure(kind: u8, handle: u16, body: &[u8], strings: &[&str]) -> Vec<u8> {
        let mut bytes = vec![kind, u8::try_from(body.len() + 4).unwrap()];
        bytes.extend(handle.to_le_bytes());
        bytes.extend(body);
        for text in strings {
            bytes.extend(text.as_bytes());
            bytes.push(0);
        }
        if strings.is_empty() {
            bytes.push(0);
        }
        bytes.push(0);
        bytes
    }

    /// Use, correction, 2 TiB where the field for KiB overflows, error handle, slots.
    fn array(handle: u16, usage: u8) -> Vec<u8> {
        let mut body = vec![0x03, usage, 0x06];
        body.extend(0x8000_0000_u32.to_le_bytes());
        body.extend([0xFE, 0xFF, 2, 0]);
        body.extend((2_u64 << 40).to_le_bytes());
        structure(PHYSICAL_MEMORY_ARRAY, handle, &body, &[])
    }

    fn device(array: u16, size: u16, extended: u32, speed: u16) -> Vec<u8> {
        let mut body = vec![0; 0x5C - 4];
        let mut put =
            |at: usize, bytes: &[u8]| body[at - 4..at - 4 + bytes.len()].copy_from_slice(bytes);
        put(0x04, &array.to_le_bytes());
        put(0x0A, &64_u16.to_le_bytes());
        put(0x0C, &size.to_le_bytes());
        put(0x10, &[1, 2, 0x22]);
        put(0x15, &speed.to_le_bytes());
        put(0x1B, &[2]);
        put(0x1C, &extended.to_le_bytes());
        put(0x20, &4800_u16.to_le_bytes());
        put(0x28, &[3]);
        put(0x54, &70_000_u32.to_le_bytes());
        structure(MEMORY_DEVICE, 9, &body, &["DIMM 0", "P0 CHANNEL A"])
    }

    #[test]
    fn modules_are_told_from_empty_slots_and_from_other_memory() {
        let table = [
            structure(1, 1, &[0; 20], &["maker", "secret serial"]),
            array(0x10, SYSTEM_MEMORY),
            array(0x11, 5),
            device(0x10, 0x7FFF, 65_536, 5600),
            device(0x10, 0, 0, 0),
            device(0x11, 16, 0, 33),
            structure(END_OF_TABLE, 2, &[], &[]),
            device(0x10, 16, 0, 33),
        ]
        .concat();
        let found = parse(&table).unwrap();
        assert_eq!((found.slots, found.capacity_bytes_max), (Some(2), Some(2 << 40)));
        assert_eq!(found.error_correction.as_deref(), Some("multi-bit"));
        let [module] = &found.modules[..] else { panic!("{found:?}") };
        assert_eq!(module.size_bytes, Some(64 << 30));
        assert_eq!(module.kind.as_deref(), Some("DDR5"));
        assert_eq!(module.rated_transfers_per_s, Some(5_600_000_000));
        assert_eq!(module.configured_transfers_per_s, Some(4_800_000_000));
        assert_eq!((module.data_bits, module.ranks), (Some(64), Some(2)));
        assert_eq!(module.slot.as_deref(), Some("DIMM 0"));
        assert!(!format!("{found:?}").contains("secret"));
    }

    #[test]
    fn sizes_come_in_three_notations_and_speeds_in_two() {
        let module = |size, speed| parse(&device(0, size, 512, speed)).unwrap().modules.remove(0);
        assert_eq!(module(16, 1).size_bytes, Some(16 << 20));
        assert_eq!(module(0x8010, 1).size_bytes, Some(16 << 10));
        assert_eq!(module(0x7FFF, 1).size_bytes, Some(512 << 20));
        assert_eq!(module(0xFFFF, 1).size_bytes, None);
        assert_eq!(module(16, 0xFFFF).rated_transfers_per_s, Some(70_000_000_000));
        assert_eq!(module(16, 0).rated_transfers_per_s, None);
    }

    #[test]
    fn a_table_of_an_old_version_lacks_the_later_fields() {
        let mut body = vec![0; 0x15 - 4];
        body[0x0C - 4] = 16;
        let old = parse(&structure(MEMORY_DEVICE, 1, &body, &[])).unwrap().modules.remove(0);
        assert_eq!((old.size_bytes, old.rated_transfers_per_s), (Some(16 << 20), None));
        assert_eq!((old.technology, old.slot), (None, None));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            parse(&bytes);
        }

        #[test]
        fn a_damaged_table_does_not_panic(at in 0_usize..200, byte in any::<u8>(), len in 0_usize..300) {
            let mut table = [array(1, SYSTEM_MEMORY), device(1, 16, 1, 1), device(1, 1, 1, 1)].concat();
            if let Some(place) = table.get_mut(at) {
                *place = byte;
            }
            table.truncate(len);
            parse(&table);
        }
    }
}
