//! One tier in the report: its size, how its bytes were stored, by how many threads, how much was written.

use serde::Serialize;
use tierfeed_core::{
    fleet::schedule::{Figures, WriteRates},
    units::Bytes,
};
use tierfeed_numa_memory::{HugePages, Placement, Stores};
use tierfeed_prefetcher::{
    plane::{TierTraffic, WriteModes},
    tier::WriteMode,
};

use super::DirectEntry;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct TierEntry {
    pub name: &'static str,
    /// Its initial budget.
    pub budget_bytes: u64,
    /// The part of the budget that was to cache samples at first; the rest was staging memory.
    pub cache_bytes: u64,
    /// The least that its cache might hold, after what free memory and loans left of it.
    pub cache_least_bytes: u64,
    /// The most that its cache might hold.
    pub cache_most_bytes: u64,
    /// Whether the job gives it a share of free memory, which adapts; else it has a fixed size.
    pub adapts: bool,
    /// Whether another kind of memory emulates it, or its speed is imposed.
    pub emulated: bool,
    /// How its bytes were stored: `cached-stores`, `non-temporal-stores`, `page-cache` or `direct-io`;
    /// `None` of a tier that never got a chunk.
    pub stored: Option<&'static str>,
    /// The pages of its first chunk: `reserved`, `transparent` or `small`; `None` where the kernel does
    /// not say, and of files.
    pub pages: Option<&'static str>,
    pub copy_threads: u64,
    /// The measured rates that decided `copy_threads`, if they did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writers_measured: Option<WriteRates>,
    /// Bytes of the samples that were copied to it.
    pub written_bytes: u64,
    pub epoch_written_max_bytes: u64,
    /// The most that the job lets an epoch write to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes_per_epoch_bytes: Option<u64>,
    pub failed_writes: u64,
    /// Whether trainers read samples in place; absent for files, which they cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direct: Option<DirectEntry>,
    /// From `emulated`, `probe report FILE of DATE`, `calibration at this start`, `calibration FILE of DATE` or
    /// `none`; then why not from where they would have come first.
    #[serde(flatten)]
    pub figures: Figures,
    /// What it was used for: `retention-and-look-ahead`, `retention`, `look-ahead`, `staging` or `left-out`.
    #[serde(rename = "use")]
    pub role: &'static str,
    pub decision: String,
}

/// Where the batches of a rank were staged, on a host with CPUs on several NUMA nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RankPlacementEntry {
    pub rank: u32,
    /// The NUMA node near which its staging memory is.
    pub numa_node: u32,
    /// What decided it: `spread`, `likely-gpu`, `cpus-of-trainer` or `gpu-of-trainer`.
    pub because: &'static str,
    /// The share of its pages that the kernel found there at the end; `None` if it does not tell.
    pub on_node_percent: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct StagingEntry {
    /// Where it lies, of all ranks together: in main memory, and in other memory tiers if that holds no batch.
    pub parts: Vec<StagingPartEntry>,
    /// As [`TierEntry::stored`]; `None` if no trainer connected.
    pub stored: Option<&'static str>,
    /// As [`TierEntry::pages`]; `None` if no trainer connected.
    pub pages: Option<&'static str>,
    /// Where the batches of each rank were staged; empty on a host with CPUs on one NUMA node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankPlacementEntry>,
}

/// The staging memory that the budget of one tier holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StagingPartEntry {
    pub tier: &'static str,
    /// Of all ranks together.
    pub bytes: u64,
    /// Whether the tier is emulated; its speed is not imposed on staging.
    pub emulated: bool,
    /// `anywhere` if no NUMA node was asked for, `verified` if it was read back there, `preferred` if it may lie
    /// elsewhere ([`StagingEntry::ranks`]), `unverified` if the kernel does not tell; `None` if no trainer connected.
    pub placement: Option<&'static str>,
}

impl StagingEntry {
    /// Notes how it is stored, as that of the first rank, and the placements that were read back.
    pub fn note_use(&mut self, modes: &WriteModes) {
        (self.stored, self.pages) = modes.staging.map_or((None, None), named);
        for (part, placement) in self.parts.iter_mut().zip(&modes.staging_placements) {
            part.placement = Some(match placement {
                Placement::Anywhere => "anywhere",
                Placement::Verified { .. } => "verified",
                Placement::Preferred { .. } => "preferred",
                Placement::Unverified { .. } => "unverified",
            });
        }
    }

    /// A line of text on where it lies; `None` if that is main memory alone.
    #[must_use]
    pub fn places(&self) -> Option<String> {
        let part = |part: &StagingPartEntry| {
            let emulated = if part.emulated { " (emulated)" } else { "" };
            format!("{} in {}{emulated}", Bytes(part.bytes), part.tier)
        };
        let parts: Vec<_> = self.parts.iter().map(part).collect();
        (parts.len() > 1).then(|| format!("staging: {}", parts.join(", ")))
    }

    /// `None` if no trainer connected.
    #[must_use]
    pub fn choice(&self) -> Option<String> {
        Some(format!("staging: {}", words(self.stored?, self.pages).join(", ")))
    }
}

fn words(stored: &str, pages: Option<&str>) -> Vec<String> {
    let stored = match stored {
        "cached-stores" => "stores through the caches",
        "non-temporal-stores" => "stores past the caches",
        "direct-io" => "direct I/O",
        _ => "the page cache",
    };
    let pages = pages.map(|pages| match pages {
        "small" => "small pages".to_owned(),
        pages => format!("{pages} huge pages"),
    });
    [stored.to_owned()].into_iter().chain(pages).collect()
}

impl TierEntry {
    /// Notes how its bytes were stored, and how many.
    pub fn note_use(&mut self, way: Option<WriteMode>, traffic: &TierTraffic) {
        (self.stored, self.pages) = way.map_or((None, None), named);
        self.written_bytes = traffic.written.bytes.0;
        self.failed_writes = traffic.writes_failed;
    }

    /// `None` for files.
    #[must_use]
    pub fn direct_use(&self) -> Option<String> {
        Some(format!("direct use of {}: {}", self.name, self.direct.as_ref()?.why))
    }

    /// A line of text on the data plane's choices; `None` if the tier held nothing.
    #[must_use]
    pub fn choice(&self) -> Option<String> {
        let mut words = words(self.stored?, self.pages);
        words.push(match (self.copy_threads, self.writers_measured) {
            (1, None) => "1 copy thread".to_owned(),
            (threads, None) => format!("{threads} copy threads"),
            (threads, Some(rates)) => format!(
                "{threads} of 2 copy threads (measured: 1 writes {}, 2 write {})",
                rates.one, rates.two
            ),
        });
        words.extend(self.writes_per_epoch_bytes.map(|allowed| {
            let most = Bytes(self.epoch_written_max_bytes);
            format!("at most {most} written in an epoch of {} allowed", Bytes(allowed))
        }));
        Some(format!("{}: {}", self.name, words.join(", ")))
    }
}

fn named(way: WriteMode) -> (Option<&'static str>, Option<&'static str>) {
    match way {
        WriteMode::Memory { stores, pages } => {
            let stored = match stores {
                Stores::Cached => "cached-stores",
                Stores::NonTemporal => "non-temporal-stores",
            };
            let pages = match pages {
                HugePages::Reserved => Some("reserved"),
                HugePages::Transparent(Bytes(0)) => Some("small"),
                HugePages::Transparent(_) => Some("transparent"),
                HugePages::Unknown => None,
            };
            (Some(stored), pages)
        }
        WriteMode::PageCache => (Some("page-cache"), None),
        WriteMode::Direct => (Some("direct-io"), None),
    }
}

#[cfg(test)]
mod tests {
    use tierfeed_core::{tier::Kind, units::BytesPerSecond};
    use tierfeed_prefetcher::plane::Traffic;

    use super::*;

    fn used(way: Option<WriteMode>, mut planned: TierEntry) -> TierEntry {
        let kind = Kind::Storage;
        let (read, writes_failed) = (Traffic::default(), 2);
        let written = Traffic { operations: 3, bytes: Bytes::mib(90), failed: 0 };
        planned.note_use(way, &TierTraffic { kind, read, written, writes_failed });
        planned
    }

    fn planned() -> TierEntry {
        TierEntry { name: "storage", copy_threads: 2, ..TierEntry::default() }
    }

    #[test]
    fn wear_stands_beside_its_limit() {
        let most = Some(Bytes::mib(40).0);
        let epoch_written_max_bytes = Bytes::mib(30).0;
        let tier = TierEntry { writes_per_epoch_bytes: most, epoch_written_max_bytes, ..planned() };
        let tier = used(Some(WriteMode::Direct), tier);
        assert_eq!((tier.stored, tier.pages), (Some("direct-io"), None));
        assert_eq!((tier.written_bytes, tier.failed_writes), (Bytes::mib(90).0, 2));
        assert_eq!(
            tier.choice().unwrap(),
            "storage: direct I/O, 2 copy threads, at most 30 MiB written in an epoch of 40 MiB allowed"
        );
    }

    #[test]
    fn memory_says_how_it_is_stored_and_in_which_pages() {
        let choice = |stores, pages| {
            used(Some(WriteMode::Memory { stores, pages }), planned()).choice().unwrap()
        };
        assert_eq!(
            choice(Stores::NonTemporal, HugePages::Transparent(Bytes::mib(2))),
            "storage: stores past the caches, transparent huge pages, 2 copy threads"
        );
        assert_eq!(
            choice(Stores::Cached, HugePages::Transparent(Bytes(0))),
            "storage: stores through the caches, small pages, 2 copy threads"
        );
        assert!(choice(Stores::Cached, HugePages::Reserved).contains("reserved huge pages"));
        assert!(!choice(Stores::Cached, HugePages::Unknown).contains("pages"));
        let mut staging = StagingEntry::default();
        assert_eq!(staging.choice(), None, "no trainer came");
        staging.note_use(&WriteModes {
            staging: Some(WriteMode::Memory { stores: Stores::Cached, pages: HugePages::Reserved }),
            staging_placements: Vec::new(),
            tiers: Vec::new(),
        });
        assert_eq!(
            staging.choice().unwrap(),
            "staging: stores through the caches, reserved huge pages"
        );
    }

    #[test]
    fn the_number_of_writers_stands_beside_what_decided_it() {
        let (one, two) = (BytesPerSecond(17_000_000_000), BytesPerSecond(17_100_000_000));
        let writers_measured = Some(WriteRates { one, two });
        let tier = TierEntry { copy_threads: 1, writers_measured, ..planned() };
        let choice = used(Some(WriteMode::PageCache), tier).choice().unwrap();
        let expected = "1 of 2 copy threads (measured: 1 writes 17 GB/s, 2 write 17.10 GB/s)";
        assert!(choice.contains(expected), "{choice}");
    }

    #[test]
    fn a_tier_that_held_nothing_chose_nothing() {
        assert_eq!(used(None, planned()).choice(), None);
    }
}
