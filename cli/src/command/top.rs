//! `tierfeed top`: a running job, live.

use std::{
    io::{self, IsTerminal, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use clap::Args;
use console::Term;
use nix::sys::signal::Signal::{SIGHUP, SIGINT, SIGSTOP, SIGTERM, SIGTSTP};
use tierfeed_core::units::Nanoseconds;
use tierfeed_runtime::{
    clock::Clock,
    observe::{
        node_figures::NodeFigures,
        top::{FIGURES_BYTES_MAX, History, Snapshot},
    },
    rpc::client::Client,
    run_dir::RunDir,
};
use tokio::{task::spawn_blocking, time::sleep};

use super::{
    agent_socket,
    status::{self, Reach},
};
use crate::{environment, failure::Failure, signals::Signals};

#[derive(Debug, Args)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// Time between two frames.
    #[arg(long, value_name = "TIME", default_value = "1 s")]
    pub(crate) interval: Nanoseconds,
    /// Ends after so many frames [default: when it is stopped, or the job is over].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) frames: Option<u64>,
}

/// At a shorter interval the snapshots themselves would dominate.
const INTERVAL_MIN: Nanoseconds = Nanoseconds(100_000_000);

struct Sources {
    manager: Option<Client>,
    agent: Option<PathBuf>,
}

enum Outcome<T> {
    Done(T),
    Stopped,
    Suspended,
}

pub(crate) fn run(arguments: &Top) -> Result<(), Failure> {
    if arguments.interval < INTERVAL_MIN {
        return Err(Failure::Input(anyhow!(
            "--interval is {}; it must be at least {INTERVAL_MIN}",
            arguments.interval
        )));
    }
    super::finish(watch(arguments))
}

async fn watch(arguments: &Top) -> Result<(), Failure> {
    let mut sources = Sources::find(arguments).await?;
    let mut signals = Signals::listen(&[SIGINT, SIGTERM, SIGHUP, SIGTSTP])
        .context("cannot listen for signals")?;
    let screen = Screen::open()?;
    let clock = Clock::start();
    let mut history = History::default();
    let (mut frames, mut is_begun) = (0_u64, false);
    loop {
        let now = match unless_asked(&mut signals, sources.snapshot(&clock)).await {
            Outcome::Done(now) => now,
            Outcome::Stopped => return Ok(()),
            Outcome::Suspended => {
                screen.suspend()?;
                continue;
            }
        };
        if now.status.is_none() && now.agent.is_none() {
            drop(screen);
            eprintln!("the job is over");
            return Ok(());
        }
        let frame = history.frame(now);
        // Rates need two snapshots; a screen shows what it knows at once.
        let is_base = frames == 0 && !is_begun && matches!(screen, Screen::Lines);
        is_begun = true;
        if !is_base {
            if screen.show(&frame)?.is_break() {
                return Ok(());
            }
            frames += 1;
            if arguments.frames.is_some_and(|most| frames >= most) {
                return Ok(());
            }
        }
        match unless_asked(&mut signals, sleep(Duration::from_nanos(arguments.interval.0))).await {
            Outcome::Done(()) => (),
            Outcome::Stopped => return Ok(()),
            Outcome::Suspended => screen.suspend()?,
        }
    }
}

impl Sources {
    async fn find(arguments: &Top) -> Result<Self, Failure> {
        let reach = &arguments.reach;
        let run_dir = reach.run_dir()?;
        let socket = run_dir.as_ref().map(RunDir::agent_metrics_socket);
        let agent = socket.filter(|socket| socket.exists());
        let found = run_dir.as_ref().map(|run_dir| run_dir.path().to_owned());
        let reach = Reach { run_dir: found, ..reach.clone() };
        let manager = match status::reach(&reach).await {
            Ok(client) => Some(client),
            // The manager of this agent is on another host.
            Err(_) if agent.is_some() => None,
            Err(failure) => return Err(failure),
        };
        Ok(Self { manager, agent })
    }

    /// A snapshot of both; one that does not answer is left out.
    async fn snapshot(&mut self, clock: &Clock) -> Snapshot {
        let status = match &mut self.manager {
            Some(manager) => manager.status().await.ok(),
            None => None,
        };
        let agent = match self.agent.clone() {
            Some(socket) => spawn_blocking(move || figures(&socket)).await.ok().flatten(),
            None => None,
        };
        Snapshot { at: clock.now(), status, agent }
    }
}

fn figures(socket: &Path) -> Option<NodeFigures> {
    let text = agent_socket::get(socket, "/figures.json", FIGURES_BYTES_MAX).ok()?;
    serde_json::from_str(&text).inspect_err(|error| tracing::debug!(%error, "no figures")).ok()
}

/// Does the work, unless a signal comes first.
async fn unless_asked<T>(signals: &mut Signals, work: impl Future<Output = T>) -> Outcome<T> {
    tokio::select! {
        biased; // Signals first.
        signal = signals.next() => match signal {
            SIGTSTP => Outcome::Suspended,
            _ => Outcome::Stopped,
        },
        done = work => Outcome::Done(done),
    }
}

/// A terminal whose screen is redrawn with each frame, or lines on other outputs.
enum Screen {
    Terminal(Term),
    Lines,
}

/// Switches to the alternate screen and hides the cursor.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";

impl Screen {
    fn open() -> Result<Self, Failure> {
        let is_dumb = environment::terminal().kind.is_none_or(|kind| kind == "dumb");
        if !io::stdout().is_terminal() || is_dumb {
            return Ok(Self::Lines);
        }
        switch(ENTER)?;
        Ok(Self::Terminal(Term::stdout()))
    }

    /// Breaks once the reader has closed its end.
    fn show(&self, lines: &[String]) -> Result<ControlFlow<()>, Failure> {
        match self {
            Self::Lines => put(&(lines.join("\n") + "\n\n")),
            Self::Terminal(terminal) => {
                let (rows, columns) = terminal.size();
                put(&drawn(lines, rows.into(), columns.into()))
            }
        }
    }

    /// Restores the terminal and stops the process until it is continued.
    fn suspend(&self) -> Result<(), Failure> {
        if matches!(self, Self::Terminal(_)) {
            switch(LEAVE)?;
        }
        nix::sys::signal::raise(SIGSTOP).context("cannot stop")?;
        if matches!(self, Self::Terminal(_)) {
            switch(ENTER)?;
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if matches!(self, Self::Terminal(_)) {
            // Errors are ignored: the terminal may be gone.
            drop(switch(LEAVE));
        }
    }
}

/// A frame that replaces the last one: lines are broken at the width and cleared to their end, and the rest
/// of the screen is cleared.
fn drawn(lines: &[String], rows: usize, columns: usize) -> String {
    let mut text = "\u{1b}[H".to_owned();
    let broken = lines.iter().flat_map(|line| broken(line, columns));
    for line in broken.take(rows.saturating_sub(1).max(1)) {
        text.push_str(&line);
        text.push_str("\u{1b}[K\r\n");
    }
    text + "\u{1b}[J"
}

/// A line in parts of at most `columns` characters, broken after a space if possible. All parts but the first
/// are indented.
fn broken(line: &str, columns: usize) -> Vec<String> {
    const INDENT: &str = "  ";
    let columns = columns.max(2 * INDENT.len());
    let mut parts = vec![String::new()];
    for word in line.split_inclusive(' ') {
        for piece in pieces(word, columns - INDENT.len()) {
            let part = parts.last_mut().expect("there is a first part");
            let len = part.chars().count() + piece.trim_end().chars().count();
            // Spaces at the end of a part are cut off, so they never need another one.
            if len <= columns || part.trim().is_empty() || piece.trim().is_empty() {
                part.push_str(&piece);
            } else {
                parts.push(format!("{INDENT}{piece}"));
            }
        }
    }
    parts.iter().map(|part| part.trim_end().to_owned()).collect()
}

fn pieces(word: &str, len: usize) -> Vec<String> {
    let letters: Vec<char> = word.chars().collect();
    letters.chunks(len).map(|piece| piece.iter().collect()).collect()
}

fn switch(page: &str) -> Result<(), Failure> {
    put(page).map(drop)
}

/// Breaks if the reader closed its end, as `head` does, which is no failure.
fn put(text: &str) -> Result<ControlFlow<()>, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        other => {
            other.context("cannot write to standard output")?;
            Ok(ControlFlow::Continue(()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_terminal_and_leaves_nothing_of_the_last_one() {
        let lines: Vec<String> = ["first line", "ä second", "third"].map(str::to_owned).into();
        let text = drawn(&lines, 4, 8);
        let end = "\u{1b}[K\r\n";
        assert_eq!(text, format!("\u{1b}[Hfirst{end}  line{end}ä second{end}\u{1b}[J"));
        assert_eq!(broken("a line of columns", 80), ["a line of columns"]);
        assert_eq!(broken("2  joined    17", 9), ["2  joined", "  17"]);
        assert_eq!(broken("tierfeed_long", 6), ["tier", "  feed", "  _lon", "  g"]);
        assert_eq!(drawn(&lines[..1], 0, 80), "\u{1b}[Hfirst line\u{1b}[K\r\n\u{1b}[J");
    }
}
