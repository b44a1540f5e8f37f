//! Reads objects and takes the time.
//!
//! Bodies are counted as they arrive and dropped: a benchmark of the memory of this process is another
//! one.

use std::{ops::Range, sync::Arc};

use object_store::{GetOptions, GetRange, ObjectStore, path::Path};
use tierfeed_core::units::{Bytes, Nanoseconds};
use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;

use super::{
    bucket::{Object, OpenBucket},
    error::Failure,
};
use crate::{
    figures::{Percentiles, Throughput},
    measure::{
        cell::{Occupation, StopRule},
        clock::{Clock, SystemClock},
        histogram::Histogram,
        laps::{LapEnd, Laps},
    },
};

/// Requests in flight, one measurement each.
pub(super) const REQUESTS: [u32; 3] = [1, 8, 32];
/// The longest range of one read, as a prefetcher would ask for.
const RANGE_MAX: u64 = 8 << 20;
/// Fewer laps make no rate.
const LAPS_MIN: usize = 2;
/// Enough requests for a median; fewer are made only if the store is too slow for them.
const LATENCIES_MIN: u64 = 20;
const LATENCIES_MAX: u64 = 10_000;
/// A measurement may take this many times its time to reach its least number of samples.
pub(super) const STRETCH: u64 = 3;

pub(super) struct Run<'bucket> {
    bucket: &'bucket OpenBucket,
    objects: &'bucket [Object],
    /// Bytes for each number of requests in flight.
    share: u64,
    time: Nanoseconds,
    transferred: u64,
}

impl<'bucket> Run<'bucket> {
    /// There is at least one object, and none of them is empty.
    pub(super) fn new(
        bucket: &'bucket OpenBucket,
        objects: &'bucket [Object],
        budget: Bytes,
        time: Nanoseconds,
    ) -> Self {
        // Latencies cost a byte each.
        let share = budget.0.saturating_sub(LATENCIES_MAX + 1) / REQUESTS.len() as u64;
        Self { bucket, objects, share, time, transferred: 0 }
    }

    pub(super) fn transferred(&self) -> Bytes {
        Bytes(self.transferred)
    }

    /// Requests for one byte, one after another. The first opens the connection and is dropped.
    pub(super) async fn latency(&mut self) -> Result<Percentiles, Failure> {
        let mut latencies = Histogram::default();
        let begin = SystemClock.wall();
        for object in self.objects.iter().cycle() {
            let start = SystemClock.wall();
            let store = Arc::clone(&self.bucket.store);
            self.transferred += read(store, object.path.clone(), 0..1).await?;
            let end = SystemClock.wall();
            if self.transferred > 1 {
                latencies.record(Nanoseconds(end.0.saturating_sub(start.0)));
            }
            let passed = end.0.saturating_sub(begin.0);
            let samples = latencies.samples();
            let is_enough = passed >= self.time.0 && samples >= LATENCIES_MIN;
            if is_enough
                || samples == LATENCIES_MAX
                || passed >= self.time.0.saturating_mul(STRETCH)
            {
                break;
            }
        }
        Ok(latencies.percentiles())
    }

    /// Reads ranges with `requests` in flight; `None` if the budget does not last for a rate.
    pub(super) async fn throughput(
        &mut self,
        requests: u32,
    ) -> Result<Option<Throughput>, Failure> {
        let len_max = range_len(self.share, requests);
        let mut ranges = ranges(self.objects, len_max).cycle();
        let mut left = self.share;
        let mut reads = JoinSet::new();
        let mut laps = self.laps(requests);
        let mut longest = 0;
        loop {
            while reads.len() < requests as usize && !self.is_enough(&laps) {
                let Some((path, range)) = ranges.next() else { break };
                let len = range.end - range.start;
                if len > left {
                    break;
                }
                left -= len;
                longest = longest.max(len);
                reads.spawn(read(Arc::clone(&self.bucket.store), path.clone(), range));
            }
            let is_full = reads.len() == requests as usize;
            let Some(arrived) = reads.join_next().await else { break };
            let bytes = arrived??;
            self.transferred += bytes;
            // What arrives at the end was not among as many others.
            let now = SystemClock.wall();
            if is_full && laps.counts_last_of_lap(now, None, bytes) {
                laps.close(now);
            }
        }
        let rate = laps.rate();
        Ok(rate.map(|bytes_per_s| Throughput { requests, range_bytes: longest, bytes_per_s }))
    }

    /// A lap is as many arrivals as there are requests in flight; the first lap opens connections.
    fn laps(&self, requests: u32) -> Laps {
        let rule =
            StopRule { half_width: 0.05, samples_min: 10, samples_max: 1_000, time: self.time };
        let lap_end = LapEnd::Operations(u64::from(requests));
        Laps::new(SystemClock.wall(), lap_end, rule, Occupation::Waits)
    }

    fn is_enough(&self, laps: &Laps) -> bool {
        let (taken, stretched) = (laps.cell.taken(), self.time.0.saturating_mul(STRETCH));
        taken >= LAPS_MIN && !laps.cell.wants_more()
            || taken >= 1 && laps.cell.spent().0 >= stretched
    }
}

/// The length with which the share lasts for some laps.
fn range_len(share: u64, requests: u32) -> u64 {
    (share / (u64::from(requests) * 2 * (LAPS_MIN as u64 + 1))).clamp(1, RANGE_MAX)
}

fn ranges(objects: &[Object], len_max: u64) -> impl Iterator<Item = (&Path, Range<u64>)> + Clone {
    objects.iter().flat_map(move |object| {
        let starts = (0..object.len).step_by(usize::try_from(len_max).unwrap_or(usize::MAX));
        starts.map(move |start| (&object.path, start..(start + len_max).min(object.len)))
    })
}

async fn read(
    store: Arc<dyn ObjectStore>,
    path: Path,
    range: Range<u64>,
) -> object_store::Result<u64> {
    let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
    let mut body = store.get_opts(&path, options).await?.into_stream();
    let mut bytes = 0;
    while let Some(part) = body.next().await {
        bytes += part?.len() as u64;
    }
    Ok(bytes)
}

pub(super) fn remarks(throughput: &[Throughput], budget: Bytes) -> Vec<String> {
    let mut remarks = Vec::new();
    if throughput.len() < REQUESTS.len() {
        remarks.push(format!("{budget} are too few for a rate at {} requests", REQUESTS[2]));
    }
    let is_short = throughput.iter().any(|it| it.range_bytes < 1 << 20);
    if is_short {
        remarks.push("ranges below 1 MiB measure requests more than the way".to_owned());
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_every_object_once_and_cross_none() {
        let object = |name: &str, len| Object { path: name.into(), len };
        let objects = [object("a", 10), object("b", 4), object("c", 1)];
        let found: Vec<_> =
            ranges(&objects, 4).map(|(path, range)| (path.as_ref(), range)).collect();
        assert_eq!(found, [("a", 0..4), ("a", 4..8), ("a", 8..10), ("b", 0..4), ("c", 0..1)]);
    }

    #[test]
    fn a_share_lasts_for_laps_at_any_number_of_requests() {
        for requests in REQUESTS {
            let len = range_len(64 << 20, requests);
            assert!(len * u64::from(requests) * (LAPS_MIN as u64 + 1) <= 64 << 20);
        }
        assert_eq!(range_len(1 << 40, 32), RANGE_MAX);
        assert_eq!(range_len(0, 32), 1);
    }
}
