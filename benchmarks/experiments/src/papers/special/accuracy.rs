//! Figure 9, accuracy: a network that tierfeed feeds has the same loss in each step as one that `DataLoader` feeds.

use std::path::Path;

use serde::Deserialize;
use serde_json::json;

use tierfeed_harness::output::step;

use super::Drawn;
use crate::{
    figure::{Along, Chart, Headline, Series, Value, Verdict},
    stage::{Extent, Stage},
    training::mean,
};

const SEED: &str = "1";
const BATCH: &str = "32";
/// Main memory of tierfeed: less than the images need.
const MEMORY: &str = "4 MiB";
const CHUNK: &str = "256 KiB";

/// Loaders, by their names in the script and for people.
const LOADERS: [(&str, &str); 2] = [("dataloader", "DataLoader"), ("tierfeed", "tierfeed")];

#[derive(Debug, Clone, Deserialize)]
struct Learned {
    /// Of each step of each epoch.
    losses: Vec<Vec<f64>>,
    /// The share of test images that are classified correctly after each epoch.
    accuracies: Vec<f64>,
}

pub(in crate::papers) fn measured(stage: &Stage<'_>) -> anyhow::Result<Drawn> {
    let (images, epochs) = match stage.settings.extent {
        Extent::Full => (5000_u32, 8_u32),
        Extent::Quick => (1000, 2),
    };
    let folder = stage.made.with_file_name("labelled");
    step(&format!("{images} labelled images"));
    write_images(stage, &folder, images)?;
    let learned = |(script, name): (&str, &str)| {
        step(&format!("{name}: {epochs} epochs of a small network"));
        train(stage, script, &folder, epochs)
    };
    let [theirs, ours] = [learned(LOADERS[0])?, learned(LOADERS[1])?];
    let which = match &stage.settings.labelled {
        Some(tar) => tar.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        None => "ten generated classes".to_owned(),
    };
    let losses = |learned: &Learned| learned.losses.iter().map(|it| mean(it)).collect::<Vec<_>>();
    let correct = "test images that are classified correctly";
    Ok(Drawn {
        charts: vec![
            chart(correct, "share", &theirs.accuracies, &ours.accuracies),
            chart("loss", "mean of the epoch", &losses(&theirs), &losses(&ours)),
        ],
        claims: vec![same_losses(&theirs, &ours)],
        told: vec![("images", images.to_string()), ("which", which)],
    })
}

fn write_images(stage: &Stage<'_>, to: &Path, count: u32) -> anyhow::Result<()> {
    let (to, count) = (to.display().to_string(), count.to_string());
    let tar = stage.settings.labelled.as_ref().map(|it| it.display().to_string());
    let mut arguments = vec!["images", &to, &count];
    arguments.extend(tar.as_deref());
    stage.trainer.ask::<serde_json::Value>("accuracy.py", &arguments).map(drop)
}

fn train(stage: &Stage<'_>, loader: &str, data: &Path, epochs: u32) -> anyhow::Result<Learned> {
    let (data, epochs) = (data.display().to_string(), epochs.to_string());
    let job = json!({ "chunk": CHUNK, "tiers": { "main-memory": { "size": MEMORY } } }).to_string();
    let arguments = ["train", loader, &data, BATCH, &epochs, SEED, &job];
    stage.trainer.ask("accuracy.py", &arguments)
}

fn chart(title: &str, y: &str, theirs: &[f64], ours: &[f64]) -> Chart {
    let series = |name: &str, values: &[f64]| {
        Series::measured(name, values.iter().map(|it| Some(Value::exactly(*it))).collect())
    };
    let epochs = (1_u32..).zip(theirs).map(|(epoch, _)| f64::from(epoch));
    Chart::new(
        "epoch",
        y,
        Along::Positions(epochs.collect()),
        vec![series(LOADERS[0].1, theirs), series(LOADERS[1].1, ours)],
    )
    .titled(title)
}

/// The paper's curves differ by their seeds. With one seed and one order there is nothing that may differ.
fn same_losses(theirs: &Learned, ours: &Learned) -> Headline {
    let [theirs, ours] = [theirs, ours].map(|it| it.losses.concat());
    let steps = theirs.len().max(ours.len());
    let equal = theirs.iter().zip(&ours).filter(|(a, b)| a.to_bits() == b.to_bits()).count();
    #[expect(clippy::cast_precision_loss, reason = "counts of steps")]
    let share = equal as f64 / steps as f64;
    Headline {
        what: "steps with the same loss, to the last bit".to_owned(),
        published: "similar curves".to_owned(),
        here: format!("{equal} of {steps}"),
        measured: Some(Value::exactly(share)),
        verdict: if equal == steps { Verdict::Reproduced } else { Verdict::NotReached },
        why: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(losses: &[f64]) -> Learned {
        Learned { losses: vec![losses.to_vec()], accuracies: vec![0.5] }
    }

    #[test]
    fn losses_are_the_same_only_if_each_is() {
        let verdict = |ours: &[f64]| same_losses(&learned(&[2.3, 2.1]), &learned(ours)).verdict;
        assert_eq!(verdict(&[2.3, 2.1]), Verdict::Reproduced);
        assert_eq!(verdict(&[2.3, 2.100_000_000_000_001]), Verdict::NotReached);
        assert_eq!(verdict(&[2.3]), Verdict::NotReached);
        assert_eq!(verdict(&[2.3, 2.1, 2.0]), Verdict::NotReached);
    }
}
