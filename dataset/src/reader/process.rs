//! The trainer's side: starts the reading process when a sample is requested, restarts it when it
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

use super::{AHEAD_MAX, HEADER_BYTES, READ, TEXT_BYTES_MAX, fault_of};
use crate::source::{Access, Identity};

/// Interval at which the caller is asked whether to continue waiting.
const ASK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The `tierfeed` executable: a path, or a name to look for in `PATH`.
    pub exe: PathBuf,
    pub index: PathBuf,
    /// Has no effect on files.
    pub access: Access,
}

#[derive(Debug)]
pub struct Reader {
    launch: Launch,
    running: Option<Running>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReaderError {
    /// The sample cannot be read; others can.
    #[error("{message}")]
    Unreadable { fault: Fault, message: String },
    #[error(
        "cannot start {} to read the bucket: {source}; set TIERFEED_EXE to the tierfeed executable, or \
         add its directory to PATH",
        .exe.display()
    )]
    NotStarted { exe: PathBuf, source: io::Error },
    #[error(
        "the process that reads the bucket ended twice without an answer ({}); it says why on \
         standard error",
        .status.map_or_else(|| "exit status unknown".to_owned(), |status| status.to_string())
    )]
    Died {
        /// Exit status of the process, unless other code waited for it.
        status: Option<ExitStatus>,
    },
    #[error("{} reads the bucket for another release of tierfeed: {found}", .exe.display())]
    ProtocolMismatch { exe: PathBuf, found: InvalidAnswer },
    #[error("the pipe to the process that reads the bucket failed: {0}")]
    Pipe(#[source] io::Error),
    /// The caller has given up waiting.
    #[error("interrupted")]
    Interrupted,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidAnswer {
    #[error("status {0} is unknown")]
    Status(u8),
    #[error("{} bytes for a sample of {}", .found.0, .expected.0)]
    Length { expected: Bytes, found: Bytes },
    #[error("a text of {} bytes", .0.0)]
    Text(Bytes),
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// A socket and not a pipe: writing to a pipe without a reader kills a trainer with the default
    /// `SIGPIPE` action.
    numbers: UnixStream,
    answers: ChildStdout,
    asked: VecDeque<SampleId>,
    /// The process that started it: a fork has a copy of this value that it must not use.
    owner: u32,
}

enum Failure {
    /// The process ended, or closed its end of a pipe.
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
    /// Creates the reader; the process is started by the first read.
    #[must_use]
    pub const fn new(launch: Launch) -> Self {
        Self { launch, running: None }
    }

    #[must_use]
    pub const fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Reads the first of `samples` into `buffer`, which must be exactly as long. The following
    /// ones will be requested next: they are read ahead.
    ///
    /// `keep_waiting` is called at least every 100 ms and returns whether to continue waiting.
    ///
    /// # Errors
    ///
    /// A [`ReaderError`]; the content of `buffer` is invalid then. The next call may succeed.
    pub fn read_into(
        &mut self,
        samples: &[SampleId],
        buffer: &mut [u8],
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Result<(), ReaderError> {
        let outcome = match self.attempt(samples, buffer, keep_waiting) {
            Err(Failure::Ended(_)) => self.attempt(samples, buffer, keep_waiting),
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
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Result<(), Failure> {
        let mut running = match self.running.take().filter(|it| it.is_in_step(samples)) {
            Some(running) => running,
            None => Running::start(&self.launch)?,
        };
        running.ask(samples)?;
        match running.answer(buffer, keep_waiting)? {
            Answer::Read => {
                self.running = Some(running);
                Ok(())
            }
            Answer::Unreadable { fault, message } => {
                self.running = Some(running);
                Err(ReaderError::Unreadable { fault, message }.into())
            }
            Answer::Invalid(found) => {
                let exe = self.launch.exe.clone();
                Err(ReaderError::ProtocolMismatch { exe, found }.into())
            }
        }
    }
}

enum Answer {
    Read,
    Unreadable { fault: Fault, message: String },
    Invalid(InvalidAnswer),
}

impl Running {
    fn start(launch: &Launch) -> Result<Self, ReaderError> {
        let failed = |source| ReaderError::NotStarted { exe: launch.exe.clone(), source };
        let (numbers, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(&launch.exe);
        command.arg("read").arg("--index").arg(&launch.index);
        let Access { endpoint, region, identity } = &launch.access;
        for (option, value) in [("--endpoint", endpoint), ("--region", region)] {
            if let Some(value) = value {
                command.arg(option).arg(value);
            }
        }
        if *identity == Identity::Anonymous {
            command.arg("--anonymous");
        }
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped());
        // A terminal interrupts its whole process group; the trainer may continue after that.
        let mut child = command.process_group(0).spawn().map_err(failed)?;
        let answers = child.stdout.take().expect("it was asked for");
        Ok(Self { child, numbers, answers, asked: VecDeque::new(), owner: process::id() })
    }

    /// Whether this process started the reader, and the next answers are those to `samples`.
    fn is_in_step(&self, samples: &[SampleId]) -> bool {
        let is_ours = self.owner == process::id();
        is_ours
            && samples.iter().zip(&self.asked).all(|(sample, asked)| sample == asked)
            && self.asked.len() <= samples.len()
    }

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
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Result<Answer, Failure> {
        let mut header = [0; HEADER_BYTES];
        self.fill(&mut header, keep_waiting)?;
        let [status, len @ ..] = header;
        let (len, expected) = (u64::from_le_bytes(len), buffer.len() as u64);
        let answer = match (status, fault_of(status)) {
            (READ, _) if len == expected => {
                self.fill(buffer, keep_waiting)?;
                Answer::Read
            }
            (READ, _) => {
                let (expected, found) = (Bytes(expected), Bytes(len));
                Answer::Invalid(InvalidAnswer::Length { expected, found })
            }
            (_, None) => Answer::Invalid(InvalidAnswer::Status(status)),
            (_, Some(fault)) => match usize::try_from(len) {
                Ok(len) if len <= TEXT_BYTES_MAX => {
                    let mut text = vec![0; len];
                    self.fill(&mut text, keep_waiting)?;
                    let message = String::from_utf8_lossy(&text).into_owned();
                    Answer::Unreadable { fault, message }
                }
                _ => Answer::Invalid(InvalidAnswer::Text(Bytes(len))),
            },
        };
        self.asked.pop_front();
        Ok(answer)
    }

    fn fill(
        &mut self,
        mut buffer: &mut [u8],
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Result<(), Failure> {
        while !buffer.is_empty() {
            if !keep_waiting() {
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

    /// Ends the process, which has ended by itself or would not answer any more.
    fn ended(&mut self) -> Failure {
        // An error means that it has ended already.
        let _ = self.child.kill();
        Failure::Ended(self.child.wait().ok())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A fork closes its copies of the pipes and leaves the process to its owner.
        if self.owner == process::id() {
            // Errors mean that it has ended already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
