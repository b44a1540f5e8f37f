//! The trainer's side: starts the process that reads when a sample is asked for, starts it again when it
//! dies, and ends it.

use std::{
    collections::VecDeque,
    io::{self, Read as _},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::PathBuf,
    process::{self, Child, ChildStdout, Command, ExitStatus, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{SendFlags, send},
};
use tierfeed_core::{id::SampleId, session::Fault, units::Bytes};

use super::{AHEAD_MAX, Access, HEADER_BYTES, READ, TEXT_BYTES_MAX, fault_of};

/// How often the caller is asked whether to wait on.
const ASK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The `tierfeed` executable: a path, or a name to look for in `PATH`.
    pub exe: PathBuf,
    /// The index of the dataset.
    pub index: PathBuf,
    /// How to reach its bucket; of no effect on files.
    pub access: Access,
}

/// Samples that another process reads.
#[derive(Debug)]
pub struct Reader {
    launch: Launch,
    running: Option<Running>,
}

/// Why a sample did not come.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReaderError {
    /// It cannot be read; others can.
    #[error("{message}")]
    Unreadable {
        /// As the session would be told.
        fault: Fault,
        /// The whole story.
        message: String,
    },
    /// There is no such program, or no process for it.
    #[error(
        "cannot start {} to read the bucket: {source}; set TIERFEED_EXE to the tierfeed executable, or \
         add its directory to PATH",
        .exe.display()
    )]
    NotStarted {
        /// What was to be started.
        exe: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// It died, was started again, and died at the same sample.
    #[error(
        "the process that reads the bucket ended twice without an answer ({}); it says why on \
         standard error",
        .status.map_or_else(|| "nobody knows how".to_owned(), |status| status.to_string())
    )]
    Died {
        /// How it ended, unless somebody else waited for it.
        status: Option<ExitStatus>,
    },
    /// It answers what no reader of this release would.
    #[error("{} reads the bucket for another release of tierfeed: {found}", .exe.display())]
    Misspoken {
        /// What was started.
        exe: PathBuf,
        /// What is wrong.
        found: Nonsense,
    },
    /// The pipe to it failed.
    #[error("the pipe to the process that reads the bucket failed: {0}")]
    Pipe(#[source] io::Error),
    /// The caller does not want to wait any longer.
    #[error("interrupted")]
    Interrupted,
}

/// What no reader of this release would answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Nonsense {
    /// Neither a sample nor a fault.
    #[error("status {0} is unknown")]
    Status(u8),
    /// Another length than that in the index.
    #[error("{} bytes for a sample of {}", .found.0, .expected.0)]
    Length {
        /// As the index has it.
        expected: Bytes,
        /// As announced.
        found: Bytes,
    },
    /// A text that is longer than any.
    #[error("a text of {} bytes", .0.0)]
    Text(Bytes),
}

/// A process, and what it was asked for.
#[derive(Debug)]
struct Running {
    child: Child,
    /// A socket and not a pipe: writing to a pipe that nobody reads kills a trainer that wants it so.
    numbers: UnixStream,
    answers: ChildStdout,
    asked: VecDeque<SampleId>,
    /// Who started it: a fork has a copy of this that it may not use.
    owner: u32,
}

/// Why an answer did not come.
enum Failure {
    /// The process ended, or its end of a pipe.
    Ended(Option<ExitStatus>),
    Final(ReaderError),
}

impl From<ReaderError> for Failure {
    fn from(error: ReaderError) -> Self {
        Self::Final(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Final(ReaderError::Pipe(error))
    }
}

impl Reader {
    /// Starts nothing yet.
    #[must_use]
    pub const fn new(launch: Launch) -> Self {
        Self { launch, running: None }
    }

    /// What is started.
    #[must_use]
    pub const fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Reads the first of `samples` into `buffer`, which must be exactly as long. Those after it are what
    /// will be asked for next: they are read ahead.
    ///
    /// `goes_on` is asked at least every 100 ms whether to wait on.
    ///
    /// # Errors
    ///
    /// A [`ReaderError`]; `buffer` then holds garbage. The next call may succeed.
    pub fn read_into(
        &mut self,
        samples: &[SampleId],
        buffer: &mut [u8],
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), ReaderError> {
        let outcome = match self.attempt(samples, buffer, goes_on) {
            Err(Failure::Ended(_)) => self.attempt(samples, buffer, goes_on),
            outcome => outcome,
        };
        outcome.map_err(|failure| match failure {
            Failure::Ended(status) => ReaderError::Died { status },
            Failure::Final(error) => error,
        })
    }

    fn attempt(
        &mut self,
        samples: &[SampleId],
        buffer: &mut [u8],
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), Failure> {
        let mut running = match self.running.take().filter(|it| it.is_in_step(samples)) {
            Some(running) => running,
            None => Running::start(&self.launch)?,
        };
        running.ask(samples)?;
        match running.answer(buffer, goes_on)? {
            Answer::Read => {
                self.running = Some(running);
                Ok(())
            }
            Answer::Unreadable { fault, message } => {
                self.running = Some(running);
                Err(ReaderError::Unreadable { fault, message }.into())
            }
            Answer::Nonsense(found) => {
                let exe = self.launch.exe.clone();
                Err(ReaderError::Misspoken { exe, found }.into())
            }
        }
    }
}

enum Answer {
    Read,
    Unreadable { fault: Fault, message: String },
    Nonsense(Nonsense),
}

impl Running {
    fn start(launch: &Launch) -> Result<Self, ReaderError> {
        let failed = |source| ReaderError::NotStarted { exe: launch.exe.clone(), source };
        let (numbers, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(&launch.exe);
        command.arg("read").arg("--index").arg(&launch.index);
        let Access { endpoint, region, is_anonymous } = &launch.access;
        for (option, value) in [("--endpoint", endpoint), ("--region", region)] {
            if let Some(value) = value {
                command.arg(option).arg(value);
            }
        }
        if *is_anonymous {
            command.arg("--anonymous");
        }
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped());
        // A terminal interrupts its whole group; the trainer may want to go on after that.
        let mut child = command.process_group(0).spawn().map_err(failed)?;
        let answers = child.stdout.take().expect("it was asked for");
        Ok(Self { child, numbers, answers, asked: VecDeque::new(), owner: process::id() })
    }

    /// Whether this process started it, and the next answers are those to `samples`.
    fn is_in_step(&self, samples: &[SampleId]) -> bool {
        let is_ours = self.owner == process::id();
        is_ours
            && samples.iter().zip(&self.asked).all(|(sample, asked)| sample == asked)
            && self.asked.len() <= samples.len()
    }

    /// Asks for what was not asked for yet.
    fn ask(&mut self, samples: &[SampleId]) -> Result<(), Failure> {
        let new = samples.iter().take(AHEAD_MAX).skip(self.asked.len());
        let numbers: Vec<u8> = new.clone().flat_map(|sample| sample.0.to_le_bytes()).collect();
        self.asked.extend(new);
        let mut rest = &numbers[..];
        while !rest.is_empty() {
            match send(&self.numbers, rest, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::INTR) => (),
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(self.ended()),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(())
    }

    fn answer(
        &mut self,
        buffer: &mut [u8],
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Answer, Failure> {
        let mut header = [0; HEADER_BYTES];
        self.fill(&mut header, goes_on)?;
        let [status, len @ ..] = header;
        let (len, expected) = (u64::from_le_bytes(len), buffer.len() as u64);
        let answer = match (status, fault_of(status)) {
            (READ, _) if len == expected => {
                self.fill(buffer, goes_on)?;
                Answer::Read
            }
            (READ, _) => {
                let (expected, found) = (Bytes(expected), Bytes(len));
                Answer::Nonsense(Nonsense::Length { expected, found })
            }
            (_, None) => Answer::Nonsense(Nonsense::Status(status)),
            (_, Some(fault)) => match usize::try_from(len) {
                Ok(len) if len <= TEXT_BYTES_MAX => {
                    let mut text = vec![0; len];
                    self.fill(&mut text, goes_on)?;
                    let message = String::from_utf8_lossy(&text).into_owned();
                    Answer::Unreadable { fault, message }
                }
                _ => Answer::Nonsense(Nonsense::Text(Bytes(len))),
            },
        };
        self.asked.pop_front();
        Ok(answer)
    }

    fn fill(
        &mut self,
        mut buffer: &mut [u8],
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), Failure> {
        while !buffer.is_empty() {
            if !goes_on() {
                return Err(ReaderError::Interrupted.into());
            }
            let mut polled = [PollFd::new(&self.answers, PollFlags::IN)];
            match poll(&mut polled, Some(&ASK_EVERY)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => (),
                Err(error) => return Err(io::Error::from(error).into()),
            }
            match self.answers.read(buffer) {
                Ok(0) => return Err(self.ended()),
                Ok(read) => buffer = &mut buffer[read..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// It ends by itself, or would not answer any more.
    fn ended(&mut self) -> Failure {
        // An error means that it is gone already.
        let _ = self.child.kill();
        Failure::Ended(self.child.wait().ok())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A fork closes its copies of the pipes and leaves the process to the one that started it.
        if self.owner == process::id() {
            // Errors mean that it is gone already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
