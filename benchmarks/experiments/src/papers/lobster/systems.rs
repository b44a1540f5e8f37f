//! The systems that Lobster is compared with, and what their trainings have in common.
//!
//! `NoPFS` and Lobster are their policies in tierfeed, with all else equal. As in the paper, ranks of `NoPFS` divide
//! the threads of their node as those of PyTorch do, and those of Lobster by its Algorithm 1.

use std::{ops::Range, thread};

use serde_json::json;
use tierfeed_core::units::{Bytes, BytesPerSecond};

use crate::{
    figure::{Along, Chart, Figure, Paper, Series, Value},
    ranks::{Nodes, Ranked, Side},
    training::Training,
};

pub(super) const BATCH: u32 = 8;
const EPOCHS: u32 = 4;
/// The epochs that count: the first is cold, and in the last nothing is read ahead for a next one.
const COUNTED: Range<usize> = 1..3;
const WORKERS: u32 = 2;

/// A step is imbalanced if a rank waits for its batch longer than another by more than this share of a step.
const IMBALANCE: f64 = 0.1;

/// A batch counts as ready if the wait for it is no longer than this, the time to hand it over.
const READY_S: f64 = 0.002;

/// A loader, or a policy of tierfeed with a way to divide threads over ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct System {
    pub(super) name: &'static str,
    loader: &'static str,
    policy: &'static str,
    assignment: &'static str,
}

pub(super) const DATA_LOADER: System =
    System { name: "DataLoader", loader: "dataloader", policy: "", assignment: "" };
pub(super) const DALI: System = System { name: "DALI", loader: "dali", policy: "", assignment: "" };
pub(super) const NOPFS: System = tierfeed("NoPFS's policy", "nopfs", "proportional");
pub(super) const LOBSTER: System = tierfeed("Lobster's policy", "lobster", "lobster");
pub(super) const OURS: System = tierfeed("tierfeed", "gap", "shared");
/// Each node reads from the others the samples that they keep.
pub(super) const SHARING: System = tierfeed("tierfeed, shared cache", "partitioned", "shared");

/// The configuration of tierfeed for this number of nodes. It is fixed, not chosen by speed.
pub(super) const fn ours(nodes: u32) -> System {
    match nodes {
        1 => OURS,
        _ => SHARING,
    }
}

pub(super) const LOBSTER_THREADS: System = tierfeed("Lobster's threads", "nopfs", "lobster");
pub(super) const LOBSTER_EVICTION: System =
    tierfeed("Lobster's eviction", "lobster", "proportional");

const fn tierfeed(name: &'static str, policy: &'static str, assignment: &'static str) -> System {
    System { name, loader: "tierfeed", policy, assignment }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    pub(super) nodes: u32,
    pub(super) ranks_per_node: u32,
    /// The share of the dataset that a node keeps.
    pub(super) cached_per_mille: u64,
    pub(super) disk: BytesPerSecond,
    /// The steps of an epoch take this share of the time in which the disk of a node gives what its ranks
    /// read.
    pub(super) compute_to_load: f64,
}

impl Setting {
    pub(super) fn steps(&self, nodes: &Nodes<'_>) -> u32 {
        nodes.photographs_count().div_ceil(BATCH * self.nodes * self.ranks_per_node)
    }

    #[expect(clippy::cast_precision_loss, reason = "a few megabytes")]
    pub(super) fn step_s(&self, nodes: &Nodes<'_>) -> f64 {
        let load_s = nodes.dataset.0 as f64 / f64::from(self.nodes) / self.disk.0 as f64;
        self.compute_to_load * load_s / f64::from(self.steps(nodes))
    }

    pub(super) fn described(&self, nodes: &Nodes<'_>) -> String {
        let ranks = if self.ranks_per_node == 1 { "rank" } else { "ranks" };
        let of_nodes = match self.nodes {
            1 => "one node with".to_owned(),
            several => format!("{several} nodes, each with"),
        };
        format!(
            "{} photographs ({}), batches of {BATCH}, {} steps of {:.0} ms in an epoch, which is {:.0} % of the time \
             in which the disks give all of them; {of_nodes} {} {ranks}, a disk of {} and memory for {} % of the \
             photographs; decoded and cropped by {WORKERS} workers or threads of each \
             rank; all ranks wait for each other after each step; of {EPOCHS} epochs the first and the last are not \
             counted.",
            nodes.photographs_count(),
            nodes.dataset,
            self.steps(nodes),
            self.step_s(nodes) * 1e3,
            self.compute_to_load * 100.0,
            self.ranks_per_node,
            self.disk,
            f64::from(u32::try_from(self.cached_per_mille).unwrap_or(u32::MAX)) / 10.0,
        )
    }
}

#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) system: System,
    /// Of the epochs that count.
    pub(super) epoch_s: Option<Value>,
    /// The share of time in which ranks compute.
    pub(super) utilisation: Option<Value>,
    /// The share of steps in which ranks wait for others.
    pub(super) imbalanced: Option<Value>,
    /// The share of batches that are ready when they are asked for.
    pub(super) ready: Option<Value>,
    /// The share of bytes that was not read from the disk again.
    pub(super) kept: Option<Value>,
    /// The share of bytes that lay in memory when they were asked for, by the report of tierfeed; `None` for
    /// others.
    pub(super) ready_bytes: Option<Value>,
    /// Seconds of a step, at percentiles.
    pub(super) step_s: Vec<Option<Value>>,
    pub(super) turns: Vec<Ranked>,
}

pub(super) const PERCENTILES: [usize; 5] = [10, 50, 90, 95, 99];

pub(super) fn measure(
    nodes: &mut Nodes<'_>,
    setting: &Setting,
    systems: &[System],
) -> anyhow::Result<Vec<Measured>> {
    let (data, step_s) = (nodes.photographs(), setting.step_s(nodes));
    let side = |system: &System| Side {
        name: format!("{} x {} ranks, {}", setting.nodes, setting.ranks_per_node, system.name),
        nodes: setting.nodes,
        ranks_per_node: setting.ranks_per_node,
        room: Bytes(nodes.dataset.0 * setting.cached_per_mille / 1000),
        training: Training {
            loader: system.loader,
            data: &data,
            batch_size: BATCH,
            epochs: EPOCHS,
            step_s,
            workers: WORKERS,
            decode: true,
            job: match system.loader {
                "tierfeed" => json!({
                    "policy": system.policy,
                    "prefetch": { "assignment": system.assignment },
                }),
                _ => json!({}),
            },
        },
    };
    let sides: Vec<_> = systems.iter().map(side).collect();
    let turns = nodes.turns(&sides)?;
    let of_system =
        |(system, turns): (&System, Vec<Ranked>)| figures(nodes, setting, *system, turns);
    Ok(systems.iter().zip(turns).map(of_system).collect())
}

#[expect(clippy::cast_precision_loss, reason = "a few megabytes")]
fn figures(nodes: &Nodes<'_>, setting: &Setting, system: System, turns: Vec<Ranked>) -> Measured {
    let step_s = setting.step_s(nodes);
    let computed_s = step_s * f64::from(setting.steps(nodes));
    let megabytes = nodes.dataset.0 as f64 / 1e6;
    let of =
        |figure: &dyn Fn(&Ranked) -> f64| Value::of(&turns.iter().map(figure).collect::<Vec<_>>());
    let kept = |ranked: &Ranked| {
        1.0 - (ranked.read_megabytes() - megabytes) / (megabytes * f64::from(EPOCHS - 1))
    };
    let at = |percent: usize| {
        of(&|ranked: &Ranked| {
            let times = ranked.step_seconds(COUNTED, step_s);
            tierfeed_harness::statistics::percentile(&times, percent).unwrap_or(f64::NAN)
        })
    };
    let ready_bytes: Option<Vec<f64>> = turns.iter().map(|it| it.ready_bytes(COUNTED)).collect();
    Measured {
        system,
        epoch_s: of(&|ranked| ranked.epoch_s(COUNTED)),
        utilisation: of(&|ranked| computed_s / ranked.epoch_s(COUNTED)),
        imbalanced: of(&|ranked| ranked.imbalanced(COUNTED, IMBALANCE * step_s)),
        ready: of(&|ranked| ranked.ready(COUNTED, READY_S)),
        kept: of(&kept),
        ready_bytes: ready_bytes.and_then(|turns| Value::of(&turns)),
        step_s: PERCENTILES.map(at).to_vec(),
        turns,
    }
}

impl Measured {
    #[cfg(test)]
    pub(super) fn nothing(system: System) -> Self {
        Self {
            system,
            epoch_s: None,
            utilisation: None,
            imbalanced: None,
            ready: None,
            kept: None,
            ready_bytes: None,
            step_s: Vec::new(),
            turns: Vec::new(),
        }
    }

    pub(super) fn of<'a>(all: &'a [Self], system: &System) -> Option<&'a Self> {
        all.iter().find(|it| it.system == *system)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Published<'a> {
    name: &'static str,
    of_systems: &'a [(System, f64)],
}

/// Values that the paper prints.
pub(super) const fn printed(of_systems: &[(System, f64)]) -> Published<'_> {
    Published { name: "published", of_systems }
}

/// Values that follow from what the paper prints, as `name` says.
pub(super) const fn derived<'a>(
    name: &'static str,
    of_systems: &'a [(System, f64)],
) -> Published<'a> {
    Published { name, of_systems }
}

/// A figure for each system, beside the published one; a series for each of `rows`, whose first has all
/// systems.
pub(super) fn chart(
    y: &str,
    rows: &[(&str, &[Measured])],
    figure: impl Fn(&[Measured], &Measured) -> Option<Value>,
    published: Option<Published<'_>>,
) -> Chart {
    let systems: Vec<_> = rows[0].1.iter().map(|it| it.system).collect();
    let paper = |system: &System| {
        let found = published?.of_systems.iter().find(|(it, _)| it == system);
        found.map(|(_, value)| Value::exactly(*value))
    };
    let of_paper = published
        .map(|published| Series::published(published.name, systems.iter().map(paper).collect()));
    let here = rows.iter().map(|(name, all)| {
        Series::measured(
            *name,
            systems.iter().map(|it| figure(all, Measured::of(all, it)?)).collect(),
        )
    });
    Chart::new(
        "",
        y,
        Along::Groups(systems.iter().map(|it| it.name.to_owned()).collect()),
        of_paper.into_iter().chain(here).collect(),
    )
}

pub(super) fn processors() -> String {
    match thread::available_parallelism().map_or(1, usize::from) {
        1 => "1 processor".to_owned(),
        several => format!("{several} processors"),
    }
}

pub(super) const NO_THRESHOLD: &str = "the paper does not say from which difference on a step has imbalance; the \
                                       differences between systems are judged";

pub(super) fn described(name: &str, setting: String, emulated: Vec<String>) -> Figure {
    let of_all = [
        "the GPU is a sleep, and the exchange of gradients a byte to the first rank and back".to_owned(),
        format!(
            "nodes are control groups of one host, each with memory and a disk of its own; they share the {} and the \
             network of the host",
            processors()
        ),
        format!(
            "a step has imbalance here if a rank waits for its batch for {:.0} % of the time of a step longer than \
             another; this was chosen, since the paper names no difference",
            IMBALANCE * 100.0
        ),
        "NoPFS and Lobster are their policies in tierfeed, not their programs; with either, no node reads from another"
            .to_owned(),
    ];
    Figure {
        setting,
        emulated: of_all.into_iter().chain(emulated).collect(),
        ..Figure::named(Paper::Lobster, name, "", "")
    }
}
