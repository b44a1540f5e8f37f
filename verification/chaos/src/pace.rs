//! The rate of a training: after each fault that is injected alone, the time until all ranks get batches from
//! their agents as fast as before it, and the time that the training lost.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::{
    record::{Origin, Tail},
    testbed::Testbed,
};

/// The rate is measured over this time.
const WINDOW: Duration = Duration::from_secs(1);

/// A rate is full at this share of the one before the fault: other work on this machine takes some.
const FULL: f64 = 0.7;

/// The progress of all ranks since a time.
#[derive(Debug)]
pub(crate) struct Pace {
    records: Vec<Tail>,
    /// By rank.
    used: Vec<Used>,
    looks: VecDeque<(Instant, Vec<Used>)>,
}

/// The batches that a rank used.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    batches: u64,
    served: u64,
    /// The rank read them by itself, as its agent did not answer.
    alone: u64,
}

impl Pace {
    pub(crate) fn watch(testbed: &Testbed) -> Self {
        let records = Tail::of_all(testbed);
        Self { used: vec![Used::default(); records.len()], records, looks: VecDeque::new() }
    }

    /// Reads the entries that the ranks recorded since the last look.
    pub(crate) fn look(&mut self, now: Instant) -> anyhow::Result<()> {
        for (record, used) in self.records.iter_mut().zip(&mut self.used) {
            for entry in record.read()? {
                used.batches += 1;
                used.served += u64::from(entry.origin == Origin::Agent);
                used.alone += u64::from(entry.origin.lacked_agent());
            }
        }
        self.looks.push_back((now, self.used.clone()));
        while self.looks.get(1).is_some_and(|(at, _)| *at + WINDOW <= now) {
            self.looks.pop_front();
        }
        Ok(())
    }

    /// Batches that the slowest rank used, from any source.
    #[expect(clippy::cast_precision_loss, reason = "a few batches")]
    pub(crate) fn batches(&self) -> f64 {
        self.used.iter().map(|it| it.batches).min().unwrap_or_default() as f64
    }

    /// Batches that all ranks read by themselves, because their agents did not answer.
    pub(crate) fn alone(&self) -> u64 {
        self.used.iter().map(|it| it.alone).sum()
    }

    /// The start of the last [`WINDOW`], if every rank was served in it at the full rate and used no other
    /// batch; `rate` is that before the fault, in batches a second.
    pub(crate) fn full_since(&self, rate: f64) -> Option<Instant> {
        let ((begin, first), (end, last)) = (self.looks.front()?, self.looks.back()?);
        let time = *end - *begin;
        #[expect(clippy::cast_precision_loss, reason = "a few batches")]
        let is_served = |(first, last): (&Used, &Used)| {
            let served = (last.served - first.served) as f64;
            served >= FULL * rate * time.as_secs_f64() && last.alone == first.alone
        };
        (time >= WINDOW && first.iter().zip(last).all(is_served)).then_some(*begin)
    }
}

/// The cost of one fault.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) lasted: Duration,
    /// From its end until the rate was full again.
    pub(crate) back: Duration,
    /// From its begin until then, less the usual time for the batches that were used meanwhile.
    pub(crate) lost: Duration,
    pub(crate) alone: u64,
}

/// The costs of all faults of a kind.
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
        self.count += 1;
        let [lasted, back, lost] = [cost.lasted, cost.back, cost.lost].map(|it| it.as_secs_f64());
        self.back_s_mean += (back - self.back_s_mean) / self.count as f64;
        self.lost_s_mean += (lost - self.lost_s_mean) / self.count as f64;
        self.back_s_max = self.back_s_max.max(back);
        self.lost_s_max = self.lost_s_max.max(lost);
        self.lasted_s_max = self.lasted_s_max.max(lasted);
        self.alone_batches += cost.alone;
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::OpenOptions, io::Write as _};

    use tierfeed_core::id::Epoch;
    use tierfeed_harness::clock::now;

    use super::*;
    use crate::{record::Entry, testbed::Setup};

    #[test]
    fn the_rate_is_full_when_every_rank_is_served_as_fast_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let testbed = Testbed::make(folder.path(), Setup::plain(3)).unwrap();
        let append = |rank: u32, origin: Origin, count: usize| {
            let (epoch, step, waited) = (Epoch(0), 0, Duration::ZERO);
            let line =
                Entry { epoch, step, origin, samples: Vec::new(), waited }.to_line().unwrap();
            let mut options = OpenOptions::new();
            let record = testbed.folder.record(rank);
            let mut file = options.create(true).append(true).open(record).unwrap();
            file.write_all(line.repeat(count).as_bytes()).unwrap();
        };
        let begin = now();
        let at = |tenths: u64| begin + Duration::from_millis(100 * tenths);
        for rank in 0..2 {
            append(rank, Origin::Agent, 5);
        }
        let mut pace = Pace::watch(&testbed);
        pace.look(at(0)).unwrap();
        append(0, Origin::Agent, 10);
        append(1, Origin::Agent, 10);
        append(1, Origin::Alone, 1);
        pace.look(at(10)).unwrap();
        assert!((pace.batches() - 10.0).abs() < 1e-9);
        assert_eq!(pace.alone(), 1);
        assert_eq!(pace.full_since(10.0), None, "rank 1 read a batch by itself");
        append(0, Origin::Agent, 7);
        append(1, Origin::Agent, 7);
        pace.look(at(20)).unwrap();
        assert_eq!(pace.full_since(10.0), Some(at(10)));
        assert_eq!(pace.full_since(11.0), None);
        append(0, Origin::Agent, 7);
        pace.look(at(30)).unwrap();
        assert_eq!(pace.full_since(10.0), None, "rank 1 stands still");
    }
}
