//! The record of a trainer, a line for each batch that it used, and its comparison with the order.
//!
//! A trainer writes the line after it compared the bytes and before it computes. So a batch counts as
//! used once its line is there: a trainer that is killed before computes it again, one that is killed
//! after continues with the next batch, as a training does from its last checkpoint.

use std::{collections::BTreeMap, fs, io, path::Path, time::Duration};

use anyhow::{Context as _, bail};
use tierfeed_core::{
    id::{Epoch, Rank, Step},
    order::Spec,
};
use xxhash_rust::xxh3::Xxh3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
    const ALL: [Self; 5] = [Self::Agent, Self::Alone, Self::Refused, Self::Late, Self::Full];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Alone => "alone",
            Self::Refused => "refused",
            Self::Late => "late",
            Self::Full => "full",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) epoch: Epoch,
    pub(crate) step: Step,
    pub(crate) origin: Origin,
    pub(crate) samples: Vec<u32>,
    pub(crate) waited: Duration,
}

impl Entry {
    pub(crate) fn to_line(&self) -> String {
        let samples: Vec<String> = self.samples.iter().map(u32::to_string).collect();
        let (origin, waited_us) = (self.origin.name(), self.waited.as_micros());
        let samples = samples.join(",");
        format!("{} {} {origin} {samples} {waited_us}\n", self.epoch.0, self.step.0)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let mut field = || fields.next();
        let (epoch, step) = (Epoch(field()?.parse().ok()?), Step(field()?.parse().ok()?));
        let name = field()?;
        let origin = Origin::ALL.into_iter().find(|origin| origin.name() == name)?;
        let samples = field()?.split(',').map(|it| it.parse().ok()).collect::<Option<_>>()?;
        let waited = Duration::from_micros(field()?.parse().ok()?);
        Some(Self { epoch, step, origin, samples, waited })
    }
}

/// The last batch in a record, or `None` if there is none yet.
pub(crate) fn last_entry(path: &Path) -> anyhow::Result<Option<Entry>> {
    Ok(read(path)?.pop())
}

/// Batches in a record that the agent served; none if there is no record.
pub(crate) fn served(path: &Path) -> u64 {
    let is_served = |line: &&str| line.split(' ').nth(2) == Some(Origin::Agent.name());
    fs::read_to_string(path).map_or(0, |text| text.lines().filter(is_served).count() as u64)
}

/// All batches in a record; none if there is no record.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Entry>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.with_context(|| path.display().to_string())?,
    };
    let entry = |line: &str| Entry::parse(line).with_context(|| format!("{line:?} is no batch"));
    text.lines().map(entry).collect()
}

/// The batches that all trainers used, compared with those of the order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub(crate) batches: u64,
    pub(crate) samples: u64,
    pub(crate) by_origin: BTreeMap<&'static str, u64>,
    /// xxh3-64 of the sample numbers, u64 little-endian, rank after rank.
    pub(crate) digest: u64,
    pub(crate) digest_expected: u64,
    /// Batches that differ from those of the order at their place.
    pub(crate) differing: Vec<String>,
}

/// Compares the record of each rank with the start of its order.
pub(crate) fn compare(order: &Spec, records: &[(Rank, &Path)]) -> anyhow::Result<Comparison> {
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
            if (entry.epoch, entry.step, &entry.samples) != (batch.epoch, batch.step, &samples) {
                comparison.differing.push(format!("rank {}: {entry:?} at {batch:?}", rank.0));
            }
            comparison.batches += 1;
            comparison.samples += entry.samples.len() as u64;
            *comparison.by_origin.entry(entry.origin.name()).or_default() += 1;
            next = order.after(batch);
        }
    }
    comparison.digest = found.digest();
    comparison.digest_expected = expected.digest();
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
            let (epoch, step, waited) = (batch.epoch, batch.step, Duration::from_micros(7));
            Entry { epoch, step, origin: Origin::Agent, samples, waited }.to_line()
        };
        let batches = std::iter::successors(Some(order.first(Rank(0))), |it| order.after(*it));
        batches.map(entry).collect()
    }

    fn compared(lines: &[String]) -> Comparison {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record");
        fs::write(&path, lines.concat()).unwrap();
        compare(&order(), &[(Rank(0), &path)]).unwrap()
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
        assert_eq!(last_entry(&path).unwrap(), None);
        fs::write(&path, whole()[..2].concat()).unwrap();
        assert_eq!(last_entry(&path).unwrap().unwrap().step, Step(1));
        fs::write(&path, "0 0 agent").unwrap();
        assert!(last_entry(&path).is_err());
    }
}
