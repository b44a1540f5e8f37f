//! Table II: what two epochs cost, with the requests that `tierfeed plan --cost` counts for the runs.
//!
//! Runs here are shorter than those of the paper. A second counts as many as the paper needed to load one by one for
//! each that it took here, and a request as many as the paper has samples for each of here; the bill is the paper's.

use super::{
    blank,
    loading::{FIFTY_FIFTY, OURS},
    node::{EPOCHS, Measured, NODES, Reader, Run, SCALE, Workload},
};
use crate::{
    claim::less_time,
    figure::{Along, Chart, Figure, Series, Source, Value},
};

pub(super) const NAME: &str = "deli-t2";

/// Dollars of an hour of a node, as the prices of [`super::requests`] say.
const VM: f64 = 0.545;

/// Requests, and computing with loading, in dollars: bucket, 50/50.
///
/// # Source
///
/// DELI, Table II.
const PUBLISHED: [[[f64; 2]; 2]; 2] = [[[0.03, 0.72], [0.08, 0.11]], [[0.03, 0.72], [0.07, 0.17]]];

pub(super) fn figure(measured: &Measured) -> Figure {
    let (mut series, mut headlines) = (Vec::new(), Vec::new());
    for (workload, published) in Workload::ALL.into_iter().zip(PUBLISHED) {
        let name = workload.name();
        let published = published.map(|it| it.iter().sum::<f64>());
        series.push(Series {
            name: format!("{name}, published"),
            source: Source::Published,
            values: published
                .map(|it| Some(Value::exactly(it)))
                .into_iter()
                .chain([None])
                .collect(),
        });
        let bucket = dollars(measured, workload, Reader::Bucket);
        let here = [FIFTY_FIFTY, OURS].map(|reader| dollars(measured, workload, reader));
        let percent = 100.0 * (1.0 - published[1] / published[0]);
        for (side, ours) in [("deli, 50/50", here[0]), ("tierfeed", here[1])] {
            let what = format!("cost of requests and machines against the bucket, {name}, {side}");
            let why = "the paper's time of computing and loading does not add up to that of its own measurements";
            headlines.extend(less_time(&what, percent, ours, bucket).map(|it| it.because(why)));
        }
        series.push(Series {
            name: format!("{name}, here"),
            source: Source::Measured,
            values: [bucket].into_iter().chain(here).collect(),
        });
    }
    let groups = ["bucket", "deli, 50/50", "tierfeed (gap)"];
    let along = Along::Groups(groups.map(str::to_owned).to_vec());
    let y = "requests and machines of two epochs, $".to_owned();
    let chart = Chart { title: String::new(), x: String::new(), y, along, series };
    let blank = blank(measured, NAME, "Table II", "What two epochs cost");
    let setting = format!(
        "{} The requests are those that `tierfeed plan --cost` counts for the job; nodes cost {VM} $ an hour. Time and \
         requests count as many times as the paper has more of them. The storage of all ways costs the same as \
         published: 1.93 $ of a bucket and the disks of the systems.",
        blank.setting
    );
    Figure { setting, charts: vec![chart], headlines, ..blank }
}

/// Requests and machines of all nodes, with as many samples and as much time as in the paper.
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
        f64::from(SCALE) * requests + f64::from(NODES) * VM * hours
    })
}
