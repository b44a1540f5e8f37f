//! Whether trainers read samples of a memory tier in place: collects the measured rates for the choice that
//! the schedule makes, and follows it.

use std::num::NonZeroU32;

use tierfeed_core::{
    budget::{self, Percent},
    retention::in_place::{InPlaceDecision, Rates, ReadPath, Reason},
    tier::{Kind, Locality},
    units::{Bytes, BytesPerSecond, whole},
};
use tierfeed_prefetcher::tier::Backing;
use tierfeed_resource_gatherer::{
    Report,
    report::{Bandwidth, Pair, Traffic},
};

use super::Layout;

/// Spare addresses beyond a tier's chunks: a chunk with broken memory is not reused.
const SPARE_CHUNKS: u32 = 16;

impl Layout {
    /// Turns direct use off for tiers whose memory trainers cannot map.
    #[must_use]
    pub(crate) fn without_direct_use(mut self, is_mapped: impl Fn(usize) -> bool) -> Self {
        for (at, place) in self.tiers.iter_mut().enumerate() {
            if let Backing::SharedMemory(locality, _) = place.settings.backing
                && !is_mapped(at)
            {
                place.settings.backing = Backing::Memory(locality);
                place.direct = place.direct.map(|choice| InPlaceDecision {
                    path: ReadPath::Copied,
                    reason: Reason::NoAddresses,
                    ..choice
                });
            }
        }
        self
    }
}

/// The locality of memory that trainers map: one policy holds for all its chunks.
pub(super) fn mapped(backing: &Backing) -> Option<Locality> {
    match backing {
        Backing::Memory(locality) => Some(*locality),
        Backing::Spread(nodes) => {
            Some(nodes.first().map_or(Locality::Anywhere, |it| Locality::Near(*it)))
        }
        _ => None,
    }
}

/// The most chunks that a tier can have: one with a share grows to the size of the dataset or the memory,
/// the smaller of the two.
pub(super) fn chunks_max(
    cache: Bytes,
    share: Option<Percent>,
    chunk: Bytes,
    most: Bytes,
) -> NonZeroU32 {
    let most = budget::chunks_max(cache, share, most, chunk).saturating_add(SPARE_CHUNKS);
    NonZeroU32::new(most).unwrap_or(NonZeroU32::MAX)
}

/// The measured rates of a tier and of main memory, each from its best CPUs, with `copy_threads` threads.
pub(super) fn rates(
    kind: Kind,
    backing: &Backing,
    copy_threads: NonZeroU32,
    report: &Report,
) -> Option<Rates> {
    let of_kind = |kind: Kind| report.tiers.iter().filter(move |tier| tier.kind == kind);
    let main = of_kind(Kind::MainMemory).find_map(|tier| tier.numa_node)?;
    let tier = match backing {
        Backing::Memory(Locality::Numa(node)) | Backing::SharedMemory(Locality::Numa(node), _) => {
            let is_known = of_kind(kind).any(|tier| tier.numa_nodes.contains(&node.0));
            is_known.then_some(node.0)
        }
        // Memory that emulates CXL was not measured as CXL memory.
        _ => (kind == Kind::MainMemory).then_some(main),
    };
    let (tier, main) = (pair_of(report, tier?)?, pair_of(report, main)?);
    Some(Rates {
        tier_copying: read_by(tier, copy_threads.get())?,
        tier_alone: read_by(tier, 1)?,
        main_memory: read_by(main, 1)?,
    })
}

/// The measurement from a node's best CPUs; `None` if CPU caches held the data.
fn pair_of(report: &Report, target: u32) -> Option<&Pair> {
    let best = report.pairs.iter().find(|pair| pair.is_best && pair.target == target);
    best.filter(|pair| !pair.cache_bound)
}

/// The read rate of `threads` threads, or of the largest smaller number that was measured.
fn read_by(pair: &Pair, threads: u32) -> Option<BytesPerSecond> {
    let reads = pair.bandwidth.iter().filter(|it| it.traffic == Traffic::Read);
    let fewer = reads.filter(|it| it.threads <= threads);
    let Bandwidth { bytes_per_s, .. } = fewer.max_by_key(|it| it.threads)?;
    Some(BytesPerSecond(whole(bytes_per_s.median)))
}

#[cfg(test)]
pub(crate) mod tests {
    use tierfeed_core::id::NumaNode;

    use super::*;

    /// Two sockets with memory and a CXL card that is nearer to the first one. The probe made it from the
    /// sysfs tree of such a machine; its rates are invented and all different.
    pub(crate) fn machine() -> Report {
        serde_json::from_str(include_str!("two-sockets-and-cxl.json")).unwrap()
    }

    fn of(kind: Kind, locality: Locality, copy_threads: u32, report: &Report) -> Option<Rates> {
        let threads = NonZeroU32::new(copy_threads).unwrap();
        rates(kind, &Backing::Memory(locality), threads, report)
    }

    fn cxl(node: u32, copy_threads: u32, report: &Report) -> Option<Rates> {
        of(Kind::CxlMemory, Locality::Numa(NumaNode(node)), copy_threads, report)
    }

    fn mb_per_s(tier_copying: u64, tier_alone: u64, main_memory: u64) -> Rates {
        let rate = |mb| BytesPerSecond(mb * 1_000_000);
        Rates {
            tier_copying: rate(tier_copying),
            tier_alone: rate(tier_alone),
            main_memory: rate(main_memory),
        }
    }

    #[test]
    fn rates_are_those_of_the_cpus_that_reach_each_memory_best() {
        let report = machine();
        // From the first socket; the main-memory tier of the report is that of the second one.
        assert_eq!(cxl(2, 2, &report), Some(mb_per_s(16_400, 8_700, 13_400)));
        assert_eq!(cxl(2, 1, &report), Some(mb_per_s(8_700, 8_700, 13_400)), "one copies");
        assert_eq!(cxl(2, 3, &report), Some(mb_per_s(16_400, 8_700, 13_400)), "two of four");
        let main = of(Kind::MainMemory, Locality::Anywhere, 2, &report);
        assert_eq!(main, Some(mb_per_s(26_300, 13_400, 13_400)));
    }

    #[test]
    fn memory_that_is_in_no_tier_of_the_report_has_no_rates() {
        let report = machine();
        assert_eq!(cxl(3, 2, &report), None, "a node that was not there");
        assert_eq!(cxl(1, 2, &report), None, "a neighbour node that emulates a card");
        let played = of(Kind::CxlMemory, Locality::Anywhere, 2, &report);
        assert_eq!(played, None, "main memory that emulates one");
    }

    fn reads_of(report: &mut Report, target: u32) -> &mut Vec<Bandwidth> {
        let pair = report.pairs.iter_mut().find(|pair| pair.is_best && pair.target == target);
        &mut pair.unwrap().bandwidth
    }

    #[test]
    fn a_rate_that_is_missing_leaves_nothing_to_choose_by() {
        type Change = fn(&mut Report);
        let without: [(&str, Change); 7] = [
            ("the card from the first socket", |it| {
                it.pairs.retain(|pair| (pair.initiator, pair.target) != (0, 2));
            }),
            ("the card without caches", |it| {
                it.pairs.iter_mut().for_each(|it| it.cache_bound = true);
            }),
            ("reads by one thread", |it| reads_of(it, 2).retain(|it| it.threads > 1)),
            ("main memory", |it| it.pairs.retain(|pair| pair.target != 1)),
            ("reads of main memory", |it| reads_of(it, 1).retain(|it| it.traffic != Traffic::Read)),
            ("the tier", |it| it.tiers.retain(|tier| tier.kind != Kind::CxlMemory)),
            ("the tier of main memory", |it| it.tiers.retain(|tier| tier.kind != Kind::MainMemory)),
        ];
        for (what, take_away) in without {
            let mut report = machine();
            take_away(&mut report);
            assert_eq!(cxl(2, 2, &report), None, "{what}");
        }
        let mut report = machine();
        reads_of(&mut report, 2).retain(|it| it.threads != 2);
        let alone = Some(mb_per_s(8_700, 8_700, 13_400));
        assert_eq!(cxl(2, 2, &report), alone, "by two threads: as one, not as four");
    }
}
