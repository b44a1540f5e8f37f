//! `tierfeed tiers probe` and `tierfeed tiers show`.

use std::{
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use anyhow::anyhow;
use clap::{Args, Subcommand};
use tierfeed_core::{
    budget::Request,
    tier::Kind,
    units::{Bytes, BytesPerSecond, Nanoseconds, whole},
};
use tierfeed_resource_gatherer::{
    Budget, EmulatedTier, ProbeError, ProbeSettings, Report, Sysroot,
    calibrate::Calibration,
    classify::Assignment,
    inventory,
    probe::{
        Bucket, Directories, default_directories,
        object_store::{Identity, Options},
        probe_until,
    },
    report::{self, StoreError, Tier},
};
use tierfeed_runtime::layout::calibration_file;
use tierfeed_workload_analyzer::{Job, job::TierRequest};

use crate::{environment, failure::Failure, output};

#[derive(Debug, Subcommand)]
pub(crate) enum Tiers {
    /// Measures, and writes the report that other commands read.
    Probe(Probe),
    /// Shows the last report.
    Show(Show),
}

#[derive(Debug, Default, Args)]
pub(crate) struct Probe {
    /// Takes seconds instead of minutes; figures have wider margins.
    #[arg(long)]
    pub(crate) quick: bool,
    /// A job file: its directories are measured too, its NUMA nodes make the tiers that it names, and its
    /// emulated tiers are listed.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A directory on a RAM disk; may be given several times [default: the job's, else /dev/shm].
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch: Vec<PathBuf>,
    /// A directory on storage; may be given several times [default: the job's, else /var/tmp or /tmp].
    #[arg(long, value_name = "DIR")]
    pub(crate) storage: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) buckets: Buckets,
    /// Sorts the tiers without regard to the last report, which else keeps them from changing for a
    /// difference that is not clear.
    #[arg(long)]
    pub(crate) fresh: bool,
    /// The root of a tree with /proc and /sys of another machine, which is described and not measured. It needs
    /// --output, because the report is not that of this machine.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) sysroot: PathBuf,
    /// Where the report goes [default: tierfeed/tiers.json in the user's directory for state].
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Prints the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which buckets a probe measures.
#[derive(Debug, Default, Args)]
pub(crate) struct Buckets {
    /// A bucket, as s3://BUCKET/PREFIX, gs://, az://, or the URL of an object on a web server; may be given
    /// several times. Credentials come from the variables of the provider, such as AWS_ACCESS_KEY_ID.
    #[arg(long, value_name = "URL")]
    pub(crate) object: Vec<String>,
    /// Reads buckets without credentials.
    #[arg(long, requires = "object")]
    pub(crate) anonymous: bool,
    /// How much may be written to a bucket that holds nothing to read, such as "256 MiB", and is removed
    /// again [default: nothing].
    #[arg(long, value_name = "SIZE", requires = "object")]
    pub(crate) object_writes: Option<Bytes>,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Which report [default: the last].
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Prints the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Prints the JSON schema of reports.
    #[arg(long, conflicts_with_all = ["report", "json"])]
    pub(crate) schema: bool,
}

pub(crate) fn run(arguments: &Tiers) -> Result<(), Failure> {
    match arguments {
        Tiers::Probe(arguments) => probe(arguments),
        Tiers::Show(arguments) => show(arguments),
    }
}

fn probe(arguments: &Probe) -> Result<(), Failure> {
    if arguments.sysroot != Path::new("/") && arguments.output.is_none() {
        let reason = "--sysroot describes another machine: say by --output where its report goes";
        return Err(Failure::Input(anyhow!(reason)));
    }
    let path = environment::tiers_report(arguments.output.as_deref())?;
    let measured = measure(arguments, &path)?;
    tracing::info!(report = %path.display(), "written");
    print(&measured, arguments.json)
}

/// Measures for at most 30 s, and writes the report to `path`.
pub(super) fn probe_quickly(path: &Path) -> Result<Report, Failure> {
    measure(&Probe { quick: true, sysroot: "/".into(), ..Probe::default() }, path)
}

fn show(arguments: &Show) -> Result<(), Failure> {
    if arguments.schema {
        return output::lines(report::SCHEMA);
    }
    let path = environment::tiers_report(arguments.report.as_deref())?;
    let calibrated = if arguments.json { None } else { calibrated(&path) };
    let report = match (report::read(&path), &calibrated) {
        (Err(StoreError::Unreadable(..)), Some(calibrated)) => return output::lines(calibrated),
        (report, _) => report.map_err(Failure::input)?,
    };
    print(&report, arguments.json)?;
    calibrated.map_or(Ok(()), |calibrated| output::lines(&format!("\n{calibrated}")))
}

/// The figures that runs on this host took at their start, beside the probe report at `path`.
fn calibrated(path: &Path) -> Option<String> {
    let file = calibration_file(path, &inventory::host_name(Sysroot::live()));
    let known = Calibration::read(&file)?;
    let mut lines = vec![format!("calibrated by runs on this host, in {}", file.display())];
    let place = |tier: &Tier| match (&tier.path, tier.numa_node) {
        (Some(path), _) => path.display().to_string(),
        (None, None) if tier.is_any_ram_disk() => "RAM disk of an agent".to_owned(),
        (None, Some(node)) if tier.is_any_ram_disk() => format!("RAM disk on NUMA node {node}"),
        (None, node) => format!("memory of NUMA node {}", node.unwrap_or_default()),
    };
    let line = |place: String, latency_ns: f64, bytes_per_s: f64| {
        let (latency, rate) = (Nanoseconds(whole(latency_ns)), BytesPerSecond(whole(bytes_per_s)));
        format!("  {place}: {latency}, {rate} into main memory")
    };
    lines.extend(known.tiers.iter().filter_map(|tier| {
        let rated = tier.profile()?.rated();
        Some(line(place(tier), rated.latency_ns?, rated.bytes_per_s?))
    }));
    lines.extend(known.cold_stores.iter().map(|store| {
        let place = format!("cold store {}", store.place);
        let doubt = store.doubt().map(|doubt| format!(" ({doubt})")).unwrap_or_default();
        line(place, store.latency_ns.median, store.read_bytes_per_s.median) + &doubt
    }));
    Some(lines.join("\n"))
}

fn print(report: &Report, as_json: bool) -> Result<(), Failure> {
    if as_json {
        output::json(report)
    } else {
        output::lines(&report::table(report, output::style()))
    }
}

/// Measures, and writes the report to `path`.
fn measure(arguments: &Probe, path: &Path) -> Result<Report, Failure> {
    let settings = settings(arguments, path)?;
    let runtime = super::runtime()?;
    let is_stopped = super::ended_by_user(&runtime)?;
    let bar = output::probe_bar();
    let measured =
        probe_until(&settings, &mut || is_stopped.load(Ordering::Relaxed), &mut |progress| {
            output::show_probing(&bar, &progress);
        });
    bar.finish_and_clear();
    runtime.shutdown_background();
    let measured = measured.map_err(|error| match error {
        ProbeError::NoDirectory { .. } | ProbeError::Bucket(_) => Failure::input(error),
        _ => Failure::work(error),
    })?;
    report::write(&measured, path)?;
    Ok(measured)
}

fn settings(arguments: &Probe, report: &Path) -> Result<ProbeSettings, Failure> {
    let job = arguments.config.as_deref().map(Job::load).transpose().map_err(Failure::input)?;
    let tiers = job.map(|job| job.tiers).unwrap_or_default();
    let sysroot = Sysroot(&arguments.sysroot);
    let usual =
        if sysroot.is_live() { default_directories(sysroot)? } else { Directories::default() };
    let scratch = directories(Kind::Scratch, &arguments.scratch, &tiers);
    let storage = directories(Kind::Storage, &arguments.storage, &tiers);
    let assignments = assignments(&tiers, [(Kind::Scratch, &scratch), (Kind::Storage, &storage)]);
    let further = [(Kind::Scratch, &scratch), (Kind::Storage, &storage)];
    let further = further
        .into_iter()
        .flat_map(|(kind, paths)| paths.iter().skip(1).map(move |path| (kind, path.clone())));
    // The last report keeps the order of tiers stable.
    let previous = if arguments.fresh { None } else { report::read(report).ok().map(Box::new) };
    Ok(ProbeSettings {
        sysroot: arguments.sysroot.clone(),
        buckets: buckets(&arguments.buckets),
        further: further.collect(),
        scratch: scratch.first().cloned().or(usual.scratch),
        storage: storage.first().cloned().or(usual.storage),
        budget: if arguments.quick { Budget::Quick } else { Budget::Full },
        emulated: tiers.iter().filter_map(emulated).collect(),
        assignments,
        previous,
    })
}

fn buckets(arguments: &Buckets) -> Vec<Bucket> {
    let identity = if arguments.anonymous { Identity::Anonymous } else { Identity::Configured };
    let bucket = |url: &String| Bucket {
        url: url.clone(),
        options: Options(environment::buckets()),
        identity,
        writes: arguments.object_writes.unwrap_or(Bytes(0)),
    };
    arguments.object.iter().map(bucket).collect()
}

/// The directories that the user names for a kind of tier: by option, else in the job.
fn directories(kind: Kind, options: &[PathBuf], tiers: &[TierRequest]) -> Vec<PathBuf> {
    if !options.is_empty() {
        return options.to_vec();
    }
    tiers.iter().filter(|tier| tier.kind == kind).filter_map(|tier| tier.path.clone()).collect()
}

/// The user's assignments to tiers: NUMA nodes in the job, directories in the job or by option.
fn assignments(tiers: &[TierRequest], directories: [(Kind, &Vec<PathBuf>); 2]) -> Vec<Assignment> {
    // The NUMA node of a RAM disk is not its tier.
    let named = |tier: &&TierRequest| tier.kind == Kind::CxlMemory && !tier.numa_nodes.is_empty();
    let nodes = tiers.iter().filter(named).map(|tier| Assignment {
        kind: tier.kind,
        numa_nodes: tier.numa_nodes.iter().map(|node| node.0).collect(),
        path: None,
    });
    // The probe reports missing directories.
    let canonical = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let directories = directories.into_iter().flat_map(|(kind, paths)| {
        paths.iter().map(move |path| Assignment {
            kind,
            numa_nodes: Vec::new(),
            path: Some(canonical(path)),
        })
    });
    nodes.chain(directories).collect()
}

/// A share has no capacity before the job starts.
fn emulated(tier: &TierRequest) -> Option<EmulatedTier> {
    let capacity = match tier.budget {
        Request::Size(size) => size,
        Request::Share(_) => Bytes(0),
    };
    tier.speed.map(|speed| EmulatedTier { kind: tier.kind, speed, capacity })
}
