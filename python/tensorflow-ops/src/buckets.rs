//! The objects of buckets, read by processes of `tierfeed objects`: a training has neither threads of its own
//! for the network nor a client.
//!
//! A process answers one question at a time; calls that ask at once get a process each, at most
//! [`PROCESSES_MAX`]. A process that dies is replaced once for a question. It ends when its input is closed,
//! so with this process.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::c_api::{Code, Failure};

/// Processes at a time.
const PROCESSES_MAX: usize = 4;

/// Ranges that a block is read in, at the same time.
const RANGE_BYTES: u64 = 1 << 20;

/// How buckets are reached.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Access {
    /// The `tierfeed` program.
    exe: PathBuf,
    /// The arguments of `tierfeed objects`.
    options: Vec<String>,
}

/// The objects of all buckets that are reached in one way.
pub(crate) struct Buckets {
    access: Access,
    pool: Mutex<Pool>,
    released: Condvar,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Process>,
    /// Processes that are answering.
    busy: usize,
}

struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// An object as it was listed. Ranges are read of this version only.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Object {
    pub(crate) key: String,
    pub(crate) size: u64,
    pub(crate) mtime_ns: i64,
    etag: Option<String>,
}

/// What lies in a directory.
#[derive(Debug, Deserialize)]
pub(crate) struct Found {
    pub(crate) objects: Vec<Object>,
    pub(crate) directories: Vec<String>,
}

#[derive(Serialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
enum Question<'a> {
    Stat { bucket: &'a str, key: &'a str },
    List { bucket: &'a str, key: &'a str },
    Read { bucket: &'a str, objects: [Wanted<'a>; 1] },
}

#[derive(Serialize)]
struct Wanted<'a> {
    #[serde(flatten)]
    object: &'a Object,
    ranges: Vec<(u64, u64)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Found(Found),
    Read(Vec<Outcome>),
    Failed(Refusal),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    Bytes(u64),
    Failed(Refusal),
}

#[derive(Deserialize)]
struct Refusal {
    kind: String,
    message: String,
}

impl Buckets {
    pub(crate) fn new(access: Access) -> Self {
        Self { access, pool: Mutex::default(), released: Condvar::new() }
    }

    /// What an object is.
    pub(crate) fn stat(&self, bucket: &str, key: &str) -> Result<Object, Failure> {
        let (answer, _) = self.ask(&Question::Stat { bucket, key })?;
        match answer {
            Answer::Found(Found { mut objects, .. }) if !objects.is_empty() => {
                Ok(objects.swap_remove(0))
            }
            answer => Err(refused(answer)),
        }
    }

    /// The objects and directories in a directory.
    pub(crate) fn children(&self, bucket: &str, key: &str) -> Result<Found, Failure> {
        let (answer, _) = self.ask(&Question::List { bucket, key })?;
        match answer {
            Answer::Found(found) => Ok(found),
            answer => Err(refused(answer)),
        }
    }

    /// Bytes of an object, from one to another.
    pub(crate) fn read(
        &self,
        bucket: &str,
        object: &Object,
        (start, end): (u64, u64),
    ) -> Result<Vec<u8>, Failure> {
        let starts = (start..end).step_by(usize::try_from(RANGE_BYTES).unwrap_or(usize::MAX));
        let ranges = starts.map(|at| (at, end.min(at + RANGE_BYTES))).collect();
        let objects = [Wanted { object, ranges }];
        match self.ask(&Question::Read { bucket, objects })? {
            (Answer::Read(mut outcomes), bytes) => match outcomes.pop() {
                Some(Outcome::Bytes(_)) => Ok(bytes),
                Some(Outcome::Failed(refusal)) => Err(refusal.into()),
                None => Err(Failure::new(Code::Internal, "`tierfeed objects` read nothing")),
            },
            (answer, _) => Err(refused(answer)),
        }
    }

    fn ask(&self, question: &Question<'_>) -> Result<(Answer, Vec<u8>), Failure> {
        let mut line = serde_json::to_vec(question)
            .map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
        line.push(b'\n');
        let mut process = self.take();
        let mut answered = self.ask_one(&mut process, &line);
        if answered.is_err() {
            process = None;
            answered = self.ask_one(&mut process, &line);
        }
        let mut pool = self.lock();
        pool.busy -= 1;
        pool.idle.extend(process.filter(|_| answered.is_ok()));
        drop(pool);
        self.released.notify_one();
        answered.map_err(|error| {
            let message = format!("`tierfeed objects` did not answer: {error}");
            Failure::new(Code::Unavailable, message)
        })
    }

    /// A process that answers nobody, or none if another one may be started.
    fn take(&self) -> Option<Process> {
        let mut pool = self.lock();
        while pool.busy >= PROCESSES_MAX {
            pool = self.released.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
        pool.busy += 1;
        pool.idle.pop()
    }

    fn ask_one(&self, process: &mut Option<Process>, line: &[u8]) -> io::Result<(Answer, Vec<u8>)> {
        if process.is_none() {
            *process = Some(self.start()?);
        }
        let Some(Process { input, output, .. }) = process else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        input.write_all(line)?;
        input.flush()?;
        let mut header = String::new();
        output.read_line(&mut header)?;
        let answer: Answer = serde_json::from_str(&header)?;
        let mut follows = 0;
        if let Answer::Read(outcomes) = &answer {
            let lens =
                outcomes.iter().map(|it| if let Outcome::Bytes(len) = it { *len } else { 0 });
            follows = lens.sum();
        }
        let mut bytes = vec![0; usize::try_from(follows).unwrap_or(usize::MAX)];
        output.read_exact(&mut bytes)?;
        Ok((answer, bytes))
    }

    fn start(&self) -> io::Result<Process> {
        let mut command = Command::new(&self.access.exe);
        // In a group of its own: an interrupt from the terminal is for the training.
        command.arg("objects").args(&self.access.options).process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or(io::ErrorKind::NotConnected)?;
        Ok(Process { child, input, output: BufReader::new(output) })
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl From<Refusal> for Failure {
    fn from(Refusal { kind, message }: Refusal) -> Self {
        let code = match kind.as_str() {
            "not-found" => Code::NotFound,
            "denied" => Code::PermissionDenied,
            "changed" => Code::DataLoss,
            _ => Code::Unavailable,
        };
        Self::new(code, message)
    }
}

fn refused(answer: Answer) -> Failure {
    match answer {
        Answer::Failed(refusal) => refusal.into(),
        Answer::Found(_) | Answer::Read(_) => {
            Failure::new(Code::Internal, "`tierfeed objects` answered another question")
        }
    }
}
