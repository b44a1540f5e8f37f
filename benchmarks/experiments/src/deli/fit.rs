//! Fits the times of a training to the measurements.
//!
//! Miss rates are not used, with one exception: loading times alone do not show how concurrent fetches slow
//! each other down, so that is fitted to the configurations that start several at once.

use anyhow::Context as _;

use super::{
    NODES, Workload, fetching,
    measured::{Means, Row, mean},
    pace::Pace,
    setting::Setting,
};

/// In tenths: two processors, of which the training has one.
const PARALLEL_TENTHS: std::ops::RangeInclusive<u8> = 10..=20;

impl Pace {
    /// Fits the times of `workload` to its measurements.
    pub(super) fn fit(
        workload: Workload,
        bucket: &[Row],
        fetch_size: &[Row],
        threshold: &[Row],
    ) -> anyhow::Result<Self> {
        let lacking = |what: &str| format!("{}: no measurement tells {what}", workload.name);
        let beyond = |row: &Row| Some((row.load_s - row.bucket_s?) / f64::from(row.accesses));
        let hit_s = mean(threshold.iter().filter_map(beyond)).with_context(|| lacking("a hit"))?;
        let miss = |row: &Row| Some(row.bucket_s? / row.misses.filter(|misses| *misses > 0.0)?);
        // With less cache, most misses are of what was lost, not of what is on its way.
        let fits = |row: &&Row| row.setting.cache.is_none_or(|cache| cache >= row.setting.fetch);
        let in_flight = threshold.iter().filter(fits).filter_map(miss);
        let miss_s = mean(in_flight).with_context(|| lacking("a miss"))?;
        let compute = |row: &Row| (row.run_s - row.load_s) / f64::from(row.accesses);
        let of_512 = bucket.iter().filter(|row| row.setting.batch == 512);
        let compute_s = mean(of_512.map(compute)).with_context(|| lacking("computing"))?;
        let means = Means::of(fetch_size);
        let points = fetch_times(&means, hit_s);
        let (samples_s, fetch_start_s) =
            line(&points).with_context(|| lacking("two fetch sizes"))?;
        let mut pace = Self {
            workload: workload.name,
            miss_s: miss_s + hit_s,
            hit_s,
            compute_s,
            fetch_start_s,
            fetch_sample_s: samples_s / f64::from(workload.per_node),
            parallel: 1.0,
        };
        pace.parallel = pace.fitted_parallel(workload, &means);
        Ok(pace)
    }

    /// The tenth with the least square error.
    fn fitted_parallel(&self, workload: Workload, means: &Means<'_>) -> f64 {
        let several: Vec<_> =
            means.groups().filter(|(it, epoch, _)| Self::is_fitted_to(*it, *epoch)).collect();
        let error = |parallel: f64| -> f64 {
            let pace = Self { parallel, ..self.clone() };
            let square = |(setting, _, rows): &(Setting, u32, &[&Row])| {
                let modelled = fetching::miss_rates(&pace, *setting, workload.samples(), NODES, 1);
                let measured = mean(rows.iter().filter_map(|row| row.miss_rate))?;
                Some((modelled.first()? - measured).powi(2))
            };
            several.iter().filter_map(square).sum()
        };
        let tenths = PARALLEL_TENTHS.map(|tenths| f64::from(tenths) / 10.0);
        tenths.map(|it| (error(it), it)).min_by(|a, b| a.0.total_cmp(&b.0)).map_or(1.0, |it| it.1)
    }
}

/// What loading takes beyond hits in the first epoch, by how many fetches it takes.
///
/// Only where one fetch is in flight at a time: then the trainer misses exactly while one is, so these are
/// as many starts and, in any case, all samples.
fn fetch_times(means: &Means<'_>, hit_s: f64) -> Vec<(f64, f64)> {
    let single = means.groups().filter(|(it, epoch, _)| it.fetch >= it.batch && *epoch == 1);
    let point = |(setting, _, rows): (Setting, u32, &[&Row])| {
        let accesses = rows.first()?.accesses;
        let load_s = mean(rows.iter().map(|row| row.load_s))?;
        let fetches = f64::from(accesses.div_ceil(setting.fetch));
        Some((fetches, load_s - f64::from(accesses) * hit_s))
    };
    single.filter_map(point).collect()
}

/// Start and slope of the straight line with the least square error.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let (x, y) = (mean(points.iter().map(|it| it.0))?, mean(points.iter().map(|it| it.1))?);
    let spread: f64 = points.iter().map(|it| (it.0 - x).powi(2)).sum();
    let joint: f64 = points.iter().map(|it| (it.0 - x) * (it.1 - y)).sum();
    (spread > 0.0).then(|| (y - joint / spread * x, joint / spread))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_its_points() {
        let (start, slope) = line(&[(1.0, 5.0), (3.0, 9.0), (4.0, 11.0)]).unwrap();
        assert!((start - 3.0).abs() < 1e-12 && (slope - 2.0).abs() < 1e-12, "{start} {slope}");
        assert_eq!(line(&[(1.0, 5.0), (1.0, 6.0)]), None);
        assert_eq!(line(&[]), None);
    }
}
