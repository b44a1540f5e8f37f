//! Table I: how fast samples are read from a disk, and from a bucket by one thread and by sixteen.

use super::{
    blank,
    measured::Measured,
    setting::{PUBLISHED, Run},
};
use crate::figure::{Along, Chart, Figure, Series, Value};

pub(super) const NAME: &str = "deli-t1";

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
    let chart = Chart::new(
        "",
        "kB/s",
        Along::Groups(sides.map(|it| it.0.to_owned()).to_vec()),
        vec![
            Series::published("published", published.to_vec()),
            Series::measured("here", here.to_vec()),
        ],
    );
    Figure {
        setting: "Every sample is a file, or an object that a plain GET reads over a connection that stays open. \
                  Latency and rates are set so that this table comes out: it checks the emulation, and claims nothing."
            .to_owned(),
        charts: vec![chart],
        ..blank(measured, NAME, "Table I", "Read rates of small samples")
    }
}
