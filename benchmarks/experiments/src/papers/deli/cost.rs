//! Table II: what two epochs cost, with the requests that `tierfeed plan --cost` counts for the runs.
//!
//! Runs here are shorter than those of the paper. A second counts as many as the paper needed to load one by one for
//! each that it took here, and a request as many as the paper has samples for each of here; the bill is the paper's.

use super::{
    blank,
    loading::{FIFTY_FIFTY, OURS},
    measured::Measured,
    setting::{EPOCHS, NODES, Reader, Run, SCALE, Workload},
};
use crate::{
    claim::less_time,
    figure::{Along, Chart, Figure, Series, Value},
};

pub(super) const NAME: &str = "deli-t2";

/// Dollars of an hour of a node, as the prices of [`super::requests`] say.
const VM: f64 = 0.545;

/// The cost of a bucket and the disks of the systems in two epochs, in dollars: the same for all ways.
///
/// # Source
///
/// DELI, Table II.
const STORAGE: f64 = 1.93;

/// Total dollars of two epochs: bucket, 50/50.
///
/// # Source
///
/// DELI, Table II.
const PUBLISHED: [[f64; 2]; 2] = [[2.68, 2.12], [2.68, 2.17]];

pub(super) fn figure(measured: &Measured) -> Figure {
    let (mut series, mut headlines) = (Vec::new(), Vec::new());
    for (workload, published) in Workload::ALL.into_iter().zip(PUBLISHED) {
        let name = workload.name();
        series.push(Series::published(
            format!("{name}, published"),
            published.map(|it| Some(Value::exactly(it))).into_iter().chain([None]).collect(),
        ));
        let bucket = dollars(measured, workload, Reader::Bucket);
        let here = [FIFTY_FIFTY, OURS].map(|reader| dollars(measured, workload, reader));
        let percent = 100.0 * (1.0 - published[1] / published[0]);
        for (side, ours) in [("deli, 50/50", here[0]), ("tierfeed", here[1])] {
            let what = format!("total cost against the bucket, {name}, {side}");
            let why = "waiting for the bucket costs less than the storage, which no loader changes";
            headlines.extend(less_time(&what, percent, ours, bucket).map(|it| it.because(why)));
        }
        series.push(Series::measured(
            format!("{name}, here"),
            [bucket].into_iter().chain(here).collect(),
        ));
    }
    let groups = ["bucket", "deli, 50/50", "tierfeed (gap)"];
    let along = Along::groups(groups);
    let y = "two epochs, $".to_owned();
    let chart = Chart { title: String::new(), x: String::new(), y, along, series };
    let blank = blank(measured, NAME, "Table II", "What two epochs cost");
    let setting = format!(
        "{} The requests are those that tierfeed plan --cost counts for the job; time and requests count as many \
         times as the paper has more of them. Prices are not all published: these are fitted, as those with which the \
         most cells of the paper's table come out. A node costs {VM} $ an hour, and 10,000 reads 0.004 $ (the paper's \
         text says 0.002 $). Storage is not measured: all ways have the published {STORAGE} $. The rows of the \
         disk and of full fetches are not repeated.",
        blank.setting
    );
    Figure { setting, charts: vec![chart], headlines, ..blank }
}

/// Requests, storage and machines of all nodes, with as many samples and as much time as in the paper.
fn dollars(measured: &Measured, workload: Workload, reader: Reader) -> Option<Value> {
    let bucket_s = measured.loading(Run::baseline(Reader::Bucket))?.median / f64::from(EPOCHS);
    let longer = workload.published_bucket_s() / bucket_s;
    let requests = match reader {
        Reader::Bucket => measured.requests.get(&Run::new(workload, OURS))?.direct,
        _ => measured.requests.get(&Run::new(workload, reader))?.planned,
    };
    let run = match reader {
        Reader::Bucket => Run::baseline(reader),
        _ => Run::new(workload, reader),
    };
    // One by one, loading takes as long however long a step is; the steps come on top.
    let computing_s = |loading_s: f64, total_s: f64| match reader {
        Reader::Bucket => f64::from(EPOCHS) * workload.computing_s() + loading_s,
        _ => total_s,
    };
    measured.value(run, |turn| {
        let hours = computing_s(turn.loading_s(), turn.total_s) * longer / 3600.0;
        STORAGE + f64::from(SCALE) * requests + f64::from(NODES) * VM * hours
    })
}
