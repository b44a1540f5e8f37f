//! Figures 8, 12 and 13: total time in six environments, of four models.
//!
//! One set of runs serves all three: figure 12 shows those with the dataset in fast storage, figure 13 those with more
//! memory.

use super::{
    environment::{
        Environment::{
            self, Constrained, CxlAsBoth, CxlAsMemory, CxlAsStorage, Tierfeed, TierfeedInMemory,
            TierfeedOnStorage, Unconstrained,
        },
        emulated, setting,
    },
    ram_disk::{RamDisk, on_ram_disk},
};
use crate::{
    claim::less_time,
    figure::{Along, Chart, Figure, Headline, Paper, Series, Value},
    stage::{BATCH, Extent, Side, Stage, value},
    training::{Trained, Training},
};

pub(super) const NAMES: [&str; 3] = ["deep-memory-8", "deep-memory-12", "deep-memory-13"];

const EPOCHS: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Model {
    /// A step sleeps this many seconds, as while a GPU computes.
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

#[derive(Debug, Clone, Copy, PartialEq)]
struct Loader {
    script: &'static str,
    network: &'static str,
    name: &'static str,
}

const TF_DATA: Loader = Loader { script: "tf.data", network: "tf.data-network", name: "tf.data" };
const DATA_LOADER: Loader =
    Loader { script: "dataloader", network: "dataloader-network", name: "DataLoader" };

/// The loaders that feed each model in the environments without tierfeed.
const LOADERS: [Loader; 2] = [TF_DATA, DATA_LOADER];

/// Steps below, near and above the time to read a batch, and those of a network.
const MODELS: [Model; 4] = [Sleep(0.005), Sleep(0.025), Sleep(0.045), Network];

/// The environments of loaders of today, and those of tierfeed in their place.
const THEIRS: [Environment; 4] = [Unconstrained, Constrained, CxlAsMemory, CxlAsStorage];
const OURS: [Environment; 3] = [Tierfeed, TierfeedOnStorage, TierfeedInMemory];

/// The models on which a claim is judged.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Of {
    /// The one with the shortest step, where loading matters most, for claims of "up to". It was chosen
    /// before the runs.
    Shortest,
    /// All of them, by the mean.
    Mean,
}

/// A figure: its environments, that of tierfeed in it, and by how many per cent `DeepMemoryDL` shortens the
/// total time against some of them.
struct Shown {
    number: &'static str,
    title: &'static str,
    environments: &'static [Environment],
    ours: Environment,
    of: Of,
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
        ours: Tierfeed,
        of: Of::Shortest,
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
        environments: &[Constrained, CxlAsStorage, Unconstrained, TierfeedOnStorage],
        ours: TierfeedOnStorage,
        of: Of::Shortest,
        published: &[(Constrained, 32.0), (CxlAsStorage, 24.0), (Unconstrained, 20.0)],
    },
    Shown {
        number: "Figure 13",
        title: "Total time with prefetching and caching in more memory",
        environments: &[Unconstrained, Constrained, CxlAsMemory, TierfeedInMemory],
        ours: TierfeedInMemory,
        of: Of::Mean,
        published: &[(Constrained, 30.0), (CxlAsMemory, 25.0), (Unconstrained, 15.0)],
    },
];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Decoder {
    /// The workers of its agent, which decode regions.
    Agent,
    /// torchvision in threads of the trainer, as in workers of `DataLoader`.
    Torchvision,
}

/// The total times of an environment, with the copy to fast storage and without it.
#[derive(Debug, Clone, Copy)]
struct Total {
    environment: Environment,
    decoder: Decoder,
    with_copy: Option<Value>,
    without_copy: Option<Value>,
    /// Seconds in which steps waited for batches.
    waited: Option<Value>,
}

struct Times {
    loader: &'static str,
    models: Vec<(Model, Vec<Total>)>,
}

fn of(totals: &[Total], environment: Environment) -> Option<Total> {
    decoded(totals, environment, Decoder::Agent)
}

fn decoded(totals: &[Total], environment: Environment, decoder: Decoder) -> Option<Total> {
    totals.iter().find(|it| it.environment == environment && it.decoder == decoder).copied()
}

pub(super) fn figures(stage: &mut Stage<'_>) -> anyhow::Result<Vec<Figure>> {
    on_ram_disk(stage, |stage, ram_disk| {
        let times = measure(stage, ram_disk)?;
        let shown = NAMES.iter().zip(&SHOWN);
        let copy_s = ram_disk.copy_s();
        Ok(shown.map(|(name, it)| figure(stage, name, it, &times, copy_s)).collect())
    })
}

/// All models, one after the other: the turns of all loaders and environments of one alternate.
fn measure(stage: &mut Stage<'_>, ram_disk: &RamDisk<'_>) -> anyhow::Result<Vec<Times>> {
    let on_disk = stage.photographs();
    let mut times: Vec<Times> = Vec::new();
    let (models, loaders) = trained(stage.settings.extent);
    for &model in models {
        let places = places(stage.settings.extent, model, loaders);
        let sides = places.iter().map(|place| {
            let data = if place.environment.is_on_ram_disk() { ram_disk.path } else { &on_disk };
            side(stage, *place, model, data)
        });
        let turns = stage.turns(&sides.collect::<Vec<_>>())?;
        let totals = places.iter().zip(&turns).map(|(place, turns)| {
            let Place { loader, environment, decoder } = *place;
            let without_copy = value(turns, Trained::total_s);
            let with_copy = if environment.is_on_ram_disk() {
                ram_disk.with_copy(turns, Trained::total_s)
            } else {
                without_copy
            };
            let waited = value(turns, |it| it.waits.iter().flatten().sum());
            (loader, Total { environment, decoder, with_copy, without_copy, waited })
        });
        let totals: Vec<_> = totals.collect();
        for loader in loaders {
            let of_both = totals.iter().filter(|(of, _)| of.is_none_or(|of| of == *loader));
            let totals = of_both.map(|(_, total)| *total).collect();
            match times.iter_mut().find(|it| it.loader == loader.name) {
                Some(times) => times.models.push((model, totals)),
                None => times.push(Times { loader: loader.name, models: vec![(model, totals)] }),
            }
        }
    }
    Ok(times)
}

/// The models, and the loaders that feed each; in quick runs the most telling ones.
fn trained(extent: Extent) -> (&'static [Model], &'static [Loader]) {
    match extent {
        Extent::Full => (&MODELS, &LOADERS),
        Extent::Quick => (&MODELS[..1], &[DATA_LOADER]),
    }
}

/// The loader that trains a model, `None` for tierfeed, and the environment.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Place {
    loader: Option<Loader>,
    environment: Environment,
    decoder: Decoder,
}

impl Place {
    const fn tierfeed(environment: Environment, decoder: Decoder) -> Self {
        Self { loader: None, environment, decoder }
    }

    const fn of(loader: Loader, environment: Environment) -> Self {
        Self { loader: Some(loader), environment, decoder: Decoder::Agent }
    }
}

fn places(extent: Extent, model: Model, loaders: &[Loader]) -> Vec<Place> {
    let theirs = match extent {
        Extent::Full => &THEIRS[..],
        Extent::Quick => &THEIRS[..2],
    };
    let mut places: Vec<_> =
        loaders.iter().flat_map(|loader| theirs.iter().map(|it| Place::of(*loader, *it))).collect();
    if model == MODELS[0] {
        // It has no published figure, and one model shows it.
        if extent == Extent::Full {
            places.push(Place::of(DATA_LOADER, CxlAsBoth));
        }
        places.extend(OURS.map(|it| Place::tierfeed(it, Decoder::Torchvision)));
    }
    places.extend(OURS.map(|it| Place::tierfeed(it, Decoder::Agent)));
    places
}

fn side<'a>(
    stage: &Stage<'_>,
    Place { loader, environment, decoder }: Place,
    model: Model,
    data: &'a std::path::Path,
) -> Side<'a> {
    let (script, network, name) = match (loader, decoder) {
        (Some(it), _) => (it.script, it.network, it.name),
        (None, Decoder::Agent) => ("tierfeed", "tierfeed-network", "tierfeed"),
        (None, Decoder::Torchvision) => {
            let script = "tierfeed-torchvision";
            (script, script, "tierfeed, decoded by torchvision")
        }
    };
    Side {
        name: format!("{name}, {}, {}", model.name(), environment.name()),
        room: environment.room(stage),
        training: Training {
            loader: if model == Network { network } else { script },
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
    let has_both = stage.settings.extent == Extent::Full && shown.environments.contains(&CxlAsBoth);
    let of_both = if has_both {
        " The paper prints no time with CXL as memory and storage: one loader with one model ran there."
    } else {
        ""
    };
    Figure {
        setting: format!(
            "{}. Decoded and cropped by 2 workers or threads. A step sleeps, or computes with a small network on one \
             core. Where the loader reads from fast storage, the total has the {copy_s:.1} s of the copy from the \
             disk.{of_both}",
            setting(stage)
        ),
        charts: times.iter().filter_map(|it| chart(shown, it)).collect(),
        headlines: times.iter().flat_map(|it| headlines(shown, it, copy_s)).collect(),
        emulated: emulated(stage),
        ..Figure::named(Paper::DeepMemory, name, shown.number, shown.title)
    }
}

/// Leaves out environments in which no model was trained with this loader.
fn chart(shown: &Shown, times: &Times) -> Option<Chart> {
    let series = times.models.iter().map(|(model, totals)| {
        Series::measured(
            model.name(),
            shown.environments.iter().map(|it| of(totals, *it)?.with_copy).collect(),
        )
    });
    let chart = Chart::new(
        "environment",
        &format!("total time of {EPOCHS} epochs, s"),
        Along::Groups(shown.environments.iter().map(|it| it.name().to_owned()).collect()),
        series.collect(),
    )
    .titled(times.loader);
    chart.filled()
}

/// The claims of the paper, for the model with the shortest step or the mean of all; from fast storage, with
/// the copy and without; and for the shortest step without tierfeed's decoder.
fn headlines(shown: &Shown, times: &Times, copy_s: f64) -> Vec<Headline> {
    let mut headlines = Vec::new();
    for &(environment, published) in shown.published {
        let claim = |beside: &str, decoder: Decoder, theirs: fn(Total) -> Option<Value>| {
            let pairs = times.models.iter().filter_map(|(model, totals)| {
                let ours = decoded(totals, shown.ours, decoder)?.with_copy?;
                Some((model.name(), relative(ours, of(totals, environment).and_then(theirs)?)))
            });
            let pairs: Vec<_> = pairs.collect();
            let (models, relative) = match shown.of {
                Of::Shortest => pairs.into_iter().next()?,
                Of::Mean => (averaged(&pairs), mean(&pairs)?),
            };
            let up_to = if shown.of == Of::Shortest { "up to, " } else { "" };
            let what = format!("{up_to}{}, against {}{beside}", times.loader, environment.name());
            let claim = less_time(&what, published, Some(relative), Some(Value::exactly(1.0)))?;
            Some(Headline { here: format!("{}, {models}", claim.here), ..claim })
        };
        let whole = claim("", Decoder::Agent, |it| it.with_copy);
        let same = claim(", decoded by torchvision", Decoder::Torchvision, |it| it.with_copy);
        let whole = whole.map(|it| match (&same, environment) {
            // No tier is faster than memory for all of the dataset.
            (_, Unconstrained) | (Some(_), _) => it.not_comparable(DECODER),
            (None, _) => it.because(&waits(shown, times)),
        });
        headlines.extend(whole);
        headlines.extend(same.map(|it| it.because(&waits(shown, times))));
        if environment.is_on_ram_disk() {
            let why = format!(
                "without the {copy_s:.1} s of its copy it reads nothing from the disk, and tierfeed reads all in its \
                 first epoch"
            );
            let claim = claim(
                ", decoded by torchvision, whose copy is not counted",
                Decoder::Torchvision,
                |it| it.without_copy,
            );
            headlines.extend(claim.map(|it| it.because(&why)));
        }
    }
    headlines
}

/// The reason why a claim of tierfeed with its own decoder is not judged.
const DECODER: &str =
    "a part of it is how tierfeed decodes; the same with torchvision's decoder is judged";

/// The time that tierfeed waits, as a part of its times with all models: it can gain no more.
fn waits(shown: &Shown, times: &Times) -> String {
    let of_models = times.models.iter().filter_map(|(model, totals)| {
        let ours = of(totals, shown.ours)?;
        let (waited_s, total_s) = (ours.waited?.median, ours.with_copy?.median);
        Some(format!("{waited_s:.1} of {total_s:.1} s ({})", model.name()))
    });
    let of_models = of_models.collect::<Vec<_>>().join(", ");
    format!("tierfeed waits for batches for {of_models}; the rest is what steps take")
}

/// A time as a share of another.
fn relative(ours: Value, theirs: Value) -> Value {
    Value {
        median: ours.median / theirs.median,
        least: ours.least / theirs.most,
        most: ours.most / theirs.least,
    }
}

fn averaged(of_models: &[(String, Value)]) -> String {
    match of_models {
        [(model, _)] => model.clone(),
        several => format!("mean of {} models", several.len()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "few models")]
fn mean(of_models: &[(String, Value)]) -> Option<Value> {
    let mean = |figure: fn(&Value) -> f64| {
        of_models.iter().map(|(_, it)| figure(it)).sum::<f64>() / of_models.len() as f64
    };
    let value = Value {
        median: mean(|it| it.median),
        least: mean(|it| it.least),
        most: mean(|it| it.most),
    };
    (!of_models.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Verdict;

    /// With 1.5 s of a copy where there is one.
    fn total(environment: Environment, decoder: Decoder, seconds: f64) -> Total {
        let copy_s = if environment.is_on_ram_disk() { 1.5 } else { 0.0 };
        let [with_copy, without_copy] =
            [seconds, seconds - copy_s].map(|it| Some(Value::exactly(it)));
        Total { environment, decoder, with_copy, without_copy, waited: Some(Value::exactly(0.5)) }
    }

    /// Times of the step of 5 ms and of one of 40 ms; torchvision decodes for the first.
    fn times(environments: [(Environment, f64, f64); 2]) -> Times {
        let totals = |at: usize| {
            let of = |(it, fast, slow): (_, f64, f64)| total(it, Decoder::Agent, [fast, slow][at]);
            environments.map(of).to_vec()
        };
        let (ours, fast, _) = environments[1];
        let mut shortest = totals(0);
        shortest.push(total(ours, Decoder::Torchvision, fast + 0.5));
        let models = vec![(Sleep(0.005), shortest), (Sleep(0.04), totals(1))];
        Times { loader: "DataLoader", models }
    }

    #[test]
    fn a_claim_up_to_is_of_the_shortest_step_and_judged_with_the_same_decoder() {
        let faster = times([(CxlAsStorage, 4.0, 10.0), (Tierfeed, 2.0, 1.0)]);
        let [whole, same, not_copied] = &headlines(&SHOWN[0], &faster, 1.5)[..] else { panic!() };
        assert_eq!(whole.what, "up to, DataLoader, against CXL memory as storage");
        assert_eq!(whole.here, "-50 % (-50 to -50), step of 5 ms");
        assert_eq!((whole.verdict, &whole.why[..]), (Verdict::NotComparable, DECODER));
        let what = "up to, DataLoader, against CXL memory as storage, decoded by torchvision";
        assert_eq!(same.what, what);
        assert_eq!(same.here, "-38 % (-38 to -38), step of 5 ms");
        assert_eq!(same.verdict, Verdict::Reproduced);
        assert_eq!(not_copied.here, "-0 % (-0 to -0), step of 5 ms");
        let slower = times([(Constrained, 2.0, 2.0), (Tierfeed, 2.0, 9.0)]);
        assert_eq!(
            headlines(&SHOWN[0], &slower, 1.5)[1].why,
            "tierfeed waits for batches for 0.5 of 2.0 s (step of 5 ms), 0.5 of 9.0 s (step of 40 ms); the rest is \
             what steps take"
        );
    }

    #[test]
    fn a_claim_of_all_models_is_of_their_mean_and_of_tierfeed_without_fast_storage() {
        let mut times = times([(Constrained, 4.0, 10.0), (TierfeedInMemory, 2.0, 9.0)]);
        times.models[0].1.push(total(Tierfeed, Decoder::Agent, 1.0));
        let [claim, same] = &headlines(&SHOWN[2], &times, 1.5)[..] else { panic!() };
        assert_eq!(claim.what, "DataLoader, against constrained memory");
        assert_eq!(claim.here, "-30 % (-30 to -30), mean of 2 models");
        assert_eq!(same.here, "-38 % (-38 to -38), step of 5 ms");
    }

    #[test]
    fn a_chart_has_only_environments_in_which_its_loader_trained() {
        let times = times([(Constrained, 10.0, 4.0), (Tierfeed, 9.0, 2.0)]);
        let chart = chart(&SHOWN[0], &times).expect("values of two environments");
        let Along::Groups(groups) = chart.along else { panic!() };
        assert_eq!(groups, ["constrained memory", "tierfeed"]);
        assert!(chart.series.iter().all(|it| it.values.iter().flatten().count() == 2));
    }

    #[test]
    fn all_that_trains_a_model_takes_turns_in_one_list() {
        for model in MODELS {
            let places = places(Extent::Full, model, &LOADERS);
            assert!(OURS.iter().all(|it| places.contains(&Place::tierfeed(*it, Decoder::Agent))));
            assert!(LOADERS.iter().all(|it| places.contains(&Place::of(*it, Constrained))));
        }
    }
}
