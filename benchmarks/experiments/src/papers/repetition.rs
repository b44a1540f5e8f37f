//! Repeats the figures of a paper that are wanted, on one stage. One that fails is named, and the others go on.

use std::fmt;

use tierfeed_core::units::BytesPerSecond;

use crate::{
    figure::Figure,
    stage::{Extent, Settings, Stage, on_stage},
};

/// Runs what one figure or several show.
pub(super) type Repeat = fn(&mut Stage<'_>) -> anyhow::Result<Vec<Figure>>;

#[derive(Debug, Clone, Copy)]
pub(super) struct Ground {
    pub(super) disk: BytesPerSecond,
    /// Room on the disk, in copies of the photographs.
    pub(super) copies: u64,
    /// The most photographs, and the most in a quick run.
    pub(super) photographs: u32,
    pub(super) photographs_quick: u32,
}

impl Ground {
    /// The settings, with the number of photographs limited.
    pub(super) fn settings(&self, settings: &Settings) -> Settings {
        let most = match settings.extent {
            Extent::Full => self.photographs,
            Extent::Quick => self.photographs_quick,
        };
        Settings { photographs: settings.photographs.min(most), ..settings.clone() }
    }
}

#[derive(Debug, Default)]
pub(super) struct Repeated {
    pub(super) figures: Vec<Figure>,
    pub(super) failed: Vec<Failed>,
}

/// Figures that failed together, with the reason.
#[derive(Debug)]
pub(super) struct Failed {
    names: Vec<String>,
    reason: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.names.join(", "), self.reason)
    }
}

impl Repeated {
    pub(super) fn add(&mut self, names: &[&str], repeated: anyhow::Result<Vec<Figure>>) {
        match repeated {
            Ok(figures) => self.figures.extend(figures),
            Err(error) => self.failed.push(Failed {
                names: names.iter().map(|name| (*name).to_owned()).collect(),
                reason: format!("{error:#}"),
            }),
        }
    }

    /// Whether the figure of this name is there, or failed.
    pub(super) fn has(&self, name: &str) -> bool {
        let failed = self.failed.iter().flat_map(|it| &it.names);
        self.figures.iter().map(|it| &it.name).chain(failed).any(|it| it == name)
    }
}

#[derive(Debug)]
pub(super) struct OnStage {
    pub(super) ground: Ground,
    /// By name; those of one entry come from the same runs.
    pub(super) figures: &'static [(&'static [&'static str], Repeat)],
}

impl OnStage {
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.figures.iter().flat_map(|(names, _)| names.iter().copied())
    }

    pub(super) fn run(
        &self,
        settings: &Settings,
        is_wanted: &dyn Fn(&str) -> bool,
        repeated: &mut Repeated,
    ) {
        let Self { ground, figures } = self;
        let wanted: Vec<_> =
            figures.iter().filter(|(names, _)| names.iter().any(|name| is_wanted(name))).collect();
        if wanted.is_empty() {
            return;
        }
        let settings = ground.settings(settings);
        let made = on_stage(&settings, ground.disk, ground.copies, |stage| {
            for (names, repeat) in &wanted {
                let mut made = repeat(stage);
                let predictions = stage.take_predictions();
                if let Ok(figures) = &mut made {
                    figures.retain(|figure| is_wanted(&figure.name));
                }
                if let Ok([first, ..]) = made.as_deref_mut() {
                    first.predictions.extend(predictions);
                }
                repeated.add(names, made);
            }
            Ok(Vec::new())
        });
        let names: Vec<&str> = wanted.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        repeated.add(&names, made);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Paper;

    #[test]
    fn a_figure_that_fails_is_named_with_its_reason() {
        let mut repeated = Repeated::default();
        repeated.add(&["lobster-7", "lobster-8"], Err(anyhow::anyhow!("no disk")));
        repeated.add(&["lobster-6"], Ok(Vec::new()));
        let failed: Vec<_> = repeated.failed.iter().map(ToString::to_string).collect();
        assert_eq!(failed, ["lobster-7, lobster-8: no disk"]);
    }

    #[test]
    fn a_figure_is_there_or_failed_only_by_its_whole_name() {
        let mut repeated = Repeated::default();
        let there = Figure::named(Paper::Lobster, "lobster-8b", "", "");
        repeated.add(&["lobster-8b"], Ok(vec![there]));
        repeated.add(&["lobster-7c", "lobster-3"], Err(anyhow::anyhow!("lobster-10 is too slow")));
        assert_eq!(["lobster-8b", "lobster-7c", "lobster-3"].map(|it| repeated.has(it)), [true; 3]);
        assert_eq!(["lobster-8", "lobster-7", "lobster-10"].map(|it| repeated.has(it)), [false; 3]);
    }
}
