//! Belady's rule (1966, doi:10.1147/sj.52.0078) with bypass: evicts the sample whose next use is
//! farthest in the future, even if that sample was just read.
//!
//! No policy has fewer misses on samples of equal size. But its hits come in the first part of each
//! epoch, and its misses in one burst after them.
//!
//! The rule needs the next use of every sample that it could keep. On one node that is one epoch
//! away. On several nodes the gap has no bound, so it looks as many epochs ahead as the gaps reach
//! that fill its tiers ([`gap_max`]), and [`MARGIN`] more, because what it keeps varies around the
//! steady state; at most [`LOOKAHEAD_MAX`], because each epoch takes 4 bytes a sample.
//!
//! The rule itself is [`super::lobster`] without its own.

use super::Setting;

const MARGIN: u32 = 2;

pub(super) const LOOKAHEAD_MAX: u32 = 32;

pub(super) fn lookahead(setting: &Setting) -> u32 {
    let spec = &setting.order;
    let left = spec.epochs.saturating_sub(spec.start.epoch.0 + 1);
    let reach = match spec.world.nodes {
        1 => 1,
        _ => gap_max(setting).saturating_add(MARGIN).min(LOOKAHEAD_MAX),
    };
    reach.min(left)
}

/// The gap in epochs, up to [`LOOKAHEAD_MAX`], at which the samples with shorter gaps fill the tiers.
///
/// With q = 1 / nodes, a share q^2 (1-q)^(k-1) of the dataset is read in an epoch and next k epochs
/// later, and takes its room k times.
fn gap_max(setting: &Setting) -> u32 {
    let len: u64 = setting.sizes.iter().fold(0, |sum, len| sum.saturating_add(len.0));
    let room: u64 = setting.capacities.iter().fold(0, |sum, len| sum.saturating_add(len.0));
    let cached = (u128::from(room) * u128::from(WHOLE) / u128::from(len.max(1))).min(WHOLE.into());
    let nodes = u64::from(setting.order.world.nodes.max(1));
    let mut supply = WHOLE / nodes / nodes;
    let mut filled = 0_u128;
    for gap in 1..LOOKAHEAD_MAX {
        filled += u128::from(supply) * u128::from(gap);
        if filled >= cached {
            return gap;
        }
        supply -= supply / nodes;
    }
    LOOKAHEAD_MAX
}

/// The whole dataset in fixed point: precise enough for the square of 2^16 nodes.
const WHOLE: u64 = 1 << 56;
