//! Questions of papers that came after the four: each is asked of the whole system, beside what people use otherwise.

mod clock;
mod form;
mod loss;
mod round_trips;
mod slow;

use tierfeed_core::units::BytesPerSecond;

use super::repetition::{Ground, OnStage};

const DISK: BytesPerSecond = BytesPerSecond(40_000_000);

pub(super) const FIGURES: OnStage = OnStage {
    // Ratios need no more photographs, and each figure has turns of many sides.
    ground: Ground { disk: DISK, copies: 8, photographs: 480, photographs_quick: 240 },
    figures: &[
        (&[slow::NAME], |stage| Ok(vec![slow::figure(stage)?])),
        (&[form::NAME], |stage| Ok(vec![form::figure(stage)?])),
        (&[loss::NAME], |stage| Ok(vec![loss::figure(stage)?])),
        (&[clock::NAME], |stage| Ok(vec![clock::figure(stage)?])),
        (&[round_trips::NAME], |stage| Ok(vec![round_trips::figure(stage)?])),
    ],
};
