//! Figure 9: images are decoded, resized and cropped in the middle, as data are prepared before a training.

use serde_json::{Value as Json, json};
use tierfeed_core::units::{Bytes, BytesPerSecond};

use super::{
    DISK,
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
    training::{Trained, Training},
};

pub(super) const NAME: &str = "deep-memory-9";

const PASSES: u32 = 3;
/// A prepared image: three levels for each pixel.
const PREPARED: Bytes = Bytes(3 * 224 * 224);

/// The per cent by which `DeepMemoryDL` shortens preparation.
///
/// # Source
///
/// `DeepMemoryDL`, section 4.2.2.
const PUBLISHED: [(Environment, f64); 3] =
    [(Constrained, 56.0), (CxlAsMemory, 43.0), (CxlAsStorage, 23.0)];

/// Loaders of today, by their names in the script and for people.
const TF_DATA: (&str, &str) = ("tf.data-center", "tf.data");
const DATA_LOADER: (&str, &str) = ("dataloader-center", "DataLoader");
const OURS: (&str, &str) = ("tierfeed-center", "tierfeed");

struct Row {
    loader: &'static str,
    environment: Environment,
    first_s: Option<Value>,
    all_s: Option<Value>,
    /// The first pass without the copy to fast storage, where the loader reads from there.
    copied_s: Option<Value>,
}

pub(super) fn figure(stage: &mut Stage<'_>) -> anyhow::Result<Figure> {
    let wanted = match stage.settings.extent {
        Extent::Full => {
            let peers = [Constrained, CxlAsMemory, CxlAsStorage].map(|it| (DATA_LOADER, it));
            [vec![(TF_DATA, Constrained)], peers.to_vec(), vec![(OURS, Tierfeed)]].concat()
        }
        Extent::Quick => vec![(DATA_LOADER, Constrained), (OURS, Tierfeed)],
    };
    let on_disk = stage.photographs();
    on_ram_disk(stage, |stage, ram_disk| {
        let sides: Vec<Side<'_>> = wanted
            .iter()
            .map(|&((script, loader), environment)| Side {
                name: format!("{loader}, {}", environment.name()),
                room: room(stage, environment),
                training: Training {
                    loader: script,
                    data: if environment.is_on_ram_disk() { ram_disk.path } else { &on_disk },
                    batch_size: BATCH,
                    epochs: PASSES,
                    step_s: 0.0,
                    workers: 2,
                    decode: true,
                    job: job(stage, environment),
                },
            })
            .collect();
        let turns = stage.turns(&sides)?;
        let rows = wanted.iter().zip(&turns).map(|(&((_, loader), environment), turns)| {
            let [first_s, all_s] =
                [|it: &Trained| it.seconds[0], Trained::total_s].map(|seconds| {
                    if environment.is_on_ram_disk() {
                        ram_disk.with_copy(turns, seconds)
                    } else {
                        value(turns, seconds)
                    }
                });
            let copied_s = environment.is_on_ram_disk().then(|| value(turns, |it| it.seconds[0]));
            Row { loader, environment, first_s, all_s, copied_s: copied_s.flatten() }
        });
        let rows: Vec<Row> = rows.collect();
        Ok(described(stage, ram_disk.copy_s(), &rows))
    })
}

/// Memory of a side: that of tierfeed is larger by the growth of images when they are prepared.
fn room(stage: &Stage<'_>, environment: Environment) -> Option<Bytes> {
    let room = environment.room(stage)?;
    Some(if environment == Tierfeed { Bytes(room.0 + prepared(stage).0) } else { room })
}

/// The tiers of tierfeed, which keep prepared images.
fn job(stage: &Stage<'_>, environment: Environment) -> Json {
    let mut job = environment.job(stage);
    if environment == Tierfeed {
        job["tiers"]["scratch"]["size"] = format!("{} B", prepared(stage).0).into();
        job["transform"] = json!({ "cache": "prepared" });
    }
    job
}

/// Bytes of all prepared images, with the additional room that a tier needs.
fn prepared(stage: &Stage<'_>) -> Bytes {
    let images = u64::from(stage.settings.photographs) * PREPARED.0;
    Bytes(images + images / 10)
}

fn described(stage: &Stage<'_>, copy_s: f64, rows: &[Row]) -> Figure {
    Figure {
        setting: format!(
            "{}. Each image is decoded, resized to 256 and its middle of 224 cut out by 2 workers or threads, in \
             {PASSES} passes without steps. The paper prepares once, so its claims are of the first pass. In later \
             passes tierfeed has what it prepared, for which it has as much more fast storage as that is larger, and \
             the others prepare again: they are shown and not judged. Where the loader reads from fast storage, \
             the time has the {copy_s:.1} s of the copy from the disk.",
            setting(stage)
        ),
        charts: vec![chart(rows)],
        headlines: headlines(rows, &first_pass_is_bounded(stage)),
        emulated: emulated(stage),
        ..Figure::named(Paper::DeepMemory, NAME, "Figure 9", "Preparation of images")
    }
}

fn chart(rows: &[Row]) -> Chart {
    let name = |row: &Row| match row.environment {
        Tierfeed => row.loader.to_owned(),
        environment => format!("{}, {}", row.loader, environment.name()),
    };
    let series = |name: String, values| Series { name, source: Source::Measured, values };
    Chart::new(
        "environment",
        "time, s",
        Along::Groups(rows.iter().map(name).collect()),
        vec![
            series("first pass".to_owned(), rows.iter().map(|it| it.first_s).collect()),
            series(format!("{PASSES} passes"), rows.iter().map(|it| it.all_s).collect()),
        ],
    )
}

/// The reason why one pass can gain no more.
fn first_pass_is_bounded(stage: &Stage<'_>) -> String {
    let least_s = stage.megabytes() * 1e6 / f64_of(DISK);
    format!("one pass reads all images from the disk, which takes {least_s:.1} s at its limit")
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn f64_of(rate: BytesPerSecond) -> f64 {
    rate.0 as f64
}

fn headlines(rows: &[Row], first_pass: &str) -> Vec<Headline> {
    let Some(ours) = rows.iter().find(|row| row.environment == Tierfeed) else { return Vec::new() };
    let mut headlines = Vec::new();
    for (environment, published) in PUBLISHED {
        for row in rows.iter().filter(|row| row.environment == environment) {
            let what = format!("time of one pass, {}, against {}", row.loader, environment.name());
            let claim = less_time(&what, published, ours.first_s, row.first_s);
            headlines.extend(claim.map(|it| it.because(first_pass)));
            let what = format!("{what}, whose copy is not counted");
            let claim = less_time(&what, published, ours.first_s, row.copied_s);
            headlines.extend(claim.map(|it| it.because(first_pass)));
        }
    }
    headlines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preparation_is_judged_by_its_first_pass_alone() {
        let row = |loader, environment, first_s, all_s| {
            let [first_s, all_s] = [first_s, all_s].map(|it| Some(Value::exactly(it)));
            Row { loader, environment, first_s, all_s, copied_s: None }
        };
        let copied = Row {
            copied_s: Some(Value::exactly(0.6)),
            ..row("DataLoader", CxlAsStorage, 1.5, 9.0)
        };
        let rows =
            [row("tierfeed", Tierfeed, 0.9, 1.0), row("DataLoader", Constrained, 1.0, 9.0), copied];
        let [memory, storage, not_copied] = &headlines(&rows, "so")[..] else { panic!() };
        assert_eq!(memory.here, "-10 % (-10 to -10)");
        assert_eq!(memory.published, "-56 %");
        assert_eq!(storage.here, "-40 % (-40 to -40)");
        assert_eq!(not_copied.here, "+50 % (+50 to +50)");
    }
}
