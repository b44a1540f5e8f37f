//! The trainer's side: starts the reading process when a sample is requested, restarts it when it
//! dies, and ends it.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read as _},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::{self, Child, Command, ExitStatus},
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{SendFlags, send},
};
use tierfeed_core::{session::Fault, units::Bytes};

use super::{AHEAD_MAX, Asked, Header, ReadFault, ReadTask, TEXT_BYTES_MAX};

/// Interval at which the caller is asked whether to continue waiting.
const ASK_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Reader {
    /// The `tierfeed` executable: a path, or a name to look for in `PATH`.
    exe: PathBuf,
    task: ReadTask,
    running: Option<Running>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReaderError {
    /// The sample cannot be read or transformed; others can.
    #[error("{}", .0.message)]
    Unreadable(ReadFault),
    /// No worker transforms samples.
    #[error("{0}")]
    NoWorker(String),
    #[error(
        "cannot start {} to read samples: {source}; set TIERFEED_EXE to the tierfeed executable, or \
         add its directory to PATH",
        .exe.display()
    )]
    NotStarted { exe: PathBuf, source: io::Error },
    #[error(
        "the process that reads samples ended twice without an answer ({}); it says why on \
         standard error",
        .status.map_or_else(|| "exit status unknown".to_owned(), |status| status.to_string())
    )]
    Died {
        /// Exit status of the process, unless other code waited for it.
        status: Option<ExitStatus>,
    },
    #[error("{} reads samples for another release of tierfeed: {found}", .exe.display())]
    ProtocolMismatch { exe: PathBuf, found: String },
    #[error("the socket to the process that reads samples failed: {0}")]
    Socket(#[source] io::Error),
    /// The caller has given up waiting.
    #[error("interrupted")]
    Interrupted,
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// A socket and not pipes: writing to a pipe without a reader kills a trainer with the default
    /// `SIGPIPE` action.
    socket: UnixStream,
    asked: VecDeque<Asked>,
    /// The process that started it: a fork has a copy of this value that it must not use.
    owner: u32,
}

enum Failure {
    /// The process ended, or closed its end of the socket.
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
        Self::Final(ReaderError::Socket(error))
    }
}

impl ReaderError {
    /// Whether another attempt is worth nothing, as the program or its surroundings must change.
    #[must_use]
    pub fn is_of_setup(&self) -> bool {
        matches!(self, Self::NotStarted { .. } | Self::ProtocolMismatch { .. } | Self::NoWorker(_))
    }
}

impl Reader {
    /// Creates the reader; the process is started by the first read.
    #[must_use]
    pub const fn new(exe: PathBuf, task: ReadTask) -> Self {
        Self { exe, task, running: None }
    }

    /// Reads the first of `wanted` into `parts`, one behind the other, which must be exactly as long. The
    /// following ones will be requested next: they are read ahead.
    ///
    /// `keep_waiting` is called at least every 100 ms and returns whether to continue waiting.
    ///
    /// # Errors
    ///
    /// A [`ReaderError`]; the content of `parts` is invalid then. The next call may succeed.
    pub fn read_into(
        &mut self,
        wanted: &[Asked],
        parts: &mut [&mut [u8]],
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Result<(), ReaderError> {
        let outcome = match self.attempt(wanted, parts, keep_waiting) {
            Err(Failure::Ended(_)) => self.attempt(wanted, parts, keep_waiting),
            outcome => outcome,
        };
        outcome.map_err(|failure| match failure {
            Failure::Ended(status) => ReaderError::Died { status },
            Failure::Final(error) => error,
        })
    }

    fn attempt(
        &mut self,
        wanted: &[Asked],
        parts: &mut [&mut [u8]],
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Result<(), Failure> {
        let mut running = match self.running.take().filter(|it| it.is_in_step(wanted)) {
            Some(running) => running,
            None => Running::start(&self.exe, &self.task)?,
        };
        running.ask(wanted)?;
        let error = match running.answer(parts, keep_waiting)? {
            Answer::Read => {
                self.running = Some(running);
                return Ok(());
            }
            Answer::Unreadable(ReadFault { fault: Fault::NoWorker, message, .. }) => {
                ReaderError::NoWorker(message)
            }
            Answer::Unreadable(fault) => {
                self.running = Some(running);
                ReaderError::Unreadable(fault)
            }
            Answer::Invalid(found) => {
                ReaderError::ProtocolMismatch { exe: self.exe.clone(), found }
            }
        };
        Err(error.into())
    }
}

enum Answer {
    Read,
    Unreadable(ReadFault),
    Invalid(String),
}

impl Running {
    fn start(exe: &Path, task: &ReadTask) -> Result<Self, Failure> {
        let failed = |source| ReaderError::NotStarted { exe: exe.to_owned(), source };
        let (socket, theirs) = UnixStream::pair().map_err(failed)?;
        socket.set_read_timeout(Some(ASK_EVERY)).map_err(failed)?;
        let output = theirs.try_clone().map_err(failed)?;
        let mut command = Command::new(exe);
        command.arg("read").stdin(OwnedFd::from(theirs)).stdout(OwnedFd::from(output));
        // A terminal interrupts its whole process group; the trainer may continue after that.
        let child = command.process_group(0).spawn().map_err(failed)?;
        let mut running = Self { child, socket, asked: VecDeque::new(), owner: process::id() };
        let mut line = serde_json::to_vec(task).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        running.send(&line)?;
        Ok(running)
    }

    /// Whether this process started the reader, and the next answers are those to `wanted`.
    fn is_in_step(&self, wanted: &[Asked]) -> bool {
        let is_ours = self.owner == process::id();
        is_ours
            && wanted.iter().zip(&self.asked).all(|(wanted, asked)| wanted == asked)
            && self.asked.len() <= wanted.len()
    }

    fn ask(&mut self, wanted: &[Asked]) -> Result<(), Failure> {
        let new = wanted.iter().take(AHEAD_MAX).skip(self.asked.len());
        let bytes: Vec<u8> = new.clone().flat_map(|asked| asked.to_bytes()).collect();
        self.asked.extend(new);
        self.send(&bytes)
    }

    fn send(&mut self, mut rest: &[u8]) -> Result<(), Failure> {
        while !rest.is_empty() {
            match send(&self.socket, rest, SendFlags::NOSIGNAL) {
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
        parts: &mut [&mut [u8]],
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Result<Answer, Failure> {
        let mut header = [0; Header::BYTES];
        self.fill(&mut header, keep_waiting)?;
        let expected = Bytes(parts.iter().map(|part| part.len() as u64).sum());
        let answer = match Header::of_bytes(header) {
            Err(status) => Answer::Invalid(format!("status {status} is unknown")),
            Ok(Header { fault: None, len, .. }) if len == expected => {
                for part in parts {
                    self.fill(part, keep_waiting)?;
                }
                Answer::Read
            }
            Ok(Header { fault: None, len: found, .. }) => {
                Answer::Invalid(format!("{} bytes for a sample of {}", found.0, expected.0))
            }
            Ok(Header { fault: Some(fault), errno, len }) => match usize::try_from(len.0) {
                Ok(len) if len <= TEXT_BYTES_MAX => {
                    let mut text = vec![0; len];
                    self.fill(&mut text, keep_waiting)?;
                    let message = String::from_utf8_lossy(&text).into_owned();
                    let errno = Some(errno).filter(|errno| *errno != 0);
                    Answer::Unreadable(ReadFault { fault, errno, message })
                }
                _ => Answer::Invalid(format!("a text of {} bytes", len.0)),
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
            match self.socket.read(buffer) {
                Ok(0) => return Err(self.ended()),
                Ok(read) => buffer = &mut buffer[read..],
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted | ErrorKind::WouldBlock => (),
                    ErrorKind::ConnectionReset => return Err(self.ended()),
                    _ => return Err(error.into()),
                },
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
