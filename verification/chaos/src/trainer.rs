//! The workload: a training that may be killed at any point. It compares every sample with the checksum of
//! the file as it was made, records each batch, and after a restart continues after the last record.
//!
//! Without an agent it reads the cold store itself, in the same order, and tries to connect again after some
//! batches, as a framework's client does at each epoch. At times it holds batches longer than it should: their
//! bytes must not change, also when it has disconnected from the agent that lent them. It overwrites each batch
//! at once, as a training that normalises in place, which shows if the agent copies from a batch too late or
//! hands it to two trainers. On request it starts a process that keeps its socket open, as a forked loader
//! worker does.

use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::Write as _,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use tierfeed_core::{
    id::{BatchId, Rank, SampleId},
    order::{EpochOrder, Spec},
    session::Wait,
    units::Bytes,
};
use tierfeed_dataset::Index;
use tierfeed_handoff::{Client, Hello, LeasedBatch, NextError, Reply, Role};
use tierfeed_harness::clock::pause;
use tierfeed_workload_analyzer::Job;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    clock::Clock,
    cold_reader::ColdReader,
    record::{self, Entry, Origin, last_entry},
    steps::Steps,
};

/// An agent that does not answer for this time hangs: the trainer continues without it.
const PATIENCE: Duration = Duration::from_secs(1);

/// As [`PATIENCE`], for the answer to a connection.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// Batches that are read alone between two attempts to connect.
const ALONE_MAX: u32 = 16;

/// The training fails if a sample cannot be read for this time.
const UNREADABLE_MAX: Duration = Duration::from_secs(60);

const RETRY_EVERY: Duration = Duration::from_millis(50);

/// Time between two looks at the steps of the other ranks.
const EVEN_EVERY: Duration = Duration::from_millis(2);

/// In each cycle of `HOLD_CYCLE` x `HELD_MAX` batches, `HELD_MAX` are held together.
const HOLD_CYCLE: u64 = 24;
const HELD_MAX: usize = 6;

/// The process that keeps the socket of a dead trainer ends by itself after this time.
const ORPHAN_SECONDS: &str = "600";

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) rank: u32,
    pub(crate) socket: PathBuf,
    pub(crate) job: PathBuf,
    pub(crate) index: PathBuf,
    /// The checksum of every sample, as hexadecimal lines.
    pub(crate) sums: PathBuf,
    /// The checksum of the row of every sample, as [`Self::sums`], if the agent makes rows.
    pub(crate) rows: Option<PathBuf>,
    /// The file to which it appends a line for each batch.
    pub(crate) record: PathBuf,
    /// The trainer ends when this file exists.
    pub(crate) stop: PathBuf,
    /// The trainer starts a process that keeps its socket when this file exists, and removes it.
    pub(crate) fork: PathBuf,
    /// The file for the number of that process.
    pub(crate) orphan: PathBuf,
    pub(crate) step: Duration,
    /// The folder in which ranks that keep step note the number of their steps.
    pub(crate) steps: Option<PathBuf>,
}

/// Trains until the stop file is there or the order ends.
///
/// # Errors
///
/// If the bytes of a sample are wrong, a batch is not the one of the order, or a sample cannot be read for a
/// minute.
pub(crate) fn train(settings: &Settings) -> anyhow::Result<()> {
    let index = Arc::new(Index::open(&settings.index)?);
    let job = Job::load(&settings.job)?;
    let order = job.order(index.len())?;
    let rank = Rank(settings.rank);
    let last = last_entry(&settings.record)?;
    let next = match last {
        Some(last) => order.after(BatchId { epoch: last.epoch, step: last.step, rank }),
        None => Some(order.first(rank)),
    };
    let record = OpenOptions::new().create(true).append(true).open(&settings.record)?;
    let training = Training {
        settings,
        clock: Clock::start(),
        order,
        cold: ColdReader::open(&job.dataset.source, index)?,
        sums: read_sums(&settings.sums)?,
        rows: settings.rows.as_deref().map(read_row_sums).transpose()?,
        record,
    };
    training.run(next)
}

fn read_sums(path: &Path) -> anyhow::Result<Vec<u64>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    text.lines().map(sum_in).collect()
}

fn read_row_sums(path: &Path) -> anyhow::Result<Vec<Option<u64>>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    text.lines().map(|line| (line != "-").then(|| sum_in(line)).transpose()).collect()
}

fn sum_in(line: &str) -> anyhow::Result<u64> {
    u64::from_str_radix(line, 16).context("a line is no checksum")
}

struct Training<'a> {
    settings: &'a Settings,
    clock: Clock,
    order: Spec,
    cold: ColdReader,
    sums: Vec<u64>,
    /// Checksums of rows, by sample; `None` for a sample without a row.
    rows: Option<Vec<Option<u64>>>,
    record: File,
}

/// A batch that the trainer holds, and the connection over which it is released: a connection that was given
/// up stays open until then.
struct Held {
    leased: LeasedBatch,
    client: Rc<Client>,
}

impl Training<'_> {
    fn run(mut self, mut next: Option<BatchId>) -> anyhow::Result<()> {
        let rank = Rank(self.settings.rank);
        let mut feed = Feed::new(self.settings.socket.clone(), rank, self.order);
        let mut epoch: Option<(BatchId, EpochOrder)> = None;
        let mut held: VecDeque<Held> = VecDeque::new();
        let mut steps = self.steps()?;
        while let Some(batch) = next
            && !self.settings.stop.exists()
        {
            let drawn = match epoch.take() {
                Some((of, drawn)) if of.epoch == batch.epoch => drawn,
                _ => self.order.epoch(batch.epoch).context("the order is not computed")?,
            };
            let samples: Vec<SampleId> = drawn.batch(rank, batch.step).collect();
            epoch = Some((batch, drawn));
            if !self.await_even(steps.as_ref())? {
                break;
            }
            self.fork_if_requested(feed.client.as_deref())?;
            let begin = self.clock.now();
            let taken = feed.take(batch)?;
            let waited = self.clock.since(begin);
            match taken {
                Ok((leased, client)) => {
                    self.check(&leased, &samples)?;
                    overwrite(&leased)?;
                    self.record_batch(batch, Origin::Agent, &samples, waited)?;
                    pause(self.settings.step);
                    held.push_back(Held { leased, client });
                    while held.len() > held_max(batch) {
                        held.pop_front().map_or(Ok(()), |it| self.release(&it))?;
                    }
                }
                Err(without) => {
                    held.drain(..).try_for_each(|it| self.release(&it))?;
                    self.read_alone(&samples)?;
                    self.record_batch(batch, without, &samples, waited)?;
                    pause(self.settings.step);
                }
            }
            steps.as_mut().map_or(Ok(()), Steps::add)?;
            next = self.order.after(batch);
        }
        held.drain(..).try_for_each(|it| self.release(&it))
    }

    /// The steps that this rank has recorded, if it keeps step.
    fn steps(&self) -> anyhow::Result<Option<Steps>> {
        let Some(folder) = &self.settings.steps else { return Ok(None) };
        let made = record::read(&self.settings.record)?.len() as u64;
        Ok(Some(Steps::open(folder, self.settings.rank, made)?))
    }

    /// Waits until all ranks have made as many steps. Returns `false` if the training must end instead.
    fn await_even(&self, steps: Option<&Steps>) -> anyhow::Result<bool> {
        let Some(steps) = steps else { return Ok(true) };
        while !steps.are_even()? {
            if self.settings.stop.exists() {
                return Ok(false);
            }
            pause(EVEN_EVERY);
        }
        Ok(true)
    }

    /// Checks that the batch did not change while it was held, and releases it.
    fn release(&self, held: &Held) -> anyhow::Result<()> {
        self.check_held(&held.leased)?;
        // The lease of an agent that is gone ended with it.
        let _ = held.client.release(held.leased.lease);
        Ok(())
    }

    /// Starts a process that inherits the connection, if that is requested and there is a connection.
    fn fork_if_requested(&self, client: Option<&Client>) -> anyhow::Result<()> {
        let Some(client) = client.filter(|_| self.settings.fork.exists()) else { return Ok(()) };
        // The request may have been withdrawn just now.
        if fs::remove_file(&self.settings.fork).is_err() {
            return Ok(());
        }
        fcntl(client.as_fd(), FcntlArg::F_SETFD(FdFlag::empty()))?;
        let mut sleep = Command::new("sleep");
        sleep.arg(ORPHAN_SECONDS);
        let orphan = sleep.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let number = orphan.spawn().context("cannot start sleep")?.id();
        let beside = self.settings.orphan.with_extension("part");
        fs::write(&beside, number.to_string())?;
        Ok(fs::rename(beside, &self.settings.orphan)?)
    }

    fn check(&self, leased: &LeasedBatch, samples: &[SampleId]) -> anyhow::Result<()> {
        ensure!(leased.rows.len() == samples.len(), "{:?} has another length", leased.id);
        for (row, sample) in leased.rows.iter().zip(samples) {
            ensure!(row.sample == *sample, "{:?} instead of {sample:?}", row.sample);
            let Some(len) = row.len else {
                let is_damaged =
                    self.rows.as_ref().is_some_and(|it| it[sample.0 as usize].is_none());
                ensure!(is_damaged, "sample {} was left out", sample.0);
                continue;
            };
            let mut bytes = vec![0; usize::try_from(len.0)?];
            leased.read(row, &mut bytes)?;
            match &self.rows {
                None => self.compare(*sample, &bytes, "the agent")?,
                Some(rows) => {
                    let is_its_own = rows[sample.0 as usize] == Some(xxh3_64(&bytes));
                    ensure!(is_its_own, "sample {} became a wrong row", sample.0);
                }
            }
        }
        Ok(())
    }

    /// Overwritten samples still have the overwritten bytes, read-only ones the original bytes.
    fn check_held(&self, leased: &LeasedBatch) -> anyhow::Result<()> {
        for row in &leased.rows {
            let Some(len) = row.len else { continue };
            let mut bytes = vec![0; usize::try_from(len.0)?];
            leased.read(row, &mut bytes)?;
            if row.shared_tier.is_some() {
                self.compare(row.sample, &bytes, "the tier, at the release,")?;
            } else {
                let is_whole = bytes.iter().all(|byte| *byte == fill_byte(leased));
                ensure!(is_whole, "{:?} was written to while it was held", leased.id);
            }
        }
        Ok(())
    }

    fn compare(&self, sample: SampleId, bytes: &[u8], from: &str) -> anyhow::Result<()> {
        let expected = self.sums.get(sample.0 as usize).context("a sample without a checksum")?;
        ensure!(xxh3_64(bytes) == *expected, "sample {} from {from} has wrong bytes", sample.0);
        Ok(())
    }

    /// Repeats reads of a store that fails, until it recovers or the training fails.
    fn read_alone(&self, samples: &[SampleId]) -> anyhow::Result<()> {
        for sample in samples {
            let begin = self.clock.now();
            let bytes = loop {
                match self.cold.read(*sample) {
                    Ok(bytes) => break bytes,
                    Err(error) => {
                        ensure!(self.clock.since(begin) < UNREADABLE_MAX, "{error:#}");
                        pause(RETRY_EVERY);
                    }
                }
            };
            self.compare(*sample, &bytes, "the cold store")?;
        }
        Ok(())
    }

    /// One write, so that a killed trainer leaves a whole line or none.
    fn record_batch(
        &mut self,
        batch: BatchId,
        origin: Origin,
        samples: &[SampleId],
        waited: Duration,
    ) -> anyhow::Result<()> {
        let samples = samples.iter().map(|sample| sample.0).collect();
        let entry = Entry { epoch: batch.epoch, step: batch.step, origin, samples, waited };
        Ok(self.record.write_all(entry.to_line().as_bytes())?)
    }
}

/// Overwrites every sample that lies in the batch itself.
fn overwrite(leased: &LeasedBatch) -> anyhow::Result<()> {
    for row in leased.rows.iter().filter(|row| row.shared_tier.is_none()) {
        let bytes = vec![fill_byte(leased); usize::try_from(row.len.unwrap_or_default().0)?];
        leased.arena.write(Bytes(leased.offset.0 + row.offset.0), &bytes)?;
    }
    Ok(())
}

fn fill_byte(leased: &LeasedBatch) -> u8 {
    leased.lease.0.to_le_bytes()[0] ^ 0xa5
}

/// The number of batches that are held after this one was used. It follows from the batch, so it is
/// repeatable.
fn held_max(batch: BatchId) -> usize {
    let number =
        (u64::from(batch.epoch.0) << 32 | u64::from(batch.step.0)) + u64::from(batch.rank.0);
    let phase = number % (HOLD_CYCLE * HELD_MAX as u64);
    if phase < HELD_MAX as u64 { HELD_MAX } else { 0 }
}

/// A batch and its connection, or the reason why the agent gave none.
type Taken = Result<(LeasedBatch, Rc<Client>), Origin>;

/// The batches of one rank, from the agent while there is one.
struct Feed {
    socket: PathBuf,
    rank: Rank,
    order: Spec,
    client: Option<Rc<Client>>,
    next: Option<BatchId>,
    asked: VecDeque<BatchId>,
    /// Batches since the last attempt to connect.
    alone: u32,
}

impl Feed {
    fn new(socket: PathBuf, rank: Rank, order: Spec) -> Self {
        Self {
            socket,
            rank,
            order,
            client: None,
            next: None,
            asked: VecDeque::new(),
            alone: ALONE_MAX,
        }
    }

    /// The batch, or the reason why the agent gave none.
    fn take(&mut self, batch: BatchId) -> anyhow::Result<Taken> {
        if self.client.is_none() && !self.connect_if_due(batch)? {
            return Ok(Err(Origin::Alone));
        }
        self.ask(batch);
        if self.asked.front() != Some(&batch) {
            return Ok(Err(Origin::Full));
        }
        let Some(client) = &self.client else { return Ok(Err(Origin::Alone)) };
        match client.next(PATIENCE) {
            Ok(Reply::Batch(leased)) => {
                ensure!(leased.id == batch, "{:?} instead of {batch:?}", leased.id);
                self.asked.pop_front();
                // An agent that is gone needs no measurements.
                let _ = client.deliver(leased.lease, Wait::default());
                Ok(Ok((leased, Rc::clone(client))))
            }
            Ok(Reply::Refused { batch: refused, .. }) => {
                ensure!(refused == batch, "{refused:?} was refused instead of {batch:?}");
                self.asked.pop_front();
                Ok(Err(Origin::Refused))
            }
            Err(NextError::TimedOut) => Ok(Err(self.disconnect(Origin::Late))),
            Err(NextError::Disconnected(_)) => Ok(Err(self.disconnect(Origin::Alone))),
            Err(error) => bail!("{error}"),
        }
    }

    fn connect_if_due(&mut self, batch: BatchId) -> anyhow::Result<bool> {
        if self.alone < ALONE_MAX {
            self.alone += 1;
            return Ok(false);
        }
        self.alone = 0;
        let hello = Hello::of_rank(self.rank, Role::Trainer);
        let Ok(client) = Client::connect(&self.socket, &hello, CONNECT_PATIENCE) else {
            return Ok(false);
        };
        ensure!(client.briefing().order == self.order, "the agent works by another order");
        self.client = Some(Rc::new(client));
        self.next = Some(batch);
        self.asked.clear();
        Ok(true)
    }

    fn ask(&mut self, batch: BatchId) {
        let Some(client) = &self.client else { return };
        if self.asked.is_empty() {
            self.next = Some(batch);
        }
        let ahead = client.briefing().batches_ahead as usize;
        while self.asked.len() < ahead
            && let Some(next) = self.next
            && client.request(next).is_ok()
        {
            self.asked.push_back(next);
            self.next = self.order.after(next);
        }
    }

    fn disconnect(&mut self, origin: Origin) -> Origin {
        self.client = None;
        self.alone = 0;
        origin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trains two batches of four files without an agent, with checksums that `change` has changed.
    fn trained(change: fn(&mut Vec<u64>)) -> (anyhow::Result<()>, Vec<Entry>) {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("data/cat")).unwrap();
        let mut sums: Vec<u64> = (0..4_u8).map(|it| xxh3_64(&[it; 500])).collect();
        (0..4_u8).for_each(|it| fs::write(path(&format!("data/cat/{it}.jpg")), [it; 500]).unwrap());
        change(&mut sums);
        let lines: Vec<String> = sums.iter().map(|sum| format!("{sum:016x}\n")).collect();
        fs::write(path("sums"), lines.concat()).unwrap();
        let job = format!(
            "name: alone\n\
             dataset: {{ source: {}, format: image-folder }}\n\
             order: {{ shuffle: sequential, epochs: 1 }}\n\
             batch_size: 2\n\
             world: {{ nodes: 1, ranks_per_node: 1 }}\n",
            path("data").display()
        );
        fs::write(path("job.yaml"), job).unwrap();
        let job = Job::load(&path("job.yaml")).unwrap();
        Index::build(&job.dataset, None, &mut |_| ()).unwrap().save(&path("index")).unwrap();
        let outcome = train(&Settings {
            rank: 0,
            socket: path("socket"),
            job: path("job.yaml"),
            index: path("index"),
            sums: path("sums"),
            rows: None,
            record: path("record"),
            stop: path("stop"),
            fork: path("fork"),
            orphan: path("orphan"),
            step: Duration::ZERO,
            steps: None,
        });
        (outcome, record::read(&path("record")).unwrap())
    }

    #[test]
    fn a_training_alone_uses_each_batch_once() {
        let (outcome, record) = trained(|_| ());
        outcome.unwrap();
        let samples: Vec<_> = record.iter().map(|it| (it.origin, it.samples.clone())).collect();
        assert_eq!(samples, [(Origin::Alone, vec![0, 1]), (Origin::Alone, vec![2, 3])]);
    }

    #[test]
    fn a_sample_with_wrong_bytes_ends_the_training_before_it_is_used() {
        let (outcome, record) = trained(|sums| sums[2] += 1);
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("sample 2 from the cold store has wrong bytes"), "{error}");
        assert_eq!(record.len(), 1, "the batch before it");
        let (outcome, _) = trained(|sums| sums.truncate(3));
        assert!(outcome.unwrap_err().to_string().contains("without a checksum"));
    }
}
