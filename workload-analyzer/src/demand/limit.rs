//! Hit ratios of a cache in closed form: the optimum, and those of common replacement policies.
//!
//! All forms hold from the second epoch on, for samples of equal size in a new permutation in each epoch;
//! nodes read random parts of the dataset and do not read from each other. `cached` is the cache of each
//! node as a share of the dataset, and q = 1 / nodes the probability that a node reads a sample in an epoch.

use tierfeed_core::units::{Bytes, float};

/// The highest hit ratio of any policy in an epoch after the first.
///
/// # Source
///
/// The next use of a sample on the same node is k epochs away with probability q (1-q)^(k-1), and until then
/// it occupies its place at k boundaries between epochs. So the best use of a place is the shortest gap: fill
/// with k = 1, 2, … until the cache is full. On one node every gap is 1 and the hit ratio is the share of the
/// cache. The bound is attained: which sample is kept depends on k alone, so the cache needs the same size at
/// all times.
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

/// Rarer gaps change no printed digit; this also ends the loop.
const SUPPLY_MIN: f64 = 1e-15;

/// A part of the dataset that is chosen once stays, independent of which samples the node reads (`CoorDL`).
pub(super) fn pinned(cached: f64) -> f64 {
    cached.min(1.0)
}

/// First in, first out: a hit does not move a sample in the queue.
///
/// # Source
///
/// Let G(u) be the misses of a node up to the fraction u of an epoch, as a share of the dataset. A sample
/// that is used at u is still cached if fewer than `cached` misses followed its insertion; for any time of
/// insertion, the probability of that is `cached` - G(u), if this is above 0. So G' = q (1 - cached + G)
/// until G reaches `cached`, and G' = q afterwards. With L = -ln(1 - cached), that point is at u = L / q. The
/// misses of an epoch are G(1) / q of its uses. On one node: -c - ln(1-c) for c up to 1 - 1/e, and 1 -
/// (e-1)(1-c) beyond.
pub(super) fn fifo(cached: f64, nodes: u32) -> f64 {
    if cached >= 1.0 {
        return 1.0;
    }
    let q = 1.0 / f64::from(nodes);
    let turn = -(-cached).ln_1p();
    if turn <= q { (turn - cached) / q } else { 1.0 - (1.0 - cached) * q.exp_m1() / q }
}

/// Least recently used: a hit moves a sample to the end of the queue.
///
/// # Source
///
/// A sample that was used at V of one epoch and next at W of the k-th after it is still cached if fewer than
/// `cached` other samples were used in between: those are 1 - (1-qV)(1-q)^(k-1)(1-qW) of the dataset, with V
/// and W uniformly distributed. The hits are the sum over k of q (1-q)^(k-1) times the probability that this
/// stays below `cached`. On one node: c + (1-c) ln(1-c).
pub(super) fn lru(cached: f64, nodes: u32) -> f64 {
    if cached >= 1.0 {
        return 1.0;
    }
    let q = 1.0 / f64::from(nodes);
    let (mut hits, mut supply) = (0.0, q);
    let mut left = 1.0 - cached;
    while supply > SUPPLY_MIN && left < 1.0 {
        hits += supply * probability_above(left, q);
        supply *= 1.0 - q;
        left /= 1.0 - q;
    }
    hits.min(1.0)
}

/// The probability that the product of two numbers, uniformly distributed from 1 - q to 1, is above
/// `product`, which is below 1.
fn probability_above(product: f64, q: f64) -> f64 {
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
pub(super) fn share_of(part: Bytes, whole: Bytes) -> f64 {
    if part >= whole { 1.0 } else { float(part.0) / float(whole.0) }
}

/// A share of `whole`, rounded to the nearest byte, as far as a double is exact.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the share is between 0 and 1, and the cast of a float saturates"
)]
pub(super) fn part_of(whole: Bytes, share: f64) -> Bytes {
    Bytes((float(whole.0) * share).round() as u64)
}

#[cfg(test)]
mod tests;
