//! How many reads a cache saves: at best, and by the rules that are in use.
//!
//! All forms hold from the second epoch on, for samples of equal size in a fresh permutation for each
//! epoch; nodes read random parts of the dataset and do not read from each other. `cached` is the
//! cache of each node as a share of the dataset, and q = 1 / nodes the chance that a sample falls to
//! a node in an epoch.

use tierfeed_core::units::Bytes;

/// The share of reads in an epoch that no policy can raise, once the first epoch is over.
///
/// # Source
///
/// The next use of a sample on the same node is k epochs away with probability q (1-q)^(k-1), and
/// until then it takes its place at k boundaries between epochs. So the best use of a place is the
/// shortest gap: fill with k = 1, 2, … until the cache is full. On one node every gap is 1 and the
/// share of hits is the share of the cache.
/// Attainable, because what is kept depends on k alone and so takes the same room at all times.
pub(super) fn best(cached: f64, nodes: u32) -> f64 {
    if cached >= 1.0 {
        return 1.0;
    }
    let q = 1.0 / f64::from(nodes);
    let (mut taken, mut hits) = (0.0, 0.0);
    let mut supply = q * q;
    let mut gap = 1.0;
    while supply > SUPPLY_MIN {
        if taken + gap * supply >= cached {
            hits += (cached - taken) / gap;
            break;
        }
        taken += gap * supply;
        hits += supply;
        supply *= 1.0 - q;
        gap += 1.0;
    }
    (hits / q).min(1.0)
}

/// Rarer gaps do not change a figure that anybody prints; this also ends the loop.
const SUPPLY_MIN: f64 = 1e-15;

/// A part of the dataset that was chosen once stays, whatever falls to the node (`CoorDL`).
pub(super) fn pinned(cached: f64) -> f64 {
    cached.min(1.0)
}

/// First in, first out: a hit does not renew a place.
///
/// # Source
///
/// Let G(u) be the misses of a node up to the part u of an epoch, as a share of the dataset. A sample
/// that is used at u is still there if fewer than `cached` misses followed its insertion; wherever it
/// was inserted, that has the chance `cached` - G(u), if this is above 0. So
/// G' = q (1 - cached + G) until G reaches `cached`, and G' = q afterwards. With L = -ln(1 - cached),
/// that point lies at u = L / q. The misses of an epoch are G(1) / q of its uses.
/// On one node: -c - ln(1-c) for c up to 1 - 1/e, and 1 - (e-1)(1-c) beyond.
pub(super) fn fifo(cached: f64, nodes: u32) -> f64 {
    if cached >= 1.0 {
        return 1.0;
    }
    let q = 1.0 / f64::from(nodes);
    let turn = -(-cached).ln_1p();
    if turn <= q { (turn - cached) / q } else { 1.0 - (1.0 - cached) * q.exp_m1() / q }
}

/// Least recently used.
///
/// # Source
///
/// A sample that was used at V of one epoch and next at W of the k-th after it is still there if fewer
/// than `cached` other samples were used in between: those are 1 - (1-qV)(1-q)^(k-1)(1-qW) of the
/// dataset, with V and W evenly spread. The hits are the sum over k of q (1-q)^(k-1) times the chance
/// that this stays below `cached`. On one node: c + (1-c) ln(1-c).
pub(super) fn lru(cached: f64, nodes: u32) -> f64 {
    if cached >= 1.0 {
        return 1.0;
    }
    let q = 1.0 / f64::from(nodes);
    let (mut hits, mut supply) = (0.0, q);
    let mut left = 1.0 - cached;
    while supply > SUPPLY_MIN && left < 1.0 {
        hits += supply * chance_above(left, q);
        supply *= 1.0 - q;
        left /= 1.0 - q;
    }
    hits.min(1.0)
}

/// The chance that the product of two numbers, evenly spread from 1 - q to 1, is above `product`,
/// which is below 1.
fn chance_above(product: f64, q: f64) -> f64 {
    let low = 1.0 - q;
    if product <= low * low {
        return 1.0;
    }
    let area = if product >= low {
        1.0 - product + product * product.ln()
    } else {
        let turn = product / low;
        turn - low - product * (turn / low).ln() + (1.0 - turn) * q
    };
    area / (q * q)
}

/// `part` as a share of `whole`, at most 1.
#[expect(clippy::cast_precision_loss, reason = "15 digits of a byte count are enough for a share")]
pub(super) fn share_of(part: Bytes, whole: Bytes) -> f64 {
    if part >= whole { 1.0 } else { part.0 as f64 / whole.0 as f64 }
}

/// A share of `whole`, to the nearest byte that a double can tell.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the share is between 0 and 1, and the cast of a float saturates"
)]
pub(super) fn part_of(whole: Bytes, share: f64) -> Bytes {
    Bytes((whole.0 as f64 * share).round() as u64)
}

#[cfg(test)]
mod tests;
