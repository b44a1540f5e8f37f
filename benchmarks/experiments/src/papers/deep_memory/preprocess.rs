//! Figure 9: images are decoded, resized and cropped in the middle, as data are prepared before a training.

use super::{
    environment::{
        Environment::{self, Constrained, CxlAsMemory, CxlAsStorage, Tierfeed},
        emulated, setting,
    },
    ram_disk::on_ram_disk,
};
use crate::{
    claim::less_time,
    figure::{Along, Chart, Figure, Headline, Paper, Series, Source, Value},
    stage::{BATCH, Extent, Side, Stage, value},
    training::Training,
};

pub(super) const NAME: &str = "deep-memory-9";

const PASSES: u32 = 3;

/// By how many per cent `DeepMemoryDL` shortens preparation.
///
/// # Source
///
/// `DeepMemoryDL`, section 4.2.2.
const PUBLISHED: [(Environment, f64); 3] =
    [(Constrained, 56.0), (CxlAsMemory, 43.0), (CxlAsStorage, 23.0)];

/// Loaders of today, by their names in the script and for people.
const LOADERS: [(&str, &str); 2] =
    [("tf.data-center", "tf.data"), ("dataloader-center", "DataLoader")];
const OURS: (&str, &str) = ("tierfeed-center", "tierfeed");

/// What is measured of a side.
struct Row {
    loader: &'static str,
    environment: Environment,
    first_s: Option<Value>,
    all_s: Option<Value>,
}

pub(super) fn figure(stage: &mut Stage<'_>, step: &mut dyn FnMut(&str)) -> anyhow::Result<Figure> {
    let wanted = match stage.settings.extent {
        Extent::Full => wanted(&LOADERS, &[Constrained, CxlAsMemory, CxlAsStorage]),
        Extent::Quick => wanted(&LOADERS[1..], &[Constrained]),
    };
    let on_disk = stage.photographs();
    on_ram_disk(stage, |stage, ram_disk| {
        let sides: Vec<Side<'_>> = wanted
            .iter()
            .map(|&((script, loader), environment)| Side {
                name: format!("{loader}, {}", environment.name()),
                room: environment.room(stage),
                training: Training {
                    loader: script,
                    data: if environment.is_on_ram_disk() { ram_disk.path } else { &on_disk },
                    batch_size: BATCH,
                    epochs: PASSES,
                    step_s: 0.0,
                    workers: 2,
                    decode: true,
                    job: environment.job(stage),
                },
            })
            .collect();
        let turns = stage.turns(&sides, step)?;
        let rows = wanted.iter().zip(&turns).map(|(&((_, loader), environment), turns)| {
            let before = if environment.is_on_ram_disk() { ram_disk.copy_s } else { 0.0 };
            Row {
                loader,
                environment,
                first_s: value(turns, |it| before + it.seconds[0]),
                all_s: value(turns, |it| before + it.total_s()),
            }
        });
        let rows: Vec<Row> = rows.collect();
        Ok(described(stage, ram_disk.copy_s, &rows))
    })
}

type Wanted = ((&'static str, &'static str), Environment);

fn wanted(loaders: &[(&'static str, &'static str)], environments: &[Environment]) -> Vec<Wanted> {
    let each = |loader| environments.iter().map(move |environment| (loader, *environment));
    let peers = loaders.iter().copied().flat_map(each);
    peers.chain([(OURS, Tierfeed)]).collect()
}

fn described(stage: &Stage<'_>, copy_s: f64, rows: &[Row]) -> Figure {
    Figure {
        name: NAME.to_owned(),
        paper: Paper::DeepMemory,
        number: "Figure 9".to_owned(),
        title: "Preparation of images".to_owned(),
        setting: format!(
            "{}. Each image is decoded, resized to 256 and its middle of 224 cut out by 2 workers or threads, in \
             {PASSES} passes without steps; tierfeed keeps what is prepared. Where the loader reads from fast storage, \
             the time has the {copy_s:.1} s of the copy from the disk.",
            setting(stage)
        ),
        charts: vec![chart(rows)],
        headlines: headlines(rows),
        predictions: Vec::new(),
        emulated: emulated(stage),
        command: format!("tierfeed-bench paper {NAME}"),
    }
}

fn chart(rows: &[Row]) -> Chart {
    let name = |row: &Row| match row.environment {
        Tierfeed => row.loader.to_owned(),
        environment => format!("{}, {}", row.loader, environment.name()),
    };
    let series = |name: String, values| Series { name, source: Source::Measured, values };
    Chart {
        title: String::new(),
        x: "environment".to_owned(),
        y: "time, s".to_owned(),
        along: Along::Groups(rows.iter().map(name).collect()),
        series: vec![
            series("first pass".to_owned(), rows.iter().map(|it| it.first_s).collect()),
            series(format!("{PASSES} passes"), rows.iter().map(|it| it.all_s).collect()),
        ],
    }
}

fn headlines(rows: &[Row]) -> Vec<Headline> {
    let Some(ours) = rows.iter().find(|row| row.environment == Tierfeed) else { return Vec::new() };
    let mut headlines = Vec::new();
    for (environment, published) in PUBLISHED {
        for row in rows.iter().filter(|row| row.environment == environment) {
            let against = format!("{}, against {}", row.loader, environment.name());
            let all = format!("{PASSES} passes, {against}");
            headlines.extend(less_time(&all, published, ours.all_s, row.all_s));
            let first = format!("first pass alone, {against}");
            headlines.extend(less_time(&first, published, ours.first_s, row.first_s));
        }
    }
    headlines
}
