//! Figures of papers and the comparison with other loaders: both have a page, and floors.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use tierfeed_experiments::{
    figure::Figure,
    floors::{self, Floors},
    loaders::{self, Condition},
    page, papers,
    record::Record,
    stage::{self, Extent},
};
use tierfeed_harness::{
    failure::Failure,
    programs::{self, Programs},
};

use super::{passed, watch};
use crate::arguments::{BenchLoaders, BenchPaper, FiguresOutput};

pub(super) fn loaders(arguments: BenchLoaders) -> Result<(), Failure> {
    let BenchLoaders { python, photographs, rounds, only, place, quick, figures, output } =
        arguments;
    let _watch = watch(&output.folder())?;
    let floors = figures.floors()?;
    let (extent, photographs, rounds) =
        if quick { (Extent::Quick, 1000, 1) } else { (Extent::Full, photographs, rounds) };
    let mut conditions = if quick { Condition::QUICK.to_vec() } else { Condition::ALL.to_vec() };
    conditions.retain(|it| place.is_empty() || place.iter().any(|name| name == it.place.name()));
    let stage = on_stage(python, output.folder(), extent, photographs, rounds)?;
    let settings = loaders::Settings { stage, only, conditions };
    let outcome = loaders::run(&settings, &mut |step| tracing::info!("{step}"));
    let outcome = outcome.map_err(Failure::Work)?;
    let figure = [outcome.figure()];
    figures.write(&figure, &papers::machine(&settings.stage))?;
    output.print(&outcome, loaders::table)?;
    passed(outcome.judged().and(floors::judged(&floors, &figure)))
}

pub(super) fn paper(arguments: BenchPaper) -> Result<(), Failure> {
    let BenchPaper { names, python, photographs, labelled, rounds, quick, figures, output } =
        arguments;
    let _watch = watch(&output.folder())?;
    let floors = figures.floors()?;
    let (extent, photographs, turns) =
        if quick { (Extent::Quick, 600, 1) } else { (Extent::Full, photographs, 3) };
    let rounds = rounds.unwrap_or(turns);
    let stage = on_stage(python, output.folder(), extent, photographs, rounds)?;
    let stage = stage::Settings { labelled, ..stage };
    let machine = papers::machine(&stage);
    // After each paper: a run takes an hour.
    let mut written = Ok(());
    let outcome =
        papers::run(&stage, &names, &mut |step| tracing::info!("{step}"), &mut |so_far| {
            written = figures.write(so_far, &machine);
        });
    written?;
    output.print(&outcome, |outcome| page::table(&outcome.figures))?;
    let failed = outcome.failed.into_iter();
    let judged = floors::judged(&floors, &outcome.figures);
    passed(failed.fold(judged, |judged, it| judged.verdict(it, "missed")))
}

/// The settings, with the programs that are built beside this one.
fn on_stage(
    python: PathBuf,
    folder: PathBuf,
    extent: Extent,
    photographs: u32,
    rounds: usize,
) -> Result<stage::Settings, Failure> {
    let tierfeed = Programs::find()?.tierfeed;
    let s3_server = programs::s3_server(None)?;
    let labelled = None;
    Ok(stage::Settings {
        extent,
        python,
        tierfeed,
        s3_server,
        folder,
        labelled,
        photographs,
        rounds,
    })
}

fn read_floors(file: &Path) -> Result<Floors, Failure> {
    let read = fs::read_to_string(file).map_err(anyhow::Error::new);
    let floors = read.and_then(|text| Ok(serde_json::from_str(&text)?));
    floors.with_context(|| file.display().to_string()).map_err(Failure::Input)
}

impl FiguresOutput {
    /// The floors in the file; none without a file.
    fn floors(&self) -> Result<Floors, Failure> {
        self.floors.as_deref().map_or_else(|| Ok(Floors::new()), read_floors)
    }

    fn write(&self, figures: &[Figure], machine: &str) -> Result<(), Failure> {
        let written = |file: &Path, text: String| {
            let written = fs::write(file, text);
            written
                .with_context(|| format!("cannot write {}", file.display()))
                .map_err(Failure::Work)
        };
        if let Some(file) = &self.page {
            let beside = file.with_extension("json");
            let mut record = Record::read(&beside).map_err(Failure::Input)?;
            record.add(figures, machine);
            let text = serde_json::to_string_pretty(&record);
            written(&beside, text.context("figures are no JSON").map_err(Failure::Work)? + "\n")?;
            written(file, page::page(&record.figures(), &record.machine()))?;
        }
        if let Some(file) = &self.record_floors {
            let mut all = if file.exists() { read_floors(file)? } else { Floors::new() };
            all.extend(floors::floors(figures));
            let text = serde_json::to_string_pretty(&all);
            written(file, text.context("floors are no JSON").map_err(Failure::Work)? + "\n")?;
        }
        Ok(())
    }
}
