//! The workload: a training that may be killed at any point. It compares every sample with the checksum of
//! the file as it was made, records each batch, and after a restart continues after the last record.
//!
//! Without an agent it reads the cold store itself, in the same order, and tries to connect again after some
//! batches, as a framework's client does at each epoch. At times it holds batches longer than it should: their
//! bytes must not change, also when it has disconnected from the agent that lent them. It overwrites each batch
//! at once, as a training that normalises in place, which shows if the agent copies from a batch too late or
//! hands it to two trainers. On request it starts a process that keeps its socket open, as a forked loader
//! worker does.

mod cold_reader;
mod feed;

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

use anyhow::{Context as _, ensure};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use tierfeed_core::{
    id::{BatchId, Rank, SampleId, Step},
    order::{EpochOrder, Spec},
    units::Bytes,
};
use tierfeed_dataset::Index;
use tierfeed_handoff::{Client, LeasedBatch};
use tierfeed_harness::clock::{now, pause};
use tierfeed_workload_analyzer::Job;
use xxhash_rust::xxh3::xxh3_64;

use self::{cold_reader::ColdReader, feed::Feed};
use crate::{
    arguments::TrainerArguments,
    folder::Folder,
    record::{self, Entry, Origin, Tail},
};

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

/// Trains until the stop file is there or the order ends.
///
/// # Errors
///
/// If the bytes of a sample are wrong, a batch is not the one of the order, or a sample cannot be read for a
/// minute.
pub(crate) fn train(
    arguments: &TrainerArguments,
    rank: u32,
    socket: PathBuf,
    index: &Path,
) -> anyhow::Result<()> {
    let folder = Folder::at(&arguments.folder);
    let index = Arc::new(Index::open(index)?);
    let job = Job::load(&folder.job())?;
    let order = job.order(index.len())?;
    let record = record::read(&folder.record(rank))?;
    let next = match record.last() {
        Some(last) => {
            order.after(BatchId { epoch: last.epoch, step: Step(last.step), rank: Rank(rank) })
        }
        None => Some(order.first(Rank(rank))),
    };
    let ranks = if order.world.nodes > 1 { 0..order.world.ranks() } else { 0..0 };
    let others = ranks.map(|it| (Tail::whole(folder.record(it)), 0)).collect();
    let training = Training {
        rank,
        step: Duration::from_nanos(arguments.step.0),
        order,
        cold: ColdReader::open(&job.dataset.source, index)?,
        sums: read_sums(&folder.sums())?,
        rows: folder.rows().exists().then(|| read_sums(&folder.rows())).transpose()?,
        record: OpenOptions::new().create(true).append(true).open(folder.record(rank))?,
        made: record.len(),
        others,
        folder,
    };
    training.run(Feed::new(socket, Rank(rank), order), next)
}

fn read_sums(path: &Path) -> anyhow::Result<Vec<Option<u64>>> {
    let text = fs::read(path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_slice(&text)?)
}

struct Training {
    folder: Folder,
    rank: u32,
    step: Duration,
    order: Spec,
    cold: ColdReader,
    sums: Vec<Option<u64>>,
    /// Checksums of rows, by sample; `None` for a sample without a row.
    rows: Option<Vec<Option<u64>>>,
    record: File,
    /// Steps of this rank.
    made: usize,
    /// On several nodes ranks keep step, as those of a training that adds up gradients: their records, with the
    /// steps that each has made.
    others: Vec<(Tail, usize)>,
}

/// A batch that the trainer holds, and the connection over which it is released: a connection that was given
/// up stays open until then.
struct Held {
    leased: LeasedBatch,
    client: Rc<Client>,
}

impl Training {
    fn run(mut self, mut feed: Feed, mut next: Option<BatchId>) -> anyhow::Result<()> {
        let mut epoch: Option<(BatchId, EpochOrder)> = None;
        let mut held: VecDeque<Held> = VecDeque::new();
        while let Some(batch) = next
            && !self.folder.stop().exists()
        {
            let drawn = match epoch.take() {
                Some((of, drawn)) if of.epoch == batch.epoch => drawn,
                _ => self.order.epoch(batch.epoch).context("the order is not computed")?,
            };
            let samples: Vec<SampleId> = drawn.batch(batch.rank, batch.step).collect();
            epoch = Some((batch, drawn));
            if !self.await_even()? {
                break;
            }
            self.fork_if_requested(feed.client.as_deref())?;
            let begin = now();
            let taken = feed.take(batch)?;
            let waited = begin.elapsed();
            match taken {
                Ok((leased, client)) => {
                    self.check(&leased, &samples)?;
                    overwrite(&leased)?;
                    self.record_batch(batch, Origin::Agent, &samples, waited)?;
                    pause(self.step);
                    held.push_back(Held { leased, client });
                    while held.len() > held_max(batch) {
                        held.pop_front().map_or(Ok(()), |it| self.release(&it))?;
                    }
                }
                Err(without) => {
                    held.drain(..).try_for_each(|it| self.release(&it))?;
                    self.read_alone(&samples)?;
                    self.record_batch(batch, without, &samples, waited)?;
                    pause(self.step);
                }
            }
            self.made += 1;
            next = self.order.after(batch);
        }
        held.drain(..).try_for_each(|it| self.release(&it))
    }

    /// Waits until all ranks have made as many steps: one that is stopped or restarted holds up the others.
    /// Returns `false` if the training must end instead.
    fn await_even(&mut self) -> anyhow::Result<bool> {
        for (record, made) in &mut self.others {
            *made += record.read()?.len();
            while *made < self.made {
                if self.folder.stop().exists() {
                    return Ok(false);
                }
                pause(EVEN_EVERY);
                *made += record.read()?.len();
            }
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
        let (fork, orphan) = (self.folder.fork(self.rank), self.folder.orphan(self.rank));
        let Some(client) = client.filter(|_| fork.exists()) else { return Ok(()) };
        // The request may have been withdrawn just now.
        if fs::remove_file(fork).is_err() {
            return Ok(());
        }
        fcntl(client.as_fd(), FcntlArg::F_SETFD(FdFlag::empty()))?;
        let mut sleep = Command::new("sleep");
        sleep.arg(ORPHAN_SECONDS);
        sleep.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let number = sleep.spawn().context("cannot start sleep")?.id();
        let beside = orphan.with_extension("part");
        fs::write(&beside, number.to_string())?;
        Ok(fs::rename(beside, orphan)?)
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
        ensure!(
            Some(xxh3_64(bytes)) == *expected,
            "sample {} from {from} has wrong bytes",
            sample.0
        );
        Ok(())
    }

    /// Repeats reads of a store that fails, until it recovers or the training fails.
    fn read_alone(&self, samples: &[SampleId]) -> anyhow::Result<()> {
        for sample in samples {
            let begin = now();
            let bytes = loop {
                match self.cold.read(*sample) {
                    Ok(bytes) => break bytes,
                    Err(error) => {
                        ensure!(begin.elapsed() < UNREADABLE_MAX, "{error:#}");
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
        let (epoch, step) = (batch.epoch, batch.step.0);
        let samples = samples.iter().map(|it| it.0).collect();
        let line = Entry { epoch, step, origin, samples, waited }.to_line()?;
        Ok(self.record.write_all(line.as_bytes())?)
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

#[cfg(test)]
mod tests {
    use tierfeed_core::units::Nanoseconds;

    use super::*;

    /// Trains two batches of four files without an agent, with checksums that `change` has changed.
    fn trained(change: fn(&mut Vec<u64>)) -> (anyhow::Result<()>, Vec<Entry>) {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("data/cat")).unwrap();
        let mut sums: Vec<u64> = (0..4_u8).map(|it| xxh3_64(&[it; 500])).collect();
        (0..4_u8).for_each(|it| fs::write(path(&format!("data/cat/{it}.jpg")), [it; 500]).unwrap());
        change(&mut sums);
        fs::write(path("sums"), serde_json::to_vec(&sums).unwrap()).unwrap();
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
        let arguments = TrainerArguments { folder: path(""), step: Nanoseconds(0) };
        let outcome = train(&arguments, 0, path("socket"), &path("index"));
        (outcome, record::read(&path("record0")).unwrap())
    }

    #[test]
    fn a_training_alone_uses_each_batch_once() {
        let (outcome, record) = trained(|_| ());
        outcome.unwrap();
        assert!(record.iter().all(|it| it.origin == Origin::Alone));
        let samples: Vec<_> = record.iter().map(|it| it.samples.as_slice()).collect();
        assert_eq!(samples, [[0, 1], [2, 3]]);
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
