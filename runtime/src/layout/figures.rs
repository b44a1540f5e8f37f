//! The figures of the tiers that an agent offers.
//!
//! They are those of the job file (`emulate`), else those that were measured at the same place ([`Measured`]),
//! else there are none. A RAM disk without figures has those of the memory that it lies in, and says so.

use tierfeed_core::{
    fleet::schedule::Figures,
    tier::{Kind, Locality, Speed, rank::Rated},
    units::{BytesPerSecond, Nanoseconds, whole},
};
use tierfeed_prefetcher::tier::Backing;
use tierfeed_resource_gatherer::{Inventory, classify::Profile};

use super::measured::{Measurable, Measured, TierFigures};

#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) kind: Kind,
    pub(super) backing: &'a Backing,
    /// The speed in the job file.
    pub(super) emulated: Option<Speed>,
}

/// The figures of a tier on the host `now`.
pub(super) fn of_tier(candidate: &Candidate<'_>, measured: &Measured, now: &Inventory) -> Figures {
    let kind = candidate.kind;
    if let Some(speed) = candidate.emulated {
        let player = measured.of_tier(now, Kind::MainMemory, Measurable::MainMemory).profile;
        let profile = Profile::emulated(kind, speed, player.as_ref());
        let from = emulated_from(&profile, speed.bandwidth);
        return stated(&profile, from);
    }
    let Some(subject) = subject(candidate) else { return Figures::none() };
    let TierFigures { profile, from } = measured.of_tier(now, kind, subject);
    match (profile, subject) {
        (None, Measurable::RamDisk(node)) => below_ram_disk(node, from, measured, now),
        _ => stated(&profile.unwrap_or(Profile::unmeasured(kind)), from),
    }
}

/// The source of the figures of an emulated tier. One that is slower than it was `asked` to be says why.
fn emulated_from(profile: &Profile, asked: BytesPerSecond) -> String {
    match profile.rated().bytes_per_s.map(whole) {
        Some(given) if given < asked.0 => {
            format!("emulated; {asked} asked, main memory gives {}", BytesPerSecond(given))
        }
        _ => "emulated".to_owned(),
    }
}

/// The figures of the memory that a RAM disk lies in, which it is no faster than.
fn below_ram_disk(
    node: Option<u32>,
    absent: String,
    measured: &Measured,
    now: &Inventory,
) -> Figures {
    let memory = node.map_or(Measurable::MainMemory, Measurable::NumaNode);
    match measured.of_memory(now, memory) {
        TierFigures { profile: Some(profile), from } => stated(
            &profile.as_kind(Kind::Scratch),
            format!("{from}, of {memory} below it; RAM disk: {absent}"),
        ),
        _ => stated(&Profile::unmeasured(Kind::Scratch), absent),
    }
}

/// Where the bytes of a tier lie; `None` for memory of any node that emulates CXL memory, which was not measured
/// as such.
fn subject<'a>(candidate: &Candidate<'a>) -> Option<Measurable<'a>> {
    match candidate.backing {
        Backing::Directory(path) => Some(Measurable::Directory(path)),
        Backing::RamDisk(_, locality) => {
            Some(Measurable::RamDisk(locality.node().map(|node| node.0)))
        }
        Backing::Memory(Locality::Numa(node)) | Backing::SharedMemory(Locality::Numa(node), _) => {
            Some(Measurable::NumaNode(node.0))
        }
        Backing::Memory(_) | Backing::SharedMemory(..) | Backing::Spread(_) => {
            (candidate.kind == Kind::MainMemory).then_some(Measurable::MainMemory)
        }
    }
}

fn stated(profile: &Profile, from: String) -> Figures {
    let Rated { latency_ns, bytes_per_s, .. } = profile.rated();
    Figures {
        latency: latency_ns.map(|latency| Nanoseconds(whole(latency))),
        bandwidth: bytes_per_s.map(|rate| BytesPerSecond(whole(rate))),
        from,
        is_rough: false,
    }
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, time::Duration};

    use tierfeed_core::{fleet::first_schedule::fastest_of, id::NumaNode};
    use tierfeed_resource_gatherer::{
        classify::classify,
        inventory::{Boot, Mount, mount::Medium},
        probe::estimate::Estimate,
    };

    use super::{
        super::{direct::tests::machine, measured::SavedReport},
        *,
    };

    const MAIN: (Kind, Backing) = (Kind::MainMemory, Backing::Memory(Locality::Anywhere));
    const PLAYED: (Kind, Backing) = (Kind::CxlMemory, Backing::Memory(Locality::Anywhere));
    const CARD: (Kind, Backing) = (Kind::CxlMemory, Backing::Memory(Locality::Numa(NumaNode(2))));

    fn directory(kind: Kind, path: &str) -> (Kind, Backing) {
        (kind, Backing::Directory(path.into()))
    }

    fn figures(
        (kind, backing): &(Kind, Backing),
        emulated: Option<Speed>,
        measured: Option<&SavedReport>,
    ) -> Figures {
        let now = measured.map(|saved| saved.report.inventory.clone()).unwrap_or_default();
        let measured = measured.cloned().map(Measured::from).unwrap_or_default();
        of_tier(&Candidate { kind: *kind, backing, emulated }, &measured, &now)
    }

    fn ram_disk_mount() -> Mount {
        Mount {
            path: "/ram".into(),
            root: "/".into(),
            file_system: "tmpfs".to_owned(),
            source: "tmpfs".to_owned(),
            device: "0:40".to_owned(),
            medium: Medium::Memory,
            options: String::new(),
            overlay_upper: None,
        }
    }

    /// The probe report of a machine with a card of 17.6 GB/s and a RAM disk of `ram_disk` GB/s at `/ram`.
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
        report.inventory.boot = Some(Boot::default());
        report.inventory.mounts = vec![ram_disk_mount()];
        let written = Some(std::time::UNIX_EPOCH + Duration::from_secs(1_709_164_800));
        SavedReport { report, file: "/tiers.json".into(), written }
    }

    #[test]
    fn emulated_figures_count_as_measured_but_are_no_faster_than_what_plays_them() {
        let gb_per_s = |gb: u64| BytesPerSecond(gb * 1_000_000_000);
        let speed = |gb| Speed { latency: Nanoseconds(350), bandwidth: gb_per_s(gb) };
        let found = figures(&PLAYED, Some(speed(2)), None);
        let expected = (Some(Nanoseconds(350)), Some(gb_per_s(2)), "emulated");
        assert_eq!((found.latency, found.bandwidth, found.from.as_str()), expected);
        let slower = figures(&PLAYED, Some(speed(9_000)), Some(&saved(1.0)));
        let given = slower.bandwidth.filter(|rate| *rate < gb_per_s(9_000));
        let given = given.expect("main memory plays it");
        let words = format!("emulated; {} asked, main memory gives {given}", gb_per_s(9_000));
        assert_eq!(slower.from, words);
    }

    #[test]
    fn measured_figures_say_where_they_come_from() {
        let scratch = figures(&directory(Kind::Scratch, "/ram/job"), None, Some(&saved(40.0)));
        assert_eq!(scratch.latency, Some(Nanoseconds(900)));
        assert_eq!(scratch.bandwidth, Some(BytesPerSecond(40_000_000_000)));
        assert_eq!(scratch.from, "probe report /tiers.json of 2024-02-29");
        let card = figures(&CARD, None, Some(&saved(40.0)));
        let copied = Some(BytesPerSecond(15_800_000_000));
        assert_eq!(card.bandwidth, copied, "by chunks that came into main memory");
    }

    #[test]
    fn a_ram_disk_without_figures_has_those_of_the_memory_below_it_and_says_so() {
        let on = |node| {
            let locality = Locality::Numa(NumaNode(node));
            (Kind::Scratch, Backing::RamDisk("/run/scratch".into(), locality))
        };
        let (measured, card) = (saved(40.0), figures(&CARD, None, Some(&saved(40.0))));
        let found = figures(&on(2), None, Some(&measured));
        assert_eq!((found.bandwidth, found.latency), (card.bandwidth, card.latency));
        assert!(
            found.from.ends_with("of memory of NUMA node 2 below it; RAM disk: none"),
            "{found:?}"
        );
        assert_eq!(figures(&on(7), None, Some(&measured)), Figures::none());
    }

    #[test]
    fn figures_of_another_place_are_no_figures() {
        let measured = saved(40.0);
        for other in [
            directory(Kind::Scratch, "/ramp"),
            directory(Kind::Storage, "/ram"),
            (Kind::CxlMemory, Backing::Memory(Locality::Numa(NumaNode(1)))),
        ] {
            assert_eq!(figures(&other, None, Some(&measured)), Figures::none(), "{other:?}");
        }
    }

    #[test]
    fn the_job_and_the_probe_rank_the_same_figures_alike() {
        let tiers = [CARD, directory(Kind::Scratch, "/ram"), MAIN];
        for ram_disk in [0.5, 4.0, 14.0, 20.0, 40.0] {
            let measured = saved(ram_disk);
            let report = &measured.report;
            let profile = |tier| report.profile(tier).unwrap();
            let profiles: Vec<Profile> = report.tiers.iter().map(profile).collect();
            let order = classify(&profiles).concat();
            let kinds = order.into_iter().map(|index| profiles[index].rated().kind);
            let by_probe: Vec<Kind> = kinds.filter(|kind| *kind != Kind::MainMemory).collect();
            let found = tiers.each_ref().map(|tier| figures(tier, None, Some(&measured)));
            let ranked = fastest_of(tiers.iter().map(|(kind, _)| *kind).zip(&found));
            let by_job: Vec<Kind> = ranked[1..].iter().map(|index| tiers[*index].0).collect();
            assert_eq!(by_job, by_probe, "{ram_disk} GB/s");
        }
    }
}
