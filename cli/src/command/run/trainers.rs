//! The trainers of a run: waits for them, and stops them together.
//!
//! The sender of a signal has a limit of its own for what follows, so none is set here unless the user gives
//! one.

use std::{os::unix::process::ExitStatusExt as _, pin::pin, process::ExitStatus, time::Duration};

use anyhow::Context as _;
use nix::{sys::signal::Signal, unistd::Pid};
use tierfeed_core::fleet::training::Cause;
use tokio::{
    process::{Child, Command},
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout_at},
};

use super::{
    Run,
    ending::{Ending, RankEnd, signal_of},
    left_behind::{GRACE, KILLED_WITHIN, LeftBehind},
    process_tree::tree_of,
};
use crate::{
    command::program,
    deadline, environment,
    signals::{PASSED_ON, Signals, pid_of, was_sent_to_all},
};

/// How long a signal that has ended a trainer may take to this process, if a group gets it.
const SIGNAL_COMES_WITHIN: Duration = Duration::from_millis(100);

/// The environment variables of a trainer beside those of this process.
pub(crate) type Variables = Vec<(String, String)>;

/// Starts the command once for each trainer. What these leave behind comes to this process.
pub(crate) fn start(
    arguments: &Run,
    trainers: &[Variables],
    left_behind: LeftBehind,
) -> anyhow::Result<Trainers> {
    let mut started = Trainers { left_behind: Some(left_behind), ..Trainers::none() };
    for variables in trainers {
        let mut command = program::command(&arguments.command)?;
        command.env_remove(environment::TOKEN).envs(variables.iter().cloned());
        if arguments.json {
            command.stdout(std::io::stderr());
        }
        match Command::from(command).spawn() {
            Ok(child) => started.adopt(child),
            Err(error) => {
                started.send(Signal::SIGTERM);
                let failed = format!("cannot start {}", arguments.command[0]);
                return Err(anyhow::Error::new(error).context(failed));
            }
        }
    }
    Ok(started)
}

#[derive(Debug)]
pub(crate) struct Trainers {
    running: Vec<Pid>,
    stop: watch::Sender<Option<Cause>>,
    ended: JoinSet<(Option<Pid>, anyhow::Result<RankEnd>)>,
    /// Only in the process that started them.
    left_behind: Option<LeftBehind>,
    ending: Ending,
    grace: Option<Duration>,
    kill_at: Option<Instant>,
    is_killed: bool,
    passed_on: Vec<Signal>,
    /// A signal that others reported and that may come to this process as well.
    expected: Option<Signal>,
}

enum Event {
    Ended(Option<Pid>, anyhow::Result<RankEnd>),
    ChildEnded,
    Asked(Signal),
    Elsewhere(Cause),
    GraceOver,
}

impl Trainers {
    pub(crate) fn none() -> Self {
        Self {
            running: Vec::new(),
            stop: watch::Sender::new(None),
            ended: JoinSet::new(),
            left_behind: None,
            ending: Ending::Done,
            grace: None,
            kill_at: None,
            is_killed: false,
            passed_on: Vec::new(),
            expected: None,
        }
    }

    /// Also waits for a rank that another process started; it stops the rank once [`Self::stopped`] says so.
    pub(crate) fn join(
        &mut self,
        rank: impl Future<Output = anyhow::Result<RankEnd>> + Send + 'static,
    ) {
        self.ended.spawn(async move { (None, rank.await) });
    }

    pub(crate) fn stopped(&self) -> watch::Receiver<Option<Cause>> {
        self.stop.subscribe()
    }

    fn adopt(&mut self, mut child: Child) {
        let pid = pid_of(&child).expect("a child that was not waited for has a number");
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
        self.grace = grace;
        loop {
            if self.ended.is_empty() && !self.has_left_any_behind() {
                return Ok(self.ending);
            }
            let is_done = self.ending == Ending::Done;
            let event = tokio::select! {
                Some(ended) = self.ended.join_next() => {
                    let (pid, end) = ended.context("waiting for a trainer failed")?;
                    Event::Ended(pid, end)
                }
                () = child_ended(self.left_behind.as_mut()) => Event::ChildEnded,
                asked = signals.next() => Event::Asked(asked),
                cause = &mut elsewhere, if is_done => Event::Elsewhere(cause),
                () = deadline::reached(self.kill_at) => Event::GraceOver,
            };
            match event {
                Event::Ended(pid, end) => {
                    self.running.retain(|other| Some(*other) != pid);
                    let end = end?;
                    self.hear_what_ended(end, signals).await;
                    self.handle_end(end);
                }
                Event::ChildEnded => self.reap(),
                Event::Asked(signal) => self.handle_signal(signal),
                Event::Elsewhere(Cause::Failed(code)) => {
                    self.stop_all(Ending::FailedElsewhere(code));
                }
                Event::Elsewhere(Cause::Asked(number)) => {
                    self.ask_all(signal_of(number));
                }
                Event::GraceOver if self.is_killed => {
                    tracing::warn!("what was killed does not end; it is left alone");
                    if let (Ending::Stopped(_, first), false) =
                        (&mut self.ending, self.ended.is_empty())
                    {
                        first.get_or_insert(ExitStatus::from_raw(Signal::SIGKILL as i32));
                    }
                    return Ok(self.ending);
                }
                Event::GraceOver => self.kill_all(),
            }
        }
    }

    /// A signal to a group of processes may end a trainer before this process has got it.
    async fn hear_what_ended(&mut self, end: RankEnd, signals: &mut Signals) {
        let until = Instant::now() + SIGNAL_COMES_WITHIN;
        while self.ending == Ending::Done
            && end.asked.is_none()
            && self.died_of(end.status).is_none()
            && ended_by(end.status, &PASSED_ON).is_some()
        {
            match timeout_at(until, signals.next()).await {
                Ok(signal) => self.handle_signal(signal),
                Err(_) => return,
            }
        }
    }

    fn handle_end(&mut self, RankEnd { status, asked }: RankEnd) {
        let asked = asked.or_else(|| self.died_of(status));
        if let (Ending::Done, Some(signal)) = (self.ending, asked) {
            self.ask_all(signal);
        }
        match &mut self.ending {
            _ if status.success() => {}
            Ending::Done => self.stop_all(Ending::Failed(status)),
            Ending::Stopped(_, first) => {
                first.get_or_insert(status);
            }
            Ending::Unstarted(_) | Ending::Failed(_) | Ending::FailedElsewhere(_) => {}
        }
    }

    fn handle_signal(&mut self, signal: Signal) {
        if self.expected == Some(signal) {
            self.expected = None;
            return;
        }
        if signal == Signal::SIGINT && self.passed_on.contains(&signal) {
            self.kill_all();
            return;
        }
        self.note_ignored();
        if !was_sent_to_all(signal) {
            self.send(signal);
        }
        self.passed_on.push(signal);
        if matches!(signal, Signal::SIGINT | Signal::SIGTERM) {
            if self.ending == Ending::Done {
                self.end_as(Ending::Stopped(signal, None));
            }
            self.set_limit();
        }
    }

    /// Passes on a signal after which other ranks have ended, unless they all got it.
    fn ask_all(&mut self, signal: Signal) {
        if !self.passed_on.contains(&signal) {
            self.note_ignored();
        }
        self.end_as(Ending::Stopped(signal, None));
        self.set_limit();
        if !self.passed_on.contains(&signal) {
            self.send(signal);
            self.passed_on.push(signal);
            self.expected = Some(signal);
        }
    }

    fn stop_all(&mut self, ending: Ending) {
        self.end_as(ending);
        self.send(Signal::SIGTERM);
        self.kill_at = Some(Instant::now() + GRACE);
    }

    fn kill_all(&mut self) {
        self.send(Signal::SIGKILL);
        if !self.is_killed {
            self.is_killed = true;
            self.kill_at = Some(Instant::now() + KILLED_WITHIN);
        }
    }

    /// Once trainers were asked to end, some ignore what they get.
    fn note_ignored(&mut self) {
        if let (Ending::Done, Some(left_behind)) = (self.ending, &mut self.left_behind) {
            left_behind.note_ignored();
        }
    }

    /// Whether anything that the trainers started is still there. It is told what they were told.
    fn has_left_any_behind(&mut self) -> bool {
        let Some(left_behind) = &mut self.left_behind else { return false };
        match self.ending {
            _ if self.is_killed => left_behind.tell_all(Signal::SIGKILL),
            Ending::Stopped(signal, _) => left_behind.end_after(signal),
            _ => {
                self.kill_at.get_or_insert_with(|| Instant::now() + GRACE);
                left_behind.tell_all(Signal::SIGTERM)
            }
        }
    }

    fn reap(&self) {
        if let Some(left_behind) = &self.left_behind {
            left_behind.alive();
        }
    }

    /// Notes how all end, and stops the ranks of other processes of this node.
    fn end_as(&mut self, ending: Ending) {
        self.ending = ending;
        self.stop.send_replace(ending.cause());
    }

    /// A trainer whose end was not collected yet keeps its number, so no other process is hit. What trainers
    /// left behind hears of it once they have ended, or shall not end by themselves.
    fn send(&mut self, signal: Signal) {
        let Some(left_behind) = &mut self.left_behind else { return };
        for pid in &self.running {
            match signal {
                // As a terminal does: a shell waits with these for what it has started.
                Signal::SIGINT | Signal::SIGQUIT => {
                    tree_of(*pid).into_iter().for_each(|pid| left_behind.send(pid, signal));
                }
                _ => left_behind.send(*pid, signal),
            }
        }
        if self.running.is_empty() || signal == Signal::SIGKILL {
            left_behind.alive().into_iter().for_each(|pid| left_behind.send(pid, signal));
        }
    }

    /// The signal that was passed on to a trainer and ended it.
    fn died_of(&self, status: ExitStatus) -> Option<Signal> {
        ended_by(status, &self.passed_on)
    }

    fn set_limit(&mut self) {
        let Some(grace) = self.grace else { return };
        let end = Instant::now() + grace;
        self.kill_at = Some(self.kill_at.map_or(end, |kill_at| kill_at.min(end)));
    }
}

/// Which of these signals a process, or the shell before it, says to have died of.
fn ended_by(status: ExitStatus, signals: &[Signal]) -> Option<Signal> {
    let number = status.signal().or_else(|| status.code().map(|code| code - 128));
    signals.iter().copied().find(|signal| Some(*signal as i32) == number)
}

async fn child_ended(left_behind: Option<&mut LeftBehind>) {
    match left_behind {
        Some(left_behind) => left_behind.changed().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::signals::WAITING_MAX;

    const TERM: i32 = Signal::SIGTERM as i32;

    fn with(ranks: &[i32]) -> Trainers {
        let mut trainers = Trainers::none();
        for status in ranks {
            let end = RankEnd { status: ExitStatus::from_raw(*status), asked: None };
            trainers.join(async move { Ok(end) });
        }
        trainers
    }

    #[tokio::test]
    async fn a_rank_that_died_of_a_signal_before_this_process_heard_it_has_not_failed() {
        // Which of two events comes first is left to chance.
        for status in [TERM, (128 + TERM) << 8].repeat(50) {
            let (told, signals) = mpsc::channel(WAITING_MAX);
            told.send(Signal::SIGWINCH).await.unwrap();
            told.send(Signal::SIGTERM).await.unwrap();
            let ending = with(&[status])
                .wait(&mut Signals::told(signals), None, std::future::pending())
                .await
                .unwrap();
            let status = ExitStatus::from_raw(status);
            assert_eq!(ending, Ending::Stopped(Signal::SIGTERM, Some(status)));
        }
    }

    #[tokio::test]
    async fn a_rank_that_died_of_a_signal_of_its_own_has_failed() {
        for status in [TERM, Signal::SIGSEGV as i32, 3 << 8] {
            let (_told, signals) = mpsc::channel(WAITING_MAX);
            let ending = with(&[status])
                .wait(&mut Signals::told(signals), None, std::future::pending())
                .await
                .unwrap();
            assert_eq!(ending, Ending::Failed(ExitStatus::from_raw(status)));
        }
    }

    #[tokio::test]
    async fn a_rank_that_does_not_even_end_when_killed_is_left_alone() {
        let (told, signals) = mpsc::channel(WAITING_MAX);
        told.send(Signal::SIGTERM).await.unwrap();
        let mut trainers = with(&[0]);
        trainers.join(std::future::pending());
        let ending = trainers
            .wait(&mut Signals::told(signals), Some(Duration::ZERO), std::future::pending())
            .await
            .unwrap();
        let killed = ExitStatus::from_raw(Signal::SIGKILL as i32);
        assert_eq!(ending, Ending::Stopped(Signal::SIGTERM, Some(killed)));
    }
}
