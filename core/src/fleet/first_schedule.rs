//! Makes the schedule of a node: what it found, classified and divided, by the inputs of the job.
//!
//! The manager makes one for each agent; `plan`, `analyze` and the simulator make the same one without a
//! network. It is a pure function of [`ScheduleInputs`] and [`Offer`]: equal inputs give equal bytes on the wire.
//!
//! 1. A tier is left out if its chunks cost over 30 % more than those of the cold store, by the measure of
//!    the classification, or if it lies on the disk that holds the dataset: reading there would take from the
//!    rate of the cold store.
//! 2. The others stand as the probe classifies them ([`order`]).
//! 3. Main memory is divided into staging, as deep as [`depth`] says with room for more, and cache. If it holds no batch, CXL
//!    memory holds the rest of staging ([`Staging::beyond_main_memory`]).
//! 4. Of all caches together, as much is kept free for samples to come as the phases that the job declares
//!    are worth ([`look_ahead`]).

mod chunk;
mod depth;
mod form;
mod look_ahead;
mod order;

use alloc::{borrow::ToOwned, collections::BTreeMap, format, string::String, vec, vec::Vec};
use core::num::NonZeroU32;

pub use self::{
    form::{PreparedLength, Settled, TransformTerms, may_depend_on_own_lengths},
    look_ahead::Phases,
};
use super::schedule::{
    Device, Figures, FoundTier, LinkWindows, Location, Offer, Role, Schedule, ScheduledTier,
    TransformSchedule, WriteRates,
};
use crate::{
    budget::{Infeasible, Staging},
    id::Epoch,
    retention::{
        in_place::{
            InPlaceDecision, InPlaceInputs, InPlaceMode, ReadPath, Reason, SHARED_TIERS_MAX,
            SampleLengths, Verify, choose,
        },
        policy::{self, Stay},
    },
    session::{Form, LookAhead, Windows},
    tier::{Kind, rank::RATIO_MAX},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

/// Threads that copy from and to each tier, unless a measurement says that one suffices.
pub const COPY_THREADS: NonZeroU32 = NonZeroU32::new(2).expect("2 is not 0");

/// A second writer must reach more than this percentage of the rate of one.
const WORTH: u128 = 110;

/// The inputs of a schedule beside the node: the job and its dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleInputs {
    /// Ranks of each node.
    pub ranks: u32,
    /// The length of a large batch in staging.
    pub batch: Bytes,
    pub batch_samples: u32,
    /// The mean length of a sample.
    pub sample: Bytes,
    /// Reads of the cold store that an agent carries out at the same time.
    pub cold_threads: NonZeroU32,
    /// Reads of the cold store that are given out at a time at first.
    pub reads_at_first: NonZeroU32,
    /// The computing time of a step; `None` if it is not known.
    pub step_time: Option<Nanoseconds>,
    /// The most batches that are staged ahead; `None` if the job does not say.
    pub depth_max: Option<u32>,
    /// The unit in which tiers grow; `None` if the job does not say.
    pub chunk: Option<Bytes>,
    pub policy: policy::Kind,
    /// For how long it keeps a sample where it lies.
    pub stay: Stay,
    pub verify: Verify,
    /// Whether samples have one length.
    pub lengths: SampleLengths,
    /// The modes for direct use, by kind of tier.
    pub modes: BTreeMap<Kind, InPlaceMode>,
    /// Whether the job says how much may be written to storage in an epoch.
    pub limits_writes: bool,
    pub look_ahead: LookAhead,
    /// The phases of the training; `None` if the job does not say.
    pub phases: Option<Phases>,
    /// `None` in a job without a transform.
    pub transform: Option<TransformTerms>,
}

impl ScheduleInputs {
    fn staging(&self, depth: u32) -> Staging {
        Staging { ranks: self.ranks, batches: depth, batch: self.batch }
    }
}

/// The first schedule of a node that found this.
///
/// # Errors
///
/// If main memory and the memory behind CXL together hold no batch.
pub fn of(inputs: &ScheduleInputs, offer: &Offer) -> Result<Schedule, Infeasible> {
    let Some(roomy) = form::with_room_for_prepared(inputs, offer) else {
        return staged_as(inputs, offer);
    };
    let reason = match staged_as(&roomy, offer) {
        Ok(schedule) => match &schedule.transform {
            Some(TransformSchedule { form: Form::Stored, reason, .. }) => reason.clone(),
            _ => return Ok(schedule),
        },
        Err(error) if form::is_settled(inputs) => {
            return Err(Infeasible { form: Form::Prepared, ..error });
        }
        Err(_) => "main memory has no room to stage batches of prepared samples".to_owned(),
    };
    // The room that prepared samples would need in staging is not taken from the tiers.
    staged_as(&form::with_stored(inputs, reason), offer)
}

/// The schedule with batches as long in staging as the inputs say.
fn staged_as(inputs: &ScheduleInputs, offer: &Offer) -> Result<Schedule, Infeasible> {
    let is_main = |tier: &&FoundTier| tier.kind == Kind::MainMemory;
    let main = offer.tiers.iter().find(is_main).map(|tier| tier.budget);
    let (depth, depth_reason) = depth::depth(inputs, offer, main.unwrap_or_default());
    let depth_max = depth::deepest(inputs, depth, main.unwrap_or_default());
    let split = inputs.staging(depth_max).within(main.unwrap_or_default());
    let placed = placed(inputs, offer);
    let staged = match main {
        Some(budget) => {
            let rooms: Vec<_> = placed.iter().map(room_for_staging).collect();
            inputs.staging(depth_max).beyond_main_memory(budget, split.arena, &rooms)?
        }
        None => vec![Bytes(0); placed.len()],
    };
    let beyond: u64 = staged.iter().map(|part| part.0).sum();
    let cache = |(tier, staged): (&FoundTier, Bytes)| {
        if tier.kind == Kind::MainMemory {
            return split.cache;
        }
        let taken = staged.0.saturating_mul(inputs.ranks.into());
        Bytes(tier.budget.0.saturating_sub(tier.beside.0).saturating_sub(taken))
    };
    let with_staged = placed.iter().zip(&staged).filter(|(it, _)| it.role != Role::LeftOut);
    let caches = with_staged.map(|(it, staged)| cache((it.found, *staged)));
    let chunk =
        inputs.chunk.unwrap_or_else(|| chunk::fitting(caches, inputs.batch, inputs.batch_samples));
    let whole = |cache: Bytes| Bytes(cache.0 - cache.0 % chunk.0.max(1));
    let mut shared_tiers = 0;
    let tier = |(RankedTier { offered, found, role, reason }, staging): (RankedTier<'_>, Bytes)| {
        let direct = direct(inputs, found, role, &mut shared_tiers);
        ScheduledTier {
            offered: u32::try_from(offered).unwrap_or(u32::MAX),
            role,
            cache: match role {
                Role::LeftOut => Bytes(0),
                _ => whole(cache((found, staging))),
            },
            staging,
            copy_threads: found.writes.map_or(COPY_THREADS, copy_threads).get(),
            direct,
            reason,
        }
    };
    let tiers: Vec<_> = placed.into_iter().zip(staged).map(tier).collect();
    let transform = inputs.transform.as_ref().map(|inputs| form::transform(inputs, offer, &tiers));
    let wished = wished_look_ahead(inputs, transform.as_ref());
    let caches = tiers.iter().map(|tier: &ScheduledTier| tier.cache.0);
    let capacity = Bytes(caches.fold(0, u64::saturating_add));
    let rate = offer.cold.bandwidth;
    let (look_ahead, reason) = look_ahead::first_room(wished, inputs.phases, rate, capacity, depth);
    Ok(Schedule {
        generation: 0,
        first_epoch: Epoch(0),
        tiers,
        chunk,
        arena: Bytes(split.arena.0 + beyond),
        depth,
        depth_max,
        depth_reason,
        windows: windows(inputs, &offer.cold),
        look_ahead,
        reason,
        transform,
    })
}

/// The job's mode for look-ahead; off where tiers hold prepared samples, which the cold store does not have.
fn wished_look_ahead(inputs: &ScheduleInputs, transform: Option<&TransformSchedule>) -> LookAhead {
    match transform {
        Some(TransformSchedule { form: Form::Prepared, .. }) => LookAhead::Off,
        _ => inputs.look_ahead,
    }
}

/// The indices of tiers with these figures, fastest first after main memory.
#[must_use]
pub fn fastest_of<'a>(tiers: impl Iterator<Item = (Kind, &'a Figures)>) -> Vec<usize> {
    let rated: Vec<_> = tiers.map(|(kind, figures)| order::rated(kind, figures)).collect();
    order::fastest_first(&rated)
}

/// The bytes of a tier for staging that main memory cannot hold: only memory behind CXL that is used has any.
fn room_for_staging(tier: &RankedTier<'_>) -> Bytes {
    let is_memory = !matches!(tier.found.location, Location::Directory(_));
    match (tier.role, tier.found.kind) {
        (Role::LeftOut, _) => Bytes(0),
        (_, Kind::CxlMemory) if is_memory => {
            Bytes(tier.found.budget.0.saturating_sub(tier.found.beside.0))
        }
        _ => Bytes(0),
    }
}

struct RankedTier<'a> {
    offered: usize,
    found: &'a FoundTier,
    role: Role,
    reason: String,
}

/// All tiers, fastest first, then those that are left out.
fn placed<'a>(inputs: &ScheduleInputs, offer: &'a Offer) -> Vec<RankedTier<'a>> {
    let (mut used, mut left_out) = (Vec::new(), Vec::new());
    for (offered, found) in offer.tiers.iter().enumerate() {
        let role = role(inputs, found.kind);
        match why_left_out(role, found, &offer.cold) {
            Some(reason) => {
                left_out.push(RankedTier { offered, found, role: Role::LeftOut, reason });
            }
            None => used.push(RankedTier { offered, found, role, reason: String::new() }),
        }
    }
    let rated: Vec<_> =
        used.iter().map(|tier| order::rated(tier.found.kind, &tier.found.figures)).collect();
    let mut used: Vec<Option<RankedTier<'a>>> = used.into_iter().map(Some).collect();
    let mut placed = Vec::new();
    for (index, reason) in order::rank(&rated) {
        placed.extend(used[index].take().map(|tier| RankedTier { reason, ..tier }));
    }
    placed.extend(left_out);
    placed
}

fn role(inputs: &ScheduleInputs, kind: Kind) -> Role {
    let keeps = inputs.policy.keeps();
    let is_spared =
        kind == Kind::Storage && !inputs.limits_writes && inputs.look_ahead == LookAhead::Auto;
    match (keeps, inputs.look_ahead != LookAhead::Off && !is_spared) {
        (true, true) => Role::RetentionAndLookAhead,
        (true, false) => Role::Retention,
        (false, true) => Role::LookAhead,
        (false, false) if kind == Kind::MainMemory => Role::Staging,
        (false, false) => Role::LeftOut,
    }
}

/// The reason why a tier is not used; `None` if it is. Main memory always is: batches are staged there.
fn why_left_out(role: Role, found: &FoundTier, cold: &Figures) -> Option<String> {
    if found.kind == Kind::MainMemory {
        return None;
    }
    if role == Role::LeftOut {
        return Some("left out: the policy keeps nothing, and nothing may wait there".to_owned());
    }
    if found.device == Device::OfTheDataset {
        return Some(format!(
            "left out: {} lies on the disk that holds the dataset; reading it takes from the rate of the \
             cold store",
            found.location
        ));
    }
    // From few bytes, a page cache or a busy moment would decide.
    if cold.is_rough {
        return None;
    }
    let (tier, store) =
        (order::rated(found.kind, &found.figures), order::rated(Kind::Storage, cold));
    let (Some(cost), Some(cold_cost)) = (tier.chunk_cost_ns(), store.chunk_cost_ns()) else {
        return None;
    };
    // What the classification counts as the same is not more, or noise would decide.
    (cost > cold_cost * RATIO_MAX).then(|| {
        format!(
            "left out: {} costs more than the cold store with {}",
            found.figures.bandwidth.unwrap_or_default(),
            cold.bandwidth.unwrap_or_default()
        )
    })
}

/// Whether trainers read samples of a tier in place; `None` where there is no choice.
fn direct(
    inputs: &ScheduleInputs,
    found: &FoundTier,
    role: Role,
    shared_tiers: &mut usize,
) -> Option<InPlaceDecision> {
    let mode = inputs.modes.get(&found.kind).copied();
    let mode = match found.kind {
        _ if role == Role::LeftOut => None,
        Kind::CxlMemory => Some(mode.unwrap_or_default()),
        Kind::MainMemory => mode.filter(|mode| *mode != InPlaceMode::Never),
        Kind::Scratch | Kind::Storage => None,
    }?;
    let ScheduleInputs { stay, verify, lengths, .. } = *inputs;
    let facts = InPlaceInputs { mode, rates: found.reads, stay, verify, lengths, pace: found.pace };
    let choice = choose(&facts);
    if choice.path == ReadPath::Direct && *shared_tiers == SHARED_TIERS_MAX {
        return Some(InPlaceDecision {
            path: ReadPath::Copied,
            reason: Reason::NoAddresses,
            ..choice
        });
    }
    *shared_tiers += usize::from(choice.path == ReadPath::Direct);
    Some(choice)
}

/// The number of threads that copy to a tier with these rates.
///
/// One writer often saturates CXL memory; a second one only delays readers.
#[must_use]
pub fn copy_threads(rates: WriteRates) -> NonZeroU32 {
    let is_worth = u128::from(rates.two.0) * 100 > u128::from(rates.one.0) * WORTH;
    if is_worth { COPY_THREADS } else { NonZeroU32::MIN }
}

/// The operations at a time. Where rate and latency of the cold store are known, its window begins with as
/// many reads as are in flight at that rate (Little's law); it follows what is observed later.
fn windows(inputs: &ScheduleInputs, cold: &Figures) -> LinkWindows {
    let usual = usual_windows();
    let in_flight = cold.latency.zip(cold.bandwidth).map(|(latency, rate)| {
        let BytesPerSecond(rate) = rate;
        let bytes = u128::from(rate) * u128::from(latency.0) / 1_000_000_000;
        u32::try_from(bytes.div_ceil(u128::from(inputs.sample.0.max(1)))).unwrap_or(u32::MAX)
    });
    LinkWindows {
        cold: inputs.reads_at_first.get().max(in_flight.unwrap_or(0).min(usual.cold_max)),
        cold_threads: inputs.cold_threads.get(),
        ..usual
    }
}

/// The threads for which the window of the cold store suffices at first: eight reads keep most single devices
/// busy, and the window follows what is observed.
pub const READS_AT_FIRST: NonZeroU32 = NonZeroU32::new(8).expect("8 is not 0");

/// The operations at a time where nothing is known of the links.
#[must_use]
pub fn usual_windows() -> LinkWindows {
    let usual = Windows::for_threads(READS_AT_FIRST, COPY_THREADS);
    LinkWindows {
        cold: usual.cold.get(),
        cold_max: usual.cold_max().get(),
        cold_threads: READS_AT_FIRST.get(),
        tier: usual.tier.get(),
    }
}

#[cfg(test)]
mod tests;
