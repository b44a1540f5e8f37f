//! Figures 8, 12 and 13: total time in six environments, of four models.
//!
//! One set of runs serves all three: figure 12 shows those with the dataset in fast storage, figure 13 those with more
//! memory.

use std::path::Path;

use super::{
    caching,
    environment::{
        Environment::{
            self, Constrained, CxlAsBoth, CxlAsMemory, CxlAsStorage, Tierfeed, TierfeedInMemory,
            Unconstrained,
        },
        emulated, setting,
    },
    ram_disk::on_ram_disk,
};
use crate::{
    claim::less_time,
    figure::{Along, Chart, Figure, Headline, Paper, Series, Source, Value},
    stage::{BATCH, Extent, Side, Stage, value},
    training::{Trained, Training},
};

pub(super) const NAMES: [&str; 3] = ["deep-memory-8", "deep-memory-12", "deep-memory-13"];

const EPOCHS: u32 = 3;

/// What is trained.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Model {
    /// A step sleeps so many seconds, as while a GPU computes.
    Sleep(f64),
    /// A step computes forward and backward on a core.
    Network,
}

use Model::{Network, Sleep};

impl Model {
    fn name(self) -> String {
        match self {
            Sleep(step_s) => format!("step of {:.0} ms", step_s * 1e3),
            Network => "small network".to_owned(),
        }
    }
}

/// A loader of today, with the models that it feeds: steps below, near and above what reading a batch takes.
struct Loader {
    script: &'static str,
    network: &'static str,
    name: &'static str,
    models: &'static [Model],
    environments: &'static [Environment],
}

/// The model of which tierfeed trains without fast storage, too.
const OF_SCRATCH: Model = Sleep(0.005);

const LOADERS: [Loader; 2] = [
    Loader {
        script: "tf.data",
        network: "",
        name: "tf.data",
        models: &[OF_SCRATCH, Sleep(0.04)],
        environments: &[Unconstrained, Constrained, CxlAsMemory, CxlAsStorage],
    },
    Loader {
        script: "dataloader",
        network: "dataloader-network",
        name: "DataLoader",
        models: &[Sleep(0.015), Network],
        environments: &[Unconstrained, Constrained, CxlAsMemory, CxlAsStorage, CxlAsBoth],
    },
];

/// A figure: its environments, tierfeed last, and by how many per cent `DeepMemoryDL` shortens the total time at most,
/// against some of them.
struct Shown {
    number: &'static str,
    title: &'static str,
    environments: &'static [Environment],
    published: &'static [(Environment, f64)],
}

/// # Source
///
/// `DeepMemoryDL`, sections 4.2.1, 4.2.4 and 4.2.5.
const SHOWN: [Shown; 3] = [
    Shown {
        number: "Figure 8",
        title: "Total time in six environments",
        environments: &[Unconstrained, Constrained, CxlAsMemory, CxlAsStorage, CxlAsBoth, Tierfeed],
        published: &[
            (Constrained, 34.0),
            (CxlAsMemory, 27.0),
            (CxlAsStorage, 25.0),
            (Unconstrained, 20.0),
        ],
    },
    Shown {
        number: "Figure 12",
        title: "Total time with the dataset staged in fast storage",
        environments: &[Constrained, CxlAsStorage, Unconstrained, TierfeedInMemory, Tierfeed],
        published: &[(Constrained, 32.0), (CxlAsStorage, 24.0), (Unconstrained, 20.0)],
    },
    Shown {
        number: "Figure 13",
        title: "Total time with prefetching and caching in more memory",
        environments: &[Unconstrained, Constrained, CxlAsMemory, TierfeedInMemory, Tierfeed],
        published: &[(Constrained, 30.0), (CxlAsMemory, 25.0), (Unconstrained, 15.0)],
    },
];

/// Total times in environments.
type Seconds = Vec<(Environment, Option<Value>)>;

/// Total times of a loader of today and of tierfeed.
struct Times {
    loader: &'static str,
    models: Vec<Model>,
    /// Of each model.
    seconds: Vec<Seconds>,
}

impl Times {
    fn of(&self, model: usize, environment: Environment) -> Option<Value> {
        self.seconds[model].iter().find(|(it, _)| *it == environment)?.1
    }
}

pub(super) fn figures(
    stage: &mut Stage<'_>,
    step: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Figure>> {
    on_ram_disk(stage, |stage, ram_disk| {
        let copy_s = ram_disk.copy_s;
        let times = measure(stage, ram_disk.path, copy_s, step)?;
        let shown = NAMES.iter().zip(&SHOWN);
        let mut figures: Vec<_> =
            shown.map(|(name, it)| figure(stage, name, it, &times, copy_s)).collect();
        if stage.settings.extent == Extent::Full {
            figures[2].charts.push(caching::time(stage, step)?);
        }
        Ok(figures)
    })
}

/// All environments with all loaders and models. tierfeed trains once for all loaders.
fn measure(
    stage: &mut Stage<'_>,
    ram_disk: &Path,
    copy_s: f64,
    step: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Times>> {
    let on_disk = stage.photographs();
    let mut ours: Vec<(Model, Seconds)> = Vec::new();
    let mut all = Vec::new();
    for loader in loaders(stage.settings.extent) {
        let mut times =
            Times { loader: loader.name, models: loader.models.to_vec(), seconds: Vec::new() };
        for &model in &times.models {
            let mut environments = loader.environments.to_vec();
            let known = ours.iter().find(|(it, _)| *it == model);
            if known.is_none() {
                environments.push(Tierfeed);
                let is_of_scratch = model == OF_SCRATCH && stage.settings.extent == Extent::Full;
                environments.extend(is_of_scratch.then_some(TierfeedInMemory));
            }
            let sides: Vec<Side<'_>> = environments
                .iter()
                .map(|it| {
                    side(
                        stage,
                        &loader,
                        model,
                        *it,
                        if it.is_on_ram_disk() { ram_disk } else { &on_disk },
                    )
                })
                .collect();
            let turns = stage.turns(&sides, step)?;
            let total = |environment: Environment, turns: &[Trained]| {
                let before = if environment.is_on_ram_disk() { copy_s } else { 0.0 };
                value(turns, |it| before + it.total_s())
            };
            let mut seconds: Vec<_> = environments
                .iter()
                .zip(&turns)
                .map(|(it, turns)| (*it, total(*it, turns)))
                .collect();
            if let Some((_, values)) = known {
                seconds.extend(values.iter().copied());
            } else {
                let of_ours = seconds.iter().filter(|(it, _)| it.is_tierfeed()).copied();
                ours.push((model, of_ours.collect()));
            }
            times.seconds.push(seconds);
        }
        all.push(times);
    }
    Ok(all)
}

/// The loaders of today, of quick runs with the models that tell most.
fn loaders(extent: Extent) -> Vec<Loader> {
    match extent {
        Extent::Full => LOADERS.into(),
        Extent::Quick => {
            let [_, torch] = LOADERS;
            let environments = &[Unconstrained, Constrained];
            vec![Loader { models: &[Sleep(0.005)], environments, ..torch }]
        }
    }
}

fn side<'a>(
    stage: &Stage<'_>,
    loader: &Loader,
    model: Model,
    environment: Environment,
    data: &'a Path,
) -> Side<'a> {
    let script = match (environment.is_tierfeed(), model) {
        (true, Sleep(_)) => "tierfeed",
        (true, Network) => "tierfeed-network",
        (false, Sleep(_)) => loader.script,
        (false, Network) => loader.network,
    };
    let name = if environment.is_tierfeed() { "tierfeed" } else { loader.name };
    Side {
        name: format!("{name}, {}, {}", model.name(), environment.name()),
        room: environment.room(stage),
        training: Training {
            loader: script,
            data,
            batch_size: BATCH,
            epochs: EPOCHS,
            step_s: if let Sleep(step_s) = model { step_s } else { 0.0 },
            workers: 2,
            decode: true,
            job: environment.job(stage),
        },
    }
}

fn figure(stage: &Stage<'_>, name: &str, shown: &Shown, times: &[Times], copy_s: f64) -> Figure {
    Figure {
        name: name.to_owned(),
        paper: Paper::DeepMemory,
        number: shown.number.to_owned(),
        title: shown.title.to_owned(),
        setting: format!(
            "{}. Decoded and cropped by 2 workers or threads. A step sleeps, or computes with a small network on one \
             core. Where the loader reads from fast storage, the total has the {copy_s:.1} s of the copy from the disk.",
            setting(stage)
        ),
        charts: times.iter().map(|it| chart(shown, it)).collect(),
        headlines: times.iter().flat_map(|it| headlines(shown, it, copy_s)).collect(),
        predictions: Vec::new(),
        emulated: emulated(stage),
        command: format!("tierfeed-bench paper {name}"),
    }
}

fn chart(shown: &Shown, times: &Times) -> Chart {
    let series = times.models.iter().enumerate().map(|(number, model)| Series {
        name: model.name(),
        source: Source::Measured,
        values: shown.environments.iter().map(|it| times.of(number, *it)).collect(),
    });
    Chart {
        title: times.loader.to_owned(),
        x: "environment".to_owned(),
        y: format!("total time of {EPOCHS} epochs, s"),
        along: Along::Groups(shown.environments.iter().map(|it| it.name().to_owned()).collect()),
        series: series.collect(),
    }
}

/// What the paper claims "up to": of the model that gains most.
fn headlines(shown: &Shown, times: &Times, copy_s: f64) -> Vec<Headline> {
    let mut headlines = Vec::new();
    for &(environment, published) in shown.published {
        let best = |before_s: f64| {
            let claims = times.models.iter().enumerate().filter_map(|(number, model)| {
                let theirs = times.of(number, environment)?.less(before_s);
                let ours = times.of(number, Tierfeed)?;
                Some((ours.median / theirs.median, model, ours, theirs))
            });
            claims.min_by(|a, b| a.0.total_cmp(&b.0))
        };
        let claim = |before_s: f64, beside: &str| {
            let (_, model, ours, theirs) = best(before_s)?;
            let (loader, name, model) = (times.loader, environment.name(), model.name());
            let what = format!("up to, {loader}, against {name}{beside}");
            let claim = less_time(&what, published, Some(ours), Some(theirs))?;
            Some(Headline { here: format!("{}, {model}", claim.here), ..claim })
        };
        let why = format!(
            "without the {copy_s:.1} s of its copy it reads nothing from the disk, and tierfeed reads all in its first \
             epoch"
        );
        headlines.extend(claim(0.0, ""));
        if environment.is_on_ram_disk() {
            let claim = claim(copy_s, ", whose copy is not counted");
            headlines.extend(claim.map(|it| it.because(&why)));
        }
    }
    headlines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_of_the_model_that_gains_most_with_and_without_the_copy() {
        let exactly = |seconds| Some(Value::exactly(seconds));
        let times = Times {
            loader: "DataLoader",
            models: vec![Sleep(0.04), Sleep(0.005)],
            seconds: vec![
                vec![(CxlAsStorage, exactly(10.0)), (Tierfeed, exactly(9.0))],
                vec![(CxlAsStorage, exactly(4.0)), (Tierfeed, exactly(2.0))],
            ],
        };
        let [counted, not_counted] = &headlines(&SHOWN[0], &times, 1.5)[..] else { panic!() };
        assert_eq!(counted.what, "up to, DataLoader, against CXL memory as storage");
        assert_eq!(counted.here, "-50 % (-50 to -50), step of 5 ms");
        assert_eq!(not_counted.here, "-20 % (-20 to -20), step of 5 ms");
    }
}
