//! The least that must be read from the cold store: how many reads a cache can save at best.

use tierfeed_core::units::Bytes;

/// The share of reads in an epoch that no policy can raise, once the first epoch is over.
///
/// `cached` is the cache of each node as a share of the dataset; nodes read random parts of it and
/// do not read from each other.
///
/// # Source
///
/// With q = 1 / nodes, the next use of a sample on the same node is k epochs away with probability
/// q (1-q)^(k-1), and until then it takes its place at k boundaries between epochs. So the best use of
/// a place is the shortest gap: fill with k = 1, 2, … until the cache is full. On one node every gap
/// is 1 and the share of hits is the share of the cache.
/// Attainable, because what is kept depends on k alone and so takes the same room at all times.
pub(super) fn hit_share(cached: f64, nodes: u32) -> f64 {
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
mod tests {
    use super::*;

    /// The misses of the whole cluster, to three digits, as derived for the planner and checked
    /// there against Belady's rule and a linear program.
    #[test]
    fn the_limit_is_the_table_of_minimal_cold_traffic() {
        let rows = [
            (0.05, [0.950, 0.850, 0.747]),
            (0.1, [0.900, 0.700, 0.628]),
            (0.2, [0.800, 0.533, 0.468]),
            (0.296, [0.704, 0.408, 0.360]),
            (0.5, [0.500, 0.227, 0.199]),
            (0.75, [0.250, 0.082, 0.072]),
        ];
        for (cached, misses) in rows {
            for (nodes, expected) in [1, 3, 8].into_iter().zip(misses) {
                let found = 1.0 - hit_share(cached, nodes);
                assert!((found - expected).abs() < 6e-4, "{cached} on {nodes}: {found}");
            }
        }
    }

    #[test]
    fn a_cache_for_everything_misses_nothing_and_no_cache_hits_nothing() {
        for nodes in [1, 2, 64, 65_536] {
            assert!((hit_share(1.0, nodes) - 1.0).abs() < f64::EPSILON);
            assert!(hit_share(0.0, nodes).abs() < f64::EPSILON);
        }
    }

    proptest::proptest! {
        #[test]
        fn a_larger_cache_never_hits_less(cached in 0.0..1.0, more in 0.0..1.0, nodes in 1_u32..200) {
            proptest::prop_assert!(
                hit_share(cached, nodes) <= hit_share(cached + more, nodes) + 1e-12
            );
        }
    }
}
