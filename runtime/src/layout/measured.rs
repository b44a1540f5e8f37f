//! The measurements of this host that decide about the tiers of a job.
//!
//! Figures come from the last probe report, from the calibration of this start, or from an earlier one. Those
//! that the host has outgrown do not count, and the reason is told with what counts instead. The plan of a
//! job and the agent that runs it both call this, so that they agree.

mod saved;

use std::{
    fmt,
    path::{Path, PathBuf},
};

use tierfeed_core::{
    fleet::schedule::Figures,
    tier::Kind,
    units::{BytesPerSecond, Nanoseconds, whole},
};
use tierfeed_dataset::source::{Access, Address, Location};
use tierfeed_resource_gatherer::{
    Inventory, Report,
    calibrate::Calibration,
    classify::Profile,
    freshness::{self, Stale},
    report::Tier,
};
use tierfeed_workload_analyzer::Job;

use self::saved::SavedCalibration;
pub use self::saved::{SavedReport, calibration_file, report_at};
use super::Node;

const MEMORY_OF_NODE: &str = "memory of NUMA node ";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measurable<'a> {
    /// Main memory, wherever it lies.
    MainMemory,
    NumaNode(u32),
    Directory(&'a Path),
    /// A RAM disk whose files lie on this node; without a node, where the kernel puts them.
    RamDisk(Option<u32>),
    /// The cold store, by the path or the URL of the dataset.
    ColdStore(&'a str),
}

impl fmt::Display for Measurable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MainMemory => f.write_str("main memory"),
            Self::NumaNode(node) => write!(f, "{MEMORY_OF_NODE}{node}"),
            Self::Directory(path) => path.display().fmt(f),
            Self::RamDisk(None) => f.write_str("RAM disk of the agent"),
            Self::RamDisk(Some(node)) => write!(f, "RAM disk on NUMA node {node}"),
            Self::ColdStore(place) => write!(f, "the cold store {place}"),
        }
    }
}

/// Everything that was measured of a host, at any time.
///
/// A figure of a probe counts before one of a calibration. None counts unless the host is as it was then
/// ([`freshness`]); a start calibrates only what has no figure that counts.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    probe: Option<SavedReport>,
    saved: Option<SavedCalibration>,
    /// What this process calibrated.
    own: Option<Calibration>,
    /// Why it has no figures of some places.
    failures: Vec<(String, String)>,
}

/// Figures of a tier, and where they come from; or why there are none.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TierFigures {
    pub(crate) profile: Option<Profile>,
    pub(crate) from: String,
}

impl From<SavedReport> for Measured {
    fn from(report: SavedReport) -> Self {
        Self { probe: Some(report), ..Self::default() }
    }
}

impl Measured {
    /// Reads the files of this user: the probe report at `path`, and beside it the calibration of `host`.
    #[must_use]
    pub fn saved(path: &Path, host: &str) -> Self {
        let saved = SavedCalibration::read(path, host);
        Self { probe: report_at(path), saved, ..Self::default() }
    }

    #[must_use]
    pub fn with_own(self, own: Calibration, failures: Vec<(String, String)>) -> Self {
        Self { own: Some(own), failures, ..self }
    }

    /// Everything that was calibrated on the host, for the next run there.
    pub(crate) fn calibrated(&self) -> Option<Calibration> {
        let own = self.own.clone()?;
        let saved = self.saved.as_ref().map(|saved| saved.calibration.clone());
        Some(match saved {
            Some(saved) => saved.updated(own),
            None => own,
        })
    }

    /// The probe report, if its figures of memory are those of the host `now`.
    #[must_use]
    pub fn report(&self, now: &Node) -> Option<&Report> {
        let report = &self.probe.as_ref()?.report;
        let now = now.inventory();
        let nodes: Vec<u32> = report.inventory.memory_nodes().map(|node| node.id).collect();
        freshness::memory(&report.inventory, now, &nodes).is_ok().then_some(report)
    }

    #[must_use]
    pub fn has(&self, now: &Inventory, subject: Measurable<'_>) -> bool {
        match subject {
            Measurable::ColdStore(store) => self.cold_at(now, store).bandwidth.is_some(),
            subject => self.of_subject(now, None, subject).profile.is_some(),
        }
    }

    pub(crate) fn of_tier(
        &self,
        now: &Inventory,
        kind: Kind,
        subject: Measurable<'_>,
    ) -> TierFigures {
        self.of_subject(now, Some(kind), subject)
    }

    /// Searches tiers of all kinds.
    pub(crate) fn of_memory(&self, now: &Inventory, subject: Measurable<'_>) -> TierFigures {
        self.of_subject(now, None, subject)
    }

    /// The figures of the cold store of `job`: those that it imposes, else measured ones.
    #[must_use]
    pub fn of_cold_store(&self, job: &Job, now: &Node) -> Figures {
        match job.cold.speed {
            Some(speed) => Figures {
                latency: Some(speed.latency),
                bandwidth: Some(speed.bandwidth).filter(|rate| rate.0 > 0),
                from: "emulated".to_owned(),
                is_rough: false,
            },
            None => self.cold_at(now.inventory(), &cold_place(&job.dataset.source)),
        }
    }

    fn cold_at(&self, now: &Inventory, place: &str) -> Figures {
        let mut stale = Vec::new();
        for (calibration, from) in self.calibrations() {
            let Some(store) = calibration.cold(place) else { continue };
            match store.fresh(&calibration.inventory, now) {
                Ok(()) => {
                    let doubt = store.doubt();
                    let is_rough = doubt.is_some();
                    stale.splice(..0, doubt);
                    return Figures {
                        latency: Some(Nanoseconds(whole(store.latency_ns.median))),
                        bandwidth: Some(BytesPerSecond(whole(store.read_bytes_per_s.median))),
                        from: in_words(&from, &stale),
                        is_rough,
                    };
                }
                Err(why) => stale.push(format!("{from}: {why}")),
            }
        }
        stale.extend(self.failure(Measurable::ColdStore(place)));
        Figures { from: in_words("none", &stale), ..Figures::none() }
    }

    fn of_subject(
        &self,
        now: &Inventory,
        kind: Option<Kind>,
        subject: Measurable<'_>,
    ) -> TierFigures {
        let real = match subject {
            Measurable::Directory(path) => without_links(path),
            _ => PathBuf::new(),
        };
        let (asked, subject) = match subject {
            Measurable::Directory(_) => (subject, Measurable::Directory(&real)),
            subject => (subject, subject),
        };
        let mut stale = Vec::new();
        if let Some((saved, tier)) = self.probed(kind, subject)
            && let Some(profile) = saved.report.profile(tier)
        {
            match fresh(&saved.report.inventory, now, tier, subject) {
                Ok(()) => return TierFigures { profile: Some(profile), from: saved.to_string() },
                Err(why) => stale.push(format!("{saved}: {why}")),
            }
        }
        for (calibration, from) in self.calibrations() {
            let inventory = &calibration.inventory;
            let found = calibration.tiers.iter().rev().filter(|tier| is_at(tier, subject));
            let mut found = found.map(|tier| (tier, fresh(inventory, now, tier, subject)));
            if let Some((tier, outcome)) = found.clone().find(|it| it.1.is_ok()).or(found.next()) {
                match outcome {
                    Ok(()) => {
                        let profile =
                            tier.profile().map(|it| it.as_kind(kind.unwrap_or(tier.kind)));
                        return TierFigures { profile, from: in_words(&from, &stale) };
                    }
                    // Of another directory, it says nothing of this one.
                    Err(_) if !is_very(tier, subject) => (),
                    Err(why) => stale.push(format!("{from}: {why}")),
                }
            }
        }
        stale.extend(self.failure(asked));
        TierFigures { profile: None, from: in_words("none", &stale) }
    }

    /// The tier of the probe report that was measured at `subject`. Of nested directories, that is the innermost
    /// one.
    fn probed(&self, kind: Option<Kind>, subject: Measurable<'_>) -> Option<(&SavedReport, &Tier)> {
        let saved = self.probe.as_ref()?;
        let depth = |tier: &Tier| tier.path.as_deref().map_or(0, |path| path.iter().count());
        let is_it = |tier: &&Tier| {
            let holds = |path: &Path| tier.path.as_deref().is_some_and(|it| path.starts_with(it));
            kind.is_none_or(|kind| kind == tier.kind)
                && match subject {
                    Measurable::Directory(path) => holds(path),
                    subject => is_at(tier, subject),
                }
        };
        let tiers = saved.report.tiers.iter().filter(is_it);
        // The first of those that are as deep: `max_by_key` returns the last.
        Some((saved, tiers.rev().max_by_key(|tier| depth(tier))?))
    }

    /// The calibrations, each with its source. The earlier one comes first: this start calibrated because it
    /// does not hold.
    fn calibrations(&self) -> impl Iterator<Item = (&Calibration, String)> {
        let own = self.own.iter().map(|own| (own, "calibration at this start".to_owned()));
        let saved = self.saved.iter().map(|saved| (&saved.calibration, saved.to_string()));
        saved.chain(own)
    }

    fn failure(&self, subject: Measurable<'_>) -> Option<String> {
        let name = subject.to_string();
        let is_it = |failed: &str| match subject {
            // The failure names the node.
            Measurable::MainMemory => failed.starts_with(MEMORY_OF_NODE),
            _ => failed == name,
        };
        let found = self.failures.iter().find(|(failed, _)| is_it(failed));
        found.map(|(_, why)| format!("not measured: {why}"))
    }
}

/// Whether the figures of `tier` are right for `subject` on the host `now`.
fn fresh(
    then: &Inventory,
    now: &Inventory,
    tier: &Tier,
    subject: Measurable<'_>,
) -> Result<(), Stale> {
    match (subject, &tier.path) {
        (Measurable::Directory(path), Some(measured)) => {
            freshness::directory(then, now, (measured, path))
        }
        _ => freshness::tier(then, now, tier),
    }
}

/// Whether `tier` may have the figures of `subject`; those of a directory hold on all of its mount.
fn is_at(tier: &Tier, subject: Measurable<'_>) -> bool {
    match subject {
        Measurable::MainMemory => tier.kind == Kind::MainMemory && tier.path.is_none(),
        Measurable::NumaNode(node) => tier.numa_nodes.contains(&node) && !tier.is_any_ram_disk(),
        Measurable::RamDisk(node) => tier.is_any_ram_disk() && tier.numa_node == node,
        Measurable::Directory(_) => tier.path.is_some(),
        Measurable::ColdStore(_) => false,
    }
}

/// Whether `tier` was measured at `subject` itself.
fn is_very(tier: &Tier, subject: Measurable<'_>) -> bool {
    match subject {
        Measurable::Directory(path) => tier.path.as_deref().is_some_and(|it| path.starts_with(it)),
        subject => is_at(tier, subject),
    }
}

/// The source of figures, and the reasons why they do not come from a preferred source.
fn in_words(from: &str, stale: &[String]) -> String {
    [from].into_iter().chain(stale.iter().map(String::as_str)).collect::<Vec<_>>().join("; ")
}

/// The path with all its links followed, as far as it exists.
pub(crate) fn without_links(path: &Path) -> PathBuf {
    let real = path.ancestors().find_map(|there| Some((there, there.canonicalize().ok()?)));
    match real {
        Some((there, real)) if there == path => real,
        Some((there, real)) => real.join(path.strip_prefix(there).unwrap_or(path)),
        None => path.to_owned(),
    }
}

/// The name of a cold store: two servers may have the same buckets.
pub(crate) fn cold_place(source: &Location) -> String {
    match source {
        Location::Bucket(Address { url, access: Access { endpoint: Some(endpoint), .. } }) => {
            format!("{url} at {endpoint}")
        }
        Location::Path(path) => without_links(path).display().to_string(),
        source @ Location::Bucket(_) => source.to_string(),
    }
}

#[cfg(test)]
mod tests;
