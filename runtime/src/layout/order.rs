//! Decides the order of the tiers of a job, and says why.
//!
//! 1. Main memory is the first tier, because batches are staged there.
//! 2. The others stand as the probe classifies them ([`classify`]): by the time that a chunk takes into main
//!    memory, by kind where these times are within 30 %.
//! 3. The figures of a tier are those of the job file (`emulate`), else those that the last probe of this
//!    host measured at the same place, else there are none. Then the tier stands where its kind would, but
//!    memory before every tier that is slower than any memory.

use std::path::Path;

use tierfeed_core::{
    fleet::Standing,
    tier::{Kind, Locality, Speed},
    units::{BytesPerSecond, Nanoseconds},
};
use tierfeed_prefetcher::tier::Backing;
use tierfeed_resource_gatherer::{
    classify::{Profile, RATIO_MAX, classify},
    report,
};

use super::measured::SavedReport;

/// The places of a tier in words; a host has fewer.
const ORDINALS: [&str; 10] =
    ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"];

/// A tier before it has its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) kind: Kind,
    pub(super) backing: &'a Backing,
    /// The speed in the job file.
    pub(super) emulated: Option<Speed>,
}

/// The indices of `candidates`, fastest first, each with what decided its place.
pub(super) fn rank(
    candidates: &[Candidate<'_>],
    measured: Option<&SavedReport>,
) -> Vec<(usize, Standing)> {
    let (profiles, standings): (Vec<Profile>, Vec<Standing>) =
        candidates.iter().map(|candidate| figures(candidate, measured)).unzip();
    let order = fastest_first(&profiles);
    let ranked: Vec<Profile> = order.iter().map(|index| profiles[*index]).collect();
    let standing = |(place, index): (usize, &usize)| {
        let decision = decision(&ranked, place);
        (*index, Standing { decision, ..standings[*index].clone() })
    };
    order.iter().enumerate().map(standing).collect()
}

/// The indices of tiers with these figures, fastest first after main memory.
pub(crate) fn fastest_first(profiles: &[Profile]) -> Vec<usize> {
    let mut order = classify(profiles).concat();
    // Stable, so that the others keep their order.
    order.sort_by_key(|index| profiles[*index].kind() != Kind::MainMemory);
    order
}

/// What the classification looks at, and the same figures as they are shown.
fn figures(candidate: &Candidate<'_>, measured: Option<&SavedReport>) -> (Profile, Standing) {
    let kind = candidate.kind;
    if let Some(speed) = candidate.emulated {
        let player = measured.and_then(|saved| profile(saved, |it| it.kind == Kind::MainMemory));
        let standing = Standing {
            latency: Some(speed.latency),
            bandwidth: Some(speed.bandwidth).filter(|rate| rate.0 > 0),
            figures_from: "emulated".to_owned(),
            ..Standing::default()
        };
        return (Profile::emulated(kind, speed, player.as_ref()), standing);
    }
    let found =
        measured.and_then(|saved| Some((saved, profile(saved, |it| is_of(it, candidate))?)));
    let Some((saved, profile)) = found else {
        let standing = Standing { figures_from: "none".to_owned(), ..Standing::default() };
        return (Profile::unmeasured(kind), standing);
    };
    let standing = Standing {
        latency: profile.latency_ns().map(|latency| Nanoseconds(whole(latency))),
        bandwidth: profile.bytes_per_s().map(|rate| BytesPerSecond(whole(rate))),
        figures_from: saved.to_string(),
        ..Standing::default()
    };
    (profile, standing)
}

/// The figures of the first tier of a report that `is_it`. Of nested directories, that is the innermost one.
fn profile(saved: &SavedReport, is_it: impl Fn(&report::Tier) -> bool) -> Option<Profile> {
    let depth = |tier: &report::Tier| tier.path.as_deref().map_or(0, |path| path.iter().count());
    let tiers = saved.report.tiers.iter().filter(|tier| is_it(tier));
    // The first of those that are as deep: `max_by_key` returns the last.
    let tier = tiers.rev().max_by_key(|tier| depth(tier))?;
    saved.report.profile(tier)
}

/// Whether the probe measured the place of `candidate` as this tier.
fn is_of(tier: &report::Tier, candidate: &Candidate<'_>) -> bool {
    let holds = |path: &Path| tier.path.as_deref().is_some_and(|there| path.starts_with(there));
    tier.kind == candidate.kind
        && match candidate.backing {
            Backing::Directory(path) => holds(path),
            Backing::Memory(Locality::Numa(node))
            | Backing::SharedMemory(Locality::Numa(node), _) => tier.numa_nodes.contains(&node.0),
            // Memory of any node that emulates CXL memory was not measured as such.
            Backing::Memory(Locality::Anywhere) | Backing::SharedMemory(Locality::Anywhere, _) => {
                candidate.kind == Kind::MainMemory
            }
        }
}

/// The place of a tier among `ranked` and the reason, in a sentence.
fn decision(ranked: &[Profile], place: usize) -> String {
    let ordinal =
        ORDINALS.get(place).map_or_else(|| format!("{}th", place + 1), |it| (*it).to_owned());
    format!("{ordinal}: {}", reason(ranked, place))
}

fn reason(ranked: &[Profile], place: usize) -> String {
    let this = &ranked[place];
    if this.kind() == Kind::MainMemory {
        return "batches are staged in main memory".to_owned();
    }
    let (Some(cost), Some(rate)) = (this.chunk_cost_ns(), this.bytes_per_s()) else {
        return unmeasured_reason(this, &ranked[place + 1..]);
    };
    let rate = BytesPerSecond(whole(rate));
    let others = |tiers: &[Profile]| -> Vec<(Kind, f64)> {
        let beside = tiers.iter().filter(|it| it.kind() != Kind::MainMemory);
        beside.filter_map(|it| Some((it.kind(), it.chunk_cost_ns()?))).collect()
    };
    if let Some((other, before)) = others(&ranked[..place]).pop() {
        return if cost > before * RATIO_MAX {
            format!("{rate}, slower than {other}")
        } else {
            format!(
                "{rate}, within 30 % of {other}, which stands before it by {}",
                tie(this, other)
            )
        };
    }
    let before = ranked[..place].iter().rfind(|it| it.kind() != Kind::MainMemory);
    if let Some(before) = before.filter(|_| this.is_slower_than_memory()) {
        return format!("{rate}, slower than any memory, which {} is", before.kind());
    }
    match others(&ranked[place + 1..]).first() {
        Some((other, after)) if *after > cost * RATIO_MAX => {
            format!("{rate}, faster than {other}")
        }
        Some((other, _)) => {
            format!(
                "{rate}, within 30 % of {other}, which stands after it by {}",
                tie(this, *other)
            )
        }
        None => format!("{rate}, and no other tier beside main memory has figures"),
    }
}

/// What decides between tiers that are as fast.
fn tie(tier: &Profile, other: Kind) -> &'static str {
    if tier.kind() == other { "its figures" } else { "its kind" }
}

fn unmeasured_reason(tier: &Profile, after: &[Profile]) -> String {
    let slow = after.iter().find(|it| it.kind() < tier.kind() && it.is_slower_than_memory());
    match slow.and_then(|slow| Some((slow.kind(), slow.bytes_per_s()?))) {
        Some((kind, rate)) => {
            let rate = BytesPerSecond(whole(rate));
            format!("no figures, but any memory is faster than {kind} with {rate}")
        }
        None => "no figures, so it stands where its kind does".to_owned(),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a figure is positive and far below 2^53"
)]
fn whole(figure: f64) -> u64 {
    figure.max(0.0).round() as u64
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, time::Duration};

    use tierfeed_core::id::NumaNode;
    use tierfeed_resource_gatherer::probe::estimate::Estimate;

    use super::{super::direct::tests::machine, *};

    const MAIN: (Kind, Backing) = (Kind::MainMemory, Backing::Memory(Locality::Anywhere));
    const PLAYED: (Kind, Backing) = (Kind::CxlMemory, Backing::Memory(Locality::Anywhere));
    const CARD: (Kind, Backing) = (Kind::CxlMemory, Backing::Memory(Locality::Numa(NumaNode(2))));

    fn directory(kind: Kind, path: &str) -> (Kind, Backing) {
        (kind, Backing::Directory(path.into()))
    }

    fn mb_per_s(mb: u64) -> Option<Speed> {
        Some(Speed { latency: Nanoseconds(0), bandwidth: BytesPerSecond(mb * 1_000_000) })
    }

    /// Each tier in its order, with what decided it.
    fn ranked(
        tiers: &[((Kind, Backing), Option<Speed>)],
        measured: Option<&SavedReport>,
    ) -> Vec<(Kind, Standing)> {
        let candidates: Vec<_> = tiers
            .iter()
            .map(|((kind, backing), emulated)| Candidate {
                kind: *kind,
                backing,
                emulated: *emulated,
            })
            .collect();
        let ranked = rank(&candidates, measured);
        ranked.into_iter().map(|(index, standing)| (candidates[index].kind, standing)).collect()
    }

    fn decisions(
        tiers: &[((Kind, Backing), Option<Speed>)],
        measured: Option<&SavedReport>,
    ) -> Vec<String> {
        ranked(tiers, measured).into_iter().map(|(_, standing)| standing.decision).collect()
    }

    const STAGED: &str = "first: batches are staged in main memory";

    #[test]
    fn emulated_figures_decide_as_measured_ones_do() {
        let scratch = || directory(Kind::Scratch, "/ram");
        let tiers = [(MAIN, None), (PLAYED, mb_per_s(50)), (scratch(), mb_per_s(2_000))];
        let found = ranked(&tiers, None);
        let kinds: Vec<Kind> = found.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [Kind::MainMemory, Kind::Scratch, Kind::CxlMemory]);
        assert_eq!(
            decisions(&tiers, None),
            [
                STAGED,
                "second: 2 GB/s, faster than cxl-memory",
                "third: 50 MB/s, slower than scratch"
            ]
        );
        let (_, cxl) = &found[2];
        assert_eq!(
            (cxl.latency, cxl.bandwidth, cxl.figures_from.as_str()),
            (Some(Nanoseconds(0)), Some(BytesPerSecond(50_000_000)), "emulated")
        );
        assert_eq!(found[0].1.figures_from, "none");
    }

    #[test]
    fn main_memory_is_the_first_tier_however_slow_it_is() {
        let tiers = [(MAIN, mb_per_s(10)), (PLAYED, mb_per_s(5_000))];
        let found = decisions(&tiers, None);
        assert_eq!(
            found,
            [STAGED, "second: 5 GB/s, and no other tier beside main memory has figures"]
        );
    }

    #[test]
    fn a_tie_is_decided_by_kind_and_a_tier_without_figures_stands_where_its_kind_does() {
        let scratch = || directory(Kind::Scratch, "/ram");
        let tiers = [(MAIN, None), (PLAYED, mb_per_s(2_000)), (scratch(), mb_per_s(2_400))];
        assert_eq!(
            decisions(&tiers, None)[1..],
            [
                "second: 2 GB/s, within 30 % of scratch, which stands after it by its kind",
                "third: 2.40 GB/s, within 30 % of cxl-memory, which stands before it by its kind"
            ]
        );
        let unknown = [(MAIN, None), (PLAYED, mb_per_s(2_000)), (scratch(), None)];
        let sentence = "third: no figures, so it stands where its kind does";
        assert_eq!(decisions(&unknown, None)[2], sentence);
        let slow = [(MAIN, None), (PLAYED, mb_per_s(50)), (scratch(), None)];
        let sentence = "second: no figures, but any memory is faster than cxl-memory with 50 MB/s";
        assert_eq!(decisions(&slow, None)[1], sentence);
    }

    /// The probe report of a machine with a card of 17.6 GB/s and a RAM disk of so many GB/s at `/ram`.
    fn saved(ram_disk: f64) -> SavedReport {
        let mut report = machine();
        let mut tier = report.tiers[1].clone();
        tier.kind = Kind::Scratch;
        tier.numa_nodes = Vec::new();
        tier.path = Some(PathBuf::from("/ram"));
        tier.name = "scratch".to_owned();
        tier.estimates.read_bytes_per_s = Some(Estimate::stated(ram_disk * 1e9));
        tier.estimates.idle_latency_ns = Some(Estimate::stated(900.4));
        report.tiers.push(tier);
        let written = Some(std::time::UNIX_EPOCH + Duration::from_secs(1_709_164_800));
        SavedReport { report, file: "/tiers.json".into(), written }
    }

    #[test]
    fn measured_figures_decide_and_say_where_they_come_from() {
        let tiers = [(MAIN, None), (CARD, None), (directory(Kind::Scratch, "/ram/job"), None)];
        let found = ranked(&tiers, Some(&saved(40.0)));
        let (kind, scratch) = &found[1];
        assert_eq!(*kind, Kind::Scratch);
        assert_eq!(scratch.latency, Some(Nanoseconds(900)));
        assert_eq!(scratch.bandwidth, Some(BytesPerSecond(40_000_000_000)));
        assert_eq!(scratch.figures_from, "probe report /tiers.json of 2024-02-29");
        let copied = Some(BytesPerSecond(15_800_000_000));
        assert_eq!(found[2].1.bandwidth, copied, "by chunks that came into main memory");
        assert_eq!(ranked(&tiers, Some(&saved(4.0)))[1].0, Kind::CxlMemory, "as the kinds stand");
    }

    #[test]
    fn figures_of_another_place_are_no_figures() {
        let measured = saved(40.0);
        for other in [
            directory(Kind::Scratch, "/ramp"),
            directory(Kind::Storage, "/ram"),
            (Kind::CxlMemory, Backing::Memory(Locality::Numa(NumaNode(1)))),
        ] {
            let found = ranked(&[(MAIN, None), (other.clone(), None)], Some(&measured));
            assert_eq!(found[1].1.figures_from, "none", "{other:?}");
            assert_eq!(found[1].1.bandwidth, None, "{other:?}");
        }
    }

    #[test]
    fn the_job_and_the_probe_rank_the_same_figures_alike() {
        let tiers = [(CARD, None), (directory(Kind::Scratch, "/ram"), None), (MAIN, None)];
        for ram_disk in [0.5, 4.0, 14.0, 20.0, 40.0] {
            let measured = saved(ram_disk);
            let report = &measured.report;
            let profile = |tier| report.profile(tier).unwrap();
            let profiles: Vec<Profile> = report.tiers.iter().map(profile).collect();
            let order = classify(&profiles).concat();
            let kinds = order.into_iter().map(|index| profiles[index].kind());
            let by_probe: Vec<Kind> = kinds.filter(|kind| *kind != Kind::MainMemory).collect();
            let found = ranked(&tiers, Some(&measured));
            let by_job: Vec<Kind> = found[1..].iter().map(|(kind, _)| *kind).collect();
            assert_eq!(by_job, by_probe, "{ram_disk} GB/s");
        }
    }
}
