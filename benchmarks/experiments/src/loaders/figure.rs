//! The comparison as a figure of the page: a chart for each condition, and tierfeed against the fastest other loader.

use tierfeed_core::units::Bytes;

use super::{Comparison, Outcome, Place};
use crate::{
    claim::times_as_much,
    figure::{Along, Chart, Figure, Headline, Paper, Series, Source},
};

impl Outcome {
    #[must_use]
    pub fn figure(&self) -> Figure {
        let versions = self.versions.iter().map(|(loader, version)| format!("{loader} {version}"));
        Figure {
            setting: format!(
                "{} photographs ({}), each loader with two workers or threads unless its name says another number. {}.",
                self.photographs,
                Bytes(self.dataset_bytes),
                versions.collect::<Vec<_>>().join(", ")
            ),
            charts: self.comparisons.iter().map(chart).collect(),
            headlines: self.comparisons.iter().filter_map(headline).collect(),
            emulated: [&self.disk, &self.bucket]
                .into_iter()
                .filter(|it| !it.is_empty())
                .cloned()
                .collect(),
            command: "tierfeed-bench loaders".to_owned(),
            ..Figure::named(Paper::Loaders, "loaders", "Comparison", "Images a second by loader")
        }
    }
}

const NOTHING_TO_PREPARE: &str = "a loop over files in the page cache of its own process has nothing to prepare or to \
                                  plan, and tierfeed hands each batch over from another process";

fn chart(comparison: &Comparison) -> Chart {
    Chart {
        title: comparison.condition.name(),
        x: String::new(),
        y: "images a second".to_owned(),
        along: Along::Groups(comparison.rows.iter().map(|row| row.loader.to_owned()).collect()),
        series: vec![Series {
            name: "images a second".to_owned(),
            source: Source::Measured,
            values: comparison.rows.iter().map(|row| Some(row.images_per_s)).collect(),
        }],
    }
}

fn headline(comparison: &Comparison) -> Option<Headline> {
    let (ours, other) = (comparison.ours()?, comparison.fastest_other()?);
    // The same claim also if another loader is the fastest tomorrow.
    let what =
        format!("{}: times as fast as the fastest other loader", comparison.condition.name());
    let claim = times_as_much(&what, 1.0, Some(ours.images_per_s), Some(other.images_per_s))?;
    let here = format!("{}, {}", claim.here, other.loader);
    let claim = Headline { published: "first".to_owned(), here, ..claim };
    let is_warm_bytes = comparison.condition.place == Place::Warm && !comparison.condition.decode;
    Some(if is_warm_bytes { claim.because(NOTHING_TO_PREPARE) } else { claim })
}
