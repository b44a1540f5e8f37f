//! Figure 14: total time by the number of workers, each on a node of its own.

use serde_json::json;
use tierfeed_core::units::{Bytes, BytesPerSecond};

use crate::{
    claim::{falls, times_as_much},
    figure::{Along, Chart, Figure, Paper, Series, Value},
    ranks::{Ranked, Side, on_nodes},
    stage::{Extent, Stage, cxl_memory},
    training::Training,
};

pub(super) const NAME: &str = "deep-memory-14";

const WORKERS: [u32; 2] = [1, 4];
const WORKERS_QUICK: [u32; 2] = [1, 2];
const EPOCHS: u32 = 3;
const BATCH: u32 = 8;
const STEP_S: f64 = 0.015;
const DISK: BytesPerSecond = BytesPerSecond(20_000_000);
/// Main memory and CXL memory of each node for data, in per cent of the dataset.
const MAIN: u64 = 25;
const CXL: u64 = 50;

/// Loaders, by their names in the script and for people.
const LOADERS: [(&str, &str); 2] =
    [("dataloader", "constrained memory, DataLoader"), ("tierfeed", "tierfeed")];

pub(super) fn figure(stage: &mut Stage<'_>) -> anyhow::Result<Figure> {
    let workers = match stage.settings.extent {
        Extent::Full => &WORKERS[..],
        Extent::Quick => &WORKERS_QUICK[..],
    };
    let mut times = measure(stage, workers)?;
    stage.disk.limit(super::DISK)?;
    let ours = times.split_off(workers.len());
    let compared = workers.iter().zip(times.iter().zip(&ours));
    let against = compared.filter_map(|(workers, (theirs, ours))| {
        let what = format!("total time against constrained memory, {}", counted(*workers));
        falls(&what, *theirs, *ours)
    });
    let last = workers[workers.len() - 1];
    let what = format!("times as fast with {last} workers as with one");
    // Of times, the other way round.
    let linear = times_as_much(&what, f64::from(last), ours[0], ours[ours.len() - 1]);
    let linear = linear.map(|it| it.because("the nodes share the two cores of this host"));
    let measured = LOADERS
        .iter()
        .zip([&times, &ours])
        .map(|((_, name), values)| Series::measured(*name, values.clone()));
    Ok(Figure {
        setting: format!(
            "{} photographs ({}) as they are stored, batches of {BATCH}, steps of {:.0} ms that sleep, after each of \
             which all workers wait for each other; each worker on a node of its own, with a disk of {DISK} and memory \
             for {MAIN} % of the photographs, tierfeed with CXL memory for {CXL} % more.",
            stage.settings.photographs,
            stage.dataset,
            STEP_S * 1e3
        ),
        charts: vec![Chart::new(
            "workers",
            &format!("total time of {EPOCHS} epochs, s"),
            Along::Positions(workers.iter().copied().map(f64::from).collect()),
            measured.collect(),
        )],
        headlines: linear.into_iter().chain(against).collect(),
        emulated: vec![
            stage.emulated.clone(),
            "nodes are control groups of one host, each with memory and a disk of its own"
                .to_owned(),
        ],
        ..Figure::named(Paper::DeepMemory, NAME, "Figure 14", "Total time by workers")
    })
}

fn counted(workers: u32) -> String {
    match workers {
        1 => "1 worker".to_owned(),
        several => format!("{several} workers"),
    }
}

/// Total times, of each loader with all numbers of workers.
fn measure(stage: &mut Stage<'_>, workers: &[u32]) -> anyhow::Result<Vec<Option<Value>>> {
    let most = usize::try_from(workers.iter().copied().max().unwrap_or(1))?;
    on_nodes(stage, most, DISK, |nodes| {
        let data = nodes.photographs();
        let percent = |percent: u64| Bytes(nodes.dataset.0 * percent / 100);
        let side = |(loader, name): (&'static str, &str), workers: u32| Side {
            name: format!("{name}, {}", counted(workers)),
            nodes: workers,
            ranks_per_node: 1,
            room: percent(MAIN),
            training: Training {
                loader,
                data: &data,
                batch_size: BATCH,
                epochs: EPOCHS,
                step_s: STEP_S,
                workers: 1,
                decode: false,
                job: json!({ "tiers": cxl_memory(percent(CXL)) }),
            },
        };
        let sides = LOADERS.iter().flat_map(|loader| workers.iter().map(|it| side(*loader, *it)));
        let turns = nodes.turns(&sides.collect::<Vec<_>>())?;
        let total =
            |turns: &Vec<_>| Value::of(&turns.iter().map(Ranked::total_s).collect::<Vec<_>>());
        Ok(turns.iter().map(total).collect::<Vec<_>>())
    })
}
