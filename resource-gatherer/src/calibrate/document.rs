//! The calibration of a host, as a file that the next run there reads.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tierfeed_core::units::Bytes;

use crate::{
    figures::estimate::Estimate,
    freshness::{self, Stale},
    inventory::Inventory,
    report::{StoreError, Tier, write_json},
};

/// The version of the document; a document of another version counts as none.
const FORMAT: u32 = 1;

/// The most tiers, and the most cold stores, that are kept; with more, the oldest are dropped.
pub const PLACES_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    format: u32,
    /// The host at the time of the figures, one for all of them.
    pub inventory: Inventory,
    /// In the order of measurement, the newest last.
    pub tiers: Vec<Tier>,
    /// In the order of measurement, the newest last.
    pub cold_stores: Vec<ColdStore>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColdStore {
    /// The path or the URL of the dataset.
    pub place: String,
    /// From a request to its first byte.
    pub latency_ns: Estimate,
    /// With many reads in flight.
    pub read_bytes_per_s: Estimate,
    pub read_bytes: u64,
}

impl Calibration {
    #[must_use]
    pub fn of(inventory: Inventory) -> Self {
        Self { format: FORMAT, inventory, tiers: Vec::new(), cold_stores: Vec::new() }
    }

    /// Adds the figures of `newer`, and drops those that no longer hold for its host.
    #[must_use]
    pub fn updated(mut self, newer: Self) -> Self {
        let (then, now) = (&self.inventory, &newer.inventory);
        self.tiers.retain(|tier| {
            let is_same = |it: &Tier| {
                let is_there = it.path == tier.path && it.numa_nodes == tier.numa_nodes;
                is_there && it.is_any_ram_disk() == tier.is_any_ram_disk()
            };
            freshness::tier(then, now, tier).is_ok() && !newer.tiers.iter().any(is_same)
        });
        self.cold_stores
            .retain(|store| store.fresh(then, now).is_ok() && newer.cold(&store.place).is_none());
        self.tiers.extend(newer.tiers);
        self.cold_stores.extend(newer.cold_stores);
        self.tiers.drain(..self.tiers.len().saturating_sub(PLACES_MAX));
        self.cold_stores.drain(..self.cold_stores.len().saturating_sub(PLACES_MAX));
        Self { inventory: newer.inventory, ..self }
    }

    #[must_use]
    pub fn cold(&self, place: &str) -> Option<&ColdStore> {
        self.cold_stores.iter().find(|store| store.place == place)
    }

    /// The document at `path`; `None` if there is none, or one of another version.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        let text = std::fs::read(path).ok()?;
        let found: Self = serde_json::from_slice(&text).ok()?;
        (found.format == FORMAT).then_some(found)
    }

    /// Writes the document to `path`; a reader sees the old file or the new one, never a part.
    ///
    /// # Errors
    ///
    /// The file or its directory cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), StoreError> {
        write_json(self, path)
    }
}

/// A cold store of which less was read has rough figures: caches and the first seek weigh too much.
const SURE_BYTES: Bytes = Bytes::mib(32);

impl ColdStore {
    /// The reason why the figures are rough; `None` if they are not.
    #[must_use]
    pub fn doubt(&self) -> Option<String> {
        let read = Bytes(self.read_bytes);
        (read < SURE_BYTES).then(|| format!("rough, because only {read} were read"))
    }

    /// Checks whether figures taken on the host `then` still hold for the host `now`.
    ///
    /// # Errors
    ///
    /// The first thing that changed.
    pub fn fresh(&self, then: &Inventory, now: &Inventory) -> Result<(), Stale> {
        let path = Path::new(&self.place);
        if path.is_absolute() {
            freshness::directory(then, now, (path, path))
        } else {
            freshness::boot(then, now)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{report::tests_support::full, sysroot::Sysroot, tests_support::FakeSysroot};

    fn machine() -> FakeSysroot {
        let machine = FakeSysroot::cxl_node();
        machine.write("proc/sys/kernel/osrelease", "6.12.1\n");
        machine
    }

    fn known(machine: &FakeSysroot, rate: f64) -> Calibration {
        let inventory = Inventory::read(Sysroot(machine.path())).unwrap();
        let store = |place: &str| ColdStore {
            place: place.to_owned(),
            latency_ns: Estimate::stated(1e6),
            read_bytes_per_s: Estimate::stated(rate),
            read_bytes: 7,
        };
        let tiers = full().tiers.into_iter().filter(|tier| !tier.emulated);
        Calibration {
            tiers: tiers.collect(),
            cold_stores: vec![store("/data"), store("s3://bucket/data")],
            ..Calibration::of(inventory)
        }
    }

    #[test]
    fn what_is_written_is_read_and_what_is_no_calibration_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/calibration-fake.json");
        assert_eq!(Calibration::read(&path), None);
        let written = known(&machine(), 1e9);
        written.write(&path).unwrap();
        assert_eq!(Calibration::read(&path), Some(written.clone()));
        for text in ["", "{}", "[1]"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(Calibration::read(&path), None, "{text}");
        }
        let other = Calibration { format: FORMAT + 1, ..written };
        other.write(&path).unwrap();
        assert_eq!(Calibration::read(&path), None, "of another version");
    }

    #[test]
    fn new_figures_replace_those_of_the_same_place_and_stale_ones_go() {
        let machine = machine();
        let (old, mut newer) = (known(&machine, 1e9), known(&machine, 2e9));
        newer.tiers.truncate(1);
        newer.cold_stores.truncate(1);
        let both = old.clone().updated(newer.clone());
        assert_eq!(both.tiers.len(), old.tiers.len());
        assert_eq!(both.cold("/data"), newer.cold("/data"));
        assert_eq!(both.cold("s3://bucket/data"), old.cold("s3://bucket/data"));
        machine.write("proc/sys/kernel/osrelease", "6.18.0\n");
        newer.inventory = Inventory::read(Sysroot(machine.path())).unwrap();
        let left = old.updated(newer.clone());
        assert_eq!(left, newer, "all else was measured under another kernel");
    }

    #[test]
    fn the_figures_of_so_many_places_are_kept() {
        let machine = machine();
        let old = known(&machine, 1e9);
        let mut newer = Calibration::of(old.inventory.clone());
        let place = |at: usize| ColdStore { place: format!("/{at}"), ..old.cold_stores[0].clone() };
        newer.cold_stores = (0..PLACES_MAX).map(place).collect();
        let left = old.updated(newer);
        assert_eq!(left.cold_stores.len(), PLACES_MAX);
        assert_eq!(left.cold("/data"), None, "the oldest is dropped");
    }
}
