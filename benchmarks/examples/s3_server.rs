//! An S3 server on loopback in a process of its own, for `tierfeed-bench objects` and `tierfeed-bench
//! chaos`.
//!
//! Arguments come in threes: a prefix, how many objects are below it, and how many bytes each has. The
//! objects are in the bucket `bucket`; byte `i` of object `n` is `(31 i + 7 n) mod 251`. Or they are
//! `--folder DIR PREFIX`: the files below `DIR`, with keys below `PREFIX`, read when they are asked for.
//! Before these stand options that make it as slow as a bucket far away: `--latency "20 ms"`, from a request
//! to the first byte of its answer; `--connection-rate "50 MB/s"` of each connection; `--rate "200 MB/s"` of
//! all together. Prints where it listens and serves until its input ends.
//!
//! A line of its input is a command: `begin NUMBER FAULT [KEY]...` begins a fault for the objects of these
//! keys, or without a key for every request, until `end NUMBER`. [`Fault`] has the faults.

use std::{
    env,
    error::Error,
    fs,
    io::{self, Write as _},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tierfeed_core::units::{BytesPerSecond, Nanoseconds};
use tierfeed_object_stores::test_server::{Access, BUCKET, Pace, Server, StatusCode, Verdict};

/// Bytes of a body that are sent before it is cut or stalls.
const BEGINNING: usize = 10_000;

type Fallible<T> = Result<T, Box<dyn Error>>;

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// `refuse`: requests are answered with 503.
    Refuse,
    /// `hide`: requests are answered with 404.
    Hide,
    /// `cut`: the connection is closed within the body.
    Cut,
    /// `stall`: nothing follows the beginning of the body.
    Stall,
}

#[derive(Debug)]
struct Rule {
    number: u64,
    fault: Fault,
    /// Requested paths; empty for all requests.
    paths: Vec<String>,
}

#[derive(Debug, Default)]
struct Rules(Mutex<Vec<Rule>>);

impl Fault {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "refuse" => Some(Self::Refuse),
            "hide" => Some(Self::Hide),
            "cut" => Some(Self::Cut),
            "stall" => Some(Self::Stall),
            _ => None,
        }
    }

    fn verdict(self) -> Verdict {
        match self {
            Self::Refuse => Verdict::Refuse(StatusCode::SERVICE_UNAVAILABLE),
            Self::Hide => Verdict::Refuse(StatusCode::NOT_FOUND),
            Self::Cut => Verdict::CutAfter { bytes: BEGINNING },
            Self::Stall => Verdict::StallAfter { bytes: BEGINNING },
        }
    }
}

impl Rules {
    /// The first of several active faults decides.
    fn verdict(&self, path: &str) -> Verdict {
        let rules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let meant = |rule: &&Rule| rule.paths.is_empty() || rule.paths.iter().any(|it| it == path);
        rules.iter().find(meant).map_or(Verdict::Serve, |rule| rule.fault.verdict())
    }

    fn execute(&self, command: &str) -> Fallible<()> {
        let words: Vec<&str> = command.split_whitespace().collect();
        let mut rules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match words.as_slice() {
            ["begin", number, fault, keys @ ..] => {
                let fault = Fault::parse(fault).ok_or("refuse, hide, cut or stall")?;
                let paths = keys.iter().map(|key| format!("/{BUCKET}/{key}")).collect();
                rules.push(Rule { number: number.parse()?, fault, paths });
            }
            ["end", number] => {
                let number: u64 = number.parse()?;
                rules.retain(|rule| rule.number != number);
            }
            _ => return Err("begin NUMBER FAULT [KEY]..., or end NUMBER".into()),
        }
        Ok(())
    }
}

fn main() -> Fallible<()> {
    let rules = Arc::new(Rules::default());
    let asked = Arc::clone(&rules);
    let server =
        Server::start(Access::Everybody, move |request| asked.verdict(request.uri().path()));
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (pace, content) = paced(&arguments)?;
    server.set_pace(pace);
    match content {
        [option, folder, prefix] if option == "--folder" => {
            put_folder(&server, Path::new(folder), prefix)?;
        }
        kinds => put_made(&server, kinds)?,
    }
    let mut output = io::stdout();
    writeln!(output, "{}", server.endpoint())?;
    output.flush()?;
    for command in io::stdin().lines() {
        rules.execute(&command?)?;
        // A server of many hours must not remember every request.
        server.forget();
    }
    Ok(())
}

/// The options that slow it down, and the other arguments.
fn paced(arguments: &[String]) -> Fallible<(Pace, &[String])> {
    let (mut pace, mut left) = (Pace::default(), arguments);
    let rate = |text: &str| text.parse().map(|it: BytesPerSecond| Some(it.0));
    while let [option, value, rest @ ..] = left {
        match option.as_str() {
            "--latency" => pace.latency = Duration::from_nanos(value.parse::<Nanoseconds>()?.0),
            "--connection-rate" => pace.connection_bytes_per_s = rate(value)?,
            "--rate" => pace.bytes_per_s = rate(value)?,
            _ => break,
        }
        left = rest;
    }
    Ok((pace, left))
}

fn put_made(server: &Server, kinds: &[String]) -> Fallible<()> {
    for kind in kinds.chunks(3) {
        let [prefix, count, bytes] = kind else { return Err("PREFIX COUNT BYTES ...".into()) };
        for number in 0..count.parse::<usize>()? {
            server.put_bytes(&format!("{prefix}/{number:06}"), object(number, bytes.parse()?));
        }
    }
    Ok(())
}

fn put_folder(server: &Server, folder: &Path, prefix: &str) -> Fallible<()> {
    let entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    for path in entries.iter().map(fs::DirEntry::path) {
        let name = path.file_name().and_then(|it| it.to_str()).ok_or("a name is not UTF-8")?;
        let key = format!("{prefix}/{name}");
        if path.is_dir() {
            put_folder(server, &path, &key)?;
        } else {
            server.put_file(&key, path)?;
        }
    }
    Ok(())
}

fn object(number: usize, len: usize) -> Vec<u8> {
    let byte = |at: usize| u8::try_from((31 * at + 7 * number) % 251).unwrap_or(0);
    let period: Vec<u8> = (0..251).map(byte).collect();
    period.iter().copied().cycle().take(len).collect()
}
