//! The resources of a node for a job, before the manager has decided which of them are used, and how.

use std::{num::NonZeroUsize, path::Path};

use tierfeed_core::{
    budget::{Claim, Percent, Request, allot},
    fleet::{
        first_schedule::{COPY_THREADS, copy_threads, fastest_of},
        schedule::{
            Device, Figures, FoundTier, Location, Offer, Role, Schedule, ScheduledTier,
            TransformOffer, WriteRates,
        },
    },
    retention::in_place::{Rates, ReadPath, SpeedOrigin},
    tier::{Kind, Locality},
    units::Bytes,
};
use tierfeed_dataset::source::Location as Source;
use tierfeed_prefetcher::tier::{Backing, TierSettings};
use tierfeed_resource_gatherer::Report;
use tierfeed_workload_analyzer::{Job, demand::Demand, job::JobScratch};

use super::{
    Layout, LayoutError, LeftOut, Measured, Node, Overcommit, Staged, Standing, TierClaim,
    TierLayout, direct, figures, staging::parts as staging_parts, staging_min, tier_claims,
    with_overcommit, writers,
};
use crate::schedule::{staging, transforms};

/// The tiers of a job that a node has, with their budgets, and the cold store as it reads it.
#[derive(Debug)]
pub struct Found {
    tiers: Vec<FoundClaim>,
    cold: Figures,
    transform: Option<TransformOffer>,
}

#[derive(Debug)]
struct FoundClaim {
    claim: TierClaim,
    /// What the manager is told of it.
    tier: FoundTier,
}

impl Found {
    /// Looks for the tiers of `job` on `node`, with the figures in the job file and those that were
    /// `measured` on this node.
    pub fn on(
        job: &Job,
        demand: &Demand,
        node: &Node,
        overcommit: Overcommit,
        measured: &Measured,
    ) -> Result<Self, LayoutError> {
        let staging = staging(job, demand);
        let mut wanted = Vec::new();
        for request in &job.tiers {
            wanted.extend(tier_claims(request, node, staging)?);
        }
        let wanted = fastest_first(wanted, measured, node);
        let claims: Vec<Claim> = wanted.iter().map(|(it, _)| it.claim).collect();
        let budgets = match overcommit {
            Overcommit::Refused => allot(&claims, node.pools())?,
            Overcommit::Allowed => allot(&claims, &with_overcommit(&claims, node.pools()))?,
        };
        let mut tiers = Vec::new();
        for ((claim, figures), budget) in wanted.into_iter().zip(budgets) {
            let kind = claim.claim.kind;
            let mut budget = claim.within_capacity(budget, overcommit)?;
            if (kind, overcommit) == (Kind::MainMemory, Overcommit::Allowed) {
                budget = budget.max(staging_min(staging));
            }
            let beside = match job.job_scratch {
                Some(JobScratch { size, .. }) if kind == Kind::Scratch => size,
                _ => Bytes(0),
            };
            if beside > budget {
                return Err(LayoutError::NoJobScratch { budget, size: beside });
            }
            let rates = measured.report(node).map(|report| rates(&claim, report));
            let (writes, reads) = rates.unwrap_or_default();
            let tier = FoundTier {
                kind,
                origin: claim.origin,
                location: location(&claim.backing),
                device: device(job, node, &claim),
                budget,
                beside,
                figures,
                pace: if claim.speed.is_some() { SpeedOrigin::Imposed } else { SpeedOrigin::Own },
                reads,
                writes,
            };
            tiers.push(FoundClaim { claim, tier });
        }
        let transform = job.transform.as_ref();
        let transform = transform.map(|_| TransformOffer::of_threads(transforms::threads(job)));
        Ok(Self { tiers, cold: measured.of_cold_store(job, node), transform })
    }

    #[must_use]
    pub fn offer(&self) -> Offer {
        Offer {
            tiers: self.tiers.iter().map(|found| found.tier.clone()).collect(),
            cold: self.cold.clone(),
            transform: self.transform.clone(),
        }
    }

    /// With what was measured of the transform of the job, if it has one.
    #[must_use]
    pub fn with_transform(mut self, measured: impl FnOnce(&mut TransformOffer)) -> Self {
        if let Some(offer) = &mut self.transform {
            measured(offer);
        }
        self
    }

    /// The layout of the job by a schedule that was made of [`Self::offer`].
    #[must_use]
    pub fn layout(self, demand: &Demand, node: &Node, schedule: &Schedule) -> Layout {
        let transforming = schedule.transforming(&self.offer());
        let mut left: Vec<Option<FoundClaim>> = self.tiers.into_iter().map(Some).collect();
        let (mut tiers, mut left_out) = (Vec::new(), Vec::new());
        for scheduled in &schedule.tiers {
            let found = left.get_mut(scheduled.offered as usize).and_then(Option::take);
            let Some(found) = found else { continue };
            if scheduled.role == Role::LeftOut {
                left_out.push(found.left_out(scheduled));
            } else {
                tiers.push(found.used(scheduled, schedule.chunk, |locality| {
                    demand.total.min(node.memory_at(locality))
                }));
            }
        }
        Layout {
            staged: Staged {
                arena: schedule.arena,
                depth: schedule.depth,
                depth_max: schedule.depth_max,
                windows: schedule.windows,
                first_room: schedule.look_ahead,
                transforming,
            },
            staging: staging_parts(schedule, &tiers),
            tiers,
            left_out,
            chunk: schedule.chunk,
            cold: self.cold,
        }
    }
}

impl FoundClaim {
    fn standing(figures: Figures, scheduled: &ScheduledTier) -> Standing {
        Standing { figures, role: scheduled.role, decision: scheduled.reason.clone() }
    }

    fn left_out(self, scheduled: &ScheduledTier) -> LeftOut {
        LeftOut {
            kind: self.tier.kind,
            budget: self.tier.budget,
            origin: self.tier.origin,
            standing: Self::standing(self.tier.figures, scheduled),
        }
    }

    fn used(
        self,
        scheduled: &ScheduledTier,
        chunk: Bytes,
        memory_of_use: impl Fn(Locality) -> Bytes,
    ) -> TierLayout {
        let TierClaim { claim, backing, speed, cpus, origin, .. } = self.claim;
        let share: Option<Percent> = match claim.request {
            Request::Size(_) => None,
            Request::Share(share) => Some(share),
        };
        let is_direct = scheduled.direct.is_some_and(|choice| choice.path == ReadPath::Direct);
        let backing = match direct::mapped(&backing) {
            Some(locality) if is_direct => {
                let most = memory_of_use(locality);
                let chunks_max = direct::chunks_max(scheduled.cache, share, chunk, most);
                Backing::SharedMemory(locality, chunks_max)
            }
            _ => backing,
        };
        let threads = usize::try_from(scheduled.copy_threads).ok().and_then(NonZeroUsize::new);
        TierLayout {
            settings: TierSettings {
                kind: claim.kind,
                backing,
                emulated: speed,
                copy_threads: threads.unwrap_or(NonZeroUsize::MIN),
                cpus,
            },
            budget: self.tier.budget,
            cache: scheduled.cache,
            pool: claim.pool,
            share,
            origin,
            direct: scheduled.direct,
            writers: self.tier.writes,
            standing: Self::standing(self.tier.figures, scheduled),
        }
    }
}

/// The measured rates of writers and readers of a tier.
fn rates(claim: &TierClaim, report: &Report) -> (Option<WriteRates>, Option<Rates>) {
    let writes = writers::rates(claim, report);
    // The cost of a copy depends on the number of threads.
    let threads = writes.map_or(COPY_THREADS, copy_threads);
    (writes, direct::rates(claim.claim.kind, &claim.backing, threads, report))
}

/// The claims with the figures of each, fastest first: where shares of one memory do not fit, the fastest
/// gets its own.
fn fastest_first(
    claims: Vec<TierClaim>,
    measured: &Measured,
    node: &Node,
) -> Vec<(TierClaim, Figures)> {
    let figures =
        claims.iter().map(|it| figures::of_tier(&it.candidate(), measured, node.inventory()));
    let figures: Vec<Figures> = figures.collect();
    let kinds = claims.iter().map(|it| it.claim.kind);
    let order = fastest_of(kinds.zip(&figures));
    let mut left: Vec<_> = claims.into_iter().zip(figures).map(Some).collect();
    order.into_iter().filter_map(|index| left[index].take()).collect()
}

fn location(backing: &Backing) -> Location {
    match backing {
        Backing::Directory(path) | Backing::RamDisk(path, _) => {
            Location::Directory(path.to_string_lossy().into_owned())
        }
        Backing::Memory(locality) | Backing::SharedMemory(locality, _) => {
            locality.node().map_or(Location::Memory, Location::NumaNode)
        }
        Backing::Spread(_) => Location::Memory,
    }
}

/// Whether a directory lies on the disk of the dataset. What the job emulates counts as a disk of its own.
fn device(job: &Job, node: &Node, claim: &TierClaim) -> Device {
    let is_played = claim.speed.is_some() || job.cold.speed.is_some();
    match (&claim.backing, &job.dataset.source) {
        (Backing::Directory(path), Source::Path(source))
            if claim.claim.kind == Kind::Storage && !is_played =>
        {
            if node.is_one_disk(path, Path::new(source)) {
                Device::OfTheDataset
            } else {
                Device::Own
            }
        }
        _ => Device::Own,
    }
}
