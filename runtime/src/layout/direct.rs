//! Whether trainers read samples of a memory tier in place: collects the facts for the core's choice.

use std::num::NonZeroU32;

use tierfeed_core::{
    retention::in_place::{
        Choice, Facts, Lengths, Pace, Rates, Reason, Verified, Way, Wish, choose,
    },
    tier::{Kind, Locality},
    units::{Bytes, BytesPerSecond},
};
use tierfeed_handoff::SHARED_TIERS_MAX;
use tierfeed_prefetcher::tier::Backing;
use tierfeed_resource_gatherer::{
    Report,
    report::{Bandwidth, Pair, Traffic},
};
use tierfeed_workload_analyzer::{Job, job::Verify};

use super::{Layout, Node, TierLayout};

/// Spare addresses beyond a tier's chunks: a chunk with broken memory is not reused.
const SPARE_CHUNKS: u64 = 16;

impl Layout {
    /// Chooses for every memory tier, unless the job file says that it is copied, by rates that were
    /// measured with as many threads as copy. `sizes` are the lengths of the samples.
    pub(super) fn with_direct_use(
        mut self,
        job: &Job,
        node: &Node,
        sizes: impl Iterator<Item = Bytes>,
        measured: Option<&Report>,
    ) -> Self {
        let (lengths, total) = look_at(sizes);
        let (chunk, mut shared_tiers) = (self.chunk, 0);
        for place in &mut self.tiers {
            let Some(wish) = wish(job, place) else { continue };
            let mut choice = choose(&facts(job, wish, place, lengths, measured));
            if choice.way == Way::Direct && shared_tiers == SHARED_TIERS_MAX {
                choice = Choice { way: Way::Copied, reason: Reason::NoAddresses, ..choice };
            }
            if let (Way::Direct, Backing::Memory(locality)) = (choice.way, &place.settings.backing)
            {
                let most = total.min(node.memory_at(*locality));
                let chunks_max = chunks_max(place, chunk, most);
                place.settings.backing = Backing::SharedMemory(*locality, chunks_max);
                shared_tiers += 1;
            }
            place.direct = Some(choice);
        }
        self
    }

    /// Turns direct use off for tiers whose memory trainers cannot map.
    #[must_use]
    pub(crate) fn without_direct_use(mut self, is_mapped: impl Fn(usize) -> bool) -> Self {
        for (at, place) in self.tiers.iter_mut().enumerate() {
            if let Backing::SharedMemory(locality, _) = place.settings.backing
                && !is_mapped(at)
            {
                place.settings.backing = Backing::Memory(locality);
                place.direct = place.direct.map(|choice| Choice {
                    way: Way::Copied,
                    reason: Reason::NoAddresses,
                    ..choice
                });
            }
        }
        self
    }
}

fn look_at(mut sizes: impl Iterator<Item = Bytes>) -> (Lengths, Bytes) {
    let Some(first) = sizes.next() else { return (Lengths::One, Bytes(0)) };
    let (mut lengths, mut total) = (Lengths::One, first.0);
    for len in sizes {
        if len != first {
            lengths = Lengths::Several;
        }
        total = total.saturating_add(len.0);
    }
    (lengths, Bytes(total))
}

/// The most chunks that a tier can have: one with a share grows to the size of the dataset or the memory,
/// the smaller of the two.
fn chunks_max(place: &TierLayout, chunk: Bytes, most: Bytes) -> NonZeroU32 {
    let chunks = place.cache.0 / chunk.0.max(1);
    let of_use = most.0 / chunk.0.max(1) + 2;
    let most = if place.share.is_some() { chunks.max(of_use) } else { chunks };
    let most = u32::try_from(most.saturating_add(SPARE_CHUNKS)).unwrap_or(u32::MAX);
    NonZeroU32::new(most).unwrap_or(NonZeroU32::MAX)
}

/// The job's setting of a tier; `None` where there is no choice.
fn wish(job: &Job, place: &TierLayout) -> Option<Wish> {
    let kind = place.settings.kind;
    let wish = job.tiers.iter().find(|request| request.kind == kind).map(|it| it.direct);
    match kind {
        Kind::CxlMemory => Some(wish.unwrap_or_default()),
        Kind::MainMemory => wish.filter(|wish| *wish != Wish::Never),
        Kind::Scratch | Kind::Storage => None,
    }
}

fn facts(
    job: &Job,
    wish: Wish,
    place: &TierLayout,
    lengths: Lengths,
    measured: Option<&Report>,
) -> Facts {
    Facts {
        wish,
        rates: measured.and_then(|report| rates(place, report)),
        stay: job.policy.stay(job.shuffle),
        verified: match job.verify {
            Verify::Shared => Verified::Never,
            Verify::Always => Verified::Always,
        },
        lengths,
        pace: if place.settings.emulated.is_some() { Pace::Imposed } else { Pace::Own },
    }
}

/// The measured rates of a tier and of main memory, each from its best CPUs.
fn rates(place: &TierLayout, report: &Report) -> Option<Rates> {
    let kind = place.settings.kind;
    let of_kind = |kind: Kind| report.tiers.iter().filter(move |tier| tier.kind == kind);
    let main = of_kind(Kind::MainMemory).find_map(|tier| tier.numa_node)?;
    let tier = match place.settings.backing {
        Backing::Memory(Locality::Numa(node)) | Backing::SharedMemory(Locality::Numa(node), _) => {
            let is_known = of_kind(kind).any(|tier| tier.numa_nodes.contains(&node.0));
            is_known.then_some(node.0)
        }
        // Memory that emulates CXL was not measured as CXL memory.
        _ => (kind == Kind::MainMemory).then_some(main),
    };
    let (tier, main) = (pair_of(report, tier?)?, pair_of(report, main)?);
    Some(Rates {
        tier_copying: read_by(tier, place.settings.copy_threads.get())?,
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
fn read_by(pair: &Pair, threads: usize) -> Option<BytesPerSecond> {
    let reads = pair.bandwidth.iter().filter(|it| it.traffic == Traffic::Read);
    let fewer = reads.filter(|it| it.threads as usize <= threads);
    let Bandwidth { bytes_per_s, .. } = fewer.max_by_key(|it| it.threads)?;
    let rate = bytes_per_s.median;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is far from the ends of 64 bits, and a cast of a float saturates"
    )]
    let rate = rate as u64;
    Some(BytesPerSecond(rate))
}

#[cfg(test)]
pub(super) mod tests {
    use std::num::NonZeroUsize;

    use tierfeed_core::{
        fleet::{Origin, Standing},
        id::NumaNode,
    };
    use tierfeed_prefetcher::tier::TierSettings;

    use super::*;
    use crate::layout::MEMORY;

    /// Two sockets with memory and a CXL card that is nearer to the first one. The probe made it from the
    /// sysfs tree of such a machine; its rates are invented and all different.
    pub(in crate::layout) fn machine() -> Report {
        serde_json::from_str(include_str!("two-sockets-and-cxl.json")).unwrap()
    }

    fn place(kind: Kind, locality: Locality, copy_threads: usize) -> TierLayout {
        TierLayout {
            settings: TierSettings {
                kind,
                backing: Backing::Memory(locality),
                emulated: None,
                copy_threads: NonZeroUsize::new(copy_threads).unwrap(),
                cpus: Vec::new(),
            },
            budget: Bytes(0),
            cache: Bytes(0),
            pool: MEMORY,
            share: None,
            origin: Origin::Real,
            direct: None,
            writers: None,
            standing: Standing::default(),
        }
    }

    fn cxl(node: u32, copy_threads: usize) -> TierLayout {
        place(Kind::CxlMemory, Locality::Numa(NumaNode(node)), copy_threads)
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
    fn one_other_length_is_enough_to_differ() {
        let sizes = |lens: &[u64]| look_at(lens.iter().map(|len| Bytes(*len)));
        assert_eq!(sizes(&[]), (Lengths::One, Bytes(0)));
        assert_eq!(sizes(&[7, 7, 7]), (Lengths::One, Bytes(21)));
        assert_eq!(sizes(&[7, 7, 8]), (Lengths::Several, Bytes(22)));
    }

    #[test]
    fn rates_are_those_of_the_cpus_that_reach_each_memory_best() {
        let report = machine();
        // From the first socket; the main-memory tier of the report is that of the second one.
        assert_eq!(rates(&cxl(2, 2), &report), Some(mb_per_s(16_400, 8_700, 13_400)));
        assert_eq!(rates(&cxl(2, 1), &report), Some(mb_per_s(8_700, 8_700, 13_400)), "one copies");
        assert_eq!(
            rates(&cxl(2, 3), &report),
            Some(mb_per_s(16_400, 8_700, 13_400)),
            "two of four"
        );
        let main = place(Kind::MainMemory, Locality::Anywhere, 2);
        assert_eq!(rates(&main, &report), Some(mb_per_s(26_300, 13_400, 13_400)));
        let shared = Backing::SharedMemory(Locality::Numa(NumaNode(2)), NonZeroU32::MIN);
        let mut tier = cxl(2, 2);
        tier.settings.backing = shared;
        assert_eq!(rates(&tier, &report), Some(mb_per_s(16_400, 8_700, 13_400)));
    }

    #[test]
    fn memory_that_is_in_no_tier_of_the_report_has_no_rates() {
        let report = machine();
        assert_eq!(rates(&cxl(3, 2), &report), None, "a node that was not there");
        assert_eq!(rates(&cxl(1, 2), &report), None, "a neighbour node that emulates a card");
        let played = place(Kind::CxlMemory, Locality::Anywhere, 2);
        assert_eq!(rates(&played, &report), None, "main memory that emulates one");
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
            assert_eq!(rates(&cxl(2, 2), &report), None, "{what}");
        }
        let mut report = machine();
        reads_of(&mut report, 2).retain(|it| it.threads != 2);
        let alone = Some(mb_per_s(8_700, 8_700, 13_400));
        assert_eq!(rates(&cxl(2, 2), &report), alone, "by two threads: as one, not as four");
    }
}
