//! `tierfeed-bench limits`: how much policies keep, how early they prefetch and how evenly they spread
//! cold reads, beside the limits that no policy can exceed.
//!
//! The policies are those of the planner and the agent, replayed read by read over PyTorch's order. The
//! limits are computed here by other means than in the planner, and most figures stand beside those of a
//! simulation that shares no code with either.

mod flatness;
mod forms;
mod prefetch;
mod reference;
mod retention;

pub use flatness::{Row as Flatness, Sizes};
pub use prefetch::{Row as Prefetch, Schedule};
pub use retention::Row as Retention;

use std::cmp::Ordering;

use clap::Args;
use serde::Serialize;
use tierfeed_harness::{
    bench::Bench,
    failure::Failure,
    judgement::{Judged, Judgement},
    output::step,
    parallel,
};

const PREFETCH_EPOCHS: u32 = 50;

#[derive(Debug, Clone, Copy, Args)]
pub struct Settings {
    /// Reads of a node in an epoch; with fewer, chance alone may miss the marks.
    #[arg(long, value_name = "NUMBER", default_value_t = 60_000,
          value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub accesses: u32,
}

#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Of a node in an epoch.
    pub accesses: u32,
    pub retention: Vec<Retention>,
    pub prefetch: Vec<Prefetch>,
    pub flatness: Vec<Flatness>,
}

impl Judged for Outcome {
    /// A sentence for each figure that misses its mark.
    fn judged(&self) -> Judgement {
        let retention = self.retention.iter().filter(|row| row.is_met == Some(false)).map(|row| {
            let Retention { policy, nodes, cached, epochs, hits, .. } = row;
            let off = row.difference().unwrap_or(f64::NAN);
            format!(
                "{policy}, {nodes} nodes, cache {cached}, {epochs} epochs: \
                 {hits:.4} hit, {off:+.4} from the reference"
            )
        });
        let prefetch = self.prefetch.iter().filter(|row| row.is_met == Some(false)).map(|row| {
            let Prefetch { cached, bandwidth, ready, bound, cold, minimal_cold, .. } = row;
            format!(
                "{}, cache {cached}, bandwidth {bandwidth}: {ready:.3} ready of at most \
                 {bound:.3}, {cold:.3} cold of at least {minimal_cold:.3}",
                row.schedule.name()
            )
        });
        let flatness = self.flatness.iter().filter(|row| row.is_met == Some(false)).map(|row| {
            format!(
                "{}, {} sizes: cold bytes of a rank and step are {:.2} samples from their mean",
                row.policy,
                row.sizes.name(),
                row.deviation()
            )
        });
        let missed = retention.chain(prefetch).chain(flatness).collect();
        Judgement { missed, inconclusive: Vec::new() }
    }
}

enum Case {
    Retention(retention::Case),
    Prefetch(prefetch::Case),
    Flatness(flatness::Case),
}

enum Found {
    Retention(Retention),
    Prefetch(Vec<Prefetch>),
    Flatness(Flatness),
}

/// Not every run is told: most end within a second.
const STEPS_TOLD: usize = 20;

impl Bench for Settings {
    type Outcome = Outcome;

    /// Runs everything on all cores.
    fn run(self) -> Result<Outcome, Failure> {
        let accesses = self.accesses;
        let mut cases: Vec<Case> = prefetch::cases().into_iter().map(Case::Prefetch).collect();
        cases.extend(retention::cases().into_iter().map(Case::Retention));
        cases.extend(flatness::cases().into_iter().map(Case::Flatness));
        let count = cases.len();
        let found = parallel::each(&cases, |case| case.measure(accesses), &mut |done| {
            if done % STEPS_TOLD == 0 || done == count {
                step(&format!("{done} of {count} runs"));
            }
        });
        let (mut retention, mut prefetch, mut flatness) = (Vec::new(), Vec::new(), Vec::new());
        for found in found {
            match found {
                Found::Retention(row) => retention.push(row),
                Found::Prefetch(rows) => prefetch.extend(rows),
                Found::Flatness(row) => flatness.push(row),
            }
        }
        retention.sort_by(in_table);
        flatness.sort_by_key(|row| row.nodes);
        Ok(Outcome { accesses, retention, prefetch, flatness })
    }
}

impl Case {
    fn measure(&self, accesses: u32) -> Found {
        match *self {
            Self::Retention(case) => Found::Retention(retention::measure(case, accesses)),
            Self::Prefetch(case) => {
                Found::Prefetch(prefetch::measure(case, accesses, PREFETCH_EPOCHS))
            }
            Self::Flatness(case) => Found::Flatness(flatness::measure(case, accesses)),
        }
    }
}

fn in_table(a: &Retention, b: &Retention) -> Ordering {
    let run = |row: &Retention| (row.nodes, row.policy);
    run(a).cmp(&run(b)).then(a.cached.total_cmp(&b.cached)).then(a.epochs.cmp(&b.epochs))
}
