//! Lower bounds that hold for every plan.

use crate::units::Bytes;

/// Bytes that the nodes of a cluster must read from the cold store in an epoch that is not the first.
///
/// # Source
///
/// The nodes hold at most `capacity` when the epoch begins, and each sample in it saves one read.
#[must_use]
pub fn least_cold(dataset: Bytes, capacity: Bytes) -> Bytes {
    Bytes(dataset.0.saturating_sub(capacity.0))
}

/// The share of the reads that cannot come from the node's own tiers, if each of `nodes` holds `share`
/// of the dataset and every epoch deals the samples anew: 1 - h*.
///
/// # Source
///
/// A fraction `q^2 (1-q)^(k-1)` of the dataset, `q = 1 / nodes`, is read by the node again after
/// exactly `k` epochs, and takes room in all of them. The shortest gaps give the most hits for the
/// room.
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

/// As [`least_remote`], for plans with the least cold reads: no plan meets both bounds.
///
/// # Source
///
/// Ours. Such a plan holds no sample twice when an epoch begins while another one is held nowhere.
/// A local read ends an interval of epochs in which the node held the sample, so the intervals of
/// one sample are disjoint. The largest number of disjoint intervals results if each ends as early
/// as possible: at the first repetition among the nodes that have read the sample since the last
/// one ended. That is the birthday problem, on average after `Q(nodes)` reads (Knuth, The Art of
/// Computer Programming 1, section 1.2.11.3). So at most a fraction `1 / Q` is local; and of the
/// room beyond the dataset, a copy that is held over the end of an epoch adds at most one local
/// read.
#[must_use]
pub fn least_remote_of_covering(nodes: u32, share: f64) -> f64 {
    let surplus = (f64::from(nodes) * share - 1.0).max(0.0);
    let local = 1.0 / reads_to_repetition(nodes.max(1)) + surplus;
    (1.0 - local).max(least_remote(nodes, share))
}

/// Knuth's Q: the mean number of reads by random nodes after a read until a node repeats.
fn reads_to_repetition(nodes: u32) -> f64 {
    let (mut reads, mut probability) = (0.0, 1.0);
    for seen in 0..nodes {
        probability *= f64::from(nodes - seen) / f64::from(nodes);
        reads += probability;
    }
    reads
}

/// Beyond this the sum has converged, for as many nodes as a job can have.
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

    #[test]
    fn a_plan_without_second_copies_is_bound_by_birthdays() {
        for (nodes, reads) in [(1, 1.0), (2, 1.5), (3, 17.0 / 9.0)] {
            assert!((reads_to_repetition(nodes) - reads).abs() < 1e-9, "{nodes} nodes");
        }
        for nodes in 1..=4 {
            let mean = mean_reads_to_repetition(&mut alloc::vec![0], nodes);
            assert!((mean - reads_to_repetition(nodes)).abs() < 1e-9, "{nodes} nodes: {mean}");
        }
        let covering = |nodes, share| 1.0 - least_remote_of_covering(nodes, share);
        assert!(
            (covering(3, 0.05) - 0.150).abs() < 0.001,
            "few copies: the bound of transfers alone"
        );
        assert!((covering(2, 0.5) - 2.0 / 3.0).abs() < 1e-9);
        assert!((covering(3, 0.296) - 9.0 / 17.0).abs() < 1e-9);
        assert!((covering(3, 0.5) - 0.773).abs() < 0.001, "much surplus: the same again");
    }

    /// The mean over all continuations of `read`, the nodes that have read the sample.
    fn mean_reads_to_repetition(read: &mut alloc::vec::Vec<u32>, nodes: u32) -> f64 {
        let mut sum = 0.0;
        for node in 0..nodes {
            if read.contains(&node) {
                sum += 1.0;
            } else {
                read.push(node);
                sum += 1.0 + mean_reads_to_repetition(read, nodes);
                read.pop();
            }
        }
        sum / f64::from(nodes)
    }
}
