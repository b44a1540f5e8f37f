//! Calibrates the parts of this host that a job uses and no report knows, on threads beside the start of the
//! agent.
//!
//! 1. It begins with the job file; the cold store follows as soon as the index is known, because its extents
//!    are read.
//! 2. Memory and RAM disks are measured on one thread, because both take the CPU; disks and the cold store on
//!    another, because both may be one device.
//!    The RAM disk of the agent is measured last, on one that is mounted for that in the run directory.
//! 3. [`Calibration::finish`] waits no longer than [`WITHIN`], or [`COLD_WITHIN`] after the index is known. A
//!    place that has no figures then is reported without, and its thread is left behind.
//! 4. All measurements are saved for the next run on this host, also those that came too late for this one.

mod objects;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::Builder,
    time::Duration,
};

use tierfeed_core::{
    id::{NumaNode, SampleId},
    tier::{Kind, Locality},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_dataset::{Index, source::Location};
use tierfeed_resource_gatherer::{
    Inventory, Sysroot,
    calibrate::{
        self, COLD_WITHIN, Calibration as Document, ColdFiles, ColdReads, ColdStore, FILE_MAX,
        FileExtent,
    },
    freshness,
    inventory::mount::{self, Medium},
    report::Tier,
};
use tierfeed_workload_analyzer::{Job, job::TierRequest};

use self::objects::ObjectReads;
use super::ram_disk::RamDisk;
use crate::{
    clock::Clock,
    layout::{
        Measurable, Measured, calibration_file, cold_place, ram_disk_locality, report_at,
        without_links,
    },
};

/// How long an agent waits for all figures together, from the beginning of the calibration.
const WITHIN: Nanoseconds = Nanoseconds(2_000_000_000);

/// The size of the RAM disk that is measured: four times the file that is written there.
const RAM_DISK: Bytes = Bytes(4 * FILE_MAX.0);

/// Samples of the cold store that may be read, spread over the dataset.
const COLD_SAMPLES: u32 = 1024;

/// Figures that are not taken over yet: those of nodes, directories and a cold store.
const TOLD_MAX: usize = 256;

#[derive(Debug)]
pub struct Calibration {
    clock: Clock,
    report: Option<PathBuf>,
    told: Receiver<Told>,
    index: SyncSender<Arc<Index>>,
    run_dir: SyncSender<PathBuf>,
}

#[derive(Debug)]
enum Told {
    /// The figures that were known before, and the places that will be measured.
    Begun {
        inventory: Box<Inventory>,
        measured: Box<Measured>,
        lacking: Vec<String>,
    },
    Tier(String, Result<Box<Tier>, String>),
    Cold(String, Result<ColdStore, String>),
}

impl Calibration {
    /// Begins to measure those parts of this host that `job` needs and that neither the probe report at
    /// `report` nor an earlier calibration tells.
    #[must_use]
    pub fn begin(job: &Arc<Job>, report: Option<&Path>) -> Self {
        let (tell, told) = sync_channel(TOLD_MAX);
        let (index, known_index) = sync_channel(1);
        let (run_dir, known_run_dir) = sync_channel(1);
        let report = report.map(Path::to_owned);
        let (job, path) = (Arc::clone(job), report.clone());
        start("calibrate", move || {
            if let Err(error) = measure(&job, path.as_deref(), &tell, (known_index, known_run_dir))
            {
                tracing::warn!(%error, "nothing is calibrated");
            }
        });
        Self { clock: Clock::start(), report, told, index, run_dir }
    }

    /// Waits for the figures and saves them. In `run_dir`, whose lock the caller holds, a RAM disk is mounted
    /// to be measured.
    pub(super) fn finish(self, index: &Arc<Index>, run_dir: &Path) -> Measured {
        let Self { clock, report, told, index: tell_index, run_dir: tell_run_dir } = self;
        // An error means that the cold store is not measured, or no RAM disk.
        let _ = tell_index.send(Arc::clone(index));
        let _ = tell_run_dir.send(run_dir.to_owned());
        drop((tell_index, tell_run_dir));
        let until = Nanoseconds(WITHIN.0.max(clock.now().0 + COLD_WITHIN.0));
        let mut taken = Taken::default();
        loop {
            let left = Duration::from_nanos(until.0.saturating_sub(clock.now().0));
            match told.recv_timeout(left) {
                Ok(news) => taken.note(news),
                Err(RecvTimeoutError::Disconnected) => {
                    return taken.into_measured(report.as_deref());
                }
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        let mut late = taken.clone();
        // Now, too: a short run ends before the rest comes.
        let measured = taken.into_measured(report.as_deref());
        start("calibrate-late", move || {
            told.into_iter().for_each(|news| late.note(news));
            late.save(report.as_deref());
        });
        measured
    }
}

/// Starts a thread that nothing waits for: it may be in a read that never ends.
fn start(name: &str, body: impl FnOnce() + Send + 'static) {
    if let Err(error) = Builder::new().name(name.to_owned()).spawn(body) {
        tracing::warn!(%error, "no thread to calibrate on");
    }
}

#[derive(Debug, Clone, Default)]
struct Taken {
    begun: Option<(Box<Inventory>, Box<Measured>)>,
    lacking: Vec<String>,
    tiers: Vec<Tier>,
    cold: Vec<ColdStore>,
    failures: Vec<(String, String)>,
}

impl Taken {
    fn note(&mut self, told: Told) {
        match told {
            Told::Begun { inventory, measured, lacking } => {
                self.begun = Some((inventory, measured));
                self.lacking = lacking;
            }
            Told::Tier(place, outcome) => {
                self.lacking.retain(|it| *it != place);
                match outcome {
                    Ok(tier) => self.tiers.push(*tier),
                    Err(why) => self.failures.push((place, why)),
                }
            }
            Told::Cold(place, outcome) => {
                self.lacking.retain(|it| *it != place);
                match outcome {
                    Ok(store) => self.cold.push(store),
                    Err(error) => self.failures.push((place, error)),
                }
            }
        }
    }

    /// Everything that is known now, which is saved beside the probe report at `report`.
    fn into_measured(mut self, report: Option<&Path>) -> Measured {
        let late =
            self.lacking.drain(..).map(|place| (place, format!("no answer within {WITHIN}")));
        self.failures.extend(late);
        for (place, why) in &self.failures {
            tracing::info!(place, why, "not calibrated");
        }
        self.tiers.iter().for_each(log_tier);
        self.cold.iter().for_each(log_cold);
        self.save(report)
    }

    fn save(self, report: Option<&Path>) -> Measured {
        let Some((inventory, measured)) = self.begun else {
            tracing::warn!("nothing was calibrated within {WITHIN}");
            return report.and_then(report_at).map(Measured::from).unwrap_or_default();
        };
        let has_new = !self.tiers.is_empty() || !self.cold.is_empty();
        let file = report.map(|report| calibration_file(report, &inventory.host));
        let mut own = Document::of(*inventory);
        (own.tiers, own.cold_stores) = (self.tiers, self.cold);
        let measured = measured.with_own(own, self.failures);
        if let (Some(file), Some(all), true) = (file, measured.calibrated(), has_new)
            && let Err(error) = all.write(&file)
        {
            tracing::warn!(%error, "the next run calibrates again");
        }
        measured
    }
}

fn log_tier(tier: &Tier) {
    let place = match &tier.path {
        Some(path) => Measurable::Directory(path),
        None if tier.is_any_ram_disk() => Measurable::RamDisk(tier.numa_node),
        None => Measurable::NumaNode(tier.numa_node.unwrap_or_default()),
    };
    let place = place.to_string();
    let rate = tier.copy_bytes_per_s.or(tier.read_bytes_per_s).map(BytesPerSecond);
    let rate = rate.map(|rate| rate.to_string());
    tracing::info!(place, latency_ns = tier.idle_latency_ns, rate, "calibrated");
}

fn log_cold(store: &ColdStore) {
    let (latency_ns, rate) = (store.latency_ns.median, store.read_bytes_per_s.median);
    let (place, read) = (&store.place, Bytes(store.read_bytes));
    tracing::info!(place, latency_ns, bytes_per_s = rate, %read, "calibrated");
}

/// The places of a job that have no figures.
struct Lacking {
    nodes: Vec<u32>,
    ram_disks: Vec<(Kind, PathBuf)>,
    disks: Vec<(Kind, PathBuf)>,
    /// Where the files of the RAM disk of the agent lie.
    own_ram_disk: Option<Locality>,
    cold: Option<String>,
}

impl Lacking {
    fn of(job: &Job, now: &Inventory, measured: &Measured) -> Self {
        let is_named =
            |node: u32| job.tiers.iter().any(|tier| tier.numa_nodes.contains(&NumaNode(node)));
        let nodes = now.memory_nodes();
        let nodes = nodes.filter(|node| node.tier_kind().is_some() || is_named(node.id));
        let nodes = nodes.map(|node| node.id);
        let nodes = nodes.filter(|node| !measured.has(now, Measurable::NumaNode(*node)));
        let mut directories: Vec<(Kind, PathBuf)> = Vec::new();
        let is_measured = |tier: &&TierRequest| tier.speed.is_none();
        let own_ram_disk = ram_disk_locality(&job.tiers, now).filter(|locality| {
            let mut tiers = job.tiers.iter().filter(is_measured);
            let has_figures = measured.has(now, ram_disk_at(*locality));
            tiers.any(|tier| tier.kind == Kind::Scratch) && !has_figures
        });
        for tier in job.tiers.iter().filter(is_measured) {
            let Some(path) = tier.path.as_ref().filter(|_| tier.numa_nodes.is_empty()) else {
                continue;
            };
            let is_one =
                |other: &(Kind, PathBuf)| freshness::directory(now, now, (&other.1, path)).is_ok();
            if !measured.has(now, Measurable::Directory(path)) && !directories.iter().any(is_one) {
                directories.push((tier.kind, path.clone()));
            }
        }
        let is_memory = |(_, path): &(Kind, PathBuf)| {
            let mount = mount::holding(&now.mounts, &without_links(path));
            mount.is_some_and(|mount| mount.medium == Medium::Memory)
        };
        let (ram_disks, disks) = directories.into_iter().partition(is_memory);
        let place = cold_place(&job.dataset.source);
        let is_known = job.cold.speed.is_some() || measured.has(now, Measurable::ColdStore(&place));
        let cold = (!is_known).then_some(place);
        Self { nodes: nodes.collect(), ram_disks, disks, own_ram_disk, cold }
    }

    fn names(&self) -> Vec<String> {
        let nodes = self.nodes.iter().map(|node| Measurable::NumaNode(*node).to_string());
        let directories = self.ram_disks.iter().chain(&self.disks);
        let directories = directories.map(|(_, path)| Measurable::Directory(path).to_string());
        let own = self.own_ram_disk.map(|locality| ram_disk_at(locality).to_string());
        let cold = self.cold.iter().map(|place| Measurable::ColdStore(place).to_string());
        nodes.chain(directories).chain(own).chain(cold).collect()
    }
}

fn measure(
    job: &Arc<Job>,
    report: Option<&Path>,
    tell: &SyncSender<Told>,
    (index, run_dir): (Receiver<Arc<Index>>, Receiver<PathBuf>),
) -> Result<(), tierfeed_resource_gatherer::ReadError> {
    let inventory = Inventory::read(Sysroot::live())?;
    let measured = report.map(|report| Measured::saved(report, &inventory.host));
    let measured = measured.unwrap_or_default();
    let lacking = Lacking::of(job, &inventory, &measured);
    let begun = Told::Begun {
        inventory: Box::new(inventory.clone()),
        measured: Box::new(measured),
        lacking: lacking.names(),
    };
    // The receiver is gone after the time.
    let _ = tell.send(begun);
    let Lacking { nodes, ram_disks, disks, own_ram_disk, cold } = lacking;
    let (on_disks, for_disks, job) = (tell.clone(), inventory.clone(), Arc::clone(job));
    start("calibrate-disks", move || {
        measure_directories(&for_disks, disks, &on_disks);
        if let Some(place) = cold {
            measure_cold(&job, &place, &index, &on_disks);
        }
    });
    measure_nodes(&inventory, nodes, tell);
    measure_directories(&inventory, ram_disks, tell);
    if let Some((locality, run_dir)) = own_ram_disk.zip(run_dir.recv().ok()) {
        let found = ram_disk(inventory, &run_dir, locality).map(Box::new);
        let place = ram_disk_at(locality).to_string();
        // The receiver is gone after the time.
        let _ = tell.send(Told::Tier(place, found));
    }
    Ok(())
}

fn ram_disk_at(locality: Locality) -> Measurable<'static> {
    Measurable::RamDisk(locality.node().map(|node| node.0))
}

/// Measures a RAM disk of the agent, which is removed again.
fn ram_disk(inventory: Inventory, run_dir: &Path, locality: Locality) -> Result<Tier, String> {
    let path = run_dir.join("scratch-measured");
    let disk = RamDisk::make(&path, RAM_DISK, locality).map_err(|error| error.to_string())?;
    let mounts = mount::lines(Sysroot::live()).map_err(|error| error.to_string())?;
    let inventory = Inventory { mounts, ..inventory };
    let found = calibrate::ram_disk(&inventory, disk.path(), locality.node());
    found.map_err(|error| error.to_string())
}

/// Measures on a thread of its own, because it changes the affinity of the thread.
fn measure_nodes(inventory: &Inventory, nodes: Vec<u32>, tell: &SyncSender<Told>) {
    let time = calibrate::node_time(nodes.len());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for node in nodes {
                let found = calibrate::memory(inventory, node, time).map(Box::new);
                let found = found.map_err(|error| error.to_string());
                // The receiver is gone after the time.
                let _ = tell.send(Told::Tier(Measurable::NumaNode(node).to_string(), found));
            }
        });
    });
}

fn measure_directories(
    inventory: &Inventory,
    directories: Vec<(Kind, PathBuf)>,
    tell: &SyncSender<Told>,
) {
    for (kind, path) in directories {
        // That of a tier may not exist yet; then its file system is that of what holds it.
        let real = without_links(&path);
        let there = real.ancestors().find(|it| it.is_dir()).unwrap_or(&real);
        let found = calibrate::directory(inventory, kind, there).map(Box::new);
        let found = found.map_err(|error| error.to_string());
        // The receiver is gone after the time.
        let _ = tell.send(Told::Tier(Measurable::Directory(&path).to_string(), found));
    }
}

/// Waits for the index, which never comes if the job does not start.
fn measure_cold(job: &Job, place: &str, index: &Receiver<Arc<Index>>, tell: &SyncSender<Told>) {
    let Ok(index) = index.recv() else { return };
    let found = cold_reads(job, &index)
        .and_then(|reads| calibrate::cold_store(place, &reads).map_err(|error| error.to_string()));
    // The receiver is gone after the time.
    let _ = tell.send(Told::Cold(Measurable::ColdStore(place).to_string(), found));
}

/// Samples of the dataset, spread over it, each of which is read once.
fn cold_reads(job: &Job, index: &Arc<Index>) -> Result<Arc<dyn ColdReads>, String> {
    let stride = (index.len() / COLD_SAMPLES).max(1);
    let samples = (0..index.len()).step_by(stride as usize).map(SampleId);
    let samples: Vec<SampleId> = samples.filter(|sample| index.size(*sample).0 > 0).collect();
    match &job.dataset.source {
        Location::Path(_) => {
            let extent = |sample: SampleId| {
                let extent = index.extent(sample);
                FileExtent { path: extent.path, offset: extent.offset, len: extent.stored_len }
            };
            Ok(Arc::new(ColdFiles(samples.into_iter().map(extent).collect())))
        }
        Location::Bucket(bucket) => {
            let reads = ObjectReads::of(bucket, index, samples);
            Ok(Arc::new(reads.map_err(|error| error.to_string())?))
        }
    }
}
