//! The memory modules: type, speed and channels, where the firmware or a driver tells.
//!
//! The firmware's own table tells most and is root's alone; else the drivers that watch for memory
//! errors (EDAC) tell sizes, types and channels. In virtual machines there is usually neither.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The modules of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryHardware {
    /// Who tells.
    pub source: Source,
    /// How many slots there are, empty ones included; `None` where only modules are told.
    pub slots: Option<u32>,
    /// The most that could be installed.
    pub capacity_bytes_max: Option<u64>,
    /// What kind of errors is corrected, for instance `multi-bit`.
    pub error_correction: Option<String>,
    /// What is installed.
    pub modules: Vec<Module>,
}

/// Who tells of the modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The firmware, in its DMI table.
    Dmi,
    /// A driver of the memory controller.
    Edac,
}

/// One module, or one rank where the driver tells no more.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Module {
    /// Its capacity.
    pub size_bytes: Option<u64>,
    /// Its type, for instance `DDR5`.
    pub kind: Option<String>,
    /// What it stores bits in, for instance `DRAM`.
    pub technology: Option<String>,
    /// How wide it is, without the bits for error correction.
    pub data_bits: Option<u16>,
    /// How many ranks it has.
    pub ranks: Option<u8>,
    /// What it is made for.
    pub rated_transfers_per_s: Option<u64>,
    /// What it runs at.
    pub configured_transfers_per_s: Option<u64>,
    /// Where it is plugged, as the maker of the board calls it.
    pub slot: Option<String>,
    /// The bank or channel, as the maker of the board calls it.
    pub bank: Option<String>,
}

impl MemoryHardware {
    /// How many channels have a module, where their names tell: `P0 CHANNEL A`, `mc0 channel 1 slot 0`.
    #[must_use]
    pub fn channels(&self) -> Option<usize> {
        let channel = |module: &Module| {
            [&module.bank, &module.slot].into_iter().flatten().find_map(|name| channel_of(name))
        };
        let names: Option<BTreeSet<String>> = self.modules.iter().map(channel).collect();
        names.map(|names| names.len()).filter(|count| *count > 0)
    }
}

/// The name up to the channel: `P0 CHANNEL A` of `P0 CHANNEL A DIMM 0`.
fn channel_of(name: &str) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    let behind = lower.find("channel")? + "channel".len();
    let separators = |c: char| matches!(c, ' ' | '_' | '-' | ':');
    let rest = lower[behind..].trim_start_matches(separators);
    let number = rest.split(separators).next().filter(|number| !number.is_empty())?;
    Some(format!("{}{number}", &lower[..behind]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channels(names: &[(&str, &str)]) -> Option<usize> {
        let module = |(bank, slot): &(&str, &str)| Module {
            bank: Some((*bank).to_owned()),
            slot: Some((*slot).to_owned()),
            ..Module::default()
        };
        MemoryHardware {
            source: Source::Dmi,
            slots: None,
            capacity_bytes_max: None,
            error_correction: None,
            modules: names.iter().map(module).collect(),
        }
        .channels()
    }

    #[test]
    fn channels_are_counted_by_their_names() {
        let amd = [("P0 CHANNEL A", "DIMM 0"), ("P0 CHANNEL A", "DIMM 1"), ("P1 CHANNEL A", "x")];
        assert_eq!(channels(&amd), Some(2));
        let intel = [("NODE 0", "P0_Node0_Channel0_Dimm0"), ("NODE 0", "P0_Node0_Channel1_Dimm0")];
        assert_eq!(channels(&intel), Some(2));
    }

    #[test]
    fn names_without_channels_tell_nothing() {
        assert_eq!(channels(&[("BANK 0", "DIMM_A1"), ("BANK 1", "DIMM_B1")]), None);
        assert_eq!(channels(&[("channel", "x")]), None);
        assert_eq!(channels(&[]), None);
    }
}
