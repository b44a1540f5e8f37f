//! The process that the user starts: it starts another one for manager and agent, and the trainers once that is
//! ready. It passes on signals and exit codes, and stays if the other one dies.

use std::{
    env,
    ops::ControlFlow,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream as Pair, process::ExitStatusExt as _},
    },
    path::Path,
    process::ExitStatus,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use nix::{sys::signal::Signal, unistd::Pid};
use tierfeed_core::fleet::training::Cause;
use tierfeed_workload_analyzer::Job;
use tokio::{
    net::UnixStream,
    process::{Child, Command},
    time::{Instant, timeout},
};

use super::{
    Run,
    ending::{self, Ending, RankEnd},
    exit,
    left_behind::{KILLED_WITHIN, LeftBehind},
    line::Line,
    trainers::{self, Trainers, Variables},
};
use crate::{
    command::{self, expansion},
    deadline, environment,
    failure::Failure,
    output, panics,
    signals::{self, PASSED_ON, Signals},
};

const SUPERVISED: &str = "--supervised";

/// How long the agent may be silent once its trainers have ended: it frees the memory of its tiers. It speaks while
/// it waits for other ranks and nodes.
const CONCLUDES_WITHIN: Duration = Duration::from_secs(120);

pub(super) fn run(arguments: &Run) -> Result<(), Failure> {
    command::finish(supervise(arguments))
}

async fn supervise(arguments: &Run) -> Result<(), Failure> {
    let mut signals = Signals::listen(&PASSED_ON)?;
    let mut agent = AgentProcess::start()?;
    let left_behind = LeftBehind::adopt(agent.pid())?;
    let variables = match agent.is_ready(&mut signals).await? {
        ControlFlow::Continue(variables) => variables,
        ControlFlow::Break(ending) => {
            return agent.exit(ending, &mut signals, CONCLUDES_WITHIN).await;
        }
    };
    let trainers = match start(arguments, &variables, left_behind) {
        Ok(trainers) => trainers,
        Err(failure) => {
            let said = failure.message().unwrap_or_default().replace('\n', " ");
            agent.line.say(&format!("error {said}")).await;
            return agent.exit(None, &mut signals, CONCLUDES_WITHIN).await;
        }
    };
    let grace = arguments.grace.map(|grace| Duration::from_nanos(grace.0));
    let ending = trainers.wait(&mut signals, grace, agent.ends_elsewhere()).await?;
    agent.line.say(&ending::ended(ending.of_rank())).await;
    agent.exit(Some(ending), &mut signals, CONCLUDES_WITHIN).await
}

fn start(
    arguments: &Run,
    variables: &[Variables],
    left_behind: LeftBehind,
) -> Result<Trainers, Failure> {
    let job = variables.first().and_then(|of| of.iter().find(|(name, _)| name == environment::JOB));
    let expansion = match (arguments.expand_memory, job) {
        (Some(wish), Some((_, path))) => {
            let job = Job::load(Path::new(path)).map_err(Failure::input)?;
            Some(expansion::of(wish, &job)?)
        }
        _ => None,
    };
    // Trainers inherit the policy of the thread that starts them; it ends before the first await.
    let _policy = expansion.map(|it| it.apply()).transpose().map_err(Failure::input)?;
    Ok(trainers::start(arguments, variables, left_behind)?)
}

#[derive(Debug)]
struct AgentProcess {
    child: Child,
    line: Line<UnixStream>,
    /// Whether it was gone before the trainers had ended.
    is_lost: bool,
}

impl AgentProcess {
    fn start() -> anyhow::Result<Self> {
        let mut arguments: Vec<_> = env::args_os().skip(1).collect();
        let options_end = arguments.iter().position(|it| it == "--").unwrap_or(arguments.len());
        arguments.insert(options_end, SUPERVISED.into());
        Self::of(Command::new("/proc/self/exe").arg0("tierfeed").args(arguments))
    }

    fn of(command: &mut Command) -> anyhow::Result<Self> {
        let (own, other) = Pair::pair().context("no socket for the agent")?;
        command.stdout(OwnedFd::from(other));
        let child = signals::blocked(&PASSED_ON, || command.spawn());
        let child = child.context("cannot start the process of the agent")?;
        own.set_nonblocking(true)?;
        // It is this program, so there is no limit to what it says.
        let line = Line::of(UnixStream::from_std(own)?, u64::MAX);
        Ok(Self { child, line, is_lost: false })
    }

    fn pid(&self) -> Option<Pid> {
        signals::pid_of(&self.child)
    }

    /// The variables of the trainers once it is ready for them, or the ending if it ends before, as it was
    /// asked to or by itself.
    async fn is_ready(
        &mut self,
        signals: &mut Signals,
    ) -> Result<ControlFlow<Option<Ending>, Vec<Variables>>, Failure> {
        let mut stopped = None;
        let mut kill_at = None;
        loop {
            let heard = tokio::select! {
                heard = self.line.hear() => heard,
                signal = signals.ending() => {
                    self.asked(signal).await;
                    stopped = Some(signal);
                    kill_at = Some(Instant::now() + deadline::ENDS_WITHIN);
                    continue;
                }
                () = deadline::reached(kill_at) => {
                    self.kill();
                    None
                }
            };
            let Some(heard) = heard else {
                return Ok(ControlFlow::Break(stopped.map(Ending::Unstarted)));
            };
            let Some(start) = heard.strip_prefix("start ") else { continue };
            if let Some(signal) = stopped {
                let status = ExitStatus::from_raw(signal as i32);
                let end = RankEnd { status, asked: Some(signal) };
                self.line.say(&ending::ended(end)).await;
                return Ok(ControlFlow::Break(Some(Ending::Unstarted(signal))));
            }
            return Ok(ControlFlow::Continue(serde_json::from_str(start)?));
        }
    }

    /// Waits until ranks of other processes have failed, or ended because they were asked to.
    async fn ends_elsewhere(&mut self) -> Cause {
        while let Some(said) = self.line.hear().await {
            if let Some(cause) = ending::cause(&said) {
                return cause;
            }
        }
        self.is_lost = true;
        let how = self.child.wait().await.map(|it| it.to_string()).unwrap_or_default();
        tracing::error!(
            "the agent of this run has failed ({how}); its trainers read on without it"
        );
        std::future::pending().await
    }

    /// Ends as it does, or as the trainers did if it was lost or is silent for longer than `silent`.
    async fn exit(
        mut self,
        ending: Option<Ending>,
        signals: &mut Signals,
        silent: Duration,
    ) -> Result<(), Failure> {
        let (mut speaks, mut ends_by, mut silent_until) = (true, None, Instant::now() + silent);
        let status = loop {
            let kill_at = ends_by.map_or(silent_until, |by: Instant| by.min(silent_until));
            tokio::select! {
                heard = self.line.hear(), if speaks => match heard {
                    Some(heard) => {
                        print(&heard)?;
                        silent_until = Instant::now() + silent;
                    }
                    None => speaks = false,
                },
                ended = self.child.wait(), if !speaks => break ended?,
                signal = signals.ending() => {
                    self.asked(signal).await;
                    ends_by.get_or_insert(Instant::now() + deadline::ENDS_WITHIN);
                }
                () = deadline::reached(Some(kill_at)) => break self.killed().await?,
            }
        };
        match (status.code().filter(|code| *code != panics::EXIT_CODE), ending) {
            (Some(0), _) if !self.is_lost => Ok(()),
            // It has said why.
            (Some(code), _) if !self.is_lost => {
                Err(Failure::Passed(u8::try_from(code).unwrap_or(u8::MAX), None))
            }
            (_, Some(ending)) => exit(ending, None, None),
            (_, None) => Err(Failure::Work(anyhow!("the agent of this run has failed ({status})"))),
        }
    }

    async fn asked(&mut self, signal: Signal) {
        self.line.say(&ending::word(ending::asked(signal))).await;
    }

    /// Ends without it if not even the kernel can end it.
    async fn killed(&mut self) -> Result<ExitStatus, Failure> {
        tracing::error!("the agent of this run does not end; killed, there may be no report");
        self.kill();
        match timeout(KILLED_WITHIN, self.child.wait()).await {
            Ok(ended) => ended.map_err(Failure::work),
            Err(_) => Ok(ExitStatus::from_raw(Signal::SIGKILL as i32)),
        }
    }

    fn kill(&mut self) {
        // An error means that it has ended.
        let _ = self.child.start_kill();
    }
}

fn print(said: &str) -> Result<(), Failure> {
    let Some(text) = said.strip_prefix("print ") else { return Ok(()) };
    let text: String = serde_json::from_str(text)?;
    output::lines(&text)
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    /// The exit code of a run whose training ended with code 7, beside this agent.
    async fn code_beside(agent: &str, silent: Duration) -> u8 {
        let agent = AgentProcess::of(Command::new("sh").args(["-c", agent])).unwrap();
        let pid = agent.pid().unwrap();
        let (_told, signals) = mpsc::channel(1);
        let ending = Ending::Failed(ExitStatus::from_raw(7 << 8));
        let ended = agent.exit(Some(ending), &mut Signals::told(signals), silent).await;
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        ended.unwrap_err().code()
    }

    #[tokio::test]
    async fn an_agent_that_hangs_after_its_training_is_killed_and_the_code_of_the_training_kept() {
        for hangs in ["kill -STOP $$", "exec >&-; exec sleep 600"] {
            assert_eq!(code_beside(hangs, Duration::from_millis(50)).await, 7, "{hangs}");
        }
    }

    #[tokio::test]
    async fn a_signal_is_the_end_of_a_run_also_if_its_starting_agent_was_killed() {
        let agent = "read asked <&1; kill -KILL $$";
        let mut agent = AgentProcess::of(Command::new("sh").args(["-c", agent])).unwrap();
        let (tell, signals) = mpsc::channel(1);
        let mut signals = Signals::told(signals);
        tell.send(Signal::SIGTERM).await.unwrap();
        let ControlFlow::Break(ending) = agent.is_ready(&mut signals).await.unwrap() else {
            panic!("it never was ready")
        };
        let ended = agent.exit(ending, &mut signals, CONCLUDES_WITHIN).await;
        assert_eq!(ended.unwrap_err().code(), 128 + 15);
    }

    #[tokio::test]
    async fn an_agent_that_speaks_while_it_waits_is_waited_for() {
        let waits =
            format!("for _ in 1 2 3 4 5 6; do echo {}; sleep 0.5; done; exit 9", ending::WAITS);
        assert_eq!(code_beside(&waits, Duration::from_secs(2)).await, 9);
    }
}
