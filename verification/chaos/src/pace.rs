//! The rate of a training: after each fault that is injected alone, the time until all ranks get batches from
//! their agents as fast as before it, and the time that the training lost.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::PathBuf,
    time::Duration,
};

use serde::Serialize;

use crate::{checks::seconds, record::Origin, testbed::Testbed};

/// The rate is measured over this time.
pub(crate) const WINDOW: Duration = Duration::from_secs(1);

/// A rate is full at this share of the one before the fault: other work on this machine takes some.
const FULL: f64 = 0.7;

/// The records of all ranks, as they grow.
#[derive(Debug)]
pub(crate) struct Pace {
    records: Vec<Growing>,
    looks: VecDeque<Look>,
}

/// The batches that the ranks had used at a time.
#[derive(Debug)]
struct Look {
    at: Duration,
    /// Batches of each rank that its agent served.
    served: Vec<u64>,
    /// Batches that all ranks read by themselves.
    alone: u64,
}

/// A record from a place on.
#[derive(Debug)]
struct Growing {
    path: PathBuf,
    end: u64,
    batches: u64,
    served: u64,
    /// Batches that the rank read by itself, as its agent did not answer.
    alone: u64,
}

impl Pace {
    /// Batches that were recorded before do not count.
    pub(crate) fn watch(testbed: &Testbed) -> io::Result<Self> {
        let growing = |rank| {
            let path = testbed.record(rank);
            let end = File::open(&path)?.seek(SeekFrom::End(0))?;
            Ok(Growing { path, end, batches: 0, served: 0, alone: 0 })
        };
        let records = testbed.world.ranks().map(growing).collect::<io::Result<_>>()?;
        Ok(Self { records, looks: VecDeque::new() })
    }

    /// Reads the entries that the ranks recorded since the last look.
    pub(crate) fn look(&mut self, now: Duration) -> io::Result<()> {
        self.records.iter_mut().try_for_each(Growing::read)?;
        let served = self.records.iter().map(|it| it.served).collect();
        self.looks.push_back(Look { at: now, served, alone: self.alone() });
        while self.looks.get(1).is_some_and(|look| look.at + WINDOW <= now) {
            self.looks.pop_front();
        }
        Ok(())
    }

    /// Batches that the slowest rank used, from any source.
    pub(crate) fn batches(&self) -> u64 {
        self.records.iter().map(|it| it.batches).min().unwrap_or_default()
    }

    /// Batches that all ranks read by themselves, because their agents did not answer.
    pub(crate) fn alone(&self) -> u64 {
        self.records.iter().map(|it| it.alone).sum()
    }

    /// The start of the last [`WINDOW`], if every rank was served in it at the full rate and used no other
    /// batch; `rate` is that before the fault, in batches a second.
    pub(crate) fn full_since(&self, rate: f64) -> Option<Duration> {
        let (first, last) = (self.looks.front()?, self.looks.back()?);
        let time = last.at.saturating_sub(first.at);
        let served =
            first.served.iter().zip(&last.served).map(|(first, last)| last - first).min()?;
        #[expect(clippy::cast_precision_loss, reason = "a few batches")]
        let is_full = time >= WINDOW && served as f64 >= FULL * rate * seconds(time);
        (is_full && first.alone == last.alone).then_some(first.at)
    }
}

impl Growing {
    /// A line that is written just now is read with the next look.
    fn read(&mut self) -> io::Result<()> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.end))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        self.end += whole as u64;
        for line in text[..whole].lines() {
            self.batches += 1;
            let origin = line.split(' ').nth(2);
            let is_of = |these: &[Origin]| these.iter().any(|it| origin == Some(it.name()));
            self.served += u64::from(is_of(&[Origin::Agent]));
            self.alone += u64::from(is_of(&[Origin::Alone, Origin::Late]));
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cost {
    pub(crate) lasted: Duration,
    /// From its end until the rate was full again.
    pub(crate) back: Duration,
    /// From its begin until then, less the usual time for the batches that were used meanwhile.
    pub(crate) lost: Duration,
    pub(crate) alone: u64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Costs {
    pub(crate) count: u64,
    pub(crate) lasted_s_max: f64,
    pub(crate) back_s_mean: f64,
    pub(crate) back_s_max: f64,
    pub(crate) lost_s_mean: f64,
    pub(crate) lost_s_max: f64,
    pub(crate) alone_batches: u64,
}

impl Costs {
    #[expect(clippy::cast_precision_loss, reason = "a few faults")]
    pub(crate) fn add(&mut self, cost: Cost) {
        let Cost { lasted, back, lost, alone } = cost;
        let mean = |mean: f64, value: Duration, count: u64| {
            mean + (seconds(value) - mean) / (count + 1) as f64
        };
        self.back_s_mean = mean(self.back_s_mean, back, self.count);
        self.lost_s_mean = mean(self.lost_s_mean, lost, self.count);
        self.back_s_max = self.back_s_max.max(seconds(back));
        self.lost_s_max = self.lost_s_max.max(seconds(lost));
        self.lasted_s_max = self.lasted_s_max.max(seconds(lasted));
        self.alone_batches += alone;
        self.count += 1;
    }
}

pub(crate) fn table(costs: &BTreeMap<&'static str, Costs>) -> String {
    let line = |(kind, it): (&&str, &Costs)| {
        format!(
            "  {kind:<18}{:>3} times, {:.1} s at most; full rate {:.1} s after its end ({:.1} s at most), \
             {:.1} s lost ({:.1} s at most), {} batches read without an agent\n",
            it.count,
            it.lasted_s_max,
            it.back_s_mean,
            it.back_s_max,
            it.lost_s_mean,
            it.lost_s_max,
            it.alone_batches
        )
    };
    costs.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{role::World, samples::Samples, testbed::Setup};
    use std::{fs::OpenOptions, io::Write as _};

    #[test]
    fn the_rate_is_full_when_every_rank_is_served_as_fast_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let setup = Setup {
            world: World::ONE_NODE,
            files: 3,
            server: None,
            memory: None,
            samples: Samples::Noise,
        };
        let testbed = Testbed::make(folder.path(), setup).unwrap();
        let append = |rank: u32, origin: &str, count: usize| {
            let mut options = OpenOptions::new();
            let mut file = options.create(true).append(true).open(testbed.record(rank)).unwrap();
            file.write_all(format!("0 0 {origin} 1,2 5\n").repeat(count).as_bytes()).unwrap();
        };
        let at = |tenths: u64| Duration::from_millis(100 * tenths);
        for rank in 0..2 {
            append(rank, "agent", 5);
        }
        let mut pace = Pace::watch(&testbed).unwrap();
        pace.look(at(0)).unwrap();
        append(0, "agent", 10);
        append(1, "agent", 10);
        append(1, "alone", 1);
        pace.look(at(10)).unwrap();
        assert_eq!((pace.batches(), pace.alone()), (10, 1));
        assert_eq!(pace.full_since(10.0), None, "rank 1 read a batch by itself");
        append(0, "agent", 7);
        append(1, "agent", 7);
        pace.look(at(20)).unwrap();
        assert_eq!(pace.full_since(10.0), Some(at(10)));
        assert_eq!(pace.full_since(11.0), None);
        append(0, "agent", 7);
        pace.look(at(30)).unwrap();
        assert_eq!(pace.full_since(10.0), None, "rank 1 stands still");
    }
}
