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
    fleet::{
        launch::{self, Launcher},
        training::Cause,
    },
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

/// How a rank ended that another process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RankEnd {
    pub(crate) status: ExitStatus,
    /// The signal to its process after which it ended.
    pub(crate) asked: Option<Signal>,
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
    stop: watch::Sender<Option<Cause>>,
    ended: JoinSet<(Option<Pid>, std::io::Result<RankEnd>)>,
}

enum Event {
    Ended(Option<Pid>, std::io::Result<RankEnd>),
    Asked(Signal),
    Elsewhere(Cause),
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

    /// Why the rest of the job shall end, if it shall.
    pub(crate) fn cause(&self) -> Option<Cause> {
        match self {
            Self::Done => None,
            Self::Failed(_) | Self::FailedElsewhere(_) => Some(Cause::Failed(self.code())),
            Self::Unstarted(signal) | Self::Stopped(signal, _) => Some(asked(*signal)),
        }
    }

    /// What another process is told of it.
    pub(crate) fn of_rank(&self) -> RankEnd {
        let of_code = |code: u8| ExitStatus::from_raw(i32::from(code) << 8);
        let (status, asked) = match *self {
            Self::Done => (ExitStatus::default(), None),
            Self::Failed(status) => (status, None),
            Self::FailedElsewhere(code) => (of_code(code), None),
            Self::Unstarted(signal) => (ExitStatus::from_raw(signal as i32), Some(signal)),
            Self::Stopped(signal, status) => (status.unwrap_or_default(), Some(signal)),
        };
        RankEnd { status, asked }
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
        rank: impl Future<Output = std::io::Result<RankEnd>> + Send + 'static,
    ) {
        self.ended.spawn(async move { (None, rank.await) });
    }

    /// Gets the cause once all ranks shall stop.
    pub(crate) fn stopped(&self) -> watch::Receiver<Option<Cause>> {
        self.stop.subscribe()
    }

    fn adopt(&mut self, mut child: Child) -> Pid {
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let pid = pid.expect("a child that was not waited for has a number");
        self.running.push(pid);
        let end = |status| RankEnd { status, asked: None };
        self.ended.spawn(async move { (Some(pid), child.wait().await.map(end)) });
        pid
    }

    /// Waits until all have ended. A signal to this process is passed on, and trainers have `grace` to end
    /// then; the first trainer that fails takes the others with it, and so does an end `elsewhere`.
    pub(crate) async fn wait(
        mut self,
        signals: &mut Signals,
        grace: Duration,
        elsewhere: impl Future<Output = Cause>,
    ) -> anyhow::Result<Ending> {
        let mut elsewhere = pin!(elsewhere);
        let mut ending = Ending::Done;
        let mut kill_at: Option<Instant> = None;
        // What others said may come to this process as well.
        let mut expected: Option<Signal> = None;
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
                cause = &mut elsewhere, if ending == Ending::Done => Event::Elsewhere(cause),
                () = deadline::reached(kill_at) => Event::GraceOver,
            };
            match event {
                Event::AllEnded => return Ok(ending),
                Event::Ended(pid, ended) => {
                    self.running.retain(|other| Some(*other) != pid);
                    let RankEnd { status, asked } =
                        ended.context("waiting for a trainer failed")?;
                    if let (Ending::Done, Some(asked)) = (ending, asked) {
                        ending = self.ask_all(asked);
                        (expected, kill_at) = (Some(asked), Some(Instant::now() + grace));
                    }
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
                Event::Asked(asked) if expected == Some(asked) => expected = None,
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
                Event::Elsewhere(Cause::Failed(code)) => {
                    ending = Ending::FailedElsewhere(code);
                    self.stop(&ending);
                    self.send(Signal::SIGTERM);
                    kill_at = Some(Instant::now() + GRACE);
                }
                Event::Elsewhere(Cause::Asked(number)) => {
                    let asked = Signal::try_from(i32::from(number)).unwrap_or(Signal::SIGTERM);
                    ending = self.ask_all(asked);
                    (expected, kill_at) = (Some(asked), Some(Instant::now() + grace));
                }
                Event::GraceOver => {
                    self.send(Signal::SIGKILL);
                    kill_at = None;
                }
            }
        }
    }

    /// Passes on a signal that another process got.
    fn ask_all(&self, signal: Signal) -> Ending {
        let ending = Ending::Stopped(signal, None);
        self.stop(&ending);
        self.send(signal);
        ending
    }

    /// Stops the ranks of other processes of this node.
    fn stop(&self, ending: &Ending) {
        self.stop.send_replace(ending.cause());
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

fn asked(signal: Signal) -> Cause {
    Cause::Asked(u8::try_from(signal as i32).unwrap_or_default())
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
