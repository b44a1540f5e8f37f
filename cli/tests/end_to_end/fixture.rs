//! A dataset, a job and the processes of a test, in a folder of its own.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Seek},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use nix::unistd::Pid;
use tempfile::TempDir;
use tierfeed_core::{
    id::{Epoch, Rank, SampleId, Step},
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
};
use xxhash_rust::xxh3::xxh3_64;

/// Nothing here takes longer than a few seconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const SAMPLES: u32 = 100;
pub(crate) const EPOCHS: u32 = 3;
pub(crate) const RANKS: u32 = 2;
pub(crate) const BATCH_SIZE: u32 = 8;

/// Everything that a test needs; gone when dropped.
#[derive(Debug)]
pub(crate) struct Fixture {
    folder: TempDir,
    /// On a RAM disk.
    scratch: TempDir,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) source: String,
    pub(crate) samples: Vec<u64>,
}

/// By rank, epoch and step.
pub(crate) type Log = BTreeMap<(u32, u32, u32), Batch>;

impl Fixture {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let scratch = TempDir::new_in("/dev/shm").unwrap();
        let fixture = Self { folder, scratch };
        fixture.write_dataset();
        fixture.write_job("");
        fixture
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// About 3 MiB in 100 files of many sizes, four classes; the same in every test.
    fn write_dataset(&self) {
        let mut state = 7_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        };
        for number in 0..SAMPLES {
            let class = self.path("data").join(format!("class{}", number % 4));
            fs::create_dir_all(&class).unwrap();
            let len = 5_000 + random() % 55_000;
            let bytes: Vec<u8> = (0..len).map(|_| random().to_le_bytes()[0]).collect();
            fs::write(class.join(format!("{number:03}.jpg")), bytes).unwrap();
        }
    }

    /// Samples of 500 kB, so that caches and staging are worth something.
    pub(crate) fn write_large_samples(&self) {
        for number in 0..SAMPLES {
            let file = self.path("data").join(format!("class{}/{number:03}.jpg", number % 4));
            let bytes: Vec<u8> =
                (0..500_000_u32).map(|at| (at * 7 + number).to_le_bytes()[0]).collect();
            fs::write(file, bytes).unwrap();
        }
    }

    pub(crate) fn write_job(&self, more: &str) {
        let text = format!(
            "name: small\n\
             dataset:\n  source: file://{data}\n  format: image-folder\n\
             \x20 emulate: {{ latency: 1 ms, bandwidth: 60 MB/s }}\n\
             order: {{ shuffle: torch-distributed, seed: 42, epochs: {EPOCHS} }}\n\
             batch_size: {BATCH_SIZE}\n\
             world: {{ nodes: 1, ranks_per_node: {RANKS} }}\n\
             chunk: 256 KiB\n\
             tiers:\n\
             \x20 main-memory: {{ size: 3 MiB }}\n\
             \x20 cxl-memory: {{ size: 1280 KiB, emulate: {{ latency: 1 us, bandwidth: 9 GB/s }} }}\n\
             \x20 scratch: {{ path: {scratch}, size: 256 KiB }}\n\
             {more}",
            data = self.path("data").display(),
            scratch = self.scratch.path().display(),
        );
        fs::write(self.job(), text).unwrap();
    }

    pub(crate) fn job(&self) -> PathBuf {
        self.path("job.yaml")
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.path("run")
    }

    pub(crate) fn report(&self) -> serde_json::Value {
        let text = fs::read(self.run_dir().join("report.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    pub(crate) fn scratch_files(&self) -> usize {
        fs::read_dir(self.scratch.path()).unwrap().count()
    }

    /// `tierfeed` with its working directory here.
    pub(crate) fn tierfeed(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tierfeed"));
        command.args(arguments).current_dir(self.folder.path()).env_remove("TIERFEED_RUN_DIR");
        // Naming every frame of a panic takes a debug binary seconds.
        command.env("RUST_BACKTRACE", "0");
        command.env("TIERFEED_LOG", "info").stdin(Stdio::null());
        // One for all tests, so that only the first ones calibrate the host.
        command.env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
        command
    }

    /// `tierfeed run` with the stand-in, each of whose steps takes `step_us`.
    pub(crate) fn run(&self, step_us: u64) -> Command {
        let (job, run_dir) = (self.job(), self.run_dir());
        let mut command = self.tierfeed(&["run"]);
        command.arg(job).arg("--run-dir").arg(run_dir).arg("--");
        command.arg(trainer()).arg(self.path("log")).arg(step_us.to_string());
        command
    }

    /// Every line that trainers wrote; fails on a batch that came twice.
    pub(crate) fn log(&self) -> Log {
        let text = fs::read_to_string(self.path("log")).unwrap_or_default();
        let mut log = Log::new();
        for line in text.lines() {
            let fields: Vec<_> = line.split(' ').collect();
            let [rank, epoch, step, source, samples] = fields.as_slice() else {
                panic!("{line:?} is no line of the stand-in")
            };
            let key = (rank.parse().unwrap(), epoch.parse().unwrap(), step.parse().unwrap());
            let samples = samples.split(',').map(|it| it.parse().unwrap()).collect();
            let batch = Batch { source: (*source).to_owned(), samples };
            assert_eq!(log.insert(key, batch), None, "{key:?} came twice");
        }
        log
    }

    pub(crate) fn lines(&self) -> usize {
        fs::read_to_string(self.path("log")).unwrap_or_default().lines().count()
    }
}

pub(crate) fn trainer() -> PathBuf {
    example("trainer")
}

/// A program of `cli/examples`, which cargo builds beside the tests.
pub(crate) fn example(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_tierfeed")).parent().unwrap();
    folder.join("examples").join(name)
}

/// The file of a sample, below the dataset: they are numbered by path, class by class.
pub(crate) fn object_of(sample: u64) -> String {
    let (class, place) = (sample / 25, sample % 25);
    format!("class{class}/{:03}.jpg", place * 4 + class)
}

/// The batches that each rank must be given, from the order alone.
pub(crate) fn expected_log() -> BTreeMap<(u32, u32, u32), Vec<u64>> {
    expected_log_of(SAMPLES, World { nodes: 1, ranks_per_node: RANKS })
}

/// As [`expected_log`], for a dataset of `samples` samples and another world.
pub(crate) fn expected_log_of(samples: u32, world: World) -> BTreeMap<(u32, u32, u32), Vec<u64>> {
    let order = Spec {
        samples,
        shuffle: Shuffle::TORCH_DISTRIBUTED,
        seed: 42,
        epochs: EPOCHS,
        drop_last: false,
        batch_size: BATCH_SIZE,
        world,
        start: Position::START,
        further: FurtherDatasets::NONE,
    };
    let mut expected = BTreeMap::new();
    for epoch in 0..EPOCHS {
        let drawn = order.epoch(Epoch(epoch)).unwrap();
        for rank in 0..order.world.ranks() {
            for step in 0..order.steps_per_epoch() {
                let samples = drawn.batch(Rank(rank), Step(step));
                let samples = samples.map(|SampleId(sample)| u64::from(sample)).collect();
                expected.insert((rank, epoch, step), samples);
            }
        }
    }
    expected
}

/// Checks that every rank was given every sample of its order, once, and returns how many batches came
/// from the agent.
pub(crate) fn assert_complete(log: &Log) -> usize {
    assert_complete_on(log, 1)
}

pub(crate) fn assert_complete_on(log: &Log, nodes: u32) -> usize {
    let samples: BTreeMap<_, _> =
        log.iter().map(|(key, batch)| (*key, batch.samples.clone())).collect();
    assert_eq!(samples, expected_log_of(SAMPLES, World { nodes, ranks_per_node: RANKS }));
    log.values().filter(|batch| batch.source == "agent").count()
}

/// The `order_digest` of docs/report.md, from what the trainers themselves wrote down.
pub(crate) fn digest(log: &Log) -> String {
    let samples = log.values().flat_map(|batch| &batch.samples);
    let bytes: Vec<u8> = samples.flat_map(|sample| sample.to_le_bytes()).collect();
    format!("{:016x}", xxh3_64(&bytes))
}

pub(crate) fn digest_of_node(log: &Log, node: u32) -> String {
    let is_there = |rank: u32| rank / RANKS == node;
    let own = log.iter().filter(|((rank, _, _), _)| is_there(*rank));
    digest(&own.map(|(key, batch)| (*key, batch.clone())).collect())
}

pub(crate) fn assert_ended(output: &Output, code: i32) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
}

/// A process that is killed when the test ends before it does.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    errors: fs::File,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let errors = tempfile::tempfile().unwrap();
        let stderr = errors.try_clone().unwrap();
        let child = command.stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
        Self { child, errors }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process of manager and agent that a `tierfeed run` has started.
    pub(crate) fn agent(&self) -> Option<Pid> {
        let is_its = |pid: &i32| {
            let (parent, line) = process(*pid).unwrap_or_default();
            parent.unsigned_abs() == self.pid() && line.contains("--supervised")
        };
        let names = fs::read_dir("/proc").unwrap().map(|it| it.unwrap().file_name());
        let mut numbers = names.filter_map(|name| name.to_str()?.parse().ok());
        numbers.find(is_its).map(Pid::from_raw)
    }

    /// Kills a `tierfeed run`, whose agent ends with it.
    pub(crate) fn kill_with_agent(&mut self) {
        let agent = self.agent().expect("it has started one");
        self.kill();
        eventually("its agent ends", || is_gone(agent));
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    pub(crate) fn ends_with(&mut self, code: i32) {
        eventually("the process ends", || self.has_ended());
        let code_found = self.child.wait().unwrap().code();
        assert_eq!(code_found, Some(code), "{}", self.errors());
    }

    #[expect(clippy::disallowed_methods, reason = "the time itself is what is tested")]
    pub(crate) fn ends_within(&mut self, limit: Duration) {
        let start = std::time::Instant::now();
        eventually("the process ends", || self.has_ended());
        let took = start.elapsed();
        assert!(took <= limit, "it took {took:?}: {}", self.errors());
    }

    pub(crate) fn code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// User and system time so far, in hundredths of a second.
    pub(crate) fn cpu_ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let fields: Vec<_> = stat[stat.rfind(')').unwrap()..].split(' ').collect();
        fields[12].parse::<u64>().unwrap() + fields[13].parse::<u64>().unwrap()
    }

    pub(crate) fn errors(&mut self) -> String {
        let mut errors = String::new();
        self.errors.rewind().unwrap();
        self.errors.read_to_string(&mut errors).unwrap();
        errors
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that it ended before.
        let _: io::Result<()> = self.child.kill();
        let _ = self.child.wait();
    }
}

fn process(pid: i32) -> Option<(i32, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some((parent, String::from_utf8_lossy(&line).into_owned()))
}

pub(crate) fn is_gone(pid: Pid) -> bool {
    // One that has ended and was not waited for has no command line.
    process(pid.as_raw()).is_none_or(|(_, line)| line.is_empty())
}

/// Looks again and again until `is_so`.
#[expect(clippy::disallowed_methods, reason = "other processes give no event to wait for")]
pub(crate) fn eventually(claim: &str, mut is_so: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {claim}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
