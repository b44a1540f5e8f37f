//! The findings of `tierfeed tiers probe`, as JSON that other commands and other programs read.
//!
//! 1. A figure that was not measured is `null`; nothing is derived from a table of typical values.
//! 2. An emulated tier carries the figures that its settings state, and says `emulated`.
//! 3. Every number has its unit in its key.

mod schema;
mod store;
mod table;
#[cfg(test)]
pub(crate) mod tests_support;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tierfeed_core::tier::Kind;

pub(crate) use self::store::write_json;
pub use self::{
    schema::SCHEMA,
    store::{StoreError, read, write},
    table::{COLUMNS, Style, table},
};
pub use crate::figures::{
    Access, Bandwidth, Comparison, Engine, Figures, LoadedLatency, LoadedPoint, ObjectStore, Pair,
    Percentiles, Quality, RandomAccess, Skipped, Storage, Throughput, Traffic, Transfer, View,
};
use crate::{
    classify::{Classification, MemoryClass, Profile},
    figures::{estimate::Estimate, tenths, whole},
    inventory::Inventory,
};

/// The version of the document; a document of another version is refused.
pub const FORMAT: u32 = 2;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub format: u32,
    pub host: String,
    /// The tiers, fastest first.
    pub tiers: Vec<Tier>,
    /// Idle latency and read bandwidth from node to node.
    pub numa: Matrix,
    pub pairs: Vec<Pair>,
    pub storage: Vec<Storage>,
    pub object_stores: Vec<ObjectStore>,
    /// Chunk copies for each ordered pair of tiers.
    pub transfers: Vec<Transfer>,
    pub views: Vec<View>,
    pub comparisons: Vec<Comparison>,
    pub skipped: Vec<Skipped>,
    pub inventory: Inventory,
}

impl Report {
    /// Its decisions, for a later classification of the same host.
    pub(crate) fn classification(&self) -> Classification {
        Classification {
            host: self.host.clone(),
            tiers: self.tiers.iter().map(|tier| tier.numa_nodes.clone()).collect(),
            views: self.views.clone(),
        }
    }

    /// The figures of `tier`, one of this report; `None` if its place rests on no figure that was measured.
    #[must_use]
    pub fn profile(&self, tier: &Tier) -> Option<Profile> {
        let copy = into_main_memory(&self.transfers, &tier.name);
        let copy_bytes_per_s = copy.or(tier.estimates.copy_bytes_per_s);
        tier.profile().map(|profile| Profile { copy_bytes_per_s, ..profile })
    }
}

/// The best measured copy from tier `from` into main memory.
pub(crate) fn into_main_memory(transfers: &[Transfer], from: &str) -> Option<Estimate> {
    let main = Kind::MainMemory.name();
    let of_tier = transfers.iter().filter(|it| it.from == from && it.to == main);
    of_tier.map(|it| it.bytes_per_s).max_by(|a, b| a.median.total_cmp(&b.median))
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tier {
    /// Its kind, with `-2`, `-3` behind it where there are several of one kind.
    pub name: String,
    #[serde(with = "kind_name")]
    pub kind: Kind,
    /// The memory node that the figures are of, `None` for a directory or an emulated tier.
    pub numa_node: Option<u32>,
    pub numa_nodes: Vec<u32>,
    /// `None` for memory.
    pub path: Option<PathBuf>,
    /// All bytes of the nodes or of the file system, or the stated capacity; `None` where not known.
    pub capacity_bytes: Option<u64>,
    /// Free at the time of the report; `None` for an emulated tier or where not known.
    pub free_bytes: Option<u64>,
    /// Sequential reads; of memory, by the number of threads that reads fastest; of a directory, several in
    /// flight.
    pub read_bytes_per_s: Option<u64>,
    /// Sequential writes, as reads; for a directory, to blocks not written before.
    pub write_bytes_per_s: Option<u64>,
    /// Copy within the node, by the number of threads that copies fastest: bytes copied, not bytes moved on
    /// the bus. Of a directory, a chunk read into main memory.
    pub copy_bytes_per_s: Option<u64>,
    /// STREAM's triad by the number of threads that is fastest at it, 24 bytes counted per element.
    pub triad_bytes_per_s: Option<u64>,
    /// A dependent load; for a directory, a random read of 4 KiB at depth 1.
    pub idle_latency_ns: Option<f64>,
    /// The same while other cores read the node at half of their highest rate.
    pub loaded_latency_ns: Option<f64>,
    /// Random reads of 4 KiB, [`crate::probe::RANDOM_READ_DEPTH`] in flight.
    pub random_read_iops: Option<u64>,
    /// Whether the speed is imposed on other memory instead of measured.
    pub emulated: bool,
    /// `None` for a directory or an emulated tier.
    pub memory: Option<MemoryClass>,
    pub source: Basis,
    /// Whether the page cache was bypassed; `None` for memory.
    pub access: Option<Access>,
    pub quality: Quality,
    /// The figures with their confidence intervals, as measured or stated.
    pub estimates: Figures,
    /// For instance the reason why there are no figures.
    pub remarks: Vec<String>,
}

impl Tier {
    /// A tier with these figures, without a name and a place.
    pub(crate) fn with(kind: Kind, figures: &Figures, source: Basis) -> Self {
        let figures = figures.rounded();
        Self {
            name: String::new(),
            kind,
            numa_node: None,
            numa_nodes: Vec::new(),
            path: None,
            capacity_bytes: None,
            free_bytes: None,
            read_bytes_per_s: figures.read_bytes_per_s.map(whole),
            write_bytes_per_s: figures.write_bytes_per_s.map(whole),
            copy_bytes_per_s: figures.copy_bytes_per_s.map(whole),
            triad_bytes_per_s: figures.triad_bytes_per_s.map(whole),
            idle_latency_ns: figures.idle_latency_ns.map(tenths),
            loaded_latency_ns: figures.loaded_latency_ns.map(tenths),
            random_read_iops: figures.random_read_iops.map(whole),
            emulated: false,
            memory: None,
            source,
            access: None,
            quality: figures.quality(),
            estimates: figures,
            remarks: Vec::new(),
        }
    }

    /// The figures of the tier, without copies that a report has beside it; `None` if its place rests on no
    /// figure that was measured.
    #[must_use]
    pub fn profile(&self) -> Option<Profile> {
        let is_measured = matches!(self.source, Basis::Measured | Basis::Config);
        let profile = Profile::of(self.kind, &self.estimates);
        let has_cost = profile.rated().chunk_cost_ns().is_some();
        (is_measured && has_cost && !self.emulated).then_some(profile)
    }

    /// Whether the figures are those of any RAM disk on the nodes of the tier, not of a directory.
    #[must_use]
    pub fn is_any_ram_disk(&self) -> bool {
        self.kind == Kind::Scratch && self.path.is_none() && !self.emulated
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    Measured,
    /// Ratings of the firmware.
    Rated,
    /// What the settings of an emulated tier state.
    Stated,
    /// Its kind alone: there is no figure.
    Kind,
    /// The settings name its places; figures only rank it.
    Config,
}

/// Figures from node to node: the row is where the reader runs, the column where the memory lies.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Matrix {
    /// The numbers of the nodes, for rows and columns alike.
    pub nodes: Vec<u32>,
    /// `None` where not measured.
    pub latency_ns: Vec<Vec<Option<f64>>>,
    /// Read bandwidth by the number of threads that reads fastest, `None` where not measured.
    pub read_bytes_per_s: Vec<Vec<Option<u64>>>,
}

/// The core has no serde, so its kinds go by their names.
mod kind_name {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use tierfeed_core::tier::Kind;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn serialize<S: Serializer>(kind: &Kind, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(kind.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Kind, D::Error> {
        let name = String::deserialize(from)?;
        name.parse().map_err(|error| D::Error::custom(format!("kind {name:?}: {error}")))
    }
}
