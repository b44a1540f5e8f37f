//! Reads the environment, the working directory and the calendar. No other module of this crate does, except
//! for the variables of options.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{self, Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, anyhow};
use tierfeed_core::{
    fleet::launch::{self, Identity},
    units::Bytes,
};
use tierfeed_runtime::{
    run_dir::{self, RunDir, history},
    transport::token::Token,
};

use crate::failure::Failure;

pub(crate) const SOCKET: &str = "TIERFEED_SOCK";
pub(crate) const JOB: &str = "TIERFEED_JOB";
pub(crate) const INDEX: &str = "TIERFEED_INDEX";
pub(crate) const SCRATCH: &str = "TIERFEED_SCRATCH";
/// Names this program to trainers, which start it when they must read a bucket without an agent.
pub(crate) const EXE: &str = "TIERFEED_EXE";
pub(crate) const RUN_DIR: &str = "TIERFEED_RUN_DIR";

/// The token of a job, which trainers need not know.
pub(crate) const TOKEN: &str = "TIERFEED_TOKEN";
pub(crate) const RUNS: &str = ".tierfeed/runs";
const AGENT: &str = ".tierfeed/agent";
const NODE: &str = ".tierfeed/node-";
/// Where agents that start here keep indexes and what they measured for them.
pub(crate) const INDEXES: &str = ".tierfeed/indexes";

const RUNS_KEPT: usize = 20;

/// A variable that is set and not empty.
#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

pub(crate) fn program_folders() -> Vec<PathBuf> {
    env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default()
}

/// The memory that Slurm gave the job of this process on this host, whether or not a control group holds it to
/// that; `None` without a limit.
pub(crate) fn job_memory() -> Option<Bytes> {
    memory_of_slurm(&variable)
}

fn memory_of_slurm(lookup: &dyn Fn(&str) -> Option<String>) -> Option<Bytes> {
    // In MiB; 0 is all memory of the host.
    let number = |name| lookup(name)?.parse::<u64>().ok().filter(|number| *number > 0);
    let times = |each, count| number(each)?.checked_mul(number(count)?);
    let mebibytes = number("SLURM_MEM_PER_NODE")
        .or_else(|| times("SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"))
        .or_else(|| times("SLURM_MEM_PER_GPU", "SLURM_GPUS_ON_NODE"))?;
    mebibytes.checked_mul(1 << 20).map(Bytes)
}

/// The GPUs that the driver of NVIDIA or AMD shows on this host.
pub(crate) fn gpus() -> u32 {
    let count = |folder: &str, is_gpu: fn(&str) -> bool| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        u32::try_from(names.filter(|name| is_gpu(name)).count()).unwrap_or(u32::MAX)
    };
    let is_numbered = |name: &str| {
        name.strip_prefix("nvidia")
            .is_some_and(|it| !it.is_empty() && it.bytes().all(|b| b.is_ascii_digit()))
    };
    let nvidia = count("/dev", is_numbered);
    if nvidia > 0 || !Path::new("/dev/kfd").exists() {
        return nvidia;
    }
    count("/dev/dri", |name| name.starts_with("renderD"))
}

/// The interpreter of Python by its name in `PATH`.
pub(crate) fn python() -> &'static str {
    let is_there = |name: &&str| program_folders().iter().any(|folder| folder.join(name).is_file());
    ["python", "python3"].into_iter().find(is_there).unwrap_or("python")
}

/// The launcher's variables of this process, by the table in `tierfeed_core::fleet::launch`.
pub(crate) fn launch_variables() -> BTreeMap<String, String> {
    let set = |name: &'static str| Some((name.to_owned(), variable(name)?));
    launch::variables().filter_map(set).collect()
}

pub(crate) fn identity(variables: &BTreeMap<String, String>) -> Result<Identity, Failure> {
    Identity::read(&|name| variables.get(name).cloned()).map_err(Failure::input)
}

pub(crate) fn exe() -> anyhow::Result<PathBuf> {
    env::current_exe().context("cannot find out which program this is")
}

/// The directory of a manager that starts now: the given one, else one that only it has.
pub(crate) fn new_run_dir(given: Option<&Path>, job: &str) -> Result<RunDir, Failure> {
    match given {
        Some(path) => RunDir::create(path).map_err(Failure::input),
        None => own_run_dir(None, job),
    }
}

/// A directory that only one process has, below `runs`. Without `runs` it is below the usual directory, from
/// which those of earlier runs are removed except for the newest.
pub(crate) fn own_run_dir(runs: Option<&Path>, label: &str) -> Result<RunDir, Failure> {
    if runs.is_none() {
        prune_runs();
    }
    let of_slurm = slurm_name().map(|name| format!("-{name}.{}", slurm_step())).unwrap_or_default();
    let name = format!("{label}{of_slurm}-{}", now());
    RunDir::create_new(&runs.unwrap_or(Path::new(RUNS)).join(name)).map_err(Failure::input)
}

/// Removes the run directories of earlier runs except for the newest. That of this run is not locked yet, so it
/// is neither removed nor counted.
pub(crate) fn prune_runs() {
    match history::prune(Path::new(RUNS), RUNS_KEPT) {
        Ok(0) => {}
        Ok(removed) => tracing::debug!(removed, "run directories of earlier runs are removed"),
        Err(error) => tracing::warn!(%error, "run directories of earlier runs stay"),
    }
}

/// The directory below `runs` that all processes of a run share, on all nodes.
pub(crate) fn shared_run_dir(
    runs: Option<&Path>,
    label: &str,
    name: &str,
) -> Result<RunDir, Failure> {
    let runs = runs.unwrap_or(Path::new(RUNS));
    RunDir::create(&runs.join(format!("{label}-{name}"))).map_err(Failure::input)
}

/// The job of Slurm that this process belongs to, and which start of it this is.
pub(crate) fn slurm_name() -> Option<String> {
    let restart = variable("SLURM_RESTART_COUNT").filter(|count| count != "0");
    let restart = restart.map(|count| format!(".restart-{count}")).unwrap_or_default();
    Some(format!("slurm-{}{restart}", slurm_job()?))
}

pub(crate) fn slurm_step() -> String {
    variable("SLURM_STEP_ID").unwrap_or_else(|| "batch".to_owned())
}

/// The folder in which the agent of a run kept what it found, if `job` is the file of its directory; else
/// that of agents that start here.
pub(crate) fn indexes_for(job: &Path) -> PathBuf {
    let beside = path::absolute(job).ok().and_then(|job| {
        let folder = job.ancestors().find(|folder| folder.ends_with(".tierfeed"))?;
        Some(folder.join("indexes"))
    });
    beside.filter(|folder| folder.is_dir()).unwrap_or_else(|| INDEXES.into())
}

/// The run directory of an agent that runs alone: the same after a restart, and different for each node,
/// because nodes may share a file system.
pub(crate) fn agent_run_dir(
    given: Option<PathBuf>,
    identity: &Identity,
) -> Result<RunDir, Failure> {
    let created = match (given, slurm_job()) {
        (Some(path), _) => RunDir::create(&path),
        (None, Some(job)) => RunDir::create_in_tmp(&slurm_dirs(&job, identity)),
        (None, None) => RunDir::create(&node_dir(identity)),
    };
    created.map_err(Failure::input)
}

/// The run directory of the agent that serves a trainer. In a Slurm job it is that of the trainer's own node
/// or none: other directories belong to other jobs.
pub(crate) fn trainer_run_dir(
    given: Option<&Path>,
    identity: &Identity,
) -> Result<RunDir, Failure> {
    let own = match (given, slurm_job()) {
        (Some(path), _) => path.to_owned(),
        (None, Some(job)) => {
            run_dir::in_tmp(&slurm_dirs(&job, identity)).map_err(Failure::input)?
        }
        (None, None) => node_dir(identity),
    };
    if given.is_some() || slurm_job().is_some() || own.is_dir() {
        return RunDir::open(&own).map_err(Failure::input);
    }
    running_run_dir(None)
}

fn node_dir(identity: &Identity) -> PathBuf {
    match identity.claimed_node() {
        Some(node) => format!("{NODE}{node}").into(),
        None => AGENT.into(),
    }
}

/// A path that is local to the node and the same for every step of the job.
fn slurm_dirs(job: &str, identity: &Identity) -> [String; 2] {
    [format!("slurm-{job}"), format!("node-{}", identity.claimed_node().unwrap_or(0))]
}

fn slurm_job() -> Option<String> {
    variable("SLURM_JOB_ID").filter(|job| job.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The run directory of a running job: the given one, else the newest live one.
pub(crate) fn running_run_dir(given: Option<&Path>) -> Result<RunDir, Failure> {
    if let Some(path) = given {
        return RunDir::open(path).map_err(Failure::input);
    }
    let runs = Path::new(RUNS);
    let identity = identity(&launch_variables()).unwrap_or_default();
    let mut agents = vec![PathBuf::from(AGENT), node_dir(&identity)];
    if let Some(job) = slurm_job() {
        agents.push(run_dir::in_tmp(&slurm_dirs(&job, &identity)).map_err(Failure::input)?);
    }
    let mut live = history::live(runs, &agents).map_err(Failure::input)?.into_iter();
    if let Some(newest) = live.next() {
        let others: Vec<_> = live.map(|it| it.path().display().to_string()).collect();
        if !others.is_empty() {
            tracing::warn!(
                "{} runs are live; this is the newest, {}; --run-dir names another: {}",
                others.len() + 1,
                newest.path().display(),
                others.join(", ")
            );
        }
        return Ok(newest);
    }
    Err(Failure::Input(match history::newest(runs).map_err(Failure::input)? {
        None => anyhow!("there is no run in {RUNS}; name its directory with --run-dir"),
        Some(ended) => anyhow!(
            "no run in {RUNS} is live; the newest has ended, its report is {}; name the directory of \
             another with --run-dir",
            ended.report().display()
        ),
    }))
}

/// The token of a job: from the environment, a file, or the run directory; `None` if there is none.
pub(crate) fn token(
    file: Option<&Path>,
    run_dir: Option<&RunDir>,
) -> Result<Option<Token>, Failure> {
    if let Some(file) = file {
        return Token::load(file).map(Some).map_err(Failure::input);
    }
    if let Some(text) = variable(TOKEN) {
        return text.parse().map(Some).context(TOKEN).map_err(Failure::Input);
    }
    match run_dir.map(RunDir::token).filter(|path| path.exists()) {
        Some(path) => Token::load(&path).map(Some).map_err(Failure::input),
        None => Ok(None),
    }
}

pub(crate) fn tiers_report(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    let state = variable("XDG_STATE_HOME").map(PathBuf::from);
    let home = || variable("HOME").map(|home| Path::new(&home).join(".local/state"));
    let folder = state.or_else(home).ok_or_else(|| {
        Failure::Input(anyhow!("neither XDG_STATE_HOME nor HOME is set; name the report by option"))
    })?;
    Ok(folder.join("tierfeed/tiers.json"))
}

pub(crate) fn buckets() -> BTreeMap<String, String> {
    let prefixes = ["AWS_", "GOOGLE_", "AZURE_"];
    let variables = env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let is_of_bucket = prefixes.iter().any(|prefix| name.starts_with(prefix));
        is_of_bucket.then(|| Some((name, value.into_string().ok()?)))?
    });
    variables.collect()
}

#[derive(Debug)]
pub(crate) struct Terminal {
    /// Its type, such as "xterm" or "dumb".
    pub(crate) kind: Option<String>,
    pub(crate) is_colourless: bool,
}

pub(crate) fn terminal() -> Terminal {
    Terminal { kind: variable("TERM"), is_colourless: variable("NO_COLOR").is_some() }
}

/// From now on the point that a test names as POINT or POINT:PASSES panics. Only in builds with debug assertions.
pub(crate) fn arm_drill() {
    #[cfg(debug_assertions)]
    if let Some(text) = variable("TIERFEED_DRILL") {
        let (place, passes) = text.split_once(':').unwrap_or((&text, "0"));
        tierfeed_numa_memory::failpoint::arm(place.to_owned(), passes.parse().unwrap_or(0));
    }
}

pub(crate) fn log_filter() -> Option<String> {
    variable("TIERFEED_LOG")
}

/// Seconds since 1970, so that names sort by time, and the process id, so that they are unique.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", since.as_secs(), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurm_gives_a_job_memory_by_node_by_cpu_or_by_gpu() {
        let given = |variables: &[(&str, &str)]| {
            let found = |name: &str| variables.iter().find(|(it, _)| *it == name);
            memory_of_slurm(&|name| found(name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(given(&[]), None);
        assert_eq!(given(&[("SLURM_MEM_PER_NODE", "300")]), Some(Bytes::mib(300)));
        let of_cpus = [("SLURM_MEM_PER_CPU", "1500"), ("SLURM_CPUS_ON_NODE", "4")];
        assert_eq!(given(&of_cpus), Some(Bytes::mib(6000)));
        let by_gpu = [("SLURM_MEM_PER_GPU", "1024"), ("SLURM_GPUS_ON_NODE", "2")];
        assert_eq!(given(&by_gpu), Some(Bytes::mib(2048)));
        for none in ["0", "", "all", "-1"] {
            assert_eq!(given(&[("SLURM_MEM_PER_NODE", none)]), None, "{none}");
        }
        assert_eq!(given(&of_cpus[..1]), None, "of an unknown number of CPUs");
    }
}
