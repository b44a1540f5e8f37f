//! A stand-in for a training: takes every batch of its rank, compares every byte with the files, and
//! writes down what it was given.
//!
//! It behaves as a framework's client does: some batches ahead, one step after the other, and when the
//! agent is gone it reads the rest itself, in the same order.
//!
//! Usage: `trainer LOG [STEP_US [lock-step]]`, started by `tierfeed run` or `tierfeed exec`. LOG gets a
//! line for each batch: rank, epoch, step, `agent` or `self`, and the samples. In lock-step, no rank starts
//! a step before all have finished the one before, as in data-parallel training.

use std::{
    env,
    fs::{self, OpenOptions},
    io::Write,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use tierfeed_core::{
    id::{BatchId, Epoch, Rank, SampleId, Step},
    order::EpochOrder,
    units::Nanoseconds,
};
use tierfeed_prefetcher::{
    handoff::{Briefing, Client, Explained, Hello, LeasedBatch, NextError, Reply, Role},
    source::FileSource,
};
use tierfeed_workload_analyzer::Index;

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
    let socket = PathBuf::from(variable("TIERFEED_SOCK")?);
    let client = Client::connect(&socket, Hello { rank, role: Role::Trainer }, WAIT)?;
    let briefing = client.briefing().clone();
    let index = Index::open(&briefing.index_path)?;
    ensure!(index.fingerprint() == briefing.fingerprint, "the index is another one");
    let files = FileSource::new(Arc::new(index), 64);
    let log = OpenOptions::new().create(true).append(true).open(log)?;
    let step = Duration::from_micros(step_us);
    let mut training = Training { briefing, files, log, step, pace };
    training.run(&client)
}

#[expect(clippy::disallowed_methods, reason = "a trainer reads its own environment")]
fn variable(name: &str) -> anyhow::Result<String> {
    env::var(name).with_context(|| format!("{name} is not set"))
}

struct Training {
    briefing: Briefing,
    files: FileSource,
    log: fs::File,
    step: Duration,
    pace: Pace,
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
    fn run(&mut self, client: &Client) -> anyhow::Result<()> {
        let order = self.briefing.order;
        let rank = self.briefing.rank;
        let first = BatchId { epoch: Epoch(0), step: Step(0), rank };
        let mut asked = Some(first);
        let mut ahead = 0;
        let mut next = Some(first);
        let mut is_alone = false;
        let mut steps = 0;
        let mut epoch: Option<(Epoch, EpochOrder)> = None;
        while let Some(batch) = next {
            while !is_alone
                && ahead < self.briefing.batches_ahead
                && let Some(wanted) = asked
            {
                is_alone = client.request(wanted).is_err();
                asked = order.after(wanted);
                ahead += 1;
            }
            if epoch.as_ref().is_none_or(|(number, _)| *number != batch.epoch) {
                let drawn = order.epoch(batch.epoch).context("the order is not computed")?;
                epoch = Some((batch.epoch, drawn));
            }
            let (_, drawn) = epoch.as_ref().context("drawn above")?;
            let samples: Vec<SampleId> = drawn.batch(rank, batch.step).collect();
            match if is_alone { None } else { take(client, batch)? } {
                Some(leased) => {
                    self.check(&leased, &samples)?;
                    self.note(batch, "agent", &samples)?;
                    wait(self.step);
                    self.pace.wait((steps + 1) * order.world.ranks() as usize)?;
                    client.release(leased.lease)?;
                    ahead -= 1;
                }
                None => {
                    is_alone = true;
                    self.read_alone(&samples)?;
                    self.note(batch, "self", &samples)?;
                    wait(self.step);
                }
            }
            steps += 1;
            next = order.after(batch);
        }
        Ok(())
    }

    fn check(&self, leased: &LeasedBatch, samples: &[SampleId]) -> anyhow::Result<()> {
        ensure!(leased.rows.len() == samples.len(), "a batch of another length");
        for (row, sample) in leased.rows.iter().zip(samples) {
            ensure!(row.sample == *sample, "{:?} instead of {sample:?}", row.sample);
            let Some(len) = row.len else { continue };
            let mut bytes = vec![0; usize::try_from(len.0)?];
            let mut expected = vec![0; bytes.len()];
            let offset = tierfeed_core::units::Bytes(leased.offset.0 + row.offset.0);
            leased.arena.read(offset, &mut bytes)?;
            self.files.read_into(*sample, &mut expected)?;
            ensure!(bytes == expected, "sample {} has wrong bytes", sample.0);
        }
        Ok(())
    }

    fn read_alone(&self, samples: &[SampleId]) -> anyhow::Result<()> {
        for sample in samples {
            let len = self.files.index().size(*sample);
            self.files.read_into(*sample, &mut vec![0; usize::try_from(len.0)?])?;
        }
        Ok(())
    }

    /// One write for each line, so that the lines of several ranks do not mix.
    fn note(&mut self, batch: BatchId, source: &str, samples: &[SampleId]) -> anyhow::Result<()> {
        let samples: Vec<_> = samples.iter().map(|sample| sample.0.to_string()).collect();
        let BatchId { epoch, step, rank } = batch;
        let line =
            format!("{} {} {} {source} {}\n", rank.0, epoch.0, step.0, samples.join(","));
        Ok(self.log.write_all(line.as_bytes())?)
    }
}

/// The next batch, which must be `expected`; `None` if the agent is gone.
fn take(client: &Client, expected: BatchId) -> anyhow::Result<Option<LeasedBatch>> {
    let asked_at = now();
    match client.next(WAIT) {
        Ok(Reply::Batch(leased)) => {
            ensure!(leased.id == expected, "{:?} instead of {expected:?}", leased.id);
            let waited = u64::try_from(asked_at.elapsed().as_nanos())?;
            client.deliver(leased.lease, Nanoseconds(waited))?;
            Ok(Some(leased))
        }
        Ok(Reply::Refused { batch, refusal }) => bail!("{batch:?} refused: {}", Explained(refusal)),
        Err(NextError::Disconnected(_)) => Ok(None),
        Err(error) => Err(error.into()),
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
