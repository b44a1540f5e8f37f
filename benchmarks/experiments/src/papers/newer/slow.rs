//! Slow samples: some photographs have so many pixels that they take far longer to decode than others.

use tierfeed_core::units::Bytes;

use tierfeed_harness::output::step;

use crate::{
    claim::{at_least, times_as_much},
    figure::{Along, Chart, Figure, Headline, Paper, Series, Source, Value},
    stage::{BATCH, STAGING, Side, Stage, bytes_below, copy_below, job, value},
    training::{Trained, Training},
};

pub(super) const NAME: &str = "newer-slow";

const EPOCHS: u32 = 4;
/// With this step `DataLoader` uses the GPU for about as much of the time as in the paper: two workers need 60 ms for a
/// batch on two cores of an AMD EPYC, slow samples included.
const STEP_S: f64 = 0.028;
/// One of this many photographs is slow.
const SLOW_OF: u32 = 32;
/// The longer side of a slow photograph, in pixels.
const SLOW_SIDE: u32 = 3200;
/// A batch counts as ready if the wait for it is no longer than this, the time to hand it over.
const READY_S: f64 = 0.005;

/// The speed of trainings whose slow samples hold no batch up, over that with `DataLoader`, and the share of
/// the time in which the GPU is used then.
///
/// # Source
///
/// `MinatoLoader` (2025): means over its trainings. With `DataLoader` its GPUs are used for 46 % of the time.
const PUBLISHED_SPEED: f64 = 3.6;
const PUBLISHED_USED: f64 = 0.9;

/// Loaders, by their names in the script and for people.
const LOADERS: [(&str, &str); 3] = [
    ("dataloader", "DataLoader"),
    ("dataloader-unordered", "DataLoader, any order"),
    ("tierfeed", "tierfeed"),
];
const OURS: usize = 2;

pub(super) fn figure(stage: &mut Stage<'_>) -> anyhow::Result<Figure> {
    let data = stage.disk.path().join("with-slow");
    let count = stage.settings.photographs / SLOW_OF;
    step(&format!("{count} photographs that are slow to decode"));
    copy_below(&stage.made, &data)?;
    stage.trainer.add_slow_photographs(&data, count, SLOW_SIDE)?;
    let bytes = Bytes(bytes_below(&data)?);
    let side = |(loader, name): (&'static str, &str)| Side {
        name: name.to_owned(),
        room: None,
        training: Training {
            loader,
            data: &data,
            batch_size: BATCH,
            epochs: EPOCHS,
            step_s: STEP_S,
            workers: 2,
            decode: true,
            job: job(Bytes(bytes.0 * 5 / 4 + STAGING.0), &[]),
        },
    };
    let turns = stage.turns(&LOADERS.map(side))?;
    let of = |figure: &dyn Fn(&Trained) -> f64| -> Vec<Option<Value>> {
        turns.iter().map(|it| value(it, figure)).collect()
    };
    let seconds = of(&|trained| trained.epoch_s(1));
    let ready = [true, false].map(|slow| of(&|trained| ready(trained, slow)));
    let steps_s = STEP_S * f64::from((stage.settings.photographs + count).div_ceil(BATCH));
    let used = of(&|trained| steps_s / trained.epoch_s(1));
    Ok(Figure {
        setting: format!(
            "{} photographs and {count} of {SLOW_SIDE} by {} pixels, which are progressive, in memory; batches of \
             {BATCH} that are decoded and cropped by 2 workers or threads; steps of {:.0} ms, {:.2} s of an epoch.",
            stage.settings.photographs,
            SLOW_SIDE * 3 / 4,
            STEP_S * 1e3,
            steps_s,
        ),
        headlines: headlines(&seconds, &used, &ready),
        charts: vec![
            chart("Time", "time of an epoch, s", vec![("of an epoch".to_owned(), seconds)]),
            chart(
                "Batches that are there when they are asked for",
                "share of batches",
                ["that hold a slow sample", "others"]
                    .map(str::to_owned)
                    .into_iter()
                    .zip(ready)
                    .collect(),
            ),
        ],
        emulated: vec!["the GPU is a sleep; the slow samples are decoded, not emulated".to_owned()],
        ..Figure::named(
            Paper::Newer,
            NAME,
            "Slow samples",
            "Some samples take far longer to decode",
        )
    })
}

fn headlines(
    seconds: &[Option<Value>],
    used: &[Option<Value>],
    [_, others]: &[Vec<Option<Value>>; 2],
) -> Vec<Headline> {
    // Of times, the other way round.
    let speed =
        times_as_much("times as fast as DataLoader", PUBLISHED_SPEED, seconds[0], seconds[OURS]);
    let theirs = used[0].map_or(f64::NAN, |used| used.median);
    let speed = speed.map(|it| {
        it.because(&format!(
            "DataLoader uses the GPU for {:.0} % of the time here and for 46 % in the paper; the steps alone take so \
             long that no loader could be more than {:.1} times as fast",
            100.0 * theirs,
            1.0 / theirs,
        ))
    });
    let used = at_least("time of the GPU that is used", PUBLISHED_USED, used[OURS]).map(|it| {
        it.because(
            "the order of batches is kept, so that training waits for one with a slow sample if it was not staged \
             early enough; MinatoLoader hands over others meanwhile",
        )
    });
    let rest = at_least("batches without a slow sample that are there", 1.0, others[OURS]);
    let rest = rest.map(|it| {
        it.because(
            "a batch that follows a slow sample within the staged ones shares the cores with it",
        )
    });
    speed.into_iter().chain(used).chain(rest).collect()
}

/// The share of ready batches from the second epoch on, among those with a slow sample or among the others.
#[expect(clippy::cast_precision_loss, reason = "counts of batches")]
fn ready(trained: &Trained, slow: bool) -> f64 {
    let waits = trained.waits.iter().skip(1).flatten();
    let marks = trained.slow.iter().skip(1).flatten();
    let waits: Vec<f64> = waits.zip(marks).filter(|it| *it.1 == slow).map(|it| *it.0).collect();
    waits.iter().filter(|wait| **wait <= READY_S).count() as f64 / waits.len() as f64
}

fn chart(title: &str, y: &str, series: Vec<(String, Vec<Option<Value>>)>) -> Chart {
    let measured = |(name, values)| Series { name, source: Source::Measured, values };
    Chart::new(
        "",
        y,
        Along::Groups(LOADERS.map(|(_, name)| name.to_owned()).to_vec()),
        series.into_iter().map(measured).collect(),
    )
    .titled(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_with_slow_samples_are_told_from_the_others() {
        let trained = r#"{ "seconds": [1, 1], "images": [64, 64], "first_batch_s": 1, "cpu_s": [1, 1], "job_s": 2,
            "waits": [[9, 9, 9, 9], [9, 0.001, 0.001, 0.001]],
            "slow": [[true, true, true, true], [true, false, true, false]] }"#;
        let trained: Trained = serde_json::from_str(trained).unwrap();
        let shares = [true, false].map(|slow| format!("{:.1}", ready(&trained, slow)));
        assert_eq!(shares, ["0.5", "1.0"]);
    }
}
