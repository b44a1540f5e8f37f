//! A stand-in for a training: takes every batch of its rank, compares every byte with the files, and
//! writes down what it was given.
//!
//! It behaves as a framework's client does: some batches ahead, one step after the other, and when the
//! agent is gone it reads the rest itself, in the same order.
//!
//! Usage: `trainer LOG [STEP_US [lock-step]]`, started by `tierfeed run` or `tierfeed exec`. LOG gets a
//! line for each batch: rank, epoch, step, `agent` or `self`, and the samples. In lock-step, no rank starts
//! a step before all have finished the one before, as in data-parallel training. With `TRAINER_COPY` the
//! dataset is a bucket, and the bytes are compared with those below that folder.

use std::{
    env,
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use tierfeed_core::{
    id::{BatchId, Epoch, Rank, SampleId, Step},
    order::{EpochOrder, Spec},
    units::Nanoseconds,
};
use tierfeed_prefetcher::{
    handoff::{Client, Explained, Hello, LeasedBatch, NextError, Reply, Role},
    reader::{Access, Launch, Reader},
    source::FileSource,
};
use tierfeed_workload_analyzer::{Index, Job, source::Location};

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
    let rank = Rank(variable("TIERFEED_RANK")?.parse()?);
    let index_path = PathBuf::from(variable("TIERFEED_INDEX")?);
    let index = Index::open(&index_path)?;
    let job = Job::load(variable("TIERFEED_JOB")?.as_ref())?;
    let socket = PathBuf::from(variable("TIERFEED_SOCK")?);
    let client = match Client::connect(&socket, Hello { rank, role: Role::Trainer }, WAIT) {
        Ok(client) => Some(client),
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
    let files = match env::var_os("TRAINER_COPY") {
        Some(folder) => Files::Copy { index: Box::new(index), folder: folder.into() },
        None => Files::Dataset(FileSource::new(Arc::new(index), 64)),
    };
    let alone = match &job.dataset.source {
        Location::Path(_) => None,
        Location::Bucket(bucket) => {
            let exe = variable("TIERFEED_EXE")?.into();
            Some(Reader::new(Launch { exe, index: index_path, access: Access::from(bucket) }))
        }
    };
    if let (Some(client), Some(reader)) = (&client, &alone) {
        let told = client.briefing().bucket.as_ref();
        ensure!(told == Some(&reader.launch().access), "the agent reads another bucket");
    }
    let log = OpenOptions::new().create(true).append(true).open(log)?;
    let step = Duration::from_micros(step_us);
    let mut training = Training { rank, order, files, alone, log, step, pace };
    training.run(Requests::new(client.as_ref(), rank, order))
}

#[expect(clippy::disallowed_methods, reason = "a trainer reads its own environment")]
fn variable(name: &str) -> anyhow::Result<String> {
    env::var(name).with_context(|| format!("{name} is not set"))
}

struct Training {
    rank: Rank,
    order: Spec,
    files: Files,
    /// What reads a bucket when the agent is gone.
    alone: Option<Reader>,
    log: fs::File,
    step: Duration,
    pace: Pace,
}

/// Where the bytes are that the samples shall have.
enum Files {
    Dataset(FileSource),
    /// The objects of a bucket, below a folder by their keys.
    Copy {
        index: Box<Index>,
        folder: PathBuf,
    },
}

impl Files {
    fn index(&self) -> &Index {
        match self {
            Self::Dataset(source) => source.index(),
            Self::Copy { index, .. } => index,
        }
    }

    fn read(&self, sample: SampleId, into: &mut [u8]) -> anyhow::Result<()> {
        match self {
            Self::Dataset(source) => Ok(source.read_into(sample, into)?),
            Self::Copy { index, folder } => {
                let extent = index.extent(sample);
                Ok(fs::File::open(folder.join(extent.path))?.read_exact_at(into, extent.offset)?)
            }
        }
    }
}

/// Whether ranks wait for each other.
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
            if let Some(leased) = requests.take(batch)? {
                self.check(&leased, &samples)?;
                self.train(batch, "agent", &samples, lines_by_then)?;
                requests.release(&leased)?;
            } else {
                self.read_alone(&samples)?;
                self.train(batch, "self", &samples, lines_by_then)?;
            }
            next = order.after(batch);
        }
        Ok(())
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
            let mut expected = vec![0; bytes.len()];
            leased.read(row, &mut bytes)?;
            self.files.read(*sample, &mut expected)?;
            ensure!(bytes == expected, "sample {} has wrong bytes", sample.0);
        }
        Ok(())
    }

    fn read_alone(&mut self, samples: &[SampleId]) -> anyhow::Result<()> {
        for (at, sample) in samples.iter().enumerate() {
            let mut expected = vec![0; usize::try_from(self.files.index().size(*sample).0)?];
            self.files.read(*sample, &mut expected)?;
            if let Some(reader) = &mut self.alone {
                let mut bytes = vec![0; expected.len()];
                reader.read_into(&samples[at..], &mut bytes, &mut || true)?;
                ensure!(bytes == expected, "sample {} has wrong bytes", sample.0);
            }
        }
        Ok(())
    }

    /// One write for each line, so that the lines of several ranks do not mix.
    fn note(&mut self, batch: BatchId, source: &str, samples: &[SampleId]) -> anyhow::Result<()> {
        let samples: Vec<_> = samples.iter().map(|sample| sample.0.to_string()).collect();
        let BatchId { epoch, step, rank } = batch;
        let line = format!("{} {} {} {source} {}\n", rank.0, epoch.0, step.0, samples.join(","));
        Ok(self.log.write_all(line.as_bytes())?)
    }
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
        let asked_at = now();
        match client.next(WAIT) {
            Ok(Reply::Batch(leased)) => {
                ensure!(leased.id == expected, "{:?} instead of {expected:?}", leased.id);
                let waited = u64::try_from(asked_at.elapsed().as_nanos())?;
                // An agent that is gone needs no figures.
                let _ = client.deliver(leased.lease, Nanoseconds(waited));
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
