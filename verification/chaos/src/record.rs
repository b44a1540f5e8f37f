//! The record of a trainer, a line for each batch that it used, and its comparison with the order.
//!
//! A trainer writes the line after it compared the bytes and before it computes. So a batch counts as
//! used once its line is there: a trainer that is killed before computes it again, one that is killed
//! after continues with the next batch, as a training does from its last checkpoint.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use tierfeed_core::{
    id::{Epoch, Rank},
    order::Spec,
};
use xxhash_rust::xxh3::Xxh3;

use crate::testbed::Testbed;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Origin {
    /// The agent served it.
    Agent,
    /// The cold store: there was no agent.
    Alone,
    /// The cold store: the agent refused.
    Refused,
    /// The cold store: the agent gave no answer in time.
    Late,
    /// The cold store: the trainer held so many batches that it could not ask for another.
    Full,
}

impl Origin {
    /// Whether the trainer read the batch because its agent did not answer.
    pub(crate) fn lacked_agent(self) -> bool {
        matches!(self, Self::Alone | Self::Late)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) epoch: Epoch,
    pub(crate) step: u32,
    pub(crate) origin: Origin,
    pub(crate) samples: Vec<u32>,
    pub(crate) waited: Duration,
}

impl Entry {
    pub(crate) fn to_line(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }
}

fn parse(lines: &str) -> anyhow::Result<Vec<Entry>> {
    let entry = |line| serde_json::from_str(line).with_context(|| format!("{line:?} is no batch"));
    lines.lines().map(entry).collect()
}

/// All batches in a record; none if there is no record.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Entry>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        text => parse(&text.with_context(|| path.display().to_string())?),
    }
}

/// A record as it grows.
#[derive(Debug)]
pub(crate) struct Tail {
    path: PathBuf,
    end: u64,
}

impl Tail {
    pub(crate) fn whole(path: PathBuf) -> Self {
        Self { path, end: 0 }
    }

    /// Batches that were recorded before do not count.
    pub(crate) fn of(path: PathBuf) -> Self {
        let end = fs::metadata(&path).map_or(0, |it| it.len());
        Self { path, end }
    }

    /// The records of all ranks, from now on.
    pub(crate) fn of_all(testbed: &Testbed) -> Vec<Self> {
        testbed.world.ranks().map(|rank| Self::of(testbed.folder.record(rank))).collect()
    }

    /// The batches since the last call. A line that is written just now belongs to the next.
    pub(crate) fn read(&mut self) -> anyhow::Result<Vec<Entry>> {
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            file => file?,
        };
        file.seek(SeekFrom::Start(self.end))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        self.end += whole as u64;
        parse(&text[..whole])
    }
}

/// The batches that all trainers used, compared with those of the order.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Comparison {
    pub(crate) batches: u64,
    /// Samples that trainers used and compared.
    pub(crate) samples: u64,
    pub(crate) batches_by_origin: BTreeMap<Origin, u64>,
    /// xxh3-64 of the sample numbers, u64 little-endian, rank after rank.
    pub(crate) digest: String,
    /// The same of the samples of the order.
    pub(crate) digest_expected: String,
    /// Batches that differ from those of the order at their place.
    #[serde(skip)]
    pub(crate) differing: Vec<String>,
}

/// Compares the record of each rank with the start of its order.
pub(crate) fn compare(order: &Spec, records: &[(Rank, PathBuf)]) -> anyhow::Result<Comparison> {
    let (mut found, mut expected) = (Xxh3::new(), Xxh3::new());
    let mut comparison = Comparison::default();
    for (rank, path) in records {
        let mut next = Some(order.first(*rank));
        let mut drawn = None;
        for entry in read(path)? {
            let Some(batch) = next else { bail!("rank {} used more than the order has", rank.0) };
            let epoch = match drawn.take() {
                Some((of, epoch)) if of == batch.epoch => epoch,
                _ => order.epoch(batch.epoch).context("the order is not computed")?,
            };
            let samples: Vec<u32> = epoch.batch(*rank, batch.step).map(|it| it.0).collect();
            drawn = Some((batch.epoch, epoch));
            entry.samples.iter().for_each(|it| found.update(&u64::from(*it).to_le_bytes()));
            samples.iter().for_each(|it| expected.update(&u64::from(*it).to_le_bytes()));
            if (entry.epoch, entry.step, &entry.samples) != (batch.epoch, batch.step.0, &samples) {
                comparison.differing.push(format!("rank {}: {entry:?} at {batch:?}", rank.0));
            }
            comparison.batches += 1;
            comparison.samples += entry.samples.len() as u64;
            *comparison.batches_by_origin.entry(entry.origin).or_default() += 1;
            next = order.after(batch);
        }
    }
    comparison.digest = format!("{:016x}", found.digest());
    comparison.digest_expected = format!("{:016x}", expected.digest());
    Ok(comparison)
}

#[cfg(test)]
mod tests {
    use tierfeed_core::{
        id::BatchId,
        order::{FurtherDatasets, Position, Shuffle, World},
    };

    use super::*;

    fn order() -> Spec {
        Spec {
            samples: 20,
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 1,
            epochs: 2,
            drop_last: false,
            batch_size: 4,
            world: World { nodes: 1, ranks_per_node: 2 },
            start: Position::START,
            further: FurtherDatasets::NONE,
        }
    }

    /// The lines of a whole training of rank 0.
    fn whole() -> Vec<String> {
        let order = order();
        let entry = |batch: BatchId| {
            let drawn = order.epoch(batch.epoch).unwrap();
            let samples = drawn.batch(batch.rank, batch.step).map(|it| it.0).collect();
            let (epoch, step, waited) = (batch.epoch, batch.step.0, Duration::from_micros(7));
            Entry { epoch, step, origin: Origin::Agent, samples, waited }.to_line().unwrap()
        };
        let batches = std::iter::successors(Some(order.first(Rank(0))), |it| order.after(*it));
        batches.map(entry).collect()
    }

    fn compared(lines: &[String]) -> Comparison {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record");
        fs::write(&path, lines.concat()).unwrap();
        compare(&order(), &[(Rank(0), path)]).unwrap()
    }

    #[test]
    fn a_record_up_to_any_batch_agrees_with_the_order() {
        let lines = whole();
        for end in 0..=lines.len() {
            let comparison = compared(&lines[..end]);
            assert_eq!(comparison.differing, Vec::<String>::new());
            assert_eq!(comparison.digest, comparison.digest_expected);
            assert_eq!(comparison.batches, end as u64);
        }
    }

    #[test]
    fn a_lost_doubled_or_moved_batch_is_found() {
        let lines = whole();
        let mut lost = lines.clone();
        lost.remove(1);
        let mut doubled = lines[..3].to_vec();
        doubled.insert(1, doubled[1].clone());
        let mut moved = lines.clone();
        moved.swap(1, 2);
        for lines in [lost, doubled, moved] {
            let comparison = compared(&lines);
            assert!(!comparison.differing.is_empty());
            assert_ne!(comparison.digest, comparison.digest_expected);
        }
    }

    #[test]
    fn a_training_continues_after_its_last_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record");
        assert_eq!(read(&path).unwrap(), []);
        fs::write(&path, whole()[..2].concat()).unwrap();
        assert_eq!(read(&path).unwrap().last().unwrap().step, 1);
        fs::write(&path, r#"{"epoch":0,"step":0"#).unwrap();
        assert!(read(&path).is_err());
    }

    #[test]
    fn what_is_recorded_later_is_read_once_and_in_whole_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record");
        let lines = whole();
        assert_eq!(Tail::of(path.clone()).read().unwrap(), []);
        fs::write(&path, &lines[0]).unwrap();
        let mut tail = Tail::of(path.clone());
        let (half, rest) = lines[2].split_at(9);
        fs::write(&path, lines[..2].concat() + half).unwrap();
        let steps = |entries: Vec<Entry>| entries.iter().map(|it| it.step).collect::<Vec<_>>();
        assert_eq!(steps(tail.read().unwrap()), [1]);
        fs::write(&path, lines[..2].concat() + half + rest).unwrap();
        assert_eq!(steps(tail.read().unwrap()), [2]);
        assert_eq!(tail.read().unwrap(), []);
    }
}
