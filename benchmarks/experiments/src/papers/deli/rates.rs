//! Table I: how fast samples are read from a disk, and from a bucket by one thread and by sixteen.

use super::{
    blank,
    node::{Measured, PUBLISHED, Run},
};
use crate::figure::{Along, Chart, Figure, Headline, Series, Source, Value, Verdict};

pub(super) const NAME: &str = "deli-t1";

/// How far from the published rate the bucket may be.
const TOLERANCE: f64 = 0.05;

pub(super) const fn runs() -> Vec<Run> {
    Vec::new()
}

pub(super) fn figure(measured: &Measured) -> Figure {
    let sides = [
        ("disk", PUBLISHED.disk, &measured.disk),
        ("bucket, one thread", PUBLISHED.sequential, &measured.sequential),
        ("bucket, 16 threads", PUBLISHED.parallel, &measured.parallel),
    ];
    let here = sides
        .map(|(_, _, rates)| Value::of(&rates.iter().map(|rate| rate / 1e3).collect::<Vec<_>>()));
    let published = sides.map(|(_, rate, _)| Some(Value::exactly(rate / 1e3)));
    let chart = Chart {
        title: String::new(),
        x: String::new(),
        y: "kB/s".to_owned(),
        along: Along::Groups(sides.map(|it| it.0.to_owned()).to_vec()),
        series: vec![
            Series {
                name: "published".to_owned(),
                source: Source::Published,
                values: published.to_vec(),
            },
            Series { name: "here".to_owned(), source: Source::Measured, values: here.to_vec() },
        ],
    };
    let headlines = sides
        .iter()
        .zip(here)
        .filter_map(|((side, rate, _), here)| Some(emulates(side, rate / 1e3, here?)));
    Figure {
        setting: "Every sample is a file, or an object that a plain GET reads over a connection that stays open."
            .to_owned(),
        headlines: headlines.collect(),
        charts: vec![chart],
        ..blank(measured, NAME, "Table I", "Read rates of small samples")
    }
}

/// The emulation is to be what was published, not better.
fn emulates(side: &str, published: f64, here: Value) -> Headline {
    let verdict = if (here.median / published - 1.0).abs() <= TOLERANCE {
        Verdict::Reproduced
    } else {
        Verdict::NotComparable
    };
    Headline {
        what: format!("read rate, {side}"),
        published: format!("{published:.1} kB/s"),
        here: format!("{:.1} kB/s ({:.1} to {:.1})", here.median, here.least, here.most),
        measured: Some(here),
        verdict,
        why: String::new(),
    }
    .because(
        "what is emulated is off by more than a twentieth: other work on this machine, or its disk",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_that_is_faster_than_published_is_not_the_published_one() {
        let verdict = |here| emulates("bucket", 50.0, Value::exactly(here)).verdict;
        assert_eq!(verdict(48.0), Verdict::Reproduced);
        assert_eq!(verdict(53.0), Verdict::NotComparable);
        assert_eq!(verdict(40.0), Verdict::NotComparable);
    }
}
