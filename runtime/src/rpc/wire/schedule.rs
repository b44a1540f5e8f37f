//! Converts what a node found and its schedule to and from messages.

use std::num::NonZeroU32;

use tierfeed_core::{
    fleet::{
        Origin,
        schedule::{
            Device, Figures, FoundTier, LinkWindows, Location, Offer, OwnLengths, Role, Schedule,
            ScheduledTier, TransformOffer, TransformSchedule, WriteRates,
        },
    },
    id::{Epoch, NumaNode},
    retention::{
        form::{Form, SampleTime},
        in_place::{Choice, Costs, Pace, Rates, Reason, Way, Wish},
    },
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

use super::{
    WireError,
    messages::{missing, named},
    pb,
};

/// The reasons for direct use or a copy, by their names in messages.
const REASONS: [(&str, Reason); 8] = [
    ("asked", Reason::Asked),
    ("costs", Reason::Costs),
    ("verified", Reason::Verified),
    ("one-length", Reason::OneLength),
    ("policy", Reason::Policy),
    ("imposed", Reason::Imposed),
    ("no-rates", Reason::NoRates),
    ("no-addresses", Reason::NoAddresses),
];

impl From<&Figures> for pb::Figures {
    fn from(figures: &Figures) -> Self {
        Self {
            latency_ns: figures.latency.map(|it| it.0),
            bandwidth_bytes_per_s: figures.bandwidth.map(|it| it.0),
            from: figures.from.clone(),
            is_rough: figures.is_rough,
        }
    }
}

impl From<pb::Figures> for Figures {
    fn from(figures: pb::Figures) -> Self {
        Self {
            latency: figures.latency_ns.map(Nanoseconds),
            bandwidth: figures.bandwidth_bytes_per_s.map(BytesPerSecond),
            from: figures.from,
            is_rough: figures.is_rough,
        }
    }
}

impl From<&Offer> for pb::Offer {
    fn from(offer: &Offer) -> Self {
        Self {
            tiers: offer.tiers.iter().map(Into::into).collect(),
            cold: Some((&offer.cold).into()),
            transform: offer.transform.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<pb::Offer> for Offer {
    type Error = WireError;

    fn try_from(offer: pb::Offer) -> Result<Self, WireError> {
        Ok(Self {
            tiers: offer.tiers.into_iter().map(FoundTier::try_from).collect::<Result<_, _>>()?,
            cold: missing("offer.cold")(offer.cold)?.into(),
            transform: offer.transform.map(TransformOffer::try_from).transpose()?,
        })
    }
}

impl From<&TransformOffer> for pb::TransformOffer {
    fn from(offer: &TransformOffer) -> Self {
        let each =
            |each: SampleTime| pb::SampleTime { prepare_ns: each.prepare.0, rest_ns: each.rest.0 };
        let own = |own: OwnLengths| pb::OwnLengths {
            mean_bytes: own.mean.0,
            deviation_bytes: own.deviation.0,
            scan_ns: own.scan.map(|scan| scan.0),
            fingerprint: own.fingerprint,
        };
        Self {
            threads: offer.threads.get(),
            each: offer.each.map(each),
            from: offer.from.clone(),
            own: offer.own.map(own),
            own_unknown: offer.own_unknown.clone(),
        }
    }
}

impl TryFrom<pb::TransformOffer> for TransformOffer {
    type Error = WireError;

    fn try_from(offer: pb::TransformOffer) -> Result<Self, WireError> {
        Ok(Self {
            threads: threads("offer.transform.threads", offer.threads)?,
            each: offer.each.map(|each| SampleTime {
                prepare: Nanoseconds(each.prepare_ns),
                rest: Nanoseconds(each.rest_ns),
            }),
            from: offer.from,
            own: offer.own.map(|own| OwnLengths {
                mean: Bytes(own.mean_bytes),
                deviation: Bytes(own.deviation_bytes),
                scan: own.scan_ns.map(Nanoseconds),
                fingerprint: own.fingerprint,
            }),
            own_unknown: offer.own_unknown,
        })
    }
}

fn threads(field: &'static str, threads: u32) -> Result<NonZeroU32, WireError> {
    NonZeroU32::new(threads).ok_or_else(|| WireError::Unknown { field, value: "0".to_owned() })
}

impl From<&TransformSchedule> for pb::TransformSchedule {
    fn from(schedule: &TransformSchedule) -> Self {
        Self {
            form: schedule.form.name().to_owned(),
            threads: schedule.threads.get(),
            reason: schedule.reason.clone(),
            lengths: schedule.lengths,
        }
    }
}

impl TryFrom<pb::TransformSchedule> for TransformSchedule {
    type Error = WireError;

    fn try_from(schedule: pb::TransformSchedule) -> Result<Self, WireError> {
        let form = |text: &str| Form::ALL.into_iter().find(|it| it.name() == text).ok_or(());
        Ok(Self {
            form: named("schedule.transform.form", &schedule.form, form)?,
            threads: threads("schedule.transform.threads", schedule.threads)?,
            reason: schedule.reason,
            lengths: schedule.lengths,
        })
    }
}

impl From<&FoundTier> for pb::FoundTier {
    fn from(tier: &FoundTier) -> Self {
        use pb::found_tier::Location as Wire;
        Self {
            kind: tier.kind.name().to_owned(),
            emulated: tier.origin == Origin::Emulated,
            location: match &tier.location {
                Location::Memory => None,
                Location::NumaNode(node) => Some(Wire::NumaNode(node.0)),
                Location::Directory(path) => Some(Wire::Directory(path.clone())),
            },
            of_the_dataset: tier.device == Device::OfTheDataset,
            budget_bytes: tier.budget.0,
            beside_bytes: tier.beside.0,
            figures: Some((&tier.figures).into()),
            imposed: tier.pace == Pace::Imposed,
            reads: tier.reads.map(|rates| pb::ReadRates {
                tier_copying_bytes_per_s: rates.tier_copying.0,
                tier_alone_bytes_per_s: rates.tier_alone.0,
                main_memory_bytes_per_s: rates.main_memory.0,
            }),
            writes: tier.writes.map(|rates| pb::WriteRates {
                one_bytes_per_s: rates.one.0,
                two_bytes_per_s: rates.two.0,
            }),
        }
    }
}

impl TryFrom<pb::FoundTier> for FoundTier {
    type Error = WireError;

    fn try_from(tier: pb::FoundTier) -> Result<Self, WireError> {
        use pb::found_tier::Location as Wire;
        Ok(Self {
            kind: named("tier.kind", &tier.kind, str::parse)?,
            origin: if tier.emulated { Origin::Emulated } else { Origin::Real },
            location: match tier.location {
                None => Location::Memory,
                Some(Wire::NumaNode(node)) => Location::NumaNode(NumaNode(node)),
                Some(Wire::Directory(path)) => Location::Directory(path),
            },
            device: if tier.of_the_dataset { Device::OfTheDataset } else { Device::Own },
            budget: Bytes(tier.budget_bytes),
            beside: Bytes(tier.beside_bytes),
            figures: missing("tier.figures")(tier.figures)?.into(),
            pace: if tier.imposed { Pace::Imposed } else { Pace::Own },
            reads: tier.reads.map(|rates| Rates {
                tier_copying: BytesPerSecond(rates.tier_copying_bytes_per_s),
                tier_alone: BytesPerSecond(rates.tier_alone_bytes_per_s),
                main_memory: BytesPerSecond(rates.main_memory_bytes_per_s),
            }),
            writes: tier.writes.map(|rates| WriteRates {
                one: BytesPerSecond(rates.one_bytes_per_s),
                two: BytesPerSecond(rates.two_bytes_per_s),
            }),
        })
    }
}

impl From<&Schedule> for pb::Schedule {
    fn from(schedule: &Schedule) -> Self {
        let windows = schedule.windows;
        Self {
            generation: schedule.generation,
            first_epoch: schedule.first_epoch.0,
            tiers: schedule.tiers.iter().map(Into::into).collect(),
            chunk_bytes: schedule.chunk.0,
            arena_bytes: schedule.arena.0,
            depth: schedule.depth,
            depth_max: schedule.depth_max,
            depth_reason: schedule.depth_reason.clone(),
            windows: Some(pb::Windows {
                cold: windows.cold,
                cold_max: windows.cold_max,
                cold_threads: windows.cold_threads,
                tier: windows.tier,
            }),
            look_ahead_bytes: schedule.look_ahead.0,
            reason: schedule.reason.clone(),
            transform: schedule.transform.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<pb::Schedule> for Schedule {
    type Error = WireError;

    fn try_from(schedule: pb::Schedule) -> Result<Self, WireError> {
        let windows = missing("schedule.windows")(schedule.windows)?;
        let zero = |field| WireError::Unknown { field, value: "0".to_owned() };
        // An agent divides by the one, and stages by the other.
        if schedule.chunk_bytes == 0 {
            return Err(zero("schedule.chunk_bytes"));
        }
        if schedule.depth == 0 {
            return Err(zero("schedule.depth"));
        }
        let tiers = schedule.tiers.into_iter().map(ScheduledTier::try_from);
        Ok(Self {
            generation: schedule.generation,
            first_epoch: Epoch(schedule.first_epoch),
            tiers: tiers.collect::<Result<_, _>>()?,
            chunk: Bytes(schedule.chunk_bytes),
            arena: Bytes(schedule.arena_bytes),
            depth: schedule.depth,
            depth_max: schedule.depth_max.max(schedule.depth),
            depth_reason: schedule.depth_reason,
            windows: LinkWindows {
                cold: windows.cold,
                cold_max: windows.cold_max,
                cold_threads: windows.cold_threads,
                tier: windows.tier,
            },
            look_ahead: Bytes(schedule.look_ahead_bytes),
            reason: schedule.reason,
            transform: schedule.transform.map(TransformSchedule::try_from).transpose()?,
        })
    }
}

impl From<&ScheduledTier> for pb::ScheduledTier {
    fn from(tier: &ScheduledTier) -> Self {
        Self {
            offered: tier.offered,
            role: tier.role.name().to_owned(),
            cache_bytes: tier.cache.0,
            staging_bytes: tier.staging.0,
            copy_threads: tier.copy_threads,
            direct: tier.direct.map(Into::into),
            reason: tier.reason.clone(),
        }
    }
}

impl TryFrom<pb::ScheduledTier> for ScheduledTier {
    type Error = WireError;

    fn try_from(tier: pb::ScheduledTier) -> Result<Self, WireError> {
        let role = |text: &str| Role::ALL.into_iter().find(|it| it.name() == text).ok_or(());
        Ok(Self {
            offered: tier.offered,
            role: named("tier.role", &tier.role, role)?,
            cache: Bytes(tier.cache_bytes),
            staging: Bytes(tier.staging_bytes),
            copy_threads: tier.copy_threads,
            direct: tier.direct.map(Choice::try_from).transpose()?,
            reason: tier.reason,
        })
    }
}

impl From<Choice> for pb::DirectUse {
    fn from(choice: Choice) -> Self {
        let name = REASONS.iter().find(|(_, reason)| *reason == choice.reason);
        Self {
            wish: choice.wish.name().to_owned(),
            direct: choice.way == Way::Direct,
            reason: name.map_or("", |(name, _)| name).to_owned(),
            copied_ns: choice.costs.map(|costs| costs.copied.0),
            direct_ns: choice.costs.map(|costs| costs.direct.0),
        }
    }
}

impl TryFrom<pb::DirectUse> for Choice {
    type Error = WireError;

    fn try_from(choice: pb::DirectUse) -> Result<Self, WireError> {
        let wish = |text: &str| Wish::ALL.into_iter().find(|it| it.name() == text).ok_or(());
        let reason = |text: &str| REASONS.iter().find(|(name, _)| *name == text).ok_or(());
        let costs = choice.copied_ns.zip(choice.direct_ns).map(|(copied, direct)| Costs {
            copied: Nanoseconds(copied),
            direct: Nanoseconds(direct),
        });
        Ok(Self {
            wish: named("direct.wish", &choice.wish, wish)?,
            way: if choice.direct { Way::Direct } else { Way::Copied },
            reason: named("direct.reason", &choice.reason, reason)?.1,
            costs,
        })
    }
}
