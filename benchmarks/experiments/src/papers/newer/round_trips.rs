//! Round trips of 0.05, 10 and 30 ms to where the data are: does an epoch take longer?

use tierfeed_core::units::{Bytes, BytesPerSecond, Nanoseconds};

use tierfeed_harness::output::step;

use crate::{
    bucket::{Bucket, Pace},
    claim::{times_as_fast, times_as_much},
    figure::{Along, Chart, Figure, Headline, Paper, Series, Value},
    machine::Machine,
    stage::{BATCH, Extent, STAGING, Stage, job},
    training::Training,
};

pub(super) const NAME: &str = "newer-round-trips";

/// The greatest speed of EMLIO over that of others, over these round trips.
const PUBLISHED: f64 = 8.6;
const ROUND_TRIPS_MS: [f64; 3] = [0.05, 10.0, 30.0];
/// The rate that all connections share: a network of 1 Gb/s.
const NETWORK: BytesPerSecond = BytesPerSecond(125_000_000);
/// The stopwatch reads a tenth of the photographs.
const WATCHED: &str = "class0";

/// Loaders by name, in the script, and their workers. Each worker of `DataLoader` has one request in flight;
/// Grain and SPDL have 16 at a time, with any number of workers.
const LOADERS: [(&str, &str, u32); 4] = [
    ("tierfeed", "tierfeed", 2),
    ("DataLoader, 4 workers, obstore", "dataloader", 4),
    ("Grain, 16 readers, obstore", "grain", 2),
    ("SPDL, 16 readers, obstore", "spdl", 2),
];

pub(super) fn figure(stage: &Stage<'_>) -> anyhow::Result<Figure> {
    let round_trips = match stage.settings.extent {
        Extent::Full => ROUND_TRIPS_MS.to_vec(),
        Extent::Quick => vec![ROUND_TRIPS_MS[0], ROUND_TRIPS_MS[2]],
    };
    let far: Vec<Bucket> =
        round_trips.iter().map(|ms| bucket(stage, *ms)).collect::<Result<_, _>>()?;
    let mut checked = Vec::new();
    for bucket in &far {
        let read = stage.trainer.times(&Machine::default(), &bucket.at(WATCHED), 1)?;
        let request_ms = 1e3 * read.seconds / f64::from(stage.settings.photographs.div_ceil(10));
        checked.push(format!("{request_ms:.2} ms"));
    }
    let mut seconds = vec![vec![Vec::new(); far.len()]; LOADERS.len()];
    for round in 1..=stage.settings.rounds {
        for (at, bucket) in far.iter().enumerate() {
            for (loader, seconds) in LOADERS.iter().zip(&mut seconds) {
                let of = format!("{round} of {}", stage.settings.rounds);
                step(&format!("{} over {} ms: turn {of}", loader.0, round_trips[at]));
                seconds[at].push(epoch_s(stage, bucket, *loader)?);
            }
        }
    }
    let values: Vec<Vec<Option<Value>>> =
        seconds.iter().map(|turns| turns.iter().map(|it| Value::of(it)).collect()).collect();
    let series = LOADERS
        .iter()
        .zip(&values)
        .map(|(loader, values)| Series::measured(loader.0, values.clone()));
    let chart =
        Chart::new("round trip, ms", "epoch, s", Along::Positions(round_trips), series.collect());
    Ok(Figure {
        setting: format!(
            "Bytes of {} photographs ({}) in a bucket, one epoch without steps; a network of {NETWORK}.",
            stage.settings.photographs, stage.dataset
        ),
        headlines: headlines(&chart),
        charts: vec![chart],
        emulated: vec![format!(
            "the round trip is how late an S3 server on loopback answers; a stopwatch of requests one by one read a \
             photograph in {}",
            checked.join(", ")
        )],
        ..Figure::named(Paper::Newer, NAME, "Round trips", "An epoch from far away")
    })
}

/// The time of the fastest other loader over that of tierfeed at the longest round trip, and the growth of
/// tierfeed's own time.
fn headlines(chart: &Chart) -> Vec<Headline> {
    let farthest = |series: &Series| series.values.last().copied().flatten();
    let (ours, others) = (&chart.series[0], &chart.series[1..]);
    let against = |other: &Series| {
        let what = format!("speed over 30 ms, against {}", other.name);
        times_as_much(&what, PUBLISHED, farthest(other), farthest(ours))
    };
    let by_time = |other: &&Series| farthest(other).map_or(f64::INFINITY, |it| it.median);
    let fastest = others.iter().min_by(|a, b| by_time(a).total_cmp(&by_time(b)));
    let judged = fastest.and_then(|other| {
        Some(Headline {
            what: "speed over 30 ms, against the fastest other loader".to_owned(),
            ..against(other)?.because(MOST_OF_ALL)
        })
    });
    let one_by_one = against(&others[0]).map(|it| it.not_comparable(ONE_BY_ONE));
    let near = ours.values.first().copied().flatten();
    let flat =
        times_as_fast("speed of tierfeed over 30 ms, against 0.05 ms", 1.0, farthest(ours), near);
    let epoch_s = farthest(ours).map_or(f64::NAN, |it| it.median);
    let longer =
        format!("the first batch waits for the longer round trip, in an epoch of {epoch_s:.1} s");
    let flat = flat.map(|it| Headline { published: "as fast".to_owned(), ..it.because(&longer) });
    judged.into_iter().chain(one_by_one).chain(flat).collect()
}

const MOST_OF_ALL: &str = "this is the most that the paper found of any loader and network";

const ONE_BY_ONE: &str = "four workers have four requests in flight, and tierfeed 64";

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some milliseconds")]
fn bucket(stage: &Stage<'_>, round_trip_ms: f64) -> anyhow::Result<Bucket> {
    let latency = Nanoseconds((round_trip_ms * 1e6) as u64);
    let pace = Pace { latency, connection: None, together: Some(NETWORK) };
    Bucket::start(&stage.settings.s3_server, &stage.made, pace)
}

fn epoch_s(
    stage: &Stage<'_>,
    bucket: &Bucket,
    (_, loader, workers): (&str, &str, u32),
) -> anyhow::Result<f64> {
    let training = Training {
        loader,
        data: &bucket.all(),
        batch_size: BATCH,
        epochs: 1,
        step_s: 0.0,
        workers,
        decode: false,
        job: job(Bytes(2 * STAGING.0), &[]),
    };
    let trained = stage.trainer.train(&Machine::default(), &training)?;
    Ok(trained.total_s())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Verdict;

    #[test]
    fn the_longest_round_trip_is_the_one_that_claims_are_about() {
        let series = |values: [f64; 2]| {
            Series::measured(String::new(), values.map(|it| Some(Value::exactly(it))).to_vec())
        };
        let chart = Chart {
            title: String::new(),
            x: String::new(),
            y: String::new(),
            along: Along::Positions(vec![0.05, 30.0]),
            series: vec![series([1.0, 2.0]), series([1.0, 18.0]), series([1.0, 4.0])],
        };
        let here: Vec<_> = headlines(&chart).into_iter().map(|it| (it.here, it.verdict)).collect();
        let times = |here: &str| format!("{here} x ({here} to {here})");
        assert_eq!(
            here,
            [
                (times("2.00"), Verdict::NotReached),
                (times("9.00"), Verdict::NotComparable),
                (times("0.50"), Verdict::NotReached),
            ]
        );
    }
}
