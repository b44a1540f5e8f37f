//! `tierfeed run` as the process that it starts sees it: that one holds manager and agent, this side is theirs.
//!
//! The process that the user started is the parent of the trainers, gets the signals and holds no memory worth
//! killing it for, so trainers outlive their agent. Both speak over standard output of the agent's process, which
//! is a socket: this side says `start` with the variables of the trainers as JSON, the words of
//! [`ending`] when ranks elsewhere end, and `print` with a text for standard output as JSON.
//! The other says `asked SIGNAL` for a signal while it has no trainers, `error MESSAGE` if it cannot start them,
//! and `ended` when all have. When it was killed, the kernel closes the socket, and this process ends as it did.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::{fd::AsFd as _, unix::net::UnixStream},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use anyhow::{Context as _, anyhow};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tierfeed_core::fleet::training::Cause;
use tokio::sync::{mpsc, watch};

use super::{
    ending::{self, RankEnd},
    trainers::Trainers,
};
use crate::{
    failure::Failure,
    signals::{Signals, WAITING_MAX},
};

const BYTES_MAX: u64 = 1 << 20;

/// How the trainers ended, or why they could not be started.
type End = Result<RankEnd, String>;

#[derive(Debug)]
pub(crate) struct Supervisor {
    line: UnixStream,
    is_heard: Arc<AtomicBool>,
    end: watch::Receiver<Option<End>>,
}

impl Supervisor {
    /// The supervisor that started this process, and the signals that it reports. Until they are
    /// [heard](Self::hear), a signal to end ends this process.
    pub(crate) fn meet() -> Result<(Self, Signals), Failure> {
        let line = io::stdout().as_fd().try_clone_to_owned().context("no standard output")?;
        let line = UnixStream::from(line);
        let input = line.try_clone()?;
        let (told, signals) = mpsc::channel(WAITING_MAX);
        let (ended, end) = watch::channel(None);
        let is_heard = Arc::new(AtomicBool::new(false));
        let listening = Listening { told, ended, is_heard: Arc::clone(&is_heard) };
        let thread = thread::Builder::new().name("supervisor".to_owned());
        thread.spawn(move || listening.run(input))?;
        Ok((Self { line, is_heard, end }, Signals::told(signals)))
    }

    /// From now on the signals are waited for.
    pub(crate) fn hear(&self) {
        self.is_heard.store(true, Ordering::SeqCst);
    }

    /// Makes it start a trainer with each of these variables. Together they are one rank of the result.
    pub(crate) fn train(&self, variables: &[Vec<(&str, String)>]) -> anyhow::Result<Trainers> {
        let line = Arc::new(self.line.try_clone()?);
        say(&line, &format!("start {}", serde_json::to_string(variables)?))?;
        let mut trainers = Trainers::none();
        let (mut end, mut stop) = (self.end.clone(), trainers.stopped());
        trainers.join(async move {
            let mut is_told = false;
            loop {
                tokio::select! {
                    end = end.wait_for(Option::is_some) => {
                        let end = end.ok().and_then(|it| it.clone());
                        let end = end.ok_or_else(|| anyhow!("nobody hears how trainers end"))?;
                        return end.map_err(|it| anyhow!(it));
                    }
                    cause = ending::stopped(&mut stop), if !is_told => {
                        is_told = true;
                        // An error means that it is gone, which is heard.
                        let _ = say(&line, &ending::word(cause));
                    }
                }
            }
        });
        Ok(trainers)
    }

    /// Says that this process waits, and does not hang.
    pub(crate) fn wait(&self) {
        // An error means that it is gone, which is heard.
        let _ = say(&self.line, ending::WAITS);
    }

    pub(crate) fn print(&self, text: &str) -> Result<(), Failure> {
        let text = serde_json::to_string(text)?;
        say(&self.line, &format!("print {text}")).map_err(Failure::work)
    }
}

fn say(mut line: &UnixStream, word: &str) -> io::Result<()> {
    line.write_all(format!("{word}\n").as_bytes())
}

struct Listening {
    told: mpsc::Sender<Signal>,
    ended: watch::Sender<Option<End>>,
    is_heard: Arc<AtomicBool>,
}

impl Listening {
    fn run(self, input: UnixStream) {
        for word in BufReader::new(input.take(BYTES_MAX)).lines().map_while(Result::ok) {
            if let Some(Cause::Asked(number)) = ending::cause(&word) {
                self.asked(number);
            } else if let Some(end) = ending::rank_end(&word) {
                self.ended.send_replace(Some(Ok(end)));
            } else if let Some(error) = word.strip_prefix("error ") {
                self.ended.send_replace(Some(Err(error.to_owned())));
            }
        }
        // It was killed, so no process waits for this one any more.
        let _ = kill(Pid::this(), Signal::SIGKILL);
    }

    fn asked(&self, number: u8) {
        if !self.is_heard.load(Ordering::SeqCst) {
            process::exit(i32::from(Cause::Asked(number).code()));
        }
        // An error means that this process ends.
        let _ = self.told.try_send(ending::signal_of(number));
    }
}
