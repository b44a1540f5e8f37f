//! Figure 4: after how many steps a node reads a sample again.

use std::{collections::BTreeMap, fs, process::Command};

use anyhow::Context as _;
use serde_json::json;

use tierfeed_harness::output::step;

use super::Drawn;
use crate::{
    claim::at_least,
    document,
    figure::{Along, Chart, Series, Value},
    stage::Stage,
};

/// As in section 3 of Lobster: eight nodes with eight GPUs each, and 562 steps in an epoch. Batches are smaller, and
/// the dataset with them: distances in steps do not depend on that.
const NODES: u32 = 8;
const RANKS_PER_NODE: u32 = 8;
const STEPS: u32 = 562;
const BATCH: u32 = 4;
const SAMPLES: u32 = NODES * RANKS_PER_NODE * STEPS * BATCH;

/// The order is read for this many epochs, and reads of the first ones are counted: a sample that does not
/// return until the end returns later than any bar but the last.
const EPOCHS: u32 = 24;
const COUNTED: u32 = 12;

/// Upper ends of the bars, in steps; the last has none.
const BARS: [u32; 6] = [500, 1_000, 2_000, 3_000, 4_000, 5_000];

pub(in crate::papers) fn measured(stage: &Stage<'_>) -> anyhow::Result<Drawn> {
    step("the order of a node");
    let distances = distances(&order_of_node_0(stage)?)?;
    let longer = |steps: u32| share(&distances, |distance| distance > steps);
    let claim = at_least("samples that return after more than 1,000 steps", 0.8, longer(1_000));
    let edges: Vec<u32> = [0].into_iter().chain(BARS).collect();
    let bars = edges.windows(2).map(|ends| share(&distances, |it| it > ends[0] && it <= ends[1]));
    let rest = longer(BARS[BARS.len() - 1]);
    let names = edges.windows(2).map(|ends| format!("{} to {}", ends[0], ends[1]));
    let last = format!("more than {}", BARS[BARS.len() - 1]);
    let along = Along::Groups(names.chain([last]).collect());
    let here = Series::measured("here", bars.chain([rest]).collect());
    Ok(Drawn {
        charts: vec![Chart::new("steps", "share of reads", along, vec![here])],
        claims: claim.into_iter().collect(),
        told: Vec::new(),
    })
}

/// The output of `tierfeed plan --dump`: a line for each batch, with epoch, rank and samples.
fn order_of_node_0(stage: &Stage<'_>) -> anyhow::Result<String> {
    let job = stage.trainer.folder().join("order.json");
    let text = json!({
        "name": "order",
        "batch_size": BATCH,
        "world": { "nodes": NODES, "ranks_per_node": RANKS_PER_NODE },
        "dataset": {
            "source": "/described",
            "format": "image-folder",
            "described": { "objects": SAMPLES, "sample_bytes": 105_372 },
        },
        "order": { "shuffle": "torch-distributed", "seed": 42, "epochs": EPOCHS },
        "tiers": { "main-memory": { "size": "256 MiB" } },
    });
    fs::write(&job, text.to_string())?;
    let mut plan = Command::new(stage.trainer.tierfeed());
    plan.arg("plan").arg(&job).args(["--dump", "--node", "0"]);
    Ok(String::from_utf8(document::output(&mut plan)?)?)
}

/// For each read of the first [`COUNTED`] epochs, the number of steps until the node reads the sample again.
fn distances(dump: &str) -> anyhow::Result<Vec<u32>> {
    let mut last: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    let mut distances = Vec::new();
    for line in dump.lines().skip_while(|line| line.starts_with("epoch")) {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [epoch, step, _rank, samples] = fields[..] else {
            anyhow::bail!("`tierfeed plan --dump` printed {line}")
        };
        let epoch: u32 = epoch.parse().with_context(|| line.to_owned())?;
        let at = epoch * STEPS + step.parse::<u32>().with_context(|| line.to_owned())?;
        for sample in samples.split(',') {
            let sample = sample.parse().with_context(|| line.to_owned())?;
            if let Some((of_epoch, before)) = last.insert(sample, (epoch, at))
                && of_epoch < COUNTED
            {
                distances.push(at - before);
            }
        }
    }
    let never = last.values().filter(|(epoch, _)| *epoch < COUNTED);
    distances.extend(never.map(|_| u32::MAX));
    Ok(distances)
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn share(distances: &[u32], is_counted: impl Fn(u32) -> bool) -> Option<Value> {
    let counted = distances.iter().filter(|distance| is_counted(**distance)).count();
    (!distances.is_empty()).then(|| Value::exactly(counted as f64 / distances.len() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_is_counted_in_steps_over_epochs() {
        let dump = "epoch step rank samples\n0 3 0 7,8\n1 1 1 8,9\n";
        let mut found = distances(dump).unwrap();
        found.sort_unstable();
        assert_eq!(found, [STEPS - 2, u32::MAX, u32::MAX, u32::MAX]);
        assert_eq!(share(&found, |it| it < 1_000).map(|it| it.median), Some(0.25));
    }

    #[test]
    fn another_line_than_expected_is_an_error() {
        assert!(distances("epoch step rank samples\n0 0 7\n").is_err());
    }
}
