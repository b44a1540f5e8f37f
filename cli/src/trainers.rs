//! The trainers of a run: waits for them, and stops them together.
//!
//! Who sends a signal has a limit of their own for what follows, so none is set here unless the user gives one.

use std::{os::unix::process::ExitStatusExt as _, pin::pin, process::ExitStatus, time::Duration};

use anyhow::{Context as _, anyhow};
use nix::{sys::signal::Signal, unistd::Pid};
use tierfeed_core::fleet::training::Cause;
use tokio::{
    process::{Child, Command},
    sync::watch,
    task::JoinSet,
    time::Instant,
};

use crate::{
    deadline,
    ending::{Ending, RankEnd},
    environment,
    left_behind::{self, LeftBehind},
    signals::{Signals, was_sent_to_all},
};

/// How long trainers may take to end after one of them has failed, and what they leave behind after all.
const GRACE: Duration = Duration::from_secs(20);

/// How long a process may take to end after the kernel was told to end it, as in a read of a lost store.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// The environment variables of a trainer beside those of this process.
pub(crate) type Variables = Vec<(String, String)>;

/// Starts `command` once for each trainer. What these leave behind comes to this process.
pub(crate) fn start(
    command: &[String],
    trainers: &[Variables],
    is_quiet: bool,
    left_behind: LeftBehind,
) -> anyhow::Result<Trainers> {
    let (program, arguments) = command.split_first().ok_or_else(|| anyhow!("no command"))?;
    let mut started = Trainers { left_behind: Some(left_behind), ..Trainers::none() };
    for variables in trainers {
        let mut command = Command::new(program);
        command.args(arguments).env_remove(environment::TOKEN);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        if is_quiet {
            command.stdout(std::io::stderr());
        }
        match command.spawn().with_context(|| format!("cannot start {program}")) {
            Ok(child) => started.adopt(child),
            Err(error) => {
                started.send(Signal::SIGTERM);
                return Err(error);
            }
        }
    }
    Ok(started)
}

/// The running trainers.
#[derive(Debug)]
pub(crate) struct Trainers {
    running: Vec<Pid>,
    stop: watch::Sender<Option<Cause>>,
    ended: JoinSet<(Option<Pid>, anyhow::Result<RankEnd>)>,
    /// In the process that started them.
    left_behind: Option<LeftBehind>,
}

enum Event {
    Ended(Option<Pid>, anyhow::Result<RankEnd>),
    ChildEnded,
    Asked(Signal),
    Elsewhere(Cause),
    GraceOver,
}

/// How far their end is.
struct Course {
    ending: Ending,
    grace: Option<Duration>,
    kill_at: Option<Instant>,
    is_killed: bool,
    passed_on: Vec<Signal>,
    /// What others said, which may come to this process as well.
    expected: Option<Signal>,
}

impl Trainers {
    /// None so far.
    pub(crate) fn none() -> Self {
        let (stop, ended) = (watch::Sender::new(None), JoinSet::new());
        Self { running: Vec::new(), stop, ended, left_behind: None }
    }

    /// Also waits for a rank that another process started; it stops the rank once [`Self::stopped`] says so.
    pub(crate) fn join(
        &mut self,
        rank: impl Future<Output = anyhow::Result<RankEnd>> + Send + 'static,
    ) {
        self.ended.spawn(async move { (None, rank.await) });
    }

    /// Gets the cause once all ranks shall stop.
    pub(crate) fn stopped(&self) -> watch::Receiver<Option<Cause>> {
        self.stop.subscribe()
    }

    fn adopt(&mut self, mut child: Child) {
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let pid = pid.expect("a child that was not waited for has a number");
        self.running.push(pid);
        if let Some(left_behind) = &mut self.left_behind {
            left_behind.leave_out(pid);
        }
        self.ended.spawn(async move {
            let status = child.wait().await.context("waiting for a trainer failed");
            (Some(pid), status.map(|status| RankEnd { status, asked: None }))
        });
    }

    /// Waits until all have ended, and what they left behind. A signal to this process is passed on, and they
    /// have `grace` to end after one that asks them to; the first trainer that fails takes the others with it,
    /// and so does an end `elsewhere`.
    pub(crate) async fn wait(
        mut self,
        signals: &mut Signals,
        grace: Option<Duration>,
        elsewhere: impl Future<Output = Cause>,
    ) -> anyhow::Result<Ending> {
        let mut elsewhere = pin!(elsewhere);
        let mut course = Course::new(grace);
        loop {
            if self.ended.is_empty() && !self.has_left_any_behind(&mut course) {
                return Ok(course.ending);
            }
            let is_done = course.ending == Ending::Done;
            let event = tokio::select! {
                Some(ended) = self.ended.join_next() => {
                    let (pid, end) = ended.context("waiting for a trainer failed")?;
                    Event::Ended(pid, end)
                }
                () = child_ended(self.left_behind.as_mut()) => Event::ChildEnded,
                asked = signals.next() => Event::Asked(asked),
                cause = &mut elsewhere, if is_done => Event::Elsewhere(cause),
                () = deadline::reached(course.kill_at) => Event::GraceOver,
            };
            match event {
                Event::Ended(pid, end) => {
                    self.running.retain(|other| Some(*other) != pid);
                    self.handle_end(end?, &mut course);
                }
                Event::ChildEnded => self.reap(),
                Event::Asked(signal) => self.handle_signal(signal, &mut course),
                Event::Elsewhere(Cause::Failed(code)) => {
                    self.stop_all(Ending::FailedElsewhere(code), &mut course);
                }
                Event::Elsewhere(Cause::Asked(number)) => {
                    let signal = Signal::try_from(i32::from(number));
                    self.ask_all(signal.unwrap_or(Signal::SIGTERM), &mut course);
                }
                Event::GraceOver if course.is_killed && self.ended.is_empty() => {
                    tracing::warn!("what a trainer left behind does not end; it is left alone");
                    return Ok(course.ending);
                }
                Event::GraceOver => self.kill_all(&mut course),
            }
        }
    }

    fn handle_end(&self, RankEnd { status, asked }: RankEnd, course: &mut Course) {
        let asked = asked.or_else(|| course.died_of(status));
        if let (Ending::Done, Some(signal)) = (course.ending, asked) {
            self.ask_all(signal, course);
        }
        match &mut course.ending {
            _ if status.success() => {}
            Ending::Done => self.stop_all(Ending::Failed(status), course),
            Ending::Stopped(_, first) => {
                first.get_or_insert(status);
            }
            Ending::Unstarted(_) | Ending::Failed(_) | Ending::FailedElsewhere(_) => {}
        }
    }

    fn handle_signal(&self, signal: Signal, course: &mut Course) {
        if course.expected == Some(signal) {
            course.expected = None;
            return;
        }
        if signal == Signal::SIGINT && course.passed_on.contains(&signal) {
            self.kill_all(course);
            return;
        }
        if !was_sent_to_all(signal) {
            self.send(signal);
        }
        course.passed_on.push(signal);
        if matches!(signal, Signal::SIGINT | Signal::SIGTERM) {
            if course.ending == Ending::Done {
                course.ending = Ending::Stopped(signal, None);
                self.stop(&course.ending);
            }
            course.set_limit();
        }
    }

    /// Passes on a signal after which other ranks have ended, unless they all got it.
    fn ask_all(&self, signal: Signal, course: &mut Course) {
        course.ending = Ending::Stopped(signal, None);
        self.stop(&course.ending);
        course.set_limit();
        if !course.passed_on.contains(&signal) {
            self.send(signal);
            course.passed_on.push(signal);
            course.expected = Some(signal);
        }
    }

    /// Ends them after a failure.
    fn stop_all(&self, ending: Ending, course: &mut Course) {
        course.ending = ending;
        self.stop(&ending);
        self.send(Signal::SIGTERM);
        course.kill_at = Some(Instant::now() + GRACE);
    }

    fn kill_all(&self, course: &mut Course) {
        self.send(Signal::SIGKILL);
        course.is_killed = true;
        course.kill_at = Some(Instant::now() + KILLED_WITHIN);
    }

    /// Whether anything that the trainers started is still there. It is told what they were told.
    fn has_left_any_behind(&mut self, course: &mut Course) -> bool {
        let Some(left_behind) = &mut self.left_behind else { return false };
        let signal = match course.ending {
            _ if course.is_killed => {
                left_behind.alive().iter().for_each(|pid| left_behind::send(*pid, Signal::SIGKILL));
                Signal::SIGKILL
            }
            Ending::Stopped(signal, _) if was_sent_to_all(signal) => {
                return !left_behind.alive().is_empty();
            }
            Ending::Stopped(signal, _) => signal,
            _ => {
                course.kill_at.get_or_insert_with(|| Instant::now() + GRACE);
                Signal::SIGTERM
            }
        };
        left_behind.tell(signal)
    }

    fn reap(&self) {
        if let Some(left_behind) = &self.left_behind {
            left_behind.alive();
        }
    }

    /// Stops the ranks of other processes of this node.
    fn stop(&self, ending: &Ending) {
        self.stop.send_replace(ending.cause());
    }

    /// A trainer whose end was not collected yet keeps its number, so no other process is hit. What trainers
    /// left behind hears of it once they have ended, or shall not end by themselves.
    fn send(&self, signal: Signal) {
        for pid in &self.running {
            match signal {
                // As a terminal does: a shell waits with these for what it has started.
                Signal::SIGINT | Signal::SIGQUIT => left_behind::tree_of(*pid)
                    .into_iter()
                    .for_each(|pid| left_behind::send(pid, signal)),
                _ => left_behind::send(*pid, signal),
            }
        }
        if let Some(left_behind) = &self.left_behind
            && (self.running.is_empty() || signal == Signal::SIGKILL)
        {
            left_behind.alive().iter().for_each(|pid| left_behind::send(*pid, signal));
        }
    }
}

impl Course {
    const fn new(grace: Option<Duration>) -> Self {
        Self {
            ending: Ending::Done,
            grace,
            kill_at: None,
            is_killed: false,
            passed_on: Vec::new(),
            expected: None,
        }
    }

    /// The signal that was passed on to a trainer and ended it.
    fn died_of(&self, status: ExitStatus) -> Option<Signal> {
        let number = status.signal().or_else(|| status.code().map(|code| code - 128));
        self.passed_on.iter().copied().find(|signal| Some(*signal as i32) == number)
    }

    fn set_limit(&mut self) {
        let Some(grace) = self.grace else { return };
        let end = Instant::now() + grace;
        self.kill_at = Some(self.kill_at.map_or(end, |kill_at| kill_at.min(end)));
    }
}

async fn child_ended(left_behind: Option<&mut LeftBehind>) {
    match left_behind {
        Some(left_behind) => left_behind.changed().await,
        None => std::future::pending().await,
    }
}
