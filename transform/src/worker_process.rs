//! Starts a transform worker as a child process, exchanges packets with it, and reaps it.
//!
//! The worker gets its socket as standard input and inherits nothing else that this program opened:
//! Rust opens every descriptor so that it closes at an `exec`. Its standard error is a pipe, so that it has
//! no terminal; what it said last is told with how it ended. It ends when this process ends, or when the
//! value here is dropped.

use std::{
    env, fmt, fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::{CommandExt as _, ExitStatusExt as _},
    },
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::Mutex,
    time::{Duration, Instant},
};

use rustix::{
    event::{Timespec, poll},
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    pipe::{PipeFlags, pipe_with},
};

use crate::worker_protocol::{
    self, Arrival, FromWorker, Outcome, PACKET_BYTES_MAX, PacketError, Setup, ToWorker,
};

/// The name that a worker has in lists of processes.
const NAME: &str = "tierfeed-transform-worker";

/// The variables that a worker gets of the environment of its starter, which may hold keys of a store: where
/// libraries lie.
const VARIABLES: [&str; 1] = ["LD_LIBRARY_PATH"];

/// The time that a process which has begun to end may take for it.
const MOMENT: Duration = Duration::from_millis(200);

/// The interval at which a process that is ending is polled.
const LOOKED_EVERY: Duration = Duration::from_millis(1);

/// Processes that had not ended a moment after they were killed: those that wait for a device, for example.
static LATE: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// Number of late processes that are reaped later; more are left as zombies until this process ends.
const LATE_MAX: usize = 64;

/// The shortest interval between two readings of the number of killed processes: it is in a long file.
const KILLS_READ_EVERY: Duration = Duration::from_millis(100);

/// The program that works as a transform worker if it is started with these arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub path: PathBuf,
    /// Its arguments: `transform-worker` for the `tierfeed` command.
    pub arguments: Vec<String>,
}

impl Program {
    #[must_use]
    pub fn tierfeed(path: PathBuf) -> Self {
        Self { path, arguments: vec!["transform-worker".to_owned()] }
    }
}

/// Bytes at the end of what a worker said that are kept, and characters of its last line that are told.
const SAID_BYTES_MAX: usize = 1024;
const SAID_CHARS_MAX: usize = 200;

#[derive(Debug)]
pub struct WorkerProcess {
    /// `None` once it was reaped.
    child: Option<Child>,
    id: u32,
    socket: OwnedFd,
    buffer: Vec<u8>,
    /// Requests without an answer.
    requested: u64,
    kills: MemoryKills,
    said: Said,
}

/// The standard error of a worker.
#[derive(Debug)]
struct Said {
    /// Reads and writes do not wait: text that finds no room is lost, and holds up no process.
    pipe: OwnedFd,
    last: Vec<u8>,
}

/// The number of processes that the kernel killed for lack of memory.
#[derive(Debug)]
struct MemoryKills {
    /// Before the worker's present work.
    before: Option<u64>,
    /// At the last reading, which may be after the worker was killed.
    last: Option<u64>,
    read_at: Instant,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    status: Option<ExitStatus>,
    /// Whether the kernel killed processes for lack of memory while this one worked at its last sample.
    was_memory_short: bool,
    /// The last line that it wrote to its standard error.
    said: String,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error("cannot start {} as a transform worker: {source}", .path.display())]
    Program { path: PathBuf, source: io::Error },
    #[error("{} as a transform worker {ending} at its start", .path.display())]
    Ended { path: PathBuf, ending: Ending },
}

impl WorkerProcess {
    /// Starts `program` and sends `setup`. Does not wait for the answer.
    ///
    /// # Errors
    ///
    /// [`StartError`]; no process is left then.
    pub fn start(program: &Program, setup: &Setup) -> Result<Self, StartError> {
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        reap_late();
        let failed = |source| StartError::Program { path: program.path.clone(), source };
        let (socket, of_child) = pair.map_err(|errno| failed(errno.into()))?;
        let pipe = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
        let (pipe, said_by_child) = pipe.map_err(|errno| failed(errno.into()))?;
        let child = Command::new(&program.path)
            .arg0(NAME)
            .args(&program.arguments)
            .env_clear()
            .envs(VARIABLES.iter().filter_map(|name| Some((name, env::var_os(name)?))))
            .stdin(Stdio::from(of_child))
            .stdout(Stdio::null())
            .stderr(Stdio::from(said_by_child))
            .spawn()
            .map_err(failed)?;
        let buffer = vec![0; PACKET_BYTES_MAX];
        let mut worker = Self {
            id: child.id(),
            child: Some(child),
            socket,
            buffer,
            requested: 0,
            kills: MemoryKills::read(),
            said: Said { pipe, last: Vec::new() },
        };
        if worker.send(&ToWorker::Setup(setup.clone()), None).is_err() {
            let (path, ending) = (program.path.clone(), worker.end_by_itself());
            return Err(StartError::Ended { path, ending });
        }
        Ok(worker)
    }

    /// Sends a packet, with a descriptor if one is given.
    ///
    /// # Errors
    ///
    /// As [`worker_protocol::send`].
    pub fn send(
        &mut self,
        packet: &ToWorker,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), PacketError> {
        let is_request = matches!(packet, ToWorker::Request(_));
        if is_request {
            self.kills.note(self.requested);
        }
        worker_protocol::send(self.socket.as_fd(), &packet.encode(), descriptor)?;
        self.requested += u64::from(is_request);
        Ok(())
    }

    /// Receives a packet if one is there.
    ///
    /// # Errors
    ///
    /// As [`worker_protocol::receive`].
    pub fn receive(&mut self) -> Result<Arrival<FromWorker>, PacketError> {
        let arrival =
            worker_protocol::receive(self.socket.as_fd(), &mut self.buffer, FromWorker::decode)?;
        if let Arrival::Packet(FromWorker::Answer { outcome, .. }, _) = &arrival {
            self.requested = self.requested.saturating_sub(1);
            // A panic was said too, and one after the other would fill the pipe.
            if matches!(outcome, Outcome::Untransformable(_)) {
                self.said.read();
            }
        }
        Ok(arrival)
    }

    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Kills the process, unless it has ended already, and says how it ended.
    pub fn end(mut self) -> Ending {
        self.reap()
    }

    /// As [`Self::end`], of a process that broke its connection: it is ending by itself, and gets a moment
    /// for it, so that its own reason is seen.
    pub fn end_by_itself(mut self) -> Ending {
        self.ended_within(MOMENT).unwrap_or_else(|| self.reap())
    }

    /// Kills the process; the first call says how it ended.
    fn reap(&mut self) -> Ending {
        if let Some(ending) = self.ended_within(Duration::ZERO) {
            return ending;
        }
        if let Some(child) = &mut self.child {
            // It fails for a process that has ended, which the wait tells.
            let _ = child.kill();
        }
        if let Some(ending) = self.ended_within(MOMENT) {
            return Ending { was_memory_short: false, ..ending };
        }
        self.child.take().into_iter().for_each(reap_later);
        Ending { status: None, was_memory_short: false, said: self.said.last_line() }
    }

    /// Reaps the process if it ends within this time.
    fn ended_within(&mut self, patience: Duration) -> Option<Ending> {
        let began = now();
        loop {
            if let Some(status) = self.child.as_mut()?.try_wait().ok()? {
                self.child = None;
                let was_memory_short = memory_kills() > self.kills.before;
                let said = self.said.last_line();
                return Some(Ending { status: Some(status), was_memory_short, said });
            }
            let left = left(patience, began);
            if left.is_zero() {
                return None;
            }
            let pause =
                Timespec { tv_sec: 0, tv_nsec: i64::from(left.min(LOOKED_EVERY).subsec_nanos()) };
            // A wait that a signal ends is followed by another.
            let _ = poll(&mut [], Some(&pause));
        }
    }
}

impl Said {
    fn read(&mut self) {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = rustix::io::read(&self.pipe, &mut bytes) {
            self.last.extend_from_slice(&bytes[..count]);
            let old = self.last.len().saturating_sub(SAID_BYTES_MAX);
            self.last.drain(..old);
        }
    }

    /// The last line, without what could move a cursor: a hostile sample may have written it.
    fn last_line(&mut self) -> String {
        self.read();
        let text = String::from_utf8_lossy(&self.last);
        let line = text.trim_ascii_end().rsplit(['\n', '\r']).next().unwrap_or_default();
        line.chars().filter(|it| !it.is_control()).take(SAID_CHARS_MAX).collect()
    }
}

impl MemoryKills {
    fn read() -> Self {
        let kills = memory_kills();
        Self { before: kills, last: kills, read_at: now() }
    }

    /// Notes that the worker gets a request beside so many others.
    fn note(&mut self, others: u64) {
        if self.read_at.elapsed() < KILLS_READ_EVERY {
            return;
        }
        let last = self.last;
        *self = Self::read();
        if others > 0 {
            // The worker may have been killed just now.
            self.before = last;
        }
    }
}

impl AsFd for WorkerProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.reap();
    }
}

impl Ending {
    fn signal(&self) -> Option<i32> {
        self.status.and_then(|status| status.signal())
    }

    /// Whether the worker ended itself, because a sample took longer than one may.
    #[must_use]
    pub fn took_too_long(&self) -> bool {
        self.signal() == Some(libc::SIGALRM)
    }

    /// Whether the kernel killed the worker for lack of memory, as far as can be told.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.signal() == Some(libc::SIGKILL) && self.was_memory_short
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(status) = self.status else { return f.write_str("ended, no one knows how") };
        match (status.signal(), status.code()) {
            (Some(libc::SIGALRM), _) => f.write_str("took longer than one sample may"),
            (Some(libc::SIGKILL), _) if self.was_memory_short => {
                f.write_str("ended by SIGKILL, when the kernel killed processes for lack of memory")
            }
            (Some(signal), _) => match signal_name(signal) {
                Some(name) => write!(f, "ended by {name}"),
                None => write!(f, "ended by signal {signal}"),
            },
            (None, code) => write!(f, "ended with code {}", code.unwrap_or(-1)),
        }?;
        if self.said.is_empty() { Ok(()) } else { write!(f, ", and said \"{}\"", self.said) }
    }
}

/// The signals by which decoders end.
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGABRT => "SIGABRT (out of memory, or an assertion)",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGSYS => "SIGSYS (a forbidden system call)",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        _ => return None,
    })
}

/// Keeps a killed process for [`reap_late`].
fn reap_later(child: Child) {
    if let Ok(mut late) = LATE.lock()
        && late.len() < LATE_MAX
    {
        late.push(child);
    }
}

/// Reaps those of the late processes that have ended.
fn reap_late() {
    if let Ok(mut late) = LATE.lock() {
        late.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

/// The number of processes that the kernel has killed for lack of memory, of the host or of a control group;
/// `None` before Linux 4.13.
fn memory_kills() -> Option<u64> {
    let counters = fs::read_to_string("/proc/vmstat").ok()?;
    counters.lines().find_map(|line| line.strip_prefix("oom_kill "))?.parse().ok()
}

fn left(patience: Duration, began: Instant) -> Duration {
    patience.saturating_sub(began.elapsed())
}

#[expect(clippy::disallowed_methods, reason = "the one place of this crate that reads the clock")]
fn now() -> Instant {
    Instant::now()
}
