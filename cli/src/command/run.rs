//! `tierfeed run`: manager, agents and training, and a report at the end.
//!
//! This process is the parent of the trainers ([`supervise`]), one that it starts does all else. On several nodes a
//! launcher starts one such pair on each: that of node 0 holds the manager, the others join it, and the first rank
//! that fails ends them all.

mod control;
mod dirs;
pub(crate) mod embedder;
mod ending;
mod launcher;
mod left_behind;
mod line;
mod meeting;
mod node;
mod process_tree;
mod run_name;
mod supervise;
mod supervisor;
mod tasks;
pub(crate) mod trainer_variables;
mod trainers;
mod watch;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use clap::Args;
use nix::unistd::Pid;
use serde::Serialize;
use tierfeed_core::{
    fleet::{
        launch::{NODE_ARGUMENT, NODES_ARGUMENT, Task},
        training::Cause,
    },
    id::NodeId,
    units::Nanoseconds,
};
use tierfeed_resource_gatherer::hog::oom_score;
use tierfeed_runtime::{
    expansion::Expansion,
    observe::report::{JobReport, Report},
    rpc::client::Address,
    run_dir::{LockOwner, RunDir, RunDirError, RunDirLock},
    whole_file,
};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::Instant,
};

pub(crate) use self::dirs::Place;
use self::{
    dirs::Dirs,
    embedder::Caller,
    ending::Ending,
    node::{Launch, NodeEnd, NodeRun},
    supervisor::Supervisor,
};
use super::{
    agent::{Observe, Told, summarize},
    expansion::{self, ExpandMemory},
    program,
};
use crate::{
    deadline, environment,
    failure::{Failure, code_of},
    jobs::JobFile,
    output, panics,
    signals::{Signals, TERMINATION},
};

#[derive(Debug, Default, Args)]
#[expect(clippy::struct_field_names, reason = "options are named for users")]
pub(crate) struct Run {
    /// The job file.
    pub(crate) job: PathBuf,
    /// How often the command is started [default: once if it is a launcher such as torchrun or mpirun, else
    /// once for each rank].
    #[arg(long)]
    pub(crate) launch: Option<Launch>,
    /// Where sockets and the report go; in a job of several nodes the directory where they meet, with one for
    /// each of them in it [default: .tierfeed/runs/JOB-TIME, or JOB and what the launcher calls the job].
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: NodePlace,
    #[command(flatten)]
    pub(crate) observe: Observe,
    /// Prints the report as JSON; what the command prints goes to standard error then.
    #[arg(long)]
    pub(crate) json: bool,
    /// Lets what does not fit in main memory go to memory behind CXL instead of to swap [default
    /// policy: auto, main memory first].
    #[arg(long, value_name = "POLICY", num_args = 0..=1, default_missing_value = "auto", require_equals = true)]
    pub(crate) expand_memory: Option<ExpandMemory>,
    /// How long the training may take to end after SIGINT or SIGTERM, before it is killed [default: as long
    /// as it likes: who sends a signal has a limit].
    #[arg(long, value_name = "TIME")]
    pub(crate) grace: Option<Nanoseconds>,
    /// Runs manager and agent for the process that starts this one and starts the command.
    #[arg(long, hide = true)]
    pub(crate) supervised: bool,
    /// Ends with one line; of `embed`.
    #[arg(skip)]
    pub(crate) brief: bool,
    /// The training and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

impl Run {
    /// How long to wait for the process that is ready first.
    pub(crate) const fn wait(&self) -> Duration {
        Duration::from_nanos(self.place.wait.0)
    }
}

/// Which node of a job of several this is, and where they meet.
#[derive(Debug, Default, Args)]
pub(crate) struct NodePlace {
    /// The number of this node [default: $TIERFEED_NODE, else as the launcher says].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) node: Option<u32>,
    /// The number of nodes [default: $TIERFEED_NODES, else as the launcher says].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) nodes: Option<u32>,
    /// Where node 0 listens and the others find it, as HOST:PORT; needed where they do not share the run
    /// directory, with the same token on all nodes.
    #[arg(long, value_name = "ADDRESS", env = "TIERFEED_MANAGER")]
    pub(crate) manager: Option<Address>,
    /// The file with the token of the job [default: $TIERFEED_TOKEN, else a new one, in the run directory].
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// How long a process waits for node 0, or for the agent of its node, which may have to index the dataset
    /// first.
    #[arg(long, value_name = "TIME", default_value = "10 min")]
    pub(crate) wait: Nanoseconds,
}

/// The node that holds the manager.
const FIRST: NodeId = NodeId(0);

/// The name in errors of a job that is in no file.
const NAME_OF_ARGUMENTS: &str = "arguments";

/// How long the agent of a training that was killed may take to end, before the training starts again.
const ANOTHER_ENDS_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What the kernel adds to the score of an agent, of a thousand parts of all memory, when it chooses what to kill
/// for the sake of the rest: caches can be had again, trainings go on without an agent.
const OOM_SCORE: i32 = 500;

/// The parent of this process, which has the ranks.
#[derive(Debug, Clone, Copy)]
enum Ranks<'a> {
    /// The process that started this one, and trains.
    Caller(&'a Caller),
    /// The process that started this one, and starts the trainers.
    Supervisor(&'a Supervisor),
}

impl Ranks<'_> {
    /// The signals that this process shall end for, which have no other effect from now on. It ends in time if it
    /// got them itself.
    fn signals(self, told: Option<Signals>) -> io::Result<(Signals, Option<JoinSet<()>>)> {
        if let (Self::Supervisor(supervisor), Some(told)) = (self, told) {
            supervisor.hear();
            return Ok((told, None));
        }
        let mut first = Signals::listen(&TERMINATION)?;
        let mut deadline = JoinSet::new();
        deadline.spawn(async move {
            first.next().await;
            deadline::start(deadline::ENDS_WITHIN);
        });
        Ok((Signals::listen(&TERMINATION)?, Some(deadline)))
    }
}

pub(crate) fn run(arguments: &Run) -> Result<(), Failure> {
    if !arguments.supervised {
        program::require(&arguments.command)?;
        return supervise::run(arguments);
    }
    let (supervisor, signals) = Supervisor::meet()?;
    let own = || Place::Below { runs: None, number: 1 };
    let place = arguments.run_dir.clone().map_or_else(own, Place::Named);
    train(arguments, place, Ranks::Supervisor(&supervisor), Some(signals))
}

/// As [`run`], for a training that has started this process and gave its job.
pub(crate) fn embedded(arguments: &Run, place: Place, caller: &Caller) -> Result<(), Failure> {
    train(arguments, place, Ranks::Caller(caller), None)
}

fn train(
    arguments: &Run,
    place: Place,
    ranks: Ranks<'_>,
    told: Option<Signals>,
) -> Result<(), Failure> {
    panics::end_this_process();
    if let Err(error) = oom_score::raise_to(OOM_SCORE) {
        tracing::debug!(%error, "the kernel may kill trainers before their agent");
    }
    let mut launch = launch_variables(&arguments.place);
    let identity = environment::identity(&launch)?;
    let world = identity.launched_world();
    let file = match ranks {
        Ranks::Supervisor(_) => JobFile::read_with(&arguments.job, world)?,
        Ranks::Caller(caller) => JobFile::of_text(caller.job.clone(), NAME_OF_ARGUMENTS, world)?,
    };
    let seat = identity.seat_in(&file.post()).map_err(Failure::input)?;
    if file.job.world.nodes > 1 || seat.task != Task::Node {
        launch.insert(NODE_ARGUMENT.to_owned(), seat.node.0.to_string());
    }
    if file.job.world.nodes > 1 {
        output::name_node(seat.node.0);
    }
    // The process that has started this one came with the others of its launcher.
    let began = process_tree::age_of(Pid::parent()).unwrap_or_default();
    let dirs = Dirs::create(arguments, place, &file.job, &identity, seat, began)?;
    if let Task::Rank { rank, local: 1.. } = seat.task {
        return tasks::follow(arguments, &dirs, file.job.world, rank, ranks, told);
    }
    // Before any file of a run in progress is touched.
    let lock = |dir: &RunDir, owner| match ranks {
        Ranks::Supervisor(_) => dir.lock(owner).map_err(Failure::input),
        Ranks::Caller(_) => lock_after_another(dir, owner),
    };
    let manager_lock = (seat.node == FIRST).then(|| lock(&dirs.job, LockOwner::Manager));
    let _manager_lock = manager_lock.transpose()?;
    // A second run in this directory must neither take the sockets of the first nor join its manager.
    let _run_lock = lock(&dirs.node, LockOwner::Run)?;
    forget_earlier(&dirs, seat.node)?;
    let is_launched = identity.launcher().is_some();
    let node = NodeRun { arguments, ranks, launch, seat, dirs: &dirs, is_launched };
    let node_end = lead(&node, file, told);
    if let Err(failure) = &node_end {
        meeting::tell_failed(&dirs.job, &dirs.node, seat.node, failure);
    }
    let (node_end, expansion) = node_end?;
    let NodeEnd { ending, of_job, mut report, job_report } = node_end;
    if let (Some(report), Some(expansion)) = (&mut report, expansion) {
        report.expanded_memory = Some(expansion.into());
        report.write(&dirs.node.report())?;
    }
    let is_good = matches!((&ending, of_job), (Ending::Done, None));
    let told = if is_good && !arguments.brief { Told::Lines } else { Told::Line };
    show(arguments, ranks, &dirs, seat.node, told, (job_report.as_ref(), report.as_ref()))?;
    if seat.node == FIRST && is_good {
        ended(&dirs.job)?;
    }
    exit(ending, of_job, report.as_ref())
}

/// Runs the first process of a node to the end of the job.
fn lead(
    node: &NodeRun<'_>,
    file: JobFile,
    told: Option<Signals>,
) -> Result<(NodeEnd, Option<Expansion>), Failure> {
    let file = match node.ranks {
        Ranks::Supervisor(_) => file,
        Ranks::Caller(_) => file.saved(node.dirs.node.job_file())?,
    };
    file.job.require_dataset().map_err(Failure::input)?;
    let expand = |wish| expansion::plan(wish, &file.job);
    let expansion = node.arguments.expand_memory.map(expand).transpose()?;
    Ok((node.run(file, told)?, expansion))
}

/// Removes what earlier runs have left in the directories of this one and would mislead its processes.
fn forget_earlier(dirs: &Dirs, node: NodeId) -> Result<(), Failure> {
    meeting::forget_failed(&dirs.node);
    if node != FIRST {
        return Ok(());
    }
    meeting::forget_failed(&dirs.job);
    // Nodes that came earlier find the new one only.
    remove(&dirs.job.rendezvous())?;
    if dirs.goes_on { Ok(()) } else { ended(&dirs.job) }
}

/// Shows the report of the job, or that of the first node if there is no other.
fn show(
    arguments: &Run,
    ranks: Ranks<'_>,
    dirs: &Dirs,
    node: NodeId,
    told: Told,
    reports: (Option<&JobReport>, Option<&Report>),
) -> Result<(), Failure> {
    match reports {
        (Some(report), _) => {
            print(arguments, ranks, report)?;
            eprintln!("{}", report.head());
            eprintln!("report: {}", dirs.job.report().with_extension("txt").display());
        }
        (None, Some(report)) if node == FIRST => {
            print(arguments, ranks, report)?;
            summarize(report, &dirs.node.report(), told);
        }
        _ => tracing::info!(report = %dirs.node.report().display(), "this node has ended"),
    }
    Ok(())
}

/// Prints a report on the standard output of the user, if they want it there.
fn print(arguments: &Run, ranks: Ranks<'_>, report: &impl Serialize) -> Result<(), Failure> {
    match ranks {
        Ranks::Supervisor(supervisor) if arguments.json => {
            supervisor.print(&serde_json::to_string_pretty(report)?)
        }
        _ => Ok(()),
    }
}

/// Locks the directory, where the agent of a training that was just killed may still be ending.
fn lock_after_another(dir: &RunDir, owner: LockOwner) -> Result<RunDirLock, Failure> {
    super::finish(async {
        let until = Instant::now() + ANOTHER_ENDS_WITHIN;
        loop {
            match dir.lock(owner) {
                Err(RunDirError::Busy { .. }) if Instant::now() < until => {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                locked => return locked.map_err(Failure::input),
            }
        }
    })
}

fn exit(ending: Ending, of_job: Option<Cause>, report: Option<&Report>) -> Result<(), Failure> {
    let refused = report.filter(|it| it.ranks.turned_away > 0);
    let refused = refused.map(|it| it.ranks.turned_away_because.as_deref().unwrap_or_default());
    match (ending, refused, of_job) {
        (Ending::Done, _, None | Some(Cause::Asked(_))) | (Ending::Stopped(_, None), _, _) => {
            Ok(())
        }
        (Ending::Unstarted(signal), _, _) => {
            let said = anyhow!("stopped by {signal} before the training was started");
            Err(Failure::Passed(ending.code(), Some(said)))
        }
        (Ending::Failed(status), Some(refused), _) => {
            Err(Failure::Input(anyhow!("{refused} (the command ended with {status})")))
        }
        (Ending::Failed(status), None, _) => {
            let said = anyhow!("the command ended with {status}");
            Err(Failure::Passed(code_of(status), Some(said)))
        }
        (Ending::Stopped(signal, Some(status)), _, _) => {
            let said = anyhow!("stopped by {signal}; the command ended with {status}");
            Err(Failure::Passed(code_of(status), Some(said)))
        }
        (Ending::FailedElsewhere(code), _, _) | (Ending::Done, _, Some(Cause::Failed(code))) => {
            let said = anyhow!("another rank of the job ended with code {code}");
            Err(Failure::Passed(code, Some(said)))
        }
    }
}

/// The launcher's variables, and the place of this node if the user gives it.
fn launch_variables(place: &NodePlace) -> BTreeMap<String, String> {
    let typed = [(NODE_ARGUMENT, place.node), (NODES_ARGUMENT, place.nodes)];
    let typed = typed.into_iter().filter_map(|(name, number)| Some((name, number?)));
    let mut launch = environment::launch_variables();
    launch.extend(typed.map(|(name, number)| (name.to_owned(), number.to_string())));
    launch
}

/// Removes the start marker, so that the next run in this directory is a new job.
fn ended(job_dir: &RunDir) -> Result<(), Failure> {
    remove(&job_dir.start_marker())
}

fn remove(left: &Path) -> Result<(), Failure> {
    whole_file::remove(left).with_context(|| format!("{}: left behind", left.display()))?;
    Ok(())
}

async fn finished<T, E: std::error::Error + Send + Sync + 'static>(
    task: JoinHandle<Result<T, E>>,
) -> Result<T, E> {
    match task.await {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}
