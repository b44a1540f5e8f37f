//! The objects of buckets, read by processes of `tierfeed objects`: a training has neither threads of its own
//! for the network nor a client.
//!
//! A process answers one question at a time; calls that ask at once get a process each, at most
//! [`PROCESSES_MAX`]. A process that dies is replaced once for a question. It ends when its input is closed,
//! so with this process. A forked child starts its own: the others answer its parent.
//!
//! `tierfeed/objects.py` is the same for Python.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{self, Child, ChildStdin, ChildStdout, Command, Stdio},
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
    /// The process that started them.
    owner: u32,
    idle: Vec<Process>,
    /// Processes that are answering.
    busy: usize,
}

/// The turn of a question, with the process that answers it; both go back on drop.
struct Turn<'a> {
    buckets: &'a Buckets,
    process: Option<Process>,
}

struct Process {
    /// The process that started it.
    owner: u32,
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
        let mut turn = self.take();
        turn.ask(&line).or_else(|_| turn.ask(&line)).map_err(|error| {
            let message = format!("`tierfeed objects` did not answer: {error}");
            Failure::new(Code::Unavailable, message)
        })
    }

    /// Waits until fewer than [`PROCESSES_MAX`] questions are being answered, and takes an idle process; if
    /// none is idle, the caller starts one.
    fn take(&self) -> Turn<'_> {
        let mut pool = self.lock();
        while pool.busy >= PROCESSES_MAX {
            pool = self.released.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
        pool.busy += 1;
        Turn { buckets: self, process: pool.idle.pop() }
    }

    fn start(&self) -> io::Result<Process> {
        let mut command = Command::new(&self.access.exe);
        // In a group of its own: an interrupt from the terminal is for the training.
        command.arg("objects").args(&self.access.options).process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or(io::ErrorKind::NotConnected)?;
        Ok(Process { owner: process::id(), child, input, output: BufReader::new(output) })
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.owner != process::id() {
            *pool = Pool { owner: process::id(), ..Pool::default() };
        }
        pool
    }
}

impl Turn<'_> {
    /// Asks the process, or a new one. One that did not answer is not asked again.
    fn ask(&mut self, line: &[u8]) -> io::Result<(Answer, Vec<u8>)> {
        let mut process = self.process.take().map_or_else(|| self.buckets.start(), Ok)?;
        let answered = process.ask(line)?;
        self.process = Some(process);
        Ok(answered)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut pool = self.buckets.lock();
        pool.busy = pool.busy.saturating_sub(1);
        pool.idle.extend(self.process.take());
        drop(pool);
        self.buckets.released.notify_one();
    }
}

impl Process {
    fn ask(&mut self, line: &[u8]) -> io::Result<(Answer, Vec<u8>)> {
        let Self { input, output, .. } = self;
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
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.owner != process::id() {
            return;
        }
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

#[cfg(test)]
mod tests {
    use std::{
        fs,
        panic::{AssertUnwindSafe, catch_unwind},
        path::Path,
    };

    use super::*;

    /// Buckets that a script answers for, which has its own number as `$$`.
    fn answered_by(answer: &str, directory: &Path) -> Buckets {
        let script = directory.join("answer.sh");
        fs::write(&script, format!("while read -r line; do {answer}; done\n")).expect("write");
        let options = vec![script.display().to_string()];
        // Its arguments are `objects` and the script.
        let objects = directory.join("run.sh");
        fs::write(&objects, "#!/bin/sh\nexec sh \"$2\"\n").expect("write");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(&objects, mode).expect("chmod");
        Buckets::new(Access { exe: objects, options })
    }

    const NUMBER: &str = r#"echo "{\"found\":{\"objects\":[],\"directories\":[\"$$\"]}}""#;

    /// The number of the process that answers.
    fn answering(buckets: &Buckets) -> String {
        buckets.children("s3://bucket", "").expect("an answer").directories.remove(0)
    }

    fn lives(number: &str) -> bool {
        Path::new("/proc").join(number).exists()
    }

    #[test]
    fn a_process_answers_again_and_is_replaced_when_it_has_died() {
        let directory = tempfile::tempdir().expect("a directory");
        let buckets = answered_by(NUMBER, directory.path());
        let first = answering(&buckets);
        assert_eq!(answering(&buckets), first);
        let mut idle = buckets.lock().idle.pop().expect("an idle process");
        idle.child.kill().expect("kill");
        idle.child.wait().expect("wait");
        buckets.lock().idle.push(idle);
        assert_ne!(answering(&buckets), first);
        assert!(!lives(&first));
    }

    #[test]
    fn a_forked_child_asks_a_process_of_its_own_and_ends_none_of_its_parent() {
        let directory = tempfile::tempdir().expect("a directory");
        let buckets = answered_by(NUMBER, directory.path());
        let parents = answering(&buckets);
        // What a child finds: processes that another one has started.
        let mut pool = buckets.lock();
        pool.owner += 1;
        pool.idle[0].owner += 1;
        drop(pool);
        let own = answering(&buckets);
        assert_ne!(own, parents);
        assert!(lives(&parents), "it was neither killed nor waited for");
        assert!(buckets.lock().idle.iter().all(|it| it.owner == process::id()));
        drop(buckets);
        assert!(!lives(&own));
    }

    #[test]
    fn a_panic_of_a_question_gives_its_turn_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let answer = r#"echo "{\"read\":[{\"bytes\":18446744073709551615}]}""#;
        let buckets = answered_by(answer, directory.path());
        for _ in 0..=PROCESSES_MAX {
            let asked = catch_unwind(AssertUnwindSafe(|| buckets.stat("s3://bucket", "key")));
            assert!(asked.is_err(), "no room for so many bytes");
        }
        assert_eq!(buckets.lock().busy, 0);
    }
}
