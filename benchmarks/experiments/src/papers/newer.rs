//! Questions of papers that came after the four: each is asked of the whole system, beside what people use otherwise.

mod clock;
mod form;
mod loss;
mod round_trips;
mod slow;

use tierfeed_core::units::BytesPerSecond;

use super::repetition::{Ground, Repeat, Repeated};
use crate::stage::Settings;

/// The disk that the photographs lie on.
const DISK: BytesPerSecond = BytesPerSecond(40_000_000);

/// Ratios need no more photographs, and each figure has turns of many sides.
const GROUND: Ground = Ground { disk: DISK, copies: 8, photographs: 480, photographs_quick: 240 };

/// The figures, by name.
const FIGURES: [(&[&str], Repeat); 5] = [
    (&[slow::NAME], |stage, step| Ok(vec![slow::figure(stage, step)?])),
    (&[form::NAME], |stage, step| Ok(vec![form::figure(stage, step)?])),
    (&[loss::NAME], |stage, step| Ok(vec![loss::figure(stage, step)?])),
    (&[clock::NAME], |stage, step| Ok(vec![clock::figure(stage, step)?])),
    (&[round_trips::NAME], |stage, step| Ok(vec![round_trips::figure(stage, step)?])),
];

/// The names of the figures that [`run`] repeats.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FIGURES.iter().flat_map(|(names, _)| names.iter().copied())
}

/// Repeats the figures of this paper that are wanted.
pub(super) fn run(
    settings: &Settings,
    is_wanted: &dyn Fn(&str) -> bool,
    step: &mut dyn FnMut(&str),
    repeated: &mut Repeated,
) {
    repeated.add_on_stage(settings, GROUND, &FIGURES, is_wanted, step);
}
