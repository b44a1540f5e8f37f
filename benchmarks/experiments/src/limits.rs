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
mod table;

pub use flatness::{Row as Flatness, Sizes};
pub use prefetch::{Row as Prefetch, Schedule};
pub use retention::Row as Retention;
pub use table::table;

use std::cmp::Ordering;

use serde::Serialize;
use tierfeed_harness::parallel;

const PREFETCH_EPOCHS: u32 = 50;

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Reads of a node in an epoch. The marks are for 60,000: with fewer, chance alone may miss them.
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

impl Outcome {
    /// A sentence for each figure that misses its mark.
    pub fn missed(&self) -> impl Iterator<Item = String> {
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
        retention.chain(prefetch).chain(flatness)
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

/// Runs everything on all cores.
#[must_use]
pub fn run(settings: &Settings, step: &mut (dyn FnMut(&str) + Send)) -> Outcome {
    let accesses = settings.accesses;
    let mut cases: Vec<Case> = prefetch::cases().into_iter().map(Case::Prefetch).collect();
    cases.extend(retention::cases().into_iter().map(Case::Retention));
    cases.extend(flatness::cases().into_iter().map(Case::Flatness));
    let measure = |case: &Case| match *case {
        Case::Retention(case) => Found::Retention(retention::measure(case, accesses)),
        Case::Prefetch(case) => Found::Prefetch(prefetch::measure(case, accesses, PREFETCH_EPOCHS)),
        Case::Flatness(case) => Found::Flatness(flatness::measure(case, accesses)),
    };
    let count = cases.len();
    let found = parallel::each(&cases, measure, &mut |done| {
        if done % STEPS_TOLD == 0 || done == count {
            step(&format!("{done} of {count} runs"));
        }
    });
    let mut outcome =
        Outcome { accesses, retention: Vec::new(), prefetch: Vec::new(), flatness: Vec::new() };
    for found in found {
        match found {
            Found::Retention(row) => outcome.retention.push(row),
            Found::Prefetch(rows) => outcome.prefetch.extend(rows),
            Found::Flatness(row) => outcome.flatness.push(row),
        }
    }
    outcome.retention.sort_by(in_table);
    outcome.flatness.sort_by_key(|row| row.nodes);
    outcome
}

/// Not every run is reported: most end within a second.
const STEPS_TOLD: usize = 20;

fn in_table(a: &Retention, b: &Retention) -> Ordering {
    let run = |row: &Retention| (row.nodes, row.policy);
    run(a).cmp(&run(b)).then(a.cached.total_cmp(&b.cached)).then(a.epochs.cmp(&b.epochs))
}
