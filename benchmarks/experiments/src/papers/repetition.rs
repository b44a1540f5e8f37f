//! Repeats the figures of a paper that are wanted. One that fails is named, and the others go on.

use std::{collections::BTreeMap, fmt};

use super::{
    deli,
    drawing::Drawing,
    file::{Data, Experiment, FigureFile, Ground, PaperFile, SideFile, Special, Trial},
    measure::Outcome,
    ram_disk::{RamDisk, on_ram_disk},
    special::{Drawn, accuracy, eviction, probe, reuse},
    trials,
};
use crate::{
    figure::Figure,
    stage::{Extent, Settings, Stage, on_stage},
};

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

/// An experiment, and those of its figures that are wanted.
struct Wanted<'a> {
    paper: &'a PaperFile,
    experiment: &'a Experiment,
    figures: Vec<&'a FigureFile>,
    extent: Extent,
}

pub(super) fn run(
    paper: &PaperFile,
    settings: &Settings,
    is_wanted: &dyn Fn(&str) -> bool,
    repeated: &mut Repeated,
) {
    let extent = settings.extent;
    let is_wanted =
        |it: &&FigureFile| is_wanted(&it.name) && it.only.is_none_or(|only| only == extent);
    let wanted = paper.experiments.iter().map(|experiment| {
        let figures = experiment.figures.iter().filter(is_wanted).collect();
        Wanted { paper, experiment, figures, extent }
    });
    let wanted: Vec<_> = wanted.filter(|it| !it.figures.is_empty()).collect();
    let (staged, alone): (Vec<_>, Vec<_>) = wanted
        .iter()
        .partition(|it| paper.stage.is_some() && it.experiment.special != Some(Special::Eviction));
    if let (Some(ground), false) = (paper.stage, staged.is_empty()) {
        let made = on_stage(&ground.settings(settings), ground.disk, ground.copies, |stage| {
            for it in &staged {
                let mut made = it.on_stage(stage);
                let predictions = stage.take_predictions();
                if let Ok([first, ..]) = made.as_deref_mut() {
                    first.predictions.extend(predictions);
                }
                repeated.add(&it.names(), made);
            }
            Ok(Vec::new())
        });
        repeated.add(&staged.iter().flat_map(|it| it.names()).collect::<Vec<_>>(), made);
    }
    for it in alone {
        repeated.add(&it.names(), it.alone(settings));
    }
}

impl Ground {
    /// The settings, with the number of photographs limited.
    fn settings(&self, settings: &Settings) -> Settings {
        let most = match settings.extent {
            Extent::Full => self.photographs,
            Extent::Quick => self.photographs_quick,
        };
        Settings { photographs: settings.photographs.min(most), ..settings.clone() }
    }
}

impl Wanted<'_> {
    fn names(&self) -> Vec<&str> {
        self.figures.iter().map(|it| &it.name[..]).collect()
    }

    fn on_stage(&self, stage: &mut Stage<'_>) -> anyhow::Result<Vec<Figure>> {
        let drawn = match self.experiment.special {
            None => return self.draw(&self.outcomes(stage)?),
            Some(Special::Probe) => probe::measured(stage)?,
            Some(Special::Reuse) => reuse::measured(stage)?,
            Some(Special::Accuracy) => accuracy::measured(stage)?,
            Some(Special::Eviction) => eviction::replayed(self.extent),
        };
        self.with(drawn, trials::told(stage))
    }

    /// Without a stage.
    fn alone(&self, settings: &Settings) -> anyhow::Result<Vec<Figure>> {
        if self.experiment.special == Some(Special::Eviction) {
            return self.with(eviction::replayed(self.extent), BTreeMap::new());
        }
        let trials = self.experiment.trials.iter();
        let run = |trial: &Trial| deli::run(settings, trial, &|it| self.shows(it));
        self.draw(&trials.map(run).collect::<anyhow::Result<Vec<_>>>()?)
    }

    fn outcomes(&self, stage: &mut Stage<'_>) -> anyhow::Result<Vec<Outcome>> {
        let trials = &self.experiment.trials;
        let run = |stage: &mut Stage<'_>, ram_disk: Option<&RamDisk<'_>>| {
            let run = |trial| trials::run(stage, trial, ram_disk, &|it| self.shows(it)).transpose();
            trials.iter().filter_map(run).collect()
        };
        let on_ram_disk_is = |it: &Trial| it.sides.iter().any(|it| it.data == Some(Data::RamDisk));
        if trials.iter().any(on_ram_disk_is) {
            return on_ram_disk(stage, |stage, ram_disk| run(stage, Some(ram_disk)));
        }
        run(stage, None)
    }

    /// Whether a side runs: it is of this extent, and a figure that is wanted shows it.
    fn shows(&self, side: &SideFile) -> bool {
        let shown = self.experiment.shown(self.figures.iter().copied());
        side.only.is_none_or(|only| only == self.extent) && shown.contains(&side.name[..])
    }

    fn draw(&self, outcomes: &[Outcome]) -> anyhow::Result<Vec<Figure>> {
        let figure = |file: &&FigureFile| Drawing { file, outcomes }.figure(self.paper);
        self.figures.iter().map(figure).collect()
    }

    fn with(
        &self,
        Drawn { charts, claims, told }: Drawn,
        mut known: BTreeMap<&'static str, String>,
    ) -> anyhow::Result<Vec<Figure>> {
        known.extend(told);
        let outcome = Outcome { told: known, ..Outcome::default() };
        let mut figures = self.draw(&[outcome])?;
        if let [first, ..] = &mut figures[..] {
            (first.charts, first.headlines) = (charts, claims);
        }
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Paper;

    #[test]
    fn a_figure_is_there_or_failed_only_by_its_whole_name() {
        let mut repeated = Repeated::default();
        let there = Figure::named(Paper::Lobster, "lobster-8b", "", "");
        repeated.add(&["lobster-8b"], Ok(vec![there]));
        repeated.add(&["lobster-7c", "lobster-3"], Err(anyhow::anyhow!("lobster-10 is too slow")));
        assert_eq!(["lobster-8b", "lobster-7c", "lobster-3"].map(|it| repeated.has(it)), [true; 3]);
        assert_eq!(["lobster-8", "lobster-7", "lobster-10"].map(|it| repeated.has(it)), [false; 3]);
        let failed: Vec<_> = repeated.failed.iter().map(ToString::to_string).collect();
        assert_eq!(failed, ["lobster-7c, lobster-3: lobster-10 is too slow"]);
    }
}
