//! The chunks of the four datasets: how large each is, and how long it takes to prepare.
//!
//! Read from the authors' table, or generated in its shape.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, bail, ensure};
use tierfeed_core::units::{Bytes, Nanoseconds};

/// The cost is that of one process, and eight prepare a chunk.
const HEADER: &str = "dataset,size_bytes,cost_s_times_8";
const PREPARERS: u64 = 8;
/// Far more than any table has; with the two below, no sum of a pattern leaves 64 bits.
const CHUNKS_MAX: usize = 1_000;
const SIZE_MAX: Bytes = Bytes(1_000_000_000_000_000);
const COST_MAX: Nanoseconds = Nanoseconds(1_000_000_000_000_000);
/// A window slides over the growing dataset day by day. The authors' table lists its ten days in no
/// order, and sizes and costs do not tell which is which: these are the rows by date.
const DAYS: [usize; 10] = [7, 1, 9, 6, 2, 4, 8, 3, 0, 5];

/// A chunk, by its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChunkId(pub(super) usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    /// The bytes of storage; never 0.
    pub(super) size: Bytes,
    /// The time to download and extract it.
    pub(super) cost: Nanoseconds,
}

impl Chunk {
    /// Nanoseconds that each byte saves if it is kept until the next use.
    pub(super) fn density(self) -> f64 {
        number(self.cost.0) / number(self.size.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunks {
    all: Vec<Chunk>,
    /// Chunks of a dataset that is trained on repeatedly, as a whole.
    pub(super) reused: Vec<ChunkId>,
    /// Chunks of a dataset that several jobs share.
    pub(super) shared: Vec<ChunkId>,
    /// In order of time: each job reads a window of it, one chunk further than the last.
    pub(super) growing: Vec<ChunkId>,
    /// Chunks that are trained on once.
    pub(super) once: Vec<ChunkId>,
}

impl Chunks {
    /// Reads a file as [`Self::parse`] reads a text.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, and as [`Self::parse`].
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{}", path.display()))
    }

    /// Takes a table: a line `dataset,size_bytes,cost_s_times_8`, then one for each chunk. Four datasets
    /// stand in it one after the other: the reused, the shared, the growing, the one trained on once.
    ///
    /// # Errors
    ///
    /// If a line is not what the header says, or there are not four datasets.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let mut lines = text.lines();
        let header = lines.next().unwrap_or_default();
        ensure!(header == HEADER, "line 1: the header is {header:?}, it should be {HEADER:?}");
        let (mut all, mut datasets) = (Vec::new(), Vec::<(&str, Vec<ChunkId>)>::new());
        for (line, place) in lines.zip(2..) {
            ensure!(all.len() < CHUNKS_MAX, "line {place}: more than {CHUNKS_MAX} chunks");
            let (dataset, chunk) = row(line).with_context(|| format!("line {place}"))?;
            let id = ChunkId(all.len());
            match datasets.last_mut().filter(|(name, _)| *name == dataset) {
                Some((_, ids)) => ids.push(id),
                None => datasets.push((dataset, vec![id])),
            }
            all.push(chunk);
        }
        let count = datasets.len();
        let Ok([(_, reused), (_, shared), (_, growing), (_, once)]) = <[_; 4]>::try_from(datasets)
        else {
            bail!("{count} datasets, one after the other: there should be 4");
        };
        Ok(Self { all, reused, shared, growing: by_date(growing), once })
    }

    /// As many chunks in each dataset as the authors' table has, of about its sizes and costs.
    pub fn generated() -> Self {
        let mut text = format!("{HEADER}\n");
        let datasets: [(&str, u64, u64, u64); 4] = [
            ("reused", 16, 9_000_000_000, 80),
            ("shared", 14, 6_500_000_000, 140),
            ("growing", 10, 700_000_000, 80),
            ("once", 37, 2_600_000_000, 140),
        ];
        for (dataset, count, mean_bytes, cost_ms_per_mb) in datasets {
            for row in 0..count {
                // From a quarter of the mean to seven quarters; costs scatter by a fifth.
                let bytes = mean_bytes / 4 * (1 + row * 5 % 7);
                let cost_ms = bytes / 1_000_000 * cost_ms_per_mb * (10 + row % 3) / 11;
                let (s, ms) = (cost_ms / 1000, cost_ms % 1000);
                writeln!(text, "{dataset},{bytes},{s}.{ms:03}").expect("a string takes all");
            }
        }
        Self::parse(&text).expect("what is written above is a table")
    }

    pub(super) fn get(&self, chunk: ChunkId) -> Chunk {
        self.all[chunk.0]
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.all.iter().map(|it| it.size.0).sum())
    }

    pub(super) fn cost(&self) -> Nanoseconds {
        Nanoseconds(self.all.iter().map(|it| it.cost.0).sum())
    }
}

fn row(line: &str) -> anyhow::Result<(&str, Chunk)> {
    let fields: Vec<&str> = line.split(',').collect();
    let [dataset, size, cost] = fields[..] else {
        bail!("{line:?} should have the three fields {HEADER:?}");
    };
    let bytes = size.parse().ok().filter(|it| (1..=SIZE_MAX.0).contains(it));
    let size = bytes.with_context(|| format!("size {size:?} should be bytes, 1 to 10^15"))?;
    let time = format!("{cost} s").parse::<Nanoseconds>().ok().filter(|it| *it <= COST_MAX);
    let time = time.with_context(|| format!("cost {cost:?} should be seconds, 0 to 10^6"))?;
    Ok((dataset, Chunk { size: Bytes(size), cost: Nanoseconds(time.0 / PREPARERS) }))
}

/// The authors' ten days in order; any other dataset is taken as it stands.
fn by_date(rows: Vec<ChunkId>) -> Vec<ChunkId> {
    if rows.len() == DAYS.len() { DAYS.map(|row| rows[row]).to_vec() } else { rows }
}

#[expect(clippy::cast_precision_loss, reason = "bytes and nanoseconds here are below 2^53")]
pub(super) fn number(value: impl TryInto<u64>) -> f64 {
    let value: u64 = value.try_into().unwrap_or(u64::MAX);
    value as f64
}
