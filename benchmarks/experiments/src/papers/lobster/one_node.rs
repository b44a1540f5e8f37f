//! Figures 7 (a), 8 (a) and (c), 10, 11 and the hit ratios: one node with several ranks.

use super::{
    DISK,
    systems::{
        DALI, DATA_LOADER, LOBSTER, LOBSTER_EVICTION, LOBSTER_THREADS, Measured, NO_THRESHOLD,
        NOPFS, OURS, PERCENTILES, Published, Setting, System, chart, derived, described, measure,
        ours, printed,
    },
};
use crate::{
    claim::{at_least, at_most, fewer_points, times_as_fast},
    figure::{Along, Chart, Figure, Headline, Series, Value},
    ranks::on_nodes,
    stage::{Extent, Stage},
};

const SPEED: &str = "lobster-7";
const IMBALANCE: &str = "lobster-8";
const UTILISATION: &str = "lobster-10";
const ABLATION: &str = "lobster-11";
const HITS: &str = "lobster-hits";

pub(super) const NAMES: [&str; 5] = [SPEED, IMBALANCE, UTILISATION, ABLATION, HITS];

/// As in the paper: the node caches 40 of 135 GB.
const CACHED_PER_MILLE: u64 = 296;

const RANKS: u32 = 4;

/// Two models: their steps take these shares of the time in which the disk reads all of the photographs.
///
/// # Source
///
/// In figure 10 of Lobster the GPUs compute for 52 and 58 % of the time under `DataLoader` and DALI, which
/// wait for their reads; figure 8 is of a model that computes for longer.
const MODELS: [(&str, f64); 2] = [("small model", 0.55), ("large model", 0.85)];

const SYSTEMS: [System; 7] =
    [DATA_LOADER, DALI, NOPFS, LOBSTER, LOBSTER_THREADS, LOBSTER_EVICTION, OURS];
/// With the large model, which has no ablation.
const COMPARED: [System; 5] = [DATA_LOADER, DALI, NOPFS, LOBSTER, OURS];
const TELLING: [System; 3] = [DATA_LOADER, NOPFS, OURS];

/// The speed of Lobster over that of others.
///
/// # Source
///
/// Lobster (doi:10.1145/3545008.3545090), section 5.2, figure 7 (a). The figures below are from sections 5.3, 5.5
/// and 5.6.
const FASTER_THAN: [(System, f64); 3] = [(DATA_LOADER, 1.6), (DALI, 1.7), (NOPFS, 1.2)];

/// The share of steps with imbalance: the published one of Lobster, and for the others that plus what it
/// saves them.
const IMBALANCED: [(System, f64); 4] =
    [(DATA_LOADER, 0.489), (DALI, 0.339), (NOPFS, 0.254), (LOBSTER, 0.175)];
/// The share of steps with imbalance that Lobster saves the others.
const SAVED: [(System, f64); 3] = [(DATA_LOADER, 0.314), (DALI, 0.164), (NOPFS, 0.079)];

/// Utilisation of the GPU, as a share.
const UTILISED: [(System, f64); 4] =
    [(DATA_LOADER, 0.523), (DALI, 0.575), (NOPFS, 0.724), (LOBSTER, UTILISED_BY_LOBSTER)];
const UTILISED_BY_LOBSTER: f64 = 0.761;

/// Hits of the memory cache, as a share.
const HIT: [(System, f64); 4] =
    [(DATA_LOADER, 0.245), (DALI, 0.326), (NOPFS, 0.489), (LOBSTER, 0.632)];

/// Speed of parts of Lobster over DALI's.
const PARTS: [(System, f64); 3] = [(DALI, 1.0), (LOBSTER_THREADS, 1.3), (LOBSTER_EVICTION, 1.15)];

/// The reason why a claim of speed is not reached, for each of [`MODELS`].
const WHY: [&str; 2] = [
    "from the second epoch on any cache of this size saves at most 29.6 % of the reads, NoPFS's policy as many as \
     ours, and all read from one disk: a loader that reads everything at its full rate takes 1.42 times as long",
    "steps compute for 85 % of the time in which the disk gives everything: a loader that reads all of it at the full \
     rate takes 1.18 times as long as computing",
];

const KEPT: &str = "a sample that is not read again lies in memory at the end of an epoch, and 29.6 % of the dataset \
                    fit there: a hit ratio of 63.2 % counts samples that were read ahead";

const READ_AHEAD: &str =
    "how long steps compute was chosen here, and decides on how much is read ahead of them";

/// The part of Lobster that runs alone in figure 11, its speed over DALI's in the paper, and the reason why
/// it brings nothing here. Both run with the other half of `NoPFS`'s policy, whose bar is the one to beat.
const ALONE: [(&str, f64, &str); 2] = [
    (
        "Lobster's threads",
        1.3,
        "all ranks wait for one disk, which is bound by bytes: other threads for a rank bring no more of them",
    ),
    (
        "Lobster's eviction",
        1.15,
        "a cache of 29.6 % saves at most 29.6 % of the reads, as NoPFS's policy does; Lobster's reuse distance keeps \
         less than that",
    ),
];

const OVER_DALI: &str =
    "over DALI all that tierfeed does otherwise counts too, such as how it decodes";

const WITHOUT_DALI: &str = " DALI did not run, so nothing is compared with it.";

struct Model {
    name: &'static str,
    setting: String,
    stopwatch: String,
    all: Vec<Measured>,
}

impl Model {
    fn of(&self, system: &System) -> Option<&Measured> {
        Measured::of(&self.all, system)
    }
}

pub(super) fn figures(stage: &mut Stage<'_>) -> anyhow::Result<Vec<Figure>> {
    let sides: &[&[System]] = match stage.settings.extent {
        Extent::Full => &[&SYSTEMS, &COMPARED],
        Extent::Quick => &[&TELLING],
    };
    let models = on_nodes(stage, 1, DISK, |nodes| {
        let of_model = |((name, compute_to_load), systems): (_, &&[System])| {
            let setting = Setting {
                nodes: 1,
                ranks_per_node: RANKS,
                cached_per_mille: CACHED_PER_MILLE,
                disk: DISK,
                compute_to_load,
            };
            let all = measure(nodes, &setting, systems)?;
            let (setting, stopwatch) = (setting.described(nodes), nodes.stopwatch.clone());
            Ok(Model { name, setting, stopwatch, all })
        };
        MODELS.into_iter().zip(sides).map(of_model).collect::<anyhow::Result<Vec<_>>>()
    })?;
    let figures = [speed, imbalance, utilisation, ablation, hits];
    Ok(figures.map(|figure| figure(&models)).to_vec())
}

fn of_models(
    y: &str,
    models: &[Model],
    figure: impl Fn(&[Measured], &Measured) -> Option<Value>,
    published: Option<Published<'_>>,
) -> Chart {
    let rows: Vec<_> = models.iter().map(|model| (model.name, &model.all[..])).collect();
    chart(y, &rows, figure, published)
}

fn setting(models: &[Model]) -> String {
    let settings = models.iter().map(|model| format!("With the {}: {}", model.name, model.setting));
    settings.collect::<Vec<_>>().join(" ")
}

fn emulated(models: &[Model]) -> Vec<String> {
    let chosen = MODELS.map(|(name, part)| format!("{:.0} % with the {name}", part * 100.0));
    let steps = format!(
        "steps compute for a part of the time in which the disk gives all photographs: {}. The first was chosen from \
         the paper's figure 10, in which GPUs compute for 52 to 58 % of the time under loaders that wait for their \
         reads; the second for a model that computes for longer. So shares of time are shown, and ratios between \
         systems are judged",
        chosen.join(", ")
    );
    [steps].into_iter().chain(models.first().map(|it| it.stopwatch.clone())).collect()
}

fn speed(models: &[Model]) -> Figure {
    let claims = models.iter().zip(WHY).flat_map(|(model, why)| {
        let ours = model.of(&ours(1)).and_then(|it| it.epoch_s);
        FASTER_THAN.iter().filter_map(move |(system, published)| {
            let what = format!("{}, times as fast as {}", model.name, system.name);
            let theirs = model.of(system)?.epoch_s;
            Some(times_as_fast(&what, *published, ours, theirs)?.because(why))
        })
    });
    Figure {
        number: "Figure 7 (a)".to_owned(),
        title: "Training speed on one node".to_owned(),
        charts: vec![of_models("time of an epoch, s", models, |_, it| it.epoch_s, None)],
        headlines: claims.collect(),
        ..described(SPEED, setting(models), emulated(models))
    }
}

fn imbalance(models: &[Model]) -> Figure {
    let of = |model: &Model, system: &System| model.of(system)?.imbalanced;
    let shares = models.iter().filter_map(|model| {
        let what = format!("{}, steps with imbalance", model.name);
        Some(at_most(&what, 0.175, of(model, &OURS))?.not_comparable(NO_THRESHOLD))
    });
    let claims = models.iter().flat_map(|model| {
        SAVED.iter().filter_map(move |(system, published)| {
            let what = format!("{}, steps with imbalance, against {}", model.name, system.name);
            let claim = fewer_points(&what, *published, of(model, &OURS), of(model, system))?;
            Some(claim.because(
                "the disk gives less than the ranks need, so all wait in every step, and how far apart their batches \
                 come costs nothing: all wait for the last",
            ))
        })
    });
    let times = models.iter().map(|model| {
        Chart::new(
            "percentile",
            "seconds",
            Along::Groups(PERCENTILES.map(|it| it.to_string()).to_vec()),
            model.all.iter().map(step_times).collect(),
        )
        .titled(&format!("Time of a step, {}", model.name))
    });
    let published = derived("published, of others by what Lobster saves them", &IMBALANCED);
    let steps = of_models("share of steps", models, |_, it| it.imbalanced, Some(published));
    let steps = Chart { title: "Steps with imbalance".to_owned(), ..steps };
    Figure {
        number: "Figure 8 (a), (c)".to_owned(),
        title: "Steps with imbalance on one node".to_owned(),
        headlines: claims.chain(shares).collect(),
        charts: [steps].into_iter().chain(times).collect(),
        ..described(IMBALANCE, setting(models), emulated(models))
    }
}

fn step_times(measured: &Measured) -> Series {
    Series::measured(measured.system.name, measured.step_s.clone())
}

fn utilisation(models: &[Model]) -> Figure {
    let shares = models.iter().filter_map(|model| {
        let what = format!("{}, time of the GPU that is used", model.name);
        let share = at_least(&what, UTILISED_BY_LOBSTER, model.of(&OURS)?.utilisation)?;
        Some(share.not_comparable(
            "how long steps compute was chosen here, and decides on it; ratios between systems are those of figure 7 \
             (a), where they are judged",
        ))
    });
    Figure {
        number: "Figure 10".to_owned(),
        title: "Utilisation of the GPU".to_owned(),
        headlines: shares.collect(),
        charts: vec![of_models(
            "share of time",
            models,
            |_, it| it.utilisation,
            Some(printed(&UTILISED)),
        )],
        ..described(UTILISATION, setting(models), emulated(models))
    }
}

fn ablation(models: &[Model]) -> Figure {
    let small = &models[0];
    let epoch_s = |system: &System| small.of(system).and_then(|it| it.epoch_s);
    let claims = [LOBSTER_THREADS, LOBSTER_EVICTION].into_iter().zip(ALONE).flat_map(
        |(part, (what, published, why))| {
            let against = |system: &System, published: f64| {
                let what = format!("{what} alone, times as fast as {}", system.name);
                times_as_fast(&what, published, epoch_s(&part), epoch_s(system))
            };
            let alone = against(&NOPFS, 1.0);
            [
                alone.map(|it| Headline { published: "faster".to_owned(), ..it.because(why) }),
                against(&DALI, published).map(|it| it.not_comparable(OVER_DALI)),
            ]
        },
    );
    let faster = |all: &[Measured], it: &Measured| {
        let dali_s = Measured::of(all, &DALI)?.epoch_s?.median;
        let Value { median, least, most } = it.epoch_s?;
        Some(Value { median: dali_s / median, least: dali_s / most, most: dali_s / least })
    };
    let emulated = emulated(&models[..1]);
    let chart = of_models("times as fast as DALI", &models[..1], faster, Some(printed(&PARTS)));
    let mut setting = setting(&models[..1]);
    if small.of(&DALI).is_none() {
        setting.push_str(WITHOUT_DALI);
    }
    Figure {
        number: "Figure 11".to_owned(),
        title: "What threads and eviction bring alone".to_owned(),
        charts: chart.filled().into_iter().collect(),
        headlines: claims.flatten().collect(),
        ..described(ABLATION, setting, emulated)
    }
}

fn hits(models: &[Model]) -> Figure {
    let claims = models.iter().flat_map(|model| {
        let ours = model.of(&OURS);
        let claim = |what: &str, figure: Option<Value>| {
            at_least(&format!("{}, {what}", model.name), 0.632, figure)
        };
        let kept =
            claim("bytes that are not read from the disk again", ours.and_then(|it| it.kept));
        let bytes =
            claim("bytes in memory when they are asked for", ours.and_then(|it| it.ready_bytes));
        let batches =
            claim("batches that are there when they are asked for", ours.and_then(|it| it.ready));
        [
            kept.map(|it| it.because(KEPT)),
            bytes.map(|it| it.not_comparable(READ_AHEAD)),
            batches.map(|it| it.not_comparable("the paper counts samples, and not batches")),
        ]
    });
    let titled = |title: &str, chart: Chart| Chart { title: title.to_owned(), ..chart };
    Figure {
        number: "Hit ratios".to_owned(),
        title: "What is in memory when it is asked for".to_owned(),
        headlines: claims.flatten().collect(),
        charts: vec![
            titled(
                "In memory when asked for, by the reports of tierfeed",
                of_models("share of bytes", models, |_, it| it.ready_bytes, Some(printed(&HIT))),
            ),
            titled(
                "Batches waited for less than 2 ms",
                of_models("share of batches", models, |_, it| it.ready, None),
            ),
            titled(
                "Not read from the disk again",
                of_models("share of bytes", models, |_, it| it.kept, Some(printed(&HIT))),
            ),
        ],
        ..described(HITS, setting(models), emulated(models))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ablation_of(systems: &[System]) -> Figure {
        let epoch_s = Some(Value::exactly(2.0));
        let all = systems.iter().map(|it| Measured { epoch_s, ..Measured::nothing(*it) }).collect();
        let (setting, stopwatch) = (String::new(), String::new());
        ablation(&[Model { name: MODELS[0].0, setting, stopwatch, all }])
    }

    #[test]
    fn speeds_over_dali_are_drawn_only_where_it_ran() {
        let [full, quick] = [&SYSTEMS[..], &TELLING[..]].map(ablation_of);
        assert_eq!(full.charts[0].series.len(), 2);
        assert!(!full.setting.ends_with(WITHOUT_DALI));
        assert_eq!(quick.charts.len(), 0);
        assert!(quick.setting.ends_with(WITHOUT_DALI));
    }
}
