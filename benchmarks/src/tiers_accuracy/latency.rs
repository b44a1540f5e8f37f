//! Idle latency, TLB-local and at its worst: the chain of the probe beside a chase written apart from it.
//!
//! Both sides make a new chain in new memory for each turn and time the same number of hops.

use std::hint::black_box;

use tierfeed_core::units::Bytes;
use tierfeed_numa_memory::{
    Anonymous, Pages,
    kernels::{Chain, ChainShape},
};

use super::{
    Settings,
    comparison::{Comparison, Row, Turn, alternate},
    machine::Machine,
    paired::Figure,
    reference::Program,
    sample::{Sample, Statistic, to_f64},
    team,
};

/// About 15 ms at 100 ns a hop.
const HOPS: u64 = 128 * 1024;

/// The least buffer; more than the caches of most machines hold four times.
const BUFFER_MIN: Bytes = Bytes::mib(256);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// In groups that the TLB holds, on huge pages.
    TlbLocal,
    /// From anywhere to anywhere, on small pages.
    Anywhere,
}

impl Way {
    pub(super) const ALL: [Self; 2] = [Self::TlbLocal, Self::Anywhere];

    const fn pages(self) -> Pages {
        match self {
            Self::TlbLocal => Pages::Huge,
            Self::Anywhere => Pages::Small,
        }
    }

    const fn shape(self, buffer: Bytes) -> ChainShape {
        match self {
            Self::TlbLocal => ChainShape::tlb_local(1),
            Self::Anywhere => ChainShape::worst_case(buffer, 1),
        }
    }

    /// Best and median of the same samples. Walks through page tables vary with where these lie, so the
    /// worst case has twice the tolerance.
    pub(super) fn rows(self) -> [Row; 2] {
        let (what, tolerance) = match self {
            Self::TlbLocal => ("idle latency", 0.05),
            Self::Anywhere => ("random latency, 4 KiB pages", 0.1),
        };
        [Statistic::Best, Statistic::Median].map(|statistic| Row {
            what,
            reference: "another chase",
            parallel: 1,
            statistic,
            unit: "ns",
            tolerance,
        })
    }

    /// The share of `buffer` in the pages of this way, given its bytes in huge pages.
    fn page_share(self, buffer: Bytes, huge_bytes: Option<f64>) -> f64 {
        let huge = huge_bytes.map(|bytes| (bytes / to_f64(buffer.0)).min(1.0));
        match (self, huge) {
            (_, None) => 0.0,
            (Self::TlbLocal, Some(huge)) => huge,
            (Self::Anywhere, Some(huge)) => 1.0 - huge,
        }
    }
}

pub(super) fn compare(
    settings: &Settings,
    machine: &Machine,
    chase: &Program,
    way: Way,
) -> anyhow::Result<Vec<Comparison>> {
    let asked = settings.array.or(Some(Bytes((4 * machine.cache.0).max(BUFFER_MIN.0))));
    let buffer = machine.array(asked, 1)?;
    let rows = way.rows();
    let cpu = machine.cpus[0];
    let figures = |samples: &[Sample], page_share: f64| -> anyhow::Result<Turn> {
        rows.iter().map(|row| figure(row.statistic, samples, page_share)).collect()
    };
    let ours = || {
        let memory = Anonymous::allocate(buffer, machine.locality, way.pages())?;
        let huge_bytes = memory.huge_page_bytes().map(|huge| to_f64(huge.0));
        let mut chain = Chain::build(memory, way.shape(buffer))?;
        let samples = (0..=settings.samples).map(|_| {
            team::run([(cpu, &mut chain)], |chain| {
                black_box(chain.chase(HOPS));
            })
        });
        let samples: Vec<Sample> = samples.collect::<anyhow::Result<_>>()?;
        figures(&samples, way.page_share(buffer, huge_bytes))
    };
    let reference = || {
        let ChainShape { stride, group, .. } = way.shape(buffer);
        let is_huge = u64::from(way == Way::TlbLocal);
        let count = settings.samples as u64 + 1;
        let arguments = [buffer.0, stride.0, group.0, is_huge, HOPS, count, cpu as u64];
        let printed = chase.run(&arguments, &[cpu])?;
        let samples = printed.samples.get("chase").map_or(&[][..], Vec::as_slice);
        figures(samples, way.page_share(buffer, printed.huge_bytes))
    };
    alternate(&rows, settings.pairs, ours, reference)
}

fn figure(statistic: Statistic, samples: &[Sample], page_share: f64) -> anyhow::Result<Figure> {
    let Some(Sample { wall_ns, cpu_share }) = statistic.of(samples) else {
        anyhow::bail!("a chase has no samples");
    };
    let value = wall_ns / to_f64(HOPS);
    Ok(Figure { value, cpu_share: Some(cpu_share), page_share: Some(page_share) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_counts_the_pages_that_it_asked_for() {
        let percent = |way: Way, huge| format!("{:.0}", way.page_share(Bytes(100), huge) * 100.0);
        assert_eq!(percent(Way::TlbLocal, Some(90.0)), "90");
        assert_eq!(percent(Way::TlbLocal, Some(300.0)), "100");
        assert_eq!(percent(Way::Anywhere, Some(0.0)), "100");
        assert_eq!(percent(Way::Anywhere, Some(25.0)), "75");
        assert_eq!(percent(Way::Anywhere, None), "0", "an unknown share counts as 0");
    }

    #[test]
    fn latency_is_the_time_of_one_hop() {
        let samples = [Sample { wall_ns: 100.0 * to_f64(HOPS), cpu_share: 1.0 }; 3];
        let figure = figure(Statistic::Median, &samples, 1.0).unwrap();
        let expected = Figure { value: 100.0, cpu_share: Some(1.0), page_share: Some(1.0) };
        assert_eq!(figure, expected);
    }
}
