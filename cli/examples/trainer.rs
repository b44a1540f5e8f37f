//! A stand-in for a training: takes every batch of its rank, compares every byte with the files, and
//! writes down what it was given. Then it writes over the batch, as a training that normalises in place:
//! what it wrote must still be there when it gives the batch back, and must never come back as a sample.
//!
//! It behaves as a framework's client does: some batches ahead, one step after the other, and when the
//! agent is gone it reads the rest itself, in the same order.
//!
//! Usage: `trainer LOG [STEP_US [lock-step]]`, started by `tierfeed run` or `tierfeed exec`. LOG gets a
//! line for each batch: rank, epoch, step, `agent` or `self`, and the samples. In lock-step, no rank starts
//! a step before all have finished the one before, as in data-parallel training. With `TRAINER_COPY` the
//! dataset is a bucket, and the bytes are compared with those below that folder. `TRAINER_DECODE_US` is how
//! long a batch is decoded before its step. With `TRAINER_STOPWATCH` the trainer appends a line to that file
//! when it ends: rank, batches from the agent, batches that it read itself, and the nanoseconds for which it
//! waited, by a watch of its own.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use tierfeed_client::reader::{Asked, ReadTask, Reader};
use tierfeed_core::{
    fleet::launch::{self, Identity},
    id::{BatchId, Epoch, Rank, SampleId, Step},
    order::{EpochOrder, Spec},
    session::{Tally, Wait},
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::{Index, read::FileSource, source::Location};
use tierfeed_handoff::{
    Client, ConnectError, Explained, Hello, LeasedBatch, NextError, Reply, Role, monotonic_now,
};
use tierfeed_workload_analyzer::Job;

const WAIT: Duration = Duration::from_secs(30);

fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1);
    let log = PathBuf::from(arguments.next().context("LOG is missing")?);
    let step_us: u64 = arguments.next().map_or(Ok(0), |text| text.parse())?;
    let pace = match arguments.next().as_deref() {
        None => Pace::Free,
        Some("lock-step") => Pace::LockStep(log.clone()),
        Some(other) => bail!("{other:?} instead of lock-step"),
    };
    let index_path = PathBuf::from(variable("TIERFEED_INDEX")?);
    let index = Index::open(&index_path)?;
    let socket = PathBuf::from(variable("TIERFEED_SOCK")?);
    let set = |name: &'static str| Some((name.to_owned(), variable(name).ok()?));
    let launched: BTreeMap<_, _> = launch::variables().filter_map(set).collect();
    let identity = Identity::read(&|name| launched.get(name).cloned())?;
    let file = PathBuf::from(variable("TIERFEED_JOB")?);
    let (job, text) = Job::load_with(&file, identity.launched_world())?;
    let rank = identity.rank_in(&job.post(&text, &file))?;
    let client = match Client::connect(&socket, &Hello::launched(launched, Role::Trainer), WAIT) {
        Ok(client) => Some(client),
        Err(error @ ConnectError::TurnedAway { .. }) => return Err(error.into()),
        // An agent that is gone is no reason not to train.
        Err(error) => {
            eprintln!("rank {} goes alone: {error}", rank.0);
            None
        }
    };
    let order = job.order(index.len())?;
    if let Some(client) = &client {
        let briefing = client.briefing();
        ensure!(index.fingerprint() == briefing.fingerprint, "the index is another one");
        ensure!(order == briefing.order, "the agent works by another order");
    }
    let index = Arc::new(index);
    let alone = match &job.dataset.source {
        Location::Path(_) => Alone::Files(FileSource::new(Arc::clone(&index), 64)),
        Location::Bucket(address) => {
            if let Some(client) = &client {
                let told = client.briefing().bucket.as_ref();
                ensure!(told == Some(&address.access), "the agent reads another bucket");
            }
            let task = ReadTask {
                index: index_path,
                fingerprint: index.fingerprint(),
                bucket: Some(address.access.clone()),
                transform: None,
                seed: 0,
            };
            Alone::Bucket(Box::new(Reader::new(variable("TIERFEED_EXE")?.into(), task)))
        }
    };
    let files = Files { index, folder: env::var_os("TRAINER_COPY").map(PathBuf::from) };
    let log = OpenOptions::new().create(true).append(true).open(log)?;
    let step = Duration::from_micros(step_us);
    let decoding = match variable("TRAINER_DECODE_US") {
        Ok(text) => Duration::from_micros(text.parse()?),
        Err(_) => Duration::ZERO,
    };
    let watch = StopWatch::default();
    let mut training = Training { rank, order, files, alone, log, step, decoding, pace, watch };
    training.run(Requests::new(client.as_ref(), rank, order))?;
    match variable("TRAINER_STOPWATCH") {
        Ok(path) => training.watch.write(&path, rank),
        Err(_) => Ok(()),
    }
}

/// Counts and measurements of the trainer itself, to compare a report with.
#[derive(Default)]
struct StopWatch {
    served: u64,
    self_read: u64,
    waited: Duration,
}

impl StopWatch {
    fn write(&self, path: &str, rank: Rank) -> anyhow::Result<()> {
        let Self { served, self_read, waited } = self;
        let line = format!("{} {served} {self_read} {}\n", rank.0, waited.as_nanos());
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(file.write_all(line.as_bytes())?)
    }
}

#[expect(clippy::disallowed_methods, reason = "a trainer reads its own environment")]
fn variable(name: &str) -> anyhow::Result<String> {
    env::var(name).with_context(|| format!("{name} is not set"))
}

struct Training {
    rank: Rank,
    order: Spec,
    files: Files,
    alone: Alone,
    log: fs::File,
    step: Duration,
    decoding: Duration,
    pace: Pace,
    watch: StopWatch,
}

/// The bytes that the samples must have, read without any code of the product but the index.
struct Files {
    index: Arc<Index>,
    /// The folder with the objects of a bucket, by their keys.
    folder: Option<PathBuf>,
}

impl Files {
    fn read(&self, sample: SampleId) -> anyhow::Result<Vec<u8>> {
        let extent = self.index.extent(sample);
        ensure!(extent.stored_len == extent.len, "sample {} is stored otherwise", sample.0);
        let path = self.folder.as_ref().map_or(extent.path.clone(), |it| it.join(&extent.path));
        let mut bytes = vec![0; usize::try_from(extent.len)?];
        fs::File::open(path)?.read_exact_at(&mut bytes, extent.offset)?;
        Ok(bytes)
    }
}

/// Reads the dataset when the agent is gone, as the Python client does.
enum Alone {
    Files(FileSource),
    Bucket(Box<Reader>),
}

impl Alone {
    /// Reads the first of `samples`; the others come next.
    fn read(&mut self, samples: &[SampleId], into: &mut [u8]) -> anyhow::Result<()> {
        match self {
            Self::Files(source) => Ok(source.read_into(samples[0], into)?),
            Self::Bucket(reader) => {
                let asked = samples.iter().map(|&sample| Asked { sample, epoch: Epoch(0) });
                let asked: Vec<_> = asked.collect();
                Ok(reader.read_into(&asked, &mut [into], &mut || true)?)
            }
        }
    }
}

enum Pace {
    Free,
    /// By the lines that all of them wrote here.
    LockStep(PathBuf),
}

impl Pace {
    fn wait(&self, lines: usize) -> anyhow::Result<()> {
        if let Self::LockStep(log) = self {
            while fs::read_to_string(log)?.lines().count() < lines {
                wait(Duration::from_micros(200));
            }
        }
        Ok(())
    }
}

impl Training {
    fn run(&mut self, mut requests: Requests<'_>) -> anyhow::Result<()> {
        let (order, rank) = (self.order, self.rank);
        let mut epoch: Option<(Epoch, EpochOrder)> = None;
        let mut next = Some(BatchId { epoch: Epoch(0), step: Step(0), rank });
        let mut lines_by_then = 0;
        while let Some(batch) = next {
            let drawn = match epoch.take() {
                Some((number, drawn)) if number == batch.epoch => drawn,
                _ => order.epoch(batch.epoch).context("the order is not computed")?,
            };
            let samples: Vec<SampleId> = drawn.batch(rank, batch.step).collect();
            epoch = Some((batch.epoch, drawn));
            lines_by_then += order.world.ranks() as usize;
            let wanted = now();
            let mut tally = Tally::empty(batch.epoch);
            if let Some(leased) = requests.take(batch)? {
                self.decode(&mut tally);
                self.watch.waited += wanted.elapsed();
                self.watch.served += 1;
                requests.tell(tally);
                self.check(&leased, &samples)?;
                write_over(&leased)?;
                self.train(batch, "agent", &samples, lines_by_then)?;
                ensure!(is_written_over(&leased)?, "{:?} changed while it was held", leased.id);
                requests.release(&leased)?;
            } else {
                let since = monotonic_now();
                tally.self_read_bytes = self.read_alone(&samples)?;
                tally.self_read = Nanoseconds(monotonic_now().0 - since.0);
                tally.self_read_batches = 1;
                tally.self_read_samples = u32::try_from(samples.len())?;
                self.decode(&mut tally);
                self.watch.waited += wanted.elapsed();
                self.watch.self_read += 1;
                requests.tell(tally);
                self.train(batch, "self", &samples, lines_by_then)?;
            }
            next = order.after(batch);
        }
        Ok(())
    }

    fn decode(&self, tally: &mut Tally) {
        if !self.decoding.is_zero() {
            let since = monotonic_now();
            wait(self.decoding);
            tally.decoding = Nanoseconds(monotonic_now().0 - since.0);
        }
    }

    fn train(
        &mut self,
        batch: BatchId,
        source: &str,
        samples: &[SampleId],
        lines_by_then: usize,
    ) -> anyhow::Result<()> {
        self.note(batch, source, samples)?;
        wait(self.step);
        self.pace.wait(lines_by_then)
    }

    fn check(&self, leased: &LeasedBatch, samples: &[SampleId]) -> anyhow::Result<()> {
        ensure!(leased.rows.len() == samples.len(), "a batch of another length");
        for (row, sample) in leased.rows.iter().zip(samples) {
            ensure!(row.sample == *sample, "{:?} instead of {sample:?}", row.sample);
            let Some(len) = row.len else { continue };
            let mut bytes = vec![0; usize::try_from(len.0)?];
            leased.read(row, &mut bytes)?;
            let expected = self.files.read(*sample)?;
            ensure!(bytes == expected, "sample {} has wrong bytes", sample.0);
        }
        Ok(())
    }

    fn read_alone(&mut self, samples: &[SampleId]) -> anyhow::Result<Bytes> {
        let mut len = Bytes(0);
        for (at, sample) in samples.iter().enumerate() {
            let mut bytes = vec![0; usize::try_from(self.files.index.size(*sample).0)?];
            self.alone.read(&samples[at..], &mut bytes)?;
            len.0 += bytes.len() as u64;
            let expected = self.files.read(*sample)?;
            ensure!(bytes == expected, "sample {} has wrong bytes, read alone", sample.0);
        }
        Ok(len)
    }

    /// One write for each line, so that the lines of several ranks do not mix.
    fn note(&mut self, batch: BatchId, source: &str, samples: &[SampleId]) -> anyhow::Result<()> {
        let samples: Vec<_> = samples.iter().map(|sample| sample.0.to_string()).collect();
        let BatchId { epoch, step, rank } = batch;
        let line = format!("{} {} {} {source} {}\n", rank.0, epoch.0, step.0, samples.join(","));
        Ok(self.log.write_all(line.as_bytes())?)
    }
}

/// Fills every sample that lies in the batch itself.
fn write_over(leased: &LeasedBatch) -> anyhow::Result<()> {
    for (offset, len) in own_places(leased) {
        leased.arena.write(offset, &vec![mark_of(leased); usize::try_from(len.0)?])?;
    }
    Ok(())
}

fn is_written_over(leased: &LeasedBatch) -> anyhow::Result<bool> {
    for (offset, len) in own_places(leased) {
        let mut bytes = vec![0; usize::try_from(len.0)?];
        leased.arena.read(offset, &mut bytes)?;
        if bytes.iter().any(|byte| *byte != mark_of(leased)) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn own_places(leased: &LeasedBatch) -> impl Iterator<Item = (Bytes, Bytes)> + '_ {
    let own = leased.rows.iter().filter(|row| row.shared_tier.is_none());
    own.filter_map(|row| Some((Bytes(leased.offset.0 + row.offset.0), row.len?)))
}

fn mark_of(leased: &LeasedBatch) -> u8 {
    leased.lease.0.to_le_bytes()[0] ^ 0xa5
}

/// Asks some batches ahead, as long as the agent is there.
struct Requests<'a> {
    /// `None` once the agent is gone.
    client: Option<&'a Client>,
    order: Spec,
    next: Option<BatchId>,
    ahead: u32,
    ahead_max: u32,
}

impl<'a> Requests<'a> {
    fn new(client: Option<&'a Client>, rank: Rank, order: Spec) -> Self {
        let next = Some(BatchId { epoch: Epoch(0), step: Step(0), rank });
        let ahead_max = client.map_or(0, |client| client.briefing().batches_ahead);
        Self { client, order, next, ahead: 0, ahead_max }
    }

    fn ask(&mut self) {
        while let Some(client) = self.client
            && self.ahead < self.ahead_max
            && let Some(batch) = self.next
            && client.request(batch).is_ok()
        {
            self.next = self.order.after(batch);
            self.ahead += 1;
        }
    }

    /// The next batch, which must be `expected`; `None` if the agent is gone.
    fn take(&mut self, expected: BatchId) -> anyhow::Result<Option<LeasedBatch>> {
        self.ask();
        let Some(client) = self.client else { return Ok(None) };
        let since = monotonic_now();
        match client.next(WAIT) {
            Ok(Reply::Batch(leased)) => {
                ensure!(leased.id == expected, "{:?} instead of {expected:?}", leased.id);
                // An agent that is gone needs no figures.
                let _ = client.deliver(leased.lease, Wait { since, until: monotonic_now() });
                Ok(Some(leased))
            }
            Ok(Reply::Refused { batch, refusal }) => {
                bail!("{batch:?} refused: {}", Explained(refusal))
            }
            Err(NextError::Disconnected(_)) => {
                self.client = None;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn tell(&self, tally: Tally) {
        if let Some(client) = self.client
            && tally != Tally::empty(tally.epoch)
        {
            // As above; the stand-in never has so many tallies waiting that there is no room.
            let _ = client.tally(tally);
        }
    }

    fn release(&mut self, leased: &LeasedBatch) -> anyhow::Result<()> {
        self.ahead -= 1;
        self.client.map_or(Ok(()), |client| Ok(client.release(leased.lease)?))
    }
}

#[expect(clippy::disallowed_methods, reason = "a trainer measures how long it waits")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a training step is time that passes")]
fn wait(step: Duration) {
    if !step.is_zero() {
        std::thread::sleep(step);
    }
}
