//! Turns the time of a pass over the arrays into a bandwidth.

use tierfeed_core::units::Nanoseconds;

use super::{crew::Pass, work};
use crate::{
    figures::{
        Bandwidth,
        estimate::{Estimate, to_f64, to_tenths},
    },
    measure::cell::{Cell, StopRule},
};

/// What the interval of a bandwidth is narrowed to.
const BANDWIDTH_HALF_WIDTH: f64 = 0.02;

/// The samples of `pass`, for `time`.
pub(crate) fn bandwidth_cell(pass: Pass, time: Nanoseconds) -> Cell {
    let rule =
        StopRule { half_width: BANDWIDTH_HALF_WIDTH, samples_min: 10, samples_max: 100, time };
    Cell::new(rule, pass.occupation())
}

/// The rate of `pass`, which takes `time` nanoseconds.
pub(super) fn rate(pass: Pass, time: Estimate) -> Estimate {
    time.per_second(to_f64(work::block_bytes(pass.traffic)) * to_f64(pass.blocks as u64))
}

/// What the report says of `pass`, which takes `time` nanoseconds.
pub(super) fn bandwidth(pass: Pass, time: Estimate) -> Bandwidth {
    let bytes_per_s = rate(pass, time).rounded();
    let bus = bytes_per_s.median * work::bus_factor(pass.traffic);
    Bandwidth {
        traffic: pass.traffic,
        threads: u32::try_from(pass.threads).unwrap_or(u32::MAX),
        bytes_per_s,
        bus_bytes_per_s: to_tenths(bus),
    }
}
