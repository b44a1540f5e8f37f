//! Reads the environment, the working directory and the calendar; nothing else in the workspace does,
//! but for the variables that stand beside options in `arguments`.

use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, anyhow};
use tierfeed_runtime::{run_dir::RunDir, token::Token};

use crate::failure::Failure;

/// Names the socket of the agent to trainers.
pub(crate) const SOCKET: &str = "TIERFEED_SOCK";
/// Names the job file to trainers.
pub(crate) const JOB: &str = "TIERFEED_JOB";
/// Names the index of the dataset to trainers.
pub(crate) const INDEX: &str = "TIERFEED_INDEX";
/// Names a directory for their own files to trainers.
pub(crate) const SCRATCH: &str = "TIERFEED_SCRATCH";
/// Names this program to trainers, which start it when they must read a bucket without an agent.
pub(crate) const EXE: &str = "TIERFEED_EXE";
/// Names the rank to trainers, whatever launched them.
pub(crate) const RANK: &str = "TIERFEED_RANK";
/// Names the run directory to trainers and commands.
pub(crate) const RUN_DIR: &str = "TIERFEED_RUN_DIR";

const TOKEN: &str = "TIERFEED_TOKEN";
const RUNS: &str = ".tierfeed/runs";
const AGENT: &str = ".tierfeed/agent";

/// A variable that is set and not empty.
#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// This program.
pub(crate) fn exe() -> anyhow::Result<PathBuf> {
    env::current_exe().context("cannot find out which program this is")
}

/// The run directory of a run that starts now.
pub(crate) fn new_run_dir(given: Option<PathBuf>, job: &str) -> Result<RunDir, Failure> {
    let path = given.unwrap_or_else(|| Path::new(RUNS).join(format!("{job}-{}", now())));
    RunDir::create(&path).map_err(Failure::input)
}

/// The run directory of an agent that runs alone: the same after a restart.
pub(crate) fn agent_run_dir(given: Option<PathBuf>) -> Result<RunDir, Failure> {
    RunDir::create(&given.unwrap_or_else(|| AGENT.into())).map_err(Failure::input)
}

/// The run directory of something that runs.
pub(crate) fn running_run_dir(given: Option<&Path>) -> Result<RunDir, Failure> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => newest_run().map_err(Failure::input)?,
    };
    RunDir::open(&path).map_err(Failure::input)
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

/// Where the report of the probe is kept for this user.
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

/// The variables of those who offer buckets: where they are, and who may read them.
pub(crate) fn buckets() -> BTreeMap<String, String> {
    let prefixes = ["AWS_", "GOOGLE_", "AZURE_"];
    let variables = env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let is_of_bucket = prefixes.iter().any(|prefix| name.starts_with(prefix));
        is_of_bucket.then(|| Some((name, value.into_string().ok()?)))?
    });
    variables.collect()
}

/// What the user says of the terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// What it is, such as "xterm" or "dumb".
    pub(crate) kind: Option<String>,
    /// Whether the user wants no colour anywhere.
    pub(crate) is_colourless: bool,
    /// The locale of characters, such as "en_US.UTF-8".
    pub(crate) locale: Option<String>,
}

/// What the user says of the terminal.
pub(crate) fn terminal() -> Terminal {
    Terminal {
        kind: variable("TERM"),
        is_colourless: variable("NO_COLOR").is_some(),
        locale: ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable),
    }
}

/// The log filter that the user wants.
pub(crate) fn log_filter() -> Option<String> {
    variable("TIERFEED_LOG")
}

fn newest_run() -> anyhow::Result<PathBuf> {
    let mut runs = vec![PathBuf::from(AGENT)];
    match fs::read_dir(RUNS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => (),
        entries => {
            for entry in entries.context(RUNS)? {
                runs.push(entry.context(RUNS)?.path());
            }
        }
    }
    let with_time = runs.into_iter().filter_map(|path| {
        let changed = path.metadata().and_then(|it| it.modified()).ok()?;
        Some((changed, path))
    });
    let newest = with_time.max().map(|(_, path)| path);
    newest.ok_or_else(|| anyhow!("there is no run in {RUNS}; name its directory with --run-dir"))
}

/// Seconds since 1970, which sort as they follow; two runs in one second get two processes.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", since.as_secs(), std::process::id())
}
