//! Whether trainers read samples of a memory tier where they lie: what the choice of the core rests on here.

use std::num::NonZeroU32;

use tierfeed_core::{
    direct::{Choice, Facts, Lengths, Pace, Rates, Reason, Verified, Way, Wish, choose},
    id::NumaNode,
    tier::{Kind, Locality},
    units::{Bytes, BytesPerSecond},
};
use tierfeed_prefetcher::{handoff::SHELVES_MAX, tier::Backing};
use tierfeed_resource_gatherer::{
    Report,
    report::{Bandwidth, Pair, Traffic},
};
use tierfeed_workload_analyzer::{Job, job::Verify};

use super::{Layout, Place};

/// Addresses beyond the chunks that a tier may have: where memory broke, a chunk is not used again.
const SPARE_CHUNKS: u64 = 16;

impl Layout {
    /// Chooses for every memory tier of which the job does not say that it is copied, whose samples have these lengths, by what was measured.
    #[must_use]
    pub fn with_direct_use(
        mut self,
        job: &Job,
        sizes: impl Iterator<Item = Bytes>,
        measured: Option<&Report>,
    ) -> Self {
        let (lengths, total) = look_at(sizes);
        let (chunk, mut shelves) = (self.chunk, 0);
        for place in &mut self.places {
            let Some(wish) = wish(job, place) else { continue };
            let mut choice = choose(&facts(job, wish, place, lengths, measured));
            if choice.way == Way::Direct && shelves == SHELVES_MAX {
                choice = Choice { way: Way::Copied, reason: Reason::NoAddresses, ..choice };
            }
            if let (Way::Direct, Backing::Memory(locality)) = (choice.way, &place.settings.backing)
            {
                let chunks_max = chunks_max(place, chunk, total);
                place.settings.backing = Backing::Shelf(*locality, chunks_max);
                shelves += 1;
            }
            place.direct = Some(choice);
        }
        self
    }

    /// Copies from the tiers of which the data plane has no memory that trainers can map.
    #[must_use]
    pub(crate) fn without_shelves(mut self, is_shelved: impl Fn(usize) -> bool) -> Self {
        for (at, place) in self.places.iter_mut().enumerate() {
            if let Backing::Shelf(locality, _) = place.settings.backing
                && !is_shelved(at)
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

/// The most chunks that a tier can come to have: one with a share grows as far as the dataset reaches.
fn chunks_max(place: &Place, chunk: Bytes, dataset: Bytes) -> NonZeroU32 {
    let chunks = place.cache.0 / chunk.0.max(1);
    let of_use = dataset.0 / chunk.0.max(1) + 2;
    let most = if place.share.is_some() { chunks.max(of_use) } else { chunks };
    let most = u32::try_from(most.saturating_add(SPARE_CHUNKS)).unwrap_or(u32::MAX);
    NonZeroU32::new(most).unwrap_or(NonZeroU32::MAX)
}

/// What the job says of a tier; `None` where there is nothing to choose.
fn wish(job: &Job, place: &Place) -> Option<Wish> {
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
    place: &Place,
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

/// What was measured of a tier and of main memory, by the CPUs that reach each best.
fn rates(place: &Place, report: &Report) -> Option<Rates> {
    let node = match place.settings.backing {
        Backing::Memory(Locality::Numa(node)) | Backing::Shelf(Locality::Numa(node), _) => {
            Some(node)
        }
        _ => None,
    };
    let of_kind = |kind: Kind| report.tiers.iter().filter(move |tier| tier.kind == kind);
    let tier = of_kind(place.settings.kind).find(|tier| match node {
        Some(NumaNode(node)) => tier.numa_nodes.contains(&node),
        None => true,
    })?;
    let tier = node.map(|node| node.0).or(tier.numa_node)?;
    let main = of_kind(Kind::MainMemory).find_map(|tier| tier.numa_node)?;
    let (tier, main) = (pair_of(report, tier)?, pair_of(report, main)?);
    Some(Rates {
        tier_copying: read_by(tier, place.settings.copy_threads.get())?,
        tier_alone: read_by(tier, 1)?,
        main_memory: read_by(main, 1)?,
    })
}

fn pair_of(report: &Report, target: u32) -> Option<&Pair> {
    report.pairs.iter().find(|pair| pair.is_best && pair.target == target)
}

/// How fast as many threads read, or the most of those that were measured with fewer.
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
mod tests {
    use super::*;

    #[test]
    fn one_other_length_is_enough_to_differ() {
        let sizes = |lens: &[u64]| look_at(lens.iter().map(|len| Bytes(*len)));
        assert_eq!(sizes(&[]), (Lengths::One, Bytes(0)));
        assert_eq!(sizes(&[7, 7, 7]), (Lengths::One, Bytes(21)));
        assert_eq!(sizes(&[7, 7, 8]), (Lengths::Several, Bytes(22)));
    }
}
