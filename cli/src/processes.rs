//! The trainers of a run as child processes: starts them, waits for them and stops them together.

use std::{
    io::IsTerminal, net::TcpListener, os::unix::process::ExitStatusExt as _, pin::pin,
    process::ExitStatus, time::Duration,
};

use anyhow::{Context, anyhow};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tierfeed_core::{
    fleet::launch::{self, Launcher},
    id::{NodeId, Rank},
    order::World,
};
use tokio::{
    process::{Child, Command},
    signal::unix::{self, SignalKind, signal},
    sync::watch,
    task::JoinSet,
    time::Instant,
};

use crate::{deadline, environment, failure::code_of, panics};

/// How long trainers may take to end after one of them has failed.
const GRACE: Duration = Duration::from_secs(20);

/// How the trainers of a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All with code 0.
    Done,
    /// One of them failed; the others were stopped.
    Failed(ExitStatus),
    /// The user stopped the run before any of them was started.
    Unstarted(Signal),
    /// The user stopped them; the status of the first one that did not end with code 0.
    Stopped(Signal, Option<ExitStatus>),
    /// A rank of another node failed with this code; all were stopped.
    FailedElsewhere(u8),
}

/// One trainer to start.
#[derive(Debug)]
pub(crate) struct Trainer {
    /// Environment variables beside those of this process.
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// Where the ranks of a job meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MeetingPlace {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl MeetingPlace {
    /// A free port of this host.
    pub(crate) fn here() -> anyhow::Result<Self> {
        let port = free_port().context("no free port for MASTER_PORT")?;
        Ok(Self { host: "127.0.0.1".to_owned(), port })
    }
}

/// The identity variables of `ranks` of a node: those of torchrun, and those that distinguish a launcher inside
/// the command from this process.
pub(crate) fn rank_variables(
    world: World,
    ranks: impl Iterator<Item = Rank>,
    place: &MeetingPlace,
) -> anyhow::Result<Vec<Vec<(&'static str, String)>>> {
    let port = environment::variable("MASTER_PORT").unwrap_or_else(|| place.port.to_string());
    let address = environment::variable("MASTER_ADDR").unwrap_or_else(|| place.host.clone());
    let own = environment::launch_variables();
    let launchers = launch::launchers(&|name| own.get(name).cloned())?;
    let under: Vec<_> = launchers.into_iter().map(Launcher::name).collect();
    let World { nodes, ranks_per_node } = world;
    let of_rank = |Rank(rank): Rank| {
        vec![
            ("RANK", rank.to_string()),
            ("LOCAL_RANK", (rank % ranks_per_node).to_string()),
            ("WORLD_SIZE", world.ranks().to_string()),
            ("LOCAL_WORLD_SIZE", ranks_per_node.to_string()),
            ("MASTER_ADDR", address.clone()),
            ("MASTER_PORT", port.clone()),
            ("GROUP_RANK", (rank / ranks_per_node).to_string()),
            ("GROUP_WORLD_SIZE", nodes.to_string()),
            (launch::RUN_RANK, rank.to_string()),
            (launch::RUN_UNDER, under.join(",")),
        ]
    };
    Ok(ranks.map(of_rank).collect())
}

/// The variables by which torchrun finds the other nodes, as its own options would say it; those that are set
/// stay.
pub(crate) fn launcher_variables(
    world: World,
    node: NodeId,
    place: &MeetingPlace,
) -> Vec<(&'static str, String)> {
    let MeetingPlace { host, port } = place;
    let all = [
        ("PET_NNODES", world.nodes.to_string()),
        ("PET_NODE_RANK", node.0.to_string()),
        ("PET_MASTER_ADDR", host.clone()),
        ("PET_MASTER_PORT", port.to_string()),
        ("MASTER_ADDR", host.clone()),
        ("MASTER_PORT", port.to_string()),
    ];
    all.into_iter().filter(|(name, _)| environment::variable(name).is_none()).collect()
}

/// Starts `command` once for each trainer.
pub(crate) fn start(
    command: &[String],
    trainers: &[Trainer],
    is_quiet: bool,
) -> anyhow::Result<Trainers> {
    let (program, arguments) = command.split_first().ok_or_else(|| anyhow!("no command"))?;
    let mut started = Trainers::none();
    let mut noted = panics::starting_trainers();
    for trainer in trainers {
        let mut command = Command::new(program);
        command.args(arguments).envs(trainer.variables.iter().map(|(name, value)| (name, value)));
        if is_quiet {
            command.stdout(std::io::stderr());
        }
        let child = command.spawn().with_context(|| format!("cannot start {program}"));
        match child {
            Ok(child) => noted.push(started.adopt(child)),
            Err(error) => {
                started.send(Signal::SIGTERM);
                return Err(error);
            }
        }
    }
    Ok(started)
}

/// Signals to this process. After [`Self::listen`] they have no default effect: a signal that comes before
/// the trainers are started is queued.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupts: unix::Signal,
    terminations: unix::Signal,
}

impl Signals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupts: signal(SignalKind::interrupt())?,
            terminations: signal(SignalKind::terminate())?,
        })
    }

    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupts.recv() => Signal::SIGINT,
            _ = self.terminations.recv() => Signal::SIGTERM,
        }
    }
}

/// The running trainers.
#[derive(Debug)]
pub(crate) struct Trainers {
    running: Vec<Pid>,
    stop: watch::Sender<Option<u8>>,
    ended: JoinSet<(Option<Pid>, std::io::Result<ExitStatus>)>,
}

enum Event {
    Ended(Option<Pid>, std::io::Result<ExitStatus>),
    Asked(Signal),
    FailedElsewhere(u8),
    GraceOver,
    AllEnded,
}

impl Ending {
    /// The exit code by the convention of shells.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed(status) | Self::Stopped(_, Some(status)) => code_of(*status),
            Self::Unstarted(signal) | Self::Stopped(signal, None) => {
                code_of(ExitStatus::from_raw(*signal as i32))
            }
            Self::FailedElsewhere(code) => *code,
        }
    }
}

impl Trainers {
    /// None so far.
    pub(crate) fn none() -> Self {
        Self { running: Vec::new(), stop: watch::Sender::new(None), ended: JoinSet::new() }
    }

    /// Also waits for a rank that another process started; it stops the rank once [`Self::stopped`] says so.
    pub(crate) fn join(
        &mut self,
        rank: impl Future<Output = std::io::Result<ExitStatus>> + Send + 'static,
    ) {
        self.ended.spawn(async move { (None, rank.await) });
    }

    /// Gets the exit code of the job once all ranks shall stop.
    pub(crate) fn stopped(&self) -> watch::Receiver<Option<u8>> {
        self.stop.subscribe()
    }

    fn adopt(&mut self, mut child: Child) -> Pid {
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let pid = pid.expect("a child that was not waited for has a number");
        self.running.push(pid);
        self.ended.spawn(async move { (Some(pid), child.wait().await) });
        pid
    }

    /// Waits until all have ended. A signal to this process is passed on, and trainers have `grace` to end
    /// then; the first trainer that fails takes the others with it, and so does a failure `elsewhere`.
    pub(crate) async fn wait(
        mut self,
        signals: &mut Signals,
        grace: Duration,
        elsewhere: impl Future<Output = u8>,
    ) -> anyhow::Result<Ending> {
        let mut elsewhere = pin!(elsewhere);
        let mut ending = Ending::Done;
        let mut kill_at: Option<Instant> = None;
        loop {
            let event = tokio::select! {
                ended = self.ended.join_next() => match ended {
                    Some(ended) => {
                        let (pid, status) = ended.context("waiting for a trainer failed")?;
                        Event::Ended(pid, status)
                    }
                    None => Event::AllEnded,
                },
                asked = signals.next() => Event::Asked(asked),
                code = &mut elsewhere, if ending == Ending::Done => Event::FailedElsewhere(code),
                () = deadline::reached(kill_at) => Event::GraceOver,
            };
            match event {
                Event::AllEnded => return Ok(ending),
                Event::Ended(pid, status) => {
                    self.running.retain(|other| Some(*other) != pid);
                    let status = status.context("waiting for a trainer failed")?;
                    match &mut ending {
                        _ if status.success() => {}
                        Ending::Done => {
                            ending = Ending::Failed(status);
                            self.stop(&ending);
                            self.send(Signal::SIGTERM);
                            kill_at = Some(Instant::now() + GRACE);
                        }
                        Ending::Stopped(_, first) => {
                            first.get_or_insert(status);
                        }
                        Ending::Unstarted(_) | Ending::Failed(_) | Ending::FailedElsewhere(_) => {}
                    }
                }
                Event::Asked(asked) => {
                    let is_second = matches!(ending, Ending::Stopped(..));
                    if is_second {
                        self.send(Signal::SIGKILL);
                    } else if !has_told_all(asked) {
                        self.send(asked);
                    }
                    if ending == Ending::Done {
                        ending = Ending::Stopped(asked, None);
                        self.stop(&ending);
                    }
                    let end = Instant::now() + grace;
                    kill_at = Some(kill_at.map_or(end, |kill_at| kill_at.min(end)));
                }
                Event::FailedElsewhere(code) => {
                    ending = Ending::FailedElsewhere(code);
                    self.stop(&ending);
                    self.send(Signal::SIGTERM);
                    kill_at = Some(Instant::now() + GRACE);
                }
                Event::GraceOver => {
                    self.send(Signal::SIGKILL);
                    kill_at = None;
                }
            }
        }
    }

    /// Stops the ranks of other processes of this node.
    fn stop(&self, ending: &Ending) {
        self.stop.send_replace(Some(ending.code()));
    }

    /// A trainer whose end was not collected yet keeps its number, so no other process is hit.
    fn send(&self, signal: Signal) {
        for pid in &self.running {
            if let Err(error) = kill(*pid, signal) {
                tracing::debug!(pid = pid.as_raw(), %error, "a trainer could not be signalled");
            }
        }
    }
}

/// A terminal sends its interrupt to every process in front of it, trainers included.
fn has_told_all(signal: Signal) -> bool {
    signal == Signal::SIGINT && std::io::stdin().is_terminal()
}

fn free_port() -> std::io::Result<u16> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr().map(|address| address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_signal_that_comes_before_trainers_are_waited_for_reaches_them() {
        let mut signals = Signals::listen().unwrap();
        let command = ["sleep".to_owned(), "600".to_owned()];
        let trainers = start(&command, &[Trainer { variables: Vec::new() }], true).unwrap();
        kill(Pid::this(), Signal::SIGTERM).unwrap();
        let ending = trainers.wait(&mut signals, Duration::from_secs(60), std::future::pending());
        let ending = ending.await.unwrap();
        let Ending::Stopped(Signal::SIGTERM, Some(status)) = ending else { panic!("{ending:?}") };
        assert_eq!(status.signal(), Some(Signal::SIGTERM as i32));
    }
}
