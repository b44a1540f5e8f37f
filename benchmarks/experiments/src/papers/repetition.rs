//! Repeats the figures of a paper that are wanted, on one stage. One that fails is named, and the others go on.

use tierfeed_core::units::BytesPerSecond;

use crate::{
    figure::Figure,
    stage::{Extent, Settings, Stage, on_stage},
};

/// Runs what one figure or several show.
pub(super) type Repeat = fn(&mut Stage<'_>, &mut dyn FnMut(&str)) -> anyhow::Result<Vec<Figure>>;

/// What figures are repeated on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ground {
    pub(super) disk: BytesPerSecond,
    /// Room on the disk, in copies of the photographs.
    pub(super) copies: u64,
    /// Photographs at most, and in a quick run.
    pub(super) photographs: u32,
    pub(super) photographs_quick: u32,
}

impl Ground {
    /// The settings, with no more photographs than there shall be.
    pub(super) fn settings(&self, settings: &Settings) -> Settings {
        let most = match settings.extent {
            Extent::Full => self.photographs,
            Extent::Quick => self.photographs_quick,
        };
        Settings { photographs: settings.photographs.min(most), ..settings.clone() }
    }
}

/// Figures, and those that failed.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    pub(super) figures: Vec<Figure>,
    /// Each with its reason.
    pub(super) failed: Vec<String>,
}

impl Repeated {
    /// Adds the figures of `names`, or the reason why there are none.
    pub(super) fn add(&mut self, names: &[&str], repeated: anyhow::Result<Vec<Figure>>) {
        match repeated {
            Ok(figures) => self.figures.extend(figures),
            Err(error) => self.failed.push(format!("{}: {error:#}", names.join(", "))),
        }
    }
}

/// Figures that are repeated on one stage.
#[derive(Debug)]
pub(super) struct OnStage {
    pub(super) ground: Ground,
    /// By name; those of one entry come from the same runs.
    pub(super) figures: &'static [(&'static [&'static str], Repeat)],
}

impl OnStage {
    /// The names of the figures.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.figures.iter().flat_map(|(names, _)| names.iter().copied())
    }

    /// Repeats the figures that are wanted.
    pub(super) fn run(
        &self,
        settings: &Settings,
        is_wanted: &dyn Fn(&str) -> bool,
        step: &mut dyn FnMut(&str),
        repeated: &mut Repeated,
    ) {
        let Self { ground, figures } = self;
        let wanted: Vec<_> =
            figures.iter().filter(|(names, _)| names.iter().any(|name| is_wanted(name))).collect();
        if wanted.is_empty() {
            return;
        }
        let settings = ground.settings(settings);
        let made = on_stage(&settings, ground.disk, ground.copies, step, |stage, step| {
            for (names, repeat) in &wanted {
                let mut made = repeat(stage, step);
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

    #[test]
    fn a_figure_that_fails_is_named_with_its_reason() {
        let mut repeated = Repeated::default();
        repeated.add(&["lobster-7", "lobster-8"], Err(anyhow::anyhow!("no disk")));
        repeated.add(&["lobster-6"], Ok(Vec::new()));
        assert_eq!(repeated.failed, ["lobster-7, lobster-8: no disk"]);
    }
}
