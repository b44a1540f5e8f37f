//! Converts what a node observed to and from messages.

use tierfeed_core::{
    fleet::Applied,
    id::Epoch,
    session::{Cycle, Observed, ObservedLink, ObservedTransforms, Supply, staging_depth::Load},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

use super::{WireError, messages::missing, pb};

impl From<&ObservedLink> for pb::Link {
    fn from(link: &ObservedLink) -> Self {
        Self {
            bytes: link.bytes.0,
            operations: link.operations,
            busy_ns: link.busy.0,
            in_flight_ns: link.in_flight.0,
            responses: link.responses,
            response_ns: link.response_time.0,
        }
    }
}

impl From<pb::Link> for ObservedLink {
    fn from(link: pb::Link) -> Self {
        Self {
            bytes: Bytes(link.bytes),
            operations: link.operations,
            busy: Nanoseconds(link.busy_ns),
            in_flight: Nanoseconds(link.in_flight_ns),
            responses: link.responses,
            response_time: Nanoseconds(link.response_ns),
        }
    }
}

impl From<&ObservedTransforms> for pb::TransformTimes {
    fn from(transforms: &ObservedTransforms) -> Self {
        Self {
            samples: transforms.samples,
            time_ns: transforms.time.0,
            quantile_ns: transforms.quantiles.iter().map(|it| it.0).collect(),
        }
    }
}

impl TryFrom<pb::TransformTimes> for ObservedTransforms {
    type Error = WireError;

    fn try_from(times: pb::TransformTimes) -> Result<Self, WireError> {
        let quantiles: Vec<_> = times.quantile_ns.into_iter().map(Nanoseconds).collect();
        let quantiles = quantiles
            .try_into()
            .map_err(|_| WireError::Missing { field: "observed.transforms.quantile_ns" })?;
        Ok(Self { samples: times.samples, time: Nanoseconds(times.time_ns), quantiles })
    }
}

/// Both forms; none in a job without a transform.
fn transforms(transforms: Vec<pb::TransformTimes>) -> Result<[ObservedTransforms; 2], WireError> {
    if transforms.is_empty() {
        return Ok(Default::default());
    }
    let forms: Vec<ObservedTransforms> =
        transforms.into_iter().map(TryFrom::try_from).collect::<Result<_, WireError>>()?;
    forms.try_into().map_err(|_| WireError::Missing { field: "observed.transforms" })
}

impl From<&Observed> for pb::Observed {
    fn from(observed: &Observed) -> Self {
        Self {
            planned_epoch: observed.planned.0,
            cold: Some((&observed.cold).into()),
            tiers: observed.tiers.iter().map(Into::into).collect(),
            transforms: match observed.transforms {
                forms if forms == <[ObservedTransforms; 2]>::default() => Vec::new(),
                forms => forms.iter().map(Into::into).collect(),
            },
            load: observed.load.map(|load| pb::StepLoad {
                samples: load.samples,
                reads: load.reads,
                read_bytes: load.read_len.0,
                step_ns: load.step_time.0,
            }),
            cycle: observed.cycle.map(|cycle| pb::Cycle {
                consumed_bytes: cycle.consumed.0,
                busy_ns: cycle.busy.0,
                idle_ns: cycle.idle.0,
            }),
            supply: observed.supply.map(|supply| pb::Supply {
                epoch_bytes: supply.epoch.0,
                capacity_bytes: supply.capacity.0,
                staged_bytes: supply.staged.0,
                hits_per_million: supply.hits,
                cold_bytes_per_s: supply.cold.0,
            }),
        }
    }
}

impl TryFrom<pb::Observed> for Observed {
    type Error = WireError;

    fn try_from(observed: pb::Observed) -> Result<Self, WireError> {
        Ok(Self {
            planned: Epoch(observed.planned_epoch.min(u32::MAX - 1)),
            cold: missing("observed.cold")(observed.cold)?.into(),
            tiers: observed.tiers.into_iter().map(Into::into).collect(),
            transforms: transforms(observed.transforms)?,
            load: observed.load.map(|load| Load {
                samples: load.samples,
                reads: load.reads,
                read_len: Bytes(load.read_bytes),
                step_time: Nanoseconds(load.step_ns),
            }),
            cycle: observed.cycle.map(|cycle| Cycle {
                consumed: Bytes(cycle.consumed_bytes),
                busy: Nanoseconds(cycle.busy_ns),
                idle: Nanoseconds(cycle.idle_ns),
            }),
            supply: observed.supply.map(|supply| Supply {
                epoch: Bytes(supply.epoch_bytes),
                capacity: Bytes(supply.capacity_bytes),
                staged: Bytes(supply.staged_bytes),
                hits: supply.hits_per_million,
                cold: BytesPerSecond(supply.cold_bytes_per_s),
            }),
        })
    }
}

impl From<&Applied> for pb::Applied {
    fn from(applied: &Applied) -> Self {
        Self { generation: applied.generation, epoch: applied.epoch.0 }
    }
}

impl From<pb::Applied> for Applied {
    fn from(applied: pb::Applied) -> Self {
        Self { generation: applied.generation, epoch: Epoch(applied.epoch) }
    }
}
