//! `tierfeed-bench lobster`: how many samples are ready when they are needed, for each policy and
//! bandwidth of the cold store, in the setting in which Lobster published its hit ratios.
//!
//! One node with eight ranks, ImageNet-1K, a cache of 40 of 135 GB. The planner's own state machines run
//! on a virtual clock; the cold store has a multiple of the bandwidth that the job needs. A sample is
//! ready if it lies in a tier or in staging when its rank has finished the step before; a training that
//! waits gives the cold store more time, but not before the sample is needed.

mod plot;
mod table;

use std::{convert::Infallible, ops::ControlFlow, sync::Arc};

pub use plot::plot;
pub use table::table;

use serde::Serialize;
use tierfeed_core::{
    id::{Epoch, NodeId},
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    retention::policy::{Aim, Kind},
    session::{LookAhead, OnError, Settings as Session, Windows},
    simulator::{Machine, Model, Observer, Read, Source, StepOutcome, simulate_observed},
    tier::{Buffer, Kind as Tier, Speed},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_harness::{judgement::Judgement, parallel};

use crate::sizes::{Lognormal, part_of};

const RANKS: u32 = 8;
const BATCH: u32 = 32;

/// ImageNet-1K, the training images.
const SAMPLES: u32 = 1_281_167;

/// ImageNet-1K has 135 GB, and images of about this spread.
const SIZES: Lognormal = Lognormal { mean_bytes: 135e9 / 1_281_167.0, sigma: 0.5, seed: 11 };

/// Of 135 GB, 40 GB.
const CACHED: f64 = 40.0 / 135.0;

/// Bandwidth of the cold store as a multiple of what the job needs; 0.704 is the share that no cache can save.
const BANDWIDTHS: [f64; 5] = [0.1, 0.25, 0.5, 0.704, 1.0];

/// The time of a step. Only its ratio to the bandwidth matters.
const STEP: Nanoseconds = Nanoseconds(100_000_000);

/// Steps that are staged, the one in work included: at most a hundredth of the full cache.
const STAGED: u32 = 8;

/// How far the share of ready bytes may stay below the bound.
const READY_OFF_MAX: f64 = 0.01;

const CHUNK: Bytes = Bytes::mib(4);

/// Hit ratios of the memory cache on one node with eight GPUs and ImageNet-1K.
///
/// # Source
///
/// Lobster (doi:10.1145/3545008.3545090), section 5, "Memory cache hit ratio".
pub const PUBLISHED: [(&str, f64); 4] =
    [("Lobster", 0.632), ("NoPFS", 0.489), ("DALI", 0.326), ("PyTorch DataLoader", 0.245)];

/// The settings of a run.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// By how much the dataset and the cache are smaller than Lobster's.
    pub scale: u32,
    /// Epochs; the first is cold and does not count.
    pub epochs: u32,
}

/// The outcome of a run, as it is printed in JSON.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// By how much the dataset and the cache are smaller than Lobster's.
    pub scale: u32,
    /// Epochs, the cold one included.
    pub epochs: u32,
    /// Samples of the dataset.
    pub samples: u32,
    /// Bytes of the dataset.
    pub dataset_bytes: u64,
    /// The capacity of the cache, in bytes.
    pub capacity_bytes: u64,
    /// Policy by policy, bandwidths ascending.
    pub rows: Vec<Row>,
}

/// One policy with one cold store.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The name of the policy.
    pub policy: &'static str,
    /// Bandwidth of the cold store as a multiple of what the job needs.
    pub bandwidth: f64,
    /// Share of samples that were ready when they were needed, from the second epoch on.
    pub ready: f64,
    /// The share of ready bytes.
    pub ready_bytes: f64,
    /// Share of samples that needed no cold read.
    pub hits: f64,
    /// The share of bytes that no policy can exceed at a steady pace.
    pub bound: f64,
}

impl Outcome {
    /// Compares `gap` with the bound and with Lobster's own policy, at every bandwidth.
    #[must_use]
    pub fn judged(&self) -> Judgement {
        let of = |kind: Kind| self.rows.iter().filter(move |row| row.policy == kind.name());
        of(Kind::Gap).zip(of(Kind::Lobster)).fold(Judgement::default(), |judged, (ours, theirs)| {
            let what = format!("samples ready at b = {}", ours.bandwidth);
            judged.at_least(&what, ours.ready_bytes, ours.bound - READY_OFF_MAX).at_least(
                &format!("{what}, lobster's"),
                ours.ready,
                theirs.ready,
            )
        })
    }
}

/// A run: a policy with one cold store.
#[derive(Debug, Clone, Copy)]
struct Case {
    kind: Kind,
    bandwidth: f64,
}

/// Simulates every policy with every cold store, on all cores, and reports progress to `step`.
#[must_use]
pub fn run(settings: &Settings, step: &mut (dyn FnMut(&str) + Send)) -> Outcome {
    run_of(&Kind::ALL, *settings, step)
}

fn run_of(kinds: &[Kind], settings: Settings, step: &mut (dyn FnMut(&str) + Send)) -> Outcome {
    let samples = (SAMPLES / settings.scale.max(1)).max(RANKS * BATCH);
    let sizes = SIZES.sizes(samples);
    let dataset_bytes = sizes.iter().map(|len| len.0).sum();
    let capacity = part_of(dataset_bytes, CACHED);
    let base = session(&sizes, settings.epochs.max(2), capacity);
    let of_kind = |kind| BANDWIDTHS.map(|bandwidth| Case { kind, bandwidth });
    let cases: Vec<Case> = kinds.iter().copied().flat_map(of_kind).collect();
    let count = cases.len();
    let rows = parallel::each(&cases, |case| measure(*case, &base, dataset_bytes), &mut |done| {
        step(&format!("{done} of {count} runs"));
    });
    Outcome {
        scale: settings.scale,
        epochs: base.order.epochs,
        samples,
        dataset_bytes,
        capacity_bytes: base.tiers.iter().map(|tier| tier.capacity(CHUNK).0).sum(),
        rows,
    }
}

fn session(sizes: &Arc<[Bytes]>, epochs: u32, capacity: Bytes) -> Session {
    let samples = u32::try_from(sizes.len()).expect("as many sizes as samples were asked for");
    let largest = sizes.iter().map(|len| len.0).max().unwrap_or(0);
    Session {
        order: Spec {
            samples,
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 42,
            epochs,
            drop_last: true,
            batch_size: BATCH,
            world: World { nodes: 1, ranks_per_node: RANKS },
            start: Position::START,
            further: FurtherDatasets::NONE,
        },
        node: NodeId(0),
        sizes: Arc::clone(sizes),
        tiers: vec![Buffer::within(Tier::MainMemory, capacity, CHUNK)],
        chunk: CHUNK,
        policy: Kind::Gap,
        aim: Aim::default(),
        in_place_tiers: Vec::new(),
        transform: None,
        first_room: Bytes(0),
        look_ahead: LookAhead::Off,
        staged_batches: STAGED,
        staged_batches_max: 0,
        // Room for the batches even if they are large ones: staging is limited by their number.
        arena: Bytes(u64::from(STAGED * BATCH).saturating_mul(largest)),
        on_error: OnError::Fail,
        windows: Windows::default(),
    }
}

fn measure(case: Case, base: &Session, dataset_bytes: u64) -> Row {
    let Case { kind, bandwidth } = case;
    let session = Session { policy: kind, ..base.clone() };
    let steps = u64::from(session.order.steps_per_epoch().max(1));
    let needed_per_s = dataset_bytes / steps * 1_000_000_000 / STEP.0;
    let speed =
        |rate: Bytes| Speed { latency: Nanoseconds(0), bandwidth: BytesPerSecond(rate.0.max(1)) };
    let model = Model {
        cold_threads: None,
        cold_burst: Nanoseconds(0),
        cold: speed(part_of(needed_per_s, bandwidth)),
        // Memory is fast enough to delay no read.
        tiers: vec![speed(Bytes(needed_per_s.saturating_mul(1000)))],
        step_time: STEP,
        pause: None,
        transforms: None,
        head_start: Nanoseconds(0),
    };
    let mut tally = Tally::default();
    let ControlFlow::Continue(_) = simulate_observed(&session, &Machine::from(&model), &mut tally);
    Row {
        policy: kind.name(),
        bandwidth,
        ready: share(tally.ready, tally.samples),
        ready_bytes: share(tally.ready_bytes, tally.bytes),
        hits: share(tally.hits, tally.samples),
        bound: (CACHED + bandwidth).min(1.0),
    }
}

/// Reads from the second epoch on.
#[derive(Debug, Default)]
struct Tally {
    samples: u64,
    bytes: u64,
    hits: u64,
    ready: u64,
    ready_bytes: u64,
}

impl Observer for Tally {
    type Stop = Infallible;

    fn read(&mut self, read: &Read) {
        if read.batch.epoch == Epoch(0) {
            return;
        }
        self.samples += 1;
        self.bytes += read.len.0;
        self.hits += u64::from(read.source != Source::Cold);
        if read.is_ready() {
            self.ready += 1;
            self.ready_bytes += read.len.0;
        }
    }

    fn step(&mut self, _: &StepOutcome) -> ControlFlow<Infallible> {
        ControlFlow::Continue(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "15 digits of a count are enough for a share")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Policies in the order in which they were run, each with its rows.
fn by_policy(outcome: &Outcome) -> impl Iterator<Item = &[Row]> {
    outcome.rows.chunk_by(|a, b| a.policy == b.policy)
}

#[cfg(test)]
mod tests;
