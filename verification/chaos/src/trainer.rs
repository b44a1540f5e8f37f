//! A stand-in for a training that may be killed at any point: it compares every sample with the checksum
//! of the file as it was made, writes down what it was given, and goes on after its last line.
//!
//! Without an agent it reads by itself, in the same order, and looks for an agent again now and then, as
//! a framework's client does at each epoch. Now and then it keeps batches that it should have given back:
//! they must stay as they are, also when it has given up the agent that lent them. What it is handed it
//! writes over at once, as a training that normalises in place, so a batch that the agent copied from too
//! late, or handed to two, is found. And when it is told to,
//! it starts a process that keeps its socket open, as a loader worker does that was forked.

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
use tierfeed_workload_analyzer::Job;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    clock::{Clock, pause},
    cold::Cold,
    record::{Entry, Origin, last_entry},
};

/// An agent that is silent for so long hangs: the trainer goes on without it.
const PATIENCE: Duration = Duration::from_secs(1);

/// As [`PATIENCE`], for an agent that shall let the trainer in.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// Batches that are read alone between two looks for an agent.
const ALONE_MAX: u32 = 16;

/// A sample that cannot be read for so long is lost.
const UNREADABLE_MAX: Duration = Duration::from_secs(60);

const RETRY_EVERY: Duration = Duration::from_millis(50);

/// One batch of so many is kept, while so many others pass.
const KEPT_ONE_OF: u64 = 24;
const KEPT_FOR: usize = 6;

/// What keeps the socket of a dead trainer ends by itself after so many seconds, if nobody ends it.
const ORPHAN_SECONDS: &str = "600";

/// What a trainer must know.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Which rank it is.
    pub(crate) rank: u32,
    /// Where the agent listens.
    pub(crate) socket: PathBuf,
    /// The job file.
    pub(crate) job: PathBuf,
    /// The index of the dataset.
    pub(crate) index: PathBuf,
    /// The checksum of every sample, as hexadecimal lines.
    pub(crate) sums: PathBuf,
    /// What it writes down.
    pub(crate) record: PathBuf,
    /// It ends when this file is there.
    pub(crate) stop: PathBuf,
    /// It starts a process that keeps its socket when this file is there, and removes it.
    pub(crate) fork: PathBuf,
    /// Where it writes the number of that process.
    pub(crate) orphan: PathBuf,
    /// What it computes in a step.
    pub(crate) step: Duration,
}

/// Trains until the stop file is there or the order ends.
///
/// # Errors
///
/// If a sample is not what it was made as, a batch is another than the order's, or a sample cannot be
/// read for a minute.
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
        cold: Cold::open(&job.dataset.source, index)?,
        sums: read_sums(&settings.sums)?,
        record,
    };
    training.run(next)
}

fn read_sums(path: &Path) -> anyhow::Result<Vec<u64>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let sum = |line: &str| u64::from_str_radix(line, 16).context("a line is no checksum");
    text.lines().map(sum).collect()
}

struct Training<'a> {
    settings: &'a Settings,
    clock: Clock,
    order: Spec,
    cold: Cold,
    sums: Vec<u64>,
    record: File,
}

/// A batch that the trainer holds, and the connection that it is given back by: also when that was given
/// up, it lasts until then.
struct Held {
    leased: LeasedBatch,
    client: Rc<Client>,
}

impl Training<'_> {
    fn run(mut self, mut next: Option<BatchId>) -> anyhow::Result<()> {
        let rank = Rank(self.settings.rank);
        let mut feed = Feed::new(self.settings.socket.clone(), rank, self.order);
        let mut epoch: Option<(BatchId, EpochOrder)> = None;
        let mut kept: VecDeque<Held> = VecDeque::new();
        while let Some(batch) = next
            && !self.settings.stop.exists()
        {
            let drawn = match epoch.take() {
                Some((of, drawn)) if of.epoch == batch.epoch => drawn,
                _ => self.order.epoch(batch.epoch).context("the order is not computed")?,
            };
            let samples: Vec<SampleId> = drawn.batch(rank, batch.step).collect();
            epoch = Some((batch, drawn));
            self.fork_if_told(feed.client.as_deref())?;
            let begin = self.clock.now();
            let taken = feed.take(batch)?;
            let waited = self.clock.since(begin);
            match taken {
                Ok((leased, client)) => {
                    self.check(&leased, &samples)?;
                    write_over(&leased)?;
                    self.note(batch, Origin::Agent, &samples, waited)?;
                    pause(self.settings.step);
                    kept.push_back(Held { leased, client });
                    while kept.len() > kept_max(batch) {
                        kept.pop_front().map_or(Ok(()), |held| self.give_back(&held))?;
                    }
                }
                Err(without) => {
                    kept.drain(..).try_for_each(|held| self.give_back(&held))?;
                    self.read_alone(&samples)?;
                    self.note(batch, without, &samples, waited)?;
                    pause(self.settings.step);
                }
            }
            next = self.order.after(batch);
        }
        kept.drain(..).try_for_each(|held| self.give_back(&held))
    }

    /// Nothing may have changed while it was held.
    fn give_back(&self, held: &Held) -> anyhow::Result<()> {
        self.check_held(&held.leased)?;
        // A lease of an agent that is gone went with it.
        let _ = held.client.release(held.leased.lease);
        Ok(())
    }

    /// Starts a process that inherits the connection, if somebody asks for it and there is one.
    fn fork_if_told(&self, client: Option<&Client>) -> anyhow::Result<()> {
        let Some(client) = client.filter(|_| self.settings.fork.exists()) else { return Ok(()) };
        // Whoever asked may have given up just now.
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
            let len = row.len.with_context(|| format!("sample {} was left out", sample.0))?;
            let mut bytes = vec![0; usize::try_from(len.0)?];
            leased.read(row, &mut bytes)?;
            self.compare(*sample, &bytes, "the agent")?;
        }
        Ok(())
    }

    /// What was written over is still so, and what can only be read is the sample.
    fn check_held(&self, leased: &LeasedBatch) -> anyhow::Result<()> {
        for row in &leased.rows {
            let Some(len) = row.len else { continue };
            let mut bytes = vec![0; usize::try_from(len.0)?];
            leased.read(row, &mut bytes)?;
            if row.shelf.is_some() {
                self.compare(row.sample, &bytes, "the shelf, at its end")?;
            } else {
                let is_whole = bytes.iter().all(|byte| *byte == mark_of(leased));
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

    /// A store that fails now is asked again: it comes back, or the training is lost.
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
    fn note(
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

/// Fills every sample that lies in the batch itself.
fn write_over(leased: &LeasedBatch) -> anyhow::Result<()> {
    for row in leased.rows.iter().filter(|row| row.shelf.is_none()) {
        let bytes = vec![mark_of(leased); usize::try_from(row.len.unwrap_or_default().0)?];
        leased.arena.write(Bytes(leased.offset.0 + row.offset.0), &bytes)?;
    }
    Ok(())
}

fn mark_of(leased: &LeasedBatch) -> u8 {
    leased.lease.0.to_le_bytes()[0] ^ 0xa5
}

/// How many batches are kept after this one was used: by its number, the same in every run.
fn kept_max(batch: BatchId) -> usize {
    let number =
        (u64::from(batch.epoch.0) << 32 | u64::from(batch.step.0)) + u64::from(batch.rank.0);
    let phase = number % (KEPT_ONE_OF * KEPT_FOR as u64);
    if phase < KEPT_FOR as u64 { KEPT_FOR } else { 0 }
}

/// A batch and the connection that it came by, or why there is none from an agent.
type Taken = Result<(LeasedBatch, Rc<Client>), Origin>;

/// The batches of one rank, from the agent while there is one.
struct Feed {
    socket: PathBuf,
    rank: Rank,
    order: Spec,
    client: Option<Rc<Client>>,
    /// The batch to ask for next.
    next: Option<BatchId>,
    asked: VecDeque<BatchId>,
    /// Batches since the last look for an agent.
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

    /// The batch, or why there is none from an agent.
    fn take(&mut self, batch: BatchId) -> anyhow::Result<Taken> {
        if self.client.is_none() && !self.look_for_agent(batch)? {
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
                // An agent that is gone needs no figures.
                let _ = client.deliver(leased.lease, Wait::default());
                Ok(Ok((leased, Rc::clone(client))))
            }
            Ok(Reply::Refused { batch: refused, .. }) => {
                ensure!(refused == batch, "{refused:?} was refused instead of {batch:?}");
                self.asked.pop_front();
                Ok(Err(Origin::Refused))
            }
            Err(NextError::TimedOut) => Ok(Err(self.leave(Origin::Late))),
            Err(NextError::Disconnected(_)) => Ok(Err(self.leave(Origin::Alone))),
            Err(error) => bail!("{error}"),
        }
    }

    fn look_for_agent(&mut self, batch: BatchId) -> anyhow::Result<bool> {
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

    fn leave(&mut self, origin: Origin) -> Origin {
        self.client = None;
        self.alone = 0;
        origin
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record;

    /// A training of two batches of four files, without an agent, whose sums `change` has changed.
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
            record: path("record"),
            stop: path("stop"),
            fork: path("fork"),
            orphan: path("orphan"),
            step: Duration::ZERO,
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
    fn a_sample_that_is_not_as_it_was_made_ends_the_training_before_it_is_used() {
        let (outcome, record) = trained(|sums| sums[2] += 1);
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("sample 2 from the cold store has wrong bytes"), "{error}");
        assert_eq!(record.len(), 1, "the batch before it");
        let (outcome, _) = trained(|sums| sums.truncate(3));
        assert!(outcome.unwrap_err().to_string().contains("without a checksum"));
    }
}
