//! The process that started `tierfeed embed`, and trains.
//!
//! It writes the job as one line of JSON to the standard input of this process, and keeps that open. The kernel
//! closes it when the caller ends, also if it was killed. This process answers with one line of JSON on standard
//! output: the variables of a trainer, or why there are none. Until then it writes every few seconds that it still
//! works, so that the caller knows from one that hangs.

use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, Read as _, Write as _},
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Serialize;
use tokio::sync::watch;

use super::{ending::RankEnd, trainers::Trainers};
use crate::failure::Failure;

const ALIVE_EVERY: Duration = Duration::from_secs(5);

const LINE_BYTES_MAX: u64 = 4 << 20;

#[derive(Debug)]
pub(crate) struct Caller {
    /// The text of the job.
    pub(super) job: String,
    is_gone: watch::Receiver<bool>,
    is_told: Arc<AtomicBool>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer<'a> {
    Working {},
    Variables(BTreeMap<&'a str, &'a str>),
    Error { code: u8, message: &'a str },
}

impl Caller {
    /// The caller, and its job. If it ends before it was told anything, this process gets SIGTERM.
    pub(crate) fn hear() -> Result<Self, Failure> {
        let mut line = String::new();
        io::stdin()
            .lock()
            .take(LINE_BYTES_MAX)
            .read_line(&mut line)
            .context("cannot read the job from standard input")?;
        let job = serde_json::from_str(&line)
            .context("standard input must begin with the job, as one JSON string on one line")
            .map_err(Failure::Input)?;
        let (gone, is_gone) = watch::channel(false);
        let is_told = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_told);
        thread::Builder::new().name("caller".to_owned()).spawn(move || {
            // An error ends the input too.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            gone.send_replace(true);
            if !told.load(Ordering::SeqCst) {
                let _ = kill(Pid::this(), Signal::SIGTERM);
            }
        })?;
        let told = Arc::clone(&is_told);
        #[expect(
            clippy::disallowed_methods,
            reason = "it ends with its process, and waits for no event"
        )]
        thread::Builder::new().name("working".to_owned()).spawn(move || {
            thread::sleep(ALIVE_EVERY);
            while !told.load(Ordering::SeqCst) && say(&Answer::Working {}).is_ok() {
                thread::sleep(ALIVE_EVERY);
            }
        })?;
        Ok(Self { job, is_gone, is_told })
    }

    /// Tells the caller how to reach its agent. The caller is the only trainer of the result, which has ended
    /// once the caller is gone or shall stop.
    pub(crate) fn train(&self, variables: &[(&'static str, String)]) -> anyhow::Result<Trainers> {
        self.is_told.store(true, Ordering::SeqCst);
        let variables = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        say(&Answer::Variables(variables)).context("cannot write to standard output")?;
        let mut trainers = Trainers::none();
        let (gone, mut stop) = (self.gone(), trainers.stopped());
        trainers.join(async move {
            tokio::select! {
                () = gone => {}
                _ = stop.wait_for(Option::is_some) => {}
            }
            Ok(RankEnd { status: ExitStatus::default(), asked: None })
        });
        Ok(trainers)
    }

    pub(crate) fn gone(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut is_gone = self.is_gone.clone();
        async move {
            // An error means that the thread that watches has ended.
            let _ = is_gone.wait_for(|is_gone| *is_gone).await;
        }
    }

    /// Tells the caller why there is no agent; the failure needs no other message then.
    pub(crate) fn refuse(&self, failure: Failure) -> Failure {
        if self.is_told.swap(true, Ordering::SeqCst) {
            return failure;
        }
        let code = failure.code();
        let message = failure.message().unwrap_or_else(|| "it was asked to end".to_owned());
        match say(&Answer::Error { code, message: &message }) {
            Ok(()) => Failure::Passed(code, None),
            Err(_) if *self.is_gone.borrow() => Failure::Passed(code, None),
            Err(error) => {
                Failure::Work(anyhow!("{message} (the caller does not hear it: {error})"))
            }
        }
    }
}

fn say(answer: &Answer<'_>) -> anyhow::Result<()> {
    writeln!(io::stdout().lock(), "{}", serde_json::to_string(answer)?)?;
    Ok(())
}
