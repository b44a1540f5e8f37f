//! What no plan can undercut.

use crate::units::Bytes;

/// Bytes that the nodes of a cluster must read from the cold store in an epoch that is not the first.
///
/// # Source
///
/// What is held when the epoch begins is at most `capacity`, and each sample of it saves one read.
#[must_use]
pub fn least_cold(dataset: Bytes, capacity: Bytes) -> Bytes {
    Bytes(dataset.0.saturating_sub(capacity.0))
}

/// The share of the reads that cannot come from the node's own tiers, if each of `nodes` holds `share`
/// of the dataset and every epoch deals the samples anew: 1 - h*.
///
/// # Source
///
/// A share `q^2 (1-q)^(k-1)` of the dataset, `q = 1 / nodes`, is read by the node again after just `k`
/// epochs, and takes room in all of them. The shortest first give the most hits for the room.
#[must_use]
pub fn least_remote(nodes: u32, share: f64) -> f64 {
    let q = 1.0 / f64::from(nodes.max(1));
    if share >= 1.0 {
        return 0.0;
    }
    let (mut left, mut hits, mut supply) = (share.max(0.0), 0.0, q * q);
    for epochs in 1..=GAPS_MAX {
        let epochs = f64::from(epochs);
        if left <= epochs * supply {
            return 1.0 - (hits + left / epochs) / q;
        }
        left -= epochs * supply;
        hits += supply;
        supply *= 1.0 - q;
    }
    1.0 - hits / q
}

/// Beyond this the sum has long converged, for as many nodes as a job can have.
const GAPS_MAX: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_bound_is_that_of_the_closed_form() {
        for (nodes, share, hits) in [
            (1, 0.296, 0.296),
            (3, 0.05, 0.150),
            (3, 0.2, 0.467),
            (3, 0.296, 0.592),
            (3, 0.75, 0.918),
            (8, 0.05, 0.253),
            (8, 0.5, 0.801),
            (3, 1.0, 1.0),
        ] {
            let bound = 1.0 - least_remote(nodes, share);
            assert!((bound - hits).abs() < 0.000_6, "{nodes} nodes, {share}: {bound}");
        }
    }
}
