//! Copy, scale, add and triad: the kernels of the probe beside a variant of STREAM.
//!
//! Both sides run the four kernels in STREAM's order over three arrays in huge pages, allocated anew for
//! each turn, so that no side keeps lucky pages; the best pass counts.

use tierfeed_core::units::Bytes;
use tierfeed_numa_memory::{
    Anonymous, Pages,
    kernels::{self, LINE_BYTES},
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

const FACTOR: f64 = 3.0;
const ARRAYS: u64 = 3;

/// A kernel, in STREAM's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kernel {
    Copy,
    Scale,
    Add,
    Triad,
}

impl Kernel {
    const ALL: [Self; 4] = [Self::Copy, Self::Scale, Self::Add, Self::Triad];

    const fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Scale => "scale",
            Self::Add => "add",
            Self::Triad => "triad",
        }
    }

    /// The arrays that it moves, as STREAM counts.
    const fn arrays(self) -> f64 {
        match self {
            Self::Copy | Self::Scale => 2.0,
            Self::Add | Self::Triad => 3.0,
        }
    }
}

pub(super) fn rows(threads: usize) -> Vec<Row> {
    let row = |kernel: Kernel| Row {
        what: kernel.name(),
        reference: "variant of STREAM",
        parallel: threads,
        statistic: Statistic::Best,
        unit: "bytes_per_s",
        tolerance: 0.05,
    };
    Kernel::ALL.into_iter().map(row).collect()
}

pub(super) fn compare(
    settings: &Settings,
    machine: &Machine,
    stream: &Program,
    threads: usize,
) -> anyhow::Result<Vec<Comparison>> {
    let array = machine.array(settings.array, ARRAYS)?;
    let cpus = &machine.cpus[..threads];
    // The first of each is dropped.
    let passes = settings.samples + 1;
    let ours = || {
        let mut arrays = Arrays::allocate(machine, array)?;
        let page_share = arrays.page_share();
        let samples = arrays.passes(passes, cpus)?;
        Kernel::ALL
            .iter()
            .zip(samples)
            .map(|(kernel, of_kernel)| figure(*kernel, array, &of_kernel, page_share))
            .collect::<anyhow::Result<Turn>>()
    };
    let reference = || {
        let printed = stream.run(&[array.0, passes as u64], cpus)?;
        let page_share = printed.huge_bytes.map_or(0.0, |bytes| bytes / to_f64(ARRAYS * array.0));
        Kernel::ALL
            .iter()
            .map(|kernel| {
                let samples = printed.samples.get(kernel.name()).map_or(&[][..], Vec::as_slice);
                figure(*kernel, array, samples, page_share)
            })
            .collect::<anyhow::Result<Turn>>()
    };
    alternate(&rows(threads), settings.pairs, ours, reference)
}

fn figure(
    kernel: Kernel,
    array: Bytes,
    samples: &[Sample],
    page_share: f64,
) -> anyhow::Result<Figure> {
    let best = Statistic::Best.of(samples);
    let Some(Sample { wall_ns, cpu_share }) = best else {
        anyhow::bail!("{} has no samples", kernel.name());
    };
    let value = kernel.arrays() * to_f64(array.0) * 1e9 / wall_ns;
    Ok(Figure { value, cpu_share: Some(cpu_share), page_share: Some(page_share) })
}

/// STREAM's a, b and c.
struct Arrays {
    a: Anonymous,
    b: Anonymous,
    c: Anonymous,
}

impl Arrays {
    fn allocate(machine: &Machine, array: Bytes) -> anyhow::Result<Self> {
        let filled = |value: f64| -> anyhow::Result<Anonymous> {
            let mut words = Anonymous::allocate(array, machine.locality, Pages::Huge)?;
            kernels::fill(words.words_mut(), value.to_bits());
            Ok(words)
        };
        Ok(Self { a: filled(1.0)?, b: filled(2.0)?, c: filled(0.0)? })
    }

    fn page_share(&self) -> f64 {
        let share = |it: &Anonymous| {
            it.huge_page_bytes().map_or(0.0, |huge| to_f64(huge.0) / to_f64(it.len().0))
        };
        [&self.a, &self.b, &self.c].map(share).into_iter().fold(1.0, f64::min)
    }

    fn passes(&mut self, count: usize, cpus: &[usize]) -> anyhow::Result<[Vec<Sample>; 4]> {
        let mut samples = [const { Vec::new() }; 4];
        for _ in 0..count {
            for (kernel, of_kernel) in Kernel::ALL.into_iter().zip(&mut samples) {
                of_kernel.push(self.pass(kernel, cpus)?);
            }
        }
        Ok(samples)
    }

    fn pass(&mut self, kernel: Kernel, cpus: &[usize]) -> anyhow::Result<Sample> {
        let Self { a, b, c } = self;
        let (to, first, second) = match kernel {
            Kernel::Copy => (c, &*a, &*a),
            Kernel::Scale => (b, &*c, &*c),
            Kernel::Add => (c, &*a, &*b),
            Kernel::Triad => (a, &*b, &*c),
        };
        // Whole cache lines, as equal as they allow.
        let part = to.words().len().div_ceil(cpus.len()).next_multiple_of(LINE_BYTES / 8);
        let sources = first.words().chunks(part).zip(second.words().chunks(part));
        let work = cpus.iter().copied().zip(to.words_mut().chunks_mut(part).zip(sources));
        team::run(work, |(to, (first, second))| match kernel {
            Kernel::Copy => kernels::copy(to, first),
            Kernel::Scale => kernels::scale(to, first, FACTOR),
            Kernel::Add => kernels::add(to, first, second),
            Kernel::Triad => kernels::triad(to, first, second, FACTOR),
        })
    }
}

#[cfg(test)]
mod tests {
    use tierfeed_core::{id::NumaNode, tier::Locality};
    use tierfeed_numa_memory::affinity;

    use super::*;

    /// Otherwise the two sides would not run the same kernels.
    #[test]
    fn a_pass_computes_what_stream_computes() {
        let cpus = affinity::allowed_cpus().unwrap();
        let machine = Machine {
            node: NumaNode(0),
            cpus: cpus.clone(),
            locality: Locality::Anywhere,
            cache: Bytes(0),
        };
        let mut arrays = Arrays::allocate(&machine, Bytes(80_000)).unwrap();
        let samples = arrays.passes(2, &cpus).unwrap();
        assert!(samples.iter().all(|it| it.len() == 2));
        let (mut a, mut b, mut c) = (1.0_f64, 2.0_f64, 0.0_f64);
        for _ in 0..2 {
            c = a;
            b = FACTOR * c;
            c = a + b;
            a = b + FACTOR * c;
        }
        for (array, value) in [(&arrays.a, a), (&arrays.b, b), (&arrays.c, c)] {
            assert!(array.words().iter().all(|word| *word == value.to_bits()));
        }
    }

    #[test]
    fn bytes_are_counted_as_stream_counts_them() {
        let samples = [Sample { wall_ns: 1e9, cpu_share: 1.0 }; 2];
        let rate = |kernel| figure(kernel, Bytes(100), &samples, 1.0).unwrap().value;
        assert_eq!(Kernel::ALL.map(rate).to_vec(), [200.0, 200.0, 300.0, 300.0].to_vec());
    }
}
