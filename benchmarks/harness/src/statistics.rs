//! Order statistics of small sets of measurements.

/// The value below which `percent` of the values lie (nearest rank), or `None` of nothing.
pub fn percentile(values: &[f64], percent: usize) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let values = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!(percentile(&values, 50), Some(3.0));
        assert_eq!(percentile(&values, 99), Some(5.0));
        assert_eq!(percentile(&values, 1), Some(1.0));
        assert_eq!(percentile(&[], 50), None);
    }
}
