//! `tierfeed hog`: holds memory until its time is over, a signal stops it, or the command beside it ends.
//!
//! Each step takes memory on this thread, for a tenth of a second at most; signals and the end of the command
//! are handled between steps.

use std::{io, time::Duration};

use anyhow::{Context as _, anyhow};
use clap::Args;
use indicatif::ProgressBar;
use nix::sys::signal::{Signal, kill};
use serde::Serialize;
use tierfeed_core::{
    id::NumaNode,
    tier::Locality,
    units::{Bytes, Nanoseconds},
};
use tierfeed_resource_gatherer::hog::{
    Ending, Goal, Hog as Held, HogError, KeptBy, Pace, Reason, Report, Settings,
    oom_score::OomScore,
};
use tokio::{
    process::{Child, Command},
    time::Instant,
};

use super::program;
use crate::{
    deadline,
    failure::{Failure, code_of},
    output,
    signals::{self, Signals, pid_of, was_sent_to_all},
};

#[derive(Debug, Args)]
pub(crate) struct Hog {
    #[command(flatten)]
    pub(crate) goal: HogGoal,
    /// Only memory of this NUMA node.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) numa_node: Option<u32>,
    /// How long, from the moment that it holds what it should [default: until it is stopped, or the command
    /// ends].
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) duration: Option<Nanoseconds>,
    /// How long it may take until it holds what it should; then it fails.
    #[arg(long, value_name = "TIME", default_value = "10 min")]
    pub(crate) wait: Nanoseconds,
    /// Prints what was held as JSON at the end; what the command prints goes to standard error then.
    #[arg(long)]
    pub(crate) json: bool,
    /// A command to run while memory is held; it starts when all of it is.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// What a hog holds. Sizes are rounded up to 2 MiB.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct HogGoal {
    /// Holds this much memory; gives back what others need, so that 5 % stay free.
    #[arg(long, value_name = "SIZE")]
    pub(crate) take: Option<Bytes>,
    /// Holds all but this much memory, and follows what others take and give back; at least 1 % stay
    /// free.
    #[arg(long, value_name = "SIZE")]
    pub(crate) leave: Option<Bytes>,
}

/// How often an idle hog measures what other processes took.
const POLL_EVERY: Duration = Duration::from_millis(100);

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    report: &'a Report,
    command: Option<CommandEnd>,
}

#[derive(Serialize)]
struct CommandEnd {
    exit_code: u8,
}

enum Event {
    Due,
    Asked(Signal),
    CommandEnded(u8),
    /// The command did not end in time after it was asked to.
    GraceOver,
}

pub(crate) fn run(arguments: &Hog) -> Result<(), Failure> {
    if !arguments.command.is_empty() {
        program::require(&arguments.command)?;
    }
    let hog = Held::new(settings(arguments)).map_err(refused)?;
    let score = OomScore::raise()
        .inspect_err(|error| {
            tracing::warn!(%error, "the kernel may kill others before this hog");
        })
        .ok();
    let (report, command) = super::finish(async {
        let mut work = HogRun {
            arguments,
            score,
            display: Display::new(),
            start: Instant::now(),
            hog: Some(hog),
            report: None,
        };
        let command = work.follow().await?;
        let report = work.report.context("no report was made")?;
        Ok((report, command))
    })?;
    summarize(&report);
    if arguments.json {
        let command = command.map(|exit_code| CommandEnd { exit_code });
        output::json(&Document { report: &report, command })?;
    }
    match (report.ended_by, command) {
        (_, Some(code)) if code != 0 => Err(Failure::Passed(code, None)),
        (Ending::Unreached, _) => Err(Failure::Work(unreached(&report))),
        (Ending::Stopped, None) if !arguments.command.is_empty() => {
            Err(Failure::Work(anyhow!("stopped before the command could start")))
        }
        _ => Ok(()),
    }
}

fn settings(arguments: &Hog) -> Settings {
    let goal = &arguments.goal;
    let goal = goal.take.map(Goal::Take).or(goal.leave.map(Goal::Leave));
    Settings {
        locality: arguments
            .numa_node
            .map_or(Locality::Anywhere, |node| Locality::Numa(NumaNode(node))),
        goal: goal.expect("clap requires one of the two"),
        limit: arguments.duration,
        wait: arguments.wait,
    }
}

fn refused(error: HogError) -> Failure {
    match error {
        HogError::TooMuch { .. }
        | HogError::LeavesAll { .. }
        | HogError::AbsentNode { .. }
        | HogError::GpuNode { .. } => Failure::input(error),
        _ => Failure::work(error),
    }
}

struct HogRun<'a> {
    arguments: &'a Hog,
    score: Option<OomScore>,
    display: Display,
    start: Instant,
    /// `None` once all memory was returned.
    hog: Option<Held>,
    report: Option<Report>,
}

impl HogRun<'_> {
    /// Runs until hog and command have ended; returns the exit code of the command if it ran.
    async fn follow(&mut self) -> Result<Option<u8>, Failure> {
        let heard: &[Signal] =
            if self.runs_command() { &signals::PASSED_ON } else { &signals::ENDING };
        let mut signals = Signals::listen(heard)?;
        let mut beside: Option<Child> = None;
        let mut kill_at: Option<Instant> = None;
        loop {
            let pause = self.step()?;
            if self.runs_command() && beside.is_none() && self.has_started() {
                beside = Some(self.start_command()?);
            }
            if self.hog.is_none() && beside.is_none() {
                return Ok(None);
            }
            let event = tokio::select! {
                biased;
                asked = signals.next() => Event::Asked(asked),
                code = ended(&mut beside) => Event::CommandEnded(code?),
                () = deadline::reached(kill_at) => Event::GraceOver,
                () = tokio::time::sleep(pause) => Event::Due,
            };
            match event {
                Event::Due => (),
                Event::Asked(signal) => {
                    let is_without = beside.is_none() && signals::ENDING.contains(&signal);
                    if is_without || signal == Signal::SIGTERM {
                        deadline::start(deadline::ENDS_WITHIN);
                        kill_at.get_or_insert_with(|| Instant::now() + deadline::COMMAND_GRACE);
                    }
                    match &beside {
                        Some(beside) => pass_on(beside, signal),
                        None if is_without => self.end(Ending::Stopped)?,
                        None => {}
                    }
                }
                Event::GraceOver => {
                    kill_at = None;
                    if let Some(beside) = &beside {
                        pass_on(beside, Signal::SIGKILL);
                    }
                }
                Event::CommandEnded(code) => {
                    self.end(Ending::Command)?;
                    return Ok(Some(code));
                }
            }
        }
    }

    fn runs_command(&self) -> bool {
        !self.arguments.command.is_empty()
    }

    fn has_started(&self) -> bool {
        self.hog.as_ref().is_some_and(Held::has_started)
    }

    fn now(&self) -> Nanoseconds {
        let elapsed = self.start.elapsed().as_nanos();
        Nanoseconds(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    /// One step of the hog, if it has not ended; returns the pause before the next.
    fn step(&mut self) -> Result<Duration, Failure> {
        let now = self.now();
        let Some(hog) = &mut self.hog else { return Ok(Duration::MAX) };
        let pace = hog.step(now)?;
        self.display.show(hog);
        match pace {
            Pace::AtOnce => Ok(Duration::ZERO),
            Pace::Later => Ok(POLL_EVERY),
            Pace::Over(ending) => self.end(ending).map(|()| Duration::MAX),
        }
    }

    fn end(&mut self, ending: Ending) -> Result<(), Failure> {
        if let Some(hog) = self.hog.take() {
            self.display.finish();
            self.report = Some(hog.end(self.now(), ending)?);
        }
        Ok(())
    }

    fn start_command(&self) -> Result<Child, Failure> {
        let words = &self.arguments.command;
        let mut command = Command::from(program::command(words)?);
        if self.arguments.json {
            command.stdout(io::stderr());
        }
        let started = match &self.score {
            // The command gets the usual OOM score, not that of the hog.
            Some(score) => score.with_usual(|| command.spawn())?,
            None => command.spawn(),
        };
        started.with_context(|| format!("cannot start {}", words[0])).map_err(Failure::Input)
    }
}

async fn ended(beside: &mut Option<Child>) -> Result<u8, Failure> {
    match beside {
        Some(beside) => Ok(code_of(beside.wait().await?)),
        None => std::future::pending().await,
    }
}

fn pass_on(command: &Child, signal: Signal) {
    let Some(pid) = pid_of(command) else { return };
    if was_sent_to_all(signal) {
        return;
    }
    if let Err(error) = kill(pid, signal) {
        tracing::debug!(%error, "the command could not be signalled");
    }
}

/// What is shown of a hog: a bar on a terminal, else lines of the log.
#[derive(Debug)]
struct Display {
    bar: ProgressBar,
    said: bool,
    warned: bool,
}

impl Display {
    fn new() -> Self {
        let bar = output::bar_of("{msg} [{wide_bar}] {binary_bytes}/{binary_total_bytes}");
        Self { bar, said: false, warned: false }
    }

    fn show(&mut self, hog: &Held) {
        let held = hog.held();
        self.bar.set_length(hog.target().0.max(held.0));
        self.bar.set_position(held.0);
        self.bar.set_message(if hog.has_started() { "holding" } else { "taking" });
        if hog.has_started() && !self.said {
            self.said = true;
            let (locked, goal) = (hog.locked(), hog.goal());
            self.bar.suspend(|| tracing::info!(%held, %locked, %goal, "memory is held"));
        }
        if let Some(given) = hog.record().given_back.first()
            && !self.warned
        {
            self.warned = true;
            let reason = given.reason;
            self.bar.suspend(|| tracing::info!(%held, "memory is given back: {reason}"));
        }
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn summarize(report: &Report) {
    let Some(after_s) = report.record.held_after_s else { return };
    let kept = match (report.kept_by, &report.lock_refusal) {
        (KeptBy::Locking, _) => "locked".to_owned(),
        (KeptBy::Touching, None) => "not locked, touched every 30 s".to_owned(),
        (KeptBy::Touching, Some(why)) => {
            format!("{} locked ({why}), the rest touched every 30 s", Bytes(report.locked_bytes))
        }
    };
    let to_others = report
        .record
        .given_back
        .iter()
        .filter(|given| matches!(given.reason, Reason::OthersGrew | Reason::Pressure));
    eprintln!(
        "held {} ({kept}) for {:.1} s after {after_s:.1} s; others could take {}; {} of it were given \
         back to them meanwhile; now they can take {}",
        Bytes(report.held_bytes_final),
        report.held_for_s,
        Bytes(report.available_bytes_final),
        Bytes(to_others.map(|given| given.bytes).sum()),
        Bytes(report.available_bytes_after),
    );
}

fn unreached(report: &Report) -> anyhow::Error {
    let refusal =
        report.record.refusal.as_deref().map_or_else(String::new, |said| format!("; {said}"));
    anyhow!(
        "only {} could be held: others can take {}, of which {} stay with them{refusal}",
        Bytes(report.record.held_bytes_max),
        Bytes(report.available_bytes_final),
        Bytes(report.floor_bytes),
    )
}
