//! DELI's Table II, computed again: two epochs of each training, in five ways to store the data.
//!
//! Times are those of the measurements. The paper gives the prices of requests and no other, and with one of
//! these two no cell of the requests is reproduced. [`ASSUMED`] has the assumptions, and
//! [`Outcome::alternatives`] the number of reproduced cells under other assumptions.
//!
//! # Source
//!
//! DELI, Table II and section V-E; for its prices the references 17, 18, 24 and 30.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde::Serialize;
use tierfeed_core::units::{Bytes, Nanoseconds};
use tierfeed_workload_analyzer::cost::{self, Charge, Money, Prefetched, Prices, Usage};

use super::{
    FIFTY_FIFTY, NODES, Workload,
    measured::{self, Row, mean},
    setting::Setting,
};

const EPOCHS: u32 = 2;

/// The prices that the most cells come out with.
///
/// `vm`: an n1-standard-2 (0.095) with a K80 (0.45); the machine with the 13 GB of the paper costs 0.5684.
/// `class_b`: the list price; the text of the paper says 0.002. `system_disk` is chosen to fit.
pub const ASSUMED: &str = "\
vm: 0.545 $/h
disk: 0.04 $/GB/month
store: 0.02 $/GB/month
class_a: 0.05 $/10k
class_b: 0.004 $/10k
list_page: 1000
system_disk: 16.07 GB
storage_charged: started-months
";

/// Either dataset as it lies on a disk. Chosen to fit: 42,000 files of a block of 4 KiB take as much.
pub const DATASET: Bytes = Bytes(170_000_000);

/// The assumptions that were tried instead: a name, a line of [`ASSUMED`], what to put there, and the time.
const ALTERNATIVES: [(&str, &str, &str, Time); 4] = [
    ("as assumed", "", "", Time::Run),
    ("class B as the text says, 0.002 $/10k", "class_b: 0.004", "class_b: 0.002", Time::Run),
    ("machine at its list price, 0.5684 $/h", "vm: 0.545", "vm: 0.5684", Time::Run),
    ("time as the text says, loading and mean computing", "", "", Time::Parts),
];

/// A bound above the size of both datasets, in samples.
const SAMPLES_MAX: u64 = 70_000;

/// The cost that a cell is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Column {
    /// The cost of requests.
    Api,
    /// The cost of disks and bucket.
    Storage,
    /// The cost of machines.
    Compute,
    /// The sum of all costs.
    Total,
}

impl Column {
    const ALL: [Self; 4] = [Self::Api, Self::Storage, Self::Compute, Self::Total];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Api => "requests",
            Self::Storage => "storage",
            Self::Compute => "compute",
            Self::Total => "total",
        }
    }

    fn of(self, charge: &Charge) -> Money {
        match self {
            Self::Api => charge.api,
            Self::Storage => charge.storage(),
            Self::Compute => charge.compute,
            Self::Total => charge.total(),
        }
    }
}

/// How long a training takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Time {
    /// As measured for the epochs.
    Run,
    /// Loading as measured, and the mean time of computing that the paper tells.
    Parts,
}

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Disk,
    Bucket,
    FullFetch(u32),
    FiftyFifty,
}

impl Method {
    const ALL: [Self; 5] =
        [Self::Disk, Self::Bucket, Self::FullFetch(1024), Self::FullFetch(2048), Self::FiftyFifty];

    const fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Bucket => "bucket",
            Self::FullFetch(1024) => "full fetch 1024",
            Self::FullFetch(_) => "full fetch 2048",
            Self::FiftyFifty => "50/50 1024",
        }
    }

    /// Samples of a fetch and of the cache; a full fetch fills it.
    const fn fetch_and_cache(self) -> Option<(u32, u32)> {
        match self {
            Self::Disk | Self::Bucket => None,
            Self::FullFetch(size) => Some((size, size)),
            Self::FiftyFifty => Some((1024, 2048)),
        }
    }

    /// The file that its times are in, and the rows of it.
    fn measured(self, workload: Workload) -> (&'static str, Setting) {
        let setting = |fetch, threshold, cache| Setting { batch: 512, fetch, threshold, cache };
        match self {
            Self::Disk => (workload.files.disk, setting(1024, 0, None)),
            Self::Bucket => (workload.files.bucket, setting(1024, 0, None)),
            Self::FullFetch(1024) => (workload.files.cache_size, setting(1024, 0, Some(1024))),
            Self::FullFetch(size) => (FIFTY_FIFTY, setting(size, 0, Some(size))),
            Self::FiftyFifty => (FIFTY_FIFTY, setting(1024, 1024, Some(2048))),
        }
    }
}

/// The printed figures, in cents: requests, storage, compute and loading, total.
const fn printed(workload: usize, method: usize) -> [Option<u64>; 4] {
    const MNIST: [[Option<u64>; 4]; 5] = [
        [None, Some(195), Some(10), Some(205)],
        [Some(3), Some(193), Some(72), Some(268)],
        [Some(8), Some(193), Some(16), Some(217)],
        [Some(6), Some(193), Some(12), Some(210)],
        [Some(8), Some(193), Some(11), Some(212)],
    ];
    const CIFAR: [[Option<u64>; 4]; 5] = [
        [None, Some(195), Some(28), Some(223)],
        [Some(3), Some(193), Some(72), Some(268)],
        [Some(7), Some(193), Some(25), Some(225)],
        [Some(5), Some(193), Some(23), Some(221)],
        [Some(7), Some(193), Some(17), Some(217)],
    ];
    [MNIST, CIFAR][workload][method]
}

/// The table, computed again.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// All cells that are printed, by training and row.
    pub cells: Vec<Cell>,
    /// How many cells come out with which assumptions, the chosen ones first.
    pub alternatives: Vec<Alternative>,
    /// The hourly prices of a machine from and below which every cell of compute comes out, if any does.
    pub vm_usd_per_h: Option<(f64, f64)>,
    /// What would have to be counted for the cells of requests to come out.
    pub samples: Vec<Samples>,
}

/// A cell of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// The name of the training.
    pub workload: &'static str,
    /// Where the data is.
    pub method: &'static str,
    /// The cost that it is about.
    pub column: Column,
    /// The printed figure, in cents.
    pub printed_cents: u64,
    /// The figure of the equations.
    pub computed_usd: f64,
    /// Whether that is the same in cents.
    pub is_same: bool,
}

/// How many cells are reproduced.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alternative {
    /// The assumption, in words.
    pub assumed: &'static str,
    /// Cells that are the same in cents, by [`Column`].
    pub same: [usize; 4],
    /// Cells that are printed, by [`Column`].
    pub printed: [usize; 4],
}

/// The smallest and largest number of samples with which all requests come out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Samples {
    /// The name of the training.
    pub workload: &'static str,
    /// The number of its samples.
    pub samples: u64,
    /// With the price of class B that is assumed.
    pub as_assumed: Option<(u64, u64)>,
    /// With the price of class B that the text tells.
    pub as_printed: Option<(u64, u64)>,
}

/// Reads the times below `data` and fills the table.
///
/// # Errors
///
/// If a file is not what was published, or lacks a configuration.
pub(super) fn recompute(data: &Path) -> anyhow::Result<Outcome> {
    let mut times = Vec::new();
    for workload in Workload::ALL {
        for method in Method::ALL {
            times.push(Times::read(data, workload, method)?);
        }
    }
    fill(&times)
}

/// The time of two epochs of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Times {
    run_s: f64,
    parts_s: f64,
}

impl Times {
    fn read(data: &Path, workload: Workload, method: Method) -> anyhow::Result<Self> {
        let (file, setting) = method.measured(workload);
        let rows = measured::read(&data.join(file), workload.per_node)?;
        let sum = |of: fn(&Row) -> f64| -> Option<f64> {
            let epoch = |epoch| {
                let rows = rows.iter().filter(|it| it.setting == setting && it.epoch == epoch);
                mean(rows.map(of))
            };
            (1..=EPOCHS).map(epoch).sum()
        };
        // What the models "spent an average of [...] training" (section V-B).
        let compute_s = if workload.per_node == 14_000 { 14.7 } else { 147.2 };
        let lacking = || anyhow!("{file}: lacks {setting:?} in one of {EPOCHS} epochs");
        Ok(Self {
            run_s: sum(|row| row.run_s).with_context(lacking)?,
            parts_s: sum(|row| row.load_s).with_context(lacking)? + compute_s * f64::from(EPOCHS),
        })
    }

    fn of(self, time: Time) -> Nanoseconds {
        let seconds = match time {
            Time::Run => self.run_s,
            Time::Parts => self.parts_s,
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and what is too large becomes the largest"
        )]
        Nanoseconds((seconds * 1e9) as u64)
    }
}

/// `times` are by training and row.
fn fill(times: &[Times]) -> anyhow::Result<Outcome> {
    let mut alternatives = Vec::new();
    let mut chosen = None;
    for (assumed, line, instead, time) in ALTERNATIVES {
        let prices = prices(&ASSUMED.replacen(line, instead, usize::from(!line.is_empty())))?;
        let cells = cells(&prices, times, time);
        let count = |column, is_counted: fn(&&Cell) -> bool| {
            cells.iter().filter(|cell| cell.column == column).filter(is_counted).count()
        };
        alternatives.push(Alternative {
            assumed,
            same: Column::ALL.map(|column| count(column, |cell| cell.is_same)),
            printed: Column::ALL.map(|column| count(column, |_| true)),
        });
        chosen.get_or_insert(cells);
    }
    Ok(Outcome {
        cells: chosen.unwrap_or_default(),
        alternatives,
        vm_usd_per_h: vm_range(times),
        samples: samples()?,
    })
}

fn prices(text: &str) -> anyhow::Result<Prices> {
    Ok(Prices::parse(text, Path::new("assumed"))?)
}

fn cells(prices: &Prices, times: &[Times], time: Time) -> Vec<Cell> {
    let mut found = Vec::new();
    for (number, workload) in Workload::ALL.into_iter().enumerate() {
        for (at, method) in Method::ALL.into_iter().enumerate() {
            let time = times[number * Method::ALL.len() + at].of(time);
            let samples = u64::from(workload.per_node * NODES);
            let Some(charge) = charge(prices, method, samples, time) else { continue };
            for (column, printed) in Column::ALL.into_iter().zip(printed(number, at)) {
                let amount = column.of(&charge);
                found.extend(printed.map(|printed_cents| Cell {
                    workload: workload.name,
                    method: method.name(),
                    column,
                    printed_cents,
                    computed_usd: amount.dollars(),
                    is_same: amount.to_cents() == printed_cents,
                }));
            }
        }
    }
    found
}

/// The paper counts a sample as an object, and takes all samples that the nodes read.
fn charge(prices: &Prices, method: Method, samples: u64, time: Nanoseconds) -> Option<Charge> {
    let prefetched = method.fetch_and_cache().map(|(fetch, cache)| Prefetched {
        time,
        cache: Bytes(DATASET.0 * u64::from(cache) / samples.max(1)),
        fetch: u64::from(fetch),
        misses: None,
    });
    let usage = Usage {
        nodes: NODES,
        epochs: EPOCHS,
        samples,
        objects: samples,
        dataset: DATASET,
        disk: (method == Method::Disk).then_some(time),
        direct: (method == Method::Bucket).then_some(time),
        prefetched,
        planned: None,
    };
    cost::bill(prices, &usage).charges.first().copied()
}

/// The hourly prices that round every cell of compute to what is printed.
fn vm_range(times: &[Times]) -> Option<(f64, f64)> {
    let of = |(at, times): (usize, &Times)| {
        let cents = printed(at / Method::ALL.len(), at % Method::ALL.len())[2]?;
        let hours = times.run_s / 3600.0 * f64::from(NODES);
        let cents = f64::from(u32::try_from(cents).ok()?);
        Some(((cents - 0.5) / 100.0 / hours, (cents + 0.5) / 100.0 / hours))
    };
    let ranges = times.iter().enumerate().filter_map(of);
    let both =
        ranges.fold((0.0, f64::INFINITY), |all: (f64, f64), it| (all.0.max(it.0), all.1.min(it.1)));
    (both.0 < both.1).then_some(both)
}

fn samples() -> anyhow::Result<Vec<Samples>> {
    let assumed = prices(ASSUMED)?;
    let as_printed = prices(&ASSUMED.replacen("class_b: 0.004", "class_b: 0.002", 1))?;
    let of = |(number, workload): (usize, Workload)| Samples {
        workload: workload.name,
        samples: u64::from(workload.per_node * NODES),
        as_assumed: fitting_samples(&assumed, number),
        as_printed: fitting_samples(&as_printed, number),
    };
    Ok(Workload::ALL.into_iter().enumerate().map(of).collect())
}

fn fitting_samples(prices: &Prices, workload: usize) -> Option<(u64, u64)> {
    let fits = |samples: &u64| {
        Method::ALL.into_iter().enumerate().all(|(at, method)| {
            let charge = charge(prices, method, *samples, Nanoseconds(0));
            let api = charge.map(|charge| charge.api.to_cents());
            printed(workload, at)[0].is_none_or(|printed| api == Some(printed))
        })
    };
    let first = (1..=SAMPLES_MAX).find(fits)?;
    let last = (1..=SAMPLES_MAX).rev().find(fits)?;
    Some((first, last))
}
