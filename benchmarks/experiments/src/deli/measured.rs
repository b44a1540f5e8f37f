//! The published measurements: tables of comma-separated values, a row for each epoch of each node.

use std::{collections::BTreeMap, fs::File, io::Read as _, path::Path};

use anyhow::{Context as _, bail, ensure};

use super::setting::Setting;

/// The largest size of a file that is read; the largest published one has 30 KB.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The rows of one file.
pub(super) type Measured = Vec<Row>;

/// One epoch of one node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) setting: Setting,
    /// The epoch, counted from 1.
    pub(super) epoch: u32,
    /// Share of the samples that the node read from the bucket; `None` where there was no cache.
    pub(super) miss_rate: Option<f64>,
    /// Samples that it read from the bucket.
    pub(super) misses: Option<f64>,
    /// Samples that it read.
    pub(super) accesses: u32,
    /// The time that the training waited for data, in seconds.
    pub(super) load_s: f64,
    /// The part of it that was spent on the bucket.
    pub(super) bucket_s: Option<f64>,
    /// The time of the epoch, in seconds.
    pub(super) run_s: f64,
}

/// Reads a file, of which the rows of nodes that read `per_node` samples are kept; a row without this
/// number counts as one of them.
///
/// # Errors
///
/// With file and line, if the file cannot be read or a value is missing or is no number.
pub(super) fn read(path: &Path, per_node: u32) -> anyhow::Result<Measured> {
    let name = || path.display().to_string();
    let mut text = String::new();
    let mut file = File::open(path).with_context(name)?.take(FILE_BYTES_MAX + 1);
    file.read_to_string(&mut text).with_context(name)?;
    ensure!(
        text.len() as u64 <= FILE_BYTES_MAX,
        "{}: longer than {FILE_BYTES_MAX} bytes; none of the published files is",
        path.display()
    );
    parse(&text, per_node).with_context(name)
}

pub(super) fn parse(text: &str, per_node: u32) -> anyhow::Result<Measured> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let mut rows = Vec::new();
    for (number, line) in (2..).zip(lines) {
        if line.trim_matches([',', '\r', ' ']).is_empty() {
            continue;
        }
        let fields = Fields { header: &header, values: line.trim_end().split(',').collect() };
        let row = fields.row(per_node).with_context(|| format!("line {number}"))?;
        rows.extend((row.accesses == per_node).then_some(row));
    }
    ensure!(!rows.is_empty(), "no row of a node that reads {per_node} samples");
    Ok(rows)
}

struct Fields<'a> {
    header: &'a [&'a str],
    values: Vec<&'a str>,
}

impl Fields<'_> {
    fn row(&self, per_node: u32) -> anyhow::Result<Row> {
        let misses = self.optional("Number of Misses")?;
        let accesses = match self.optional("Number of Accesses")? {
            Some(accesses) => whole("Number of Accesses", accesses)?,
            None => per_node,
        };
        ensure!(accesses > 0, "no accesses");
        ensure!(
            misses.is_none_or(|misses| misses <= f64::from(accesses)),
            "more misses than accesses"
        );
        Ok(Row {
            setting: self.setting()?,
            epoch: whole("Epoch", self.number("Epoch")?)?,
            // The published column says the same, but for rounding.
            miss_rate: misses.map(|misses| misses / f64::from(accesses)),
            misses,
            accesses,
            load_s: self.number("Data Loading Time (s)")?,
            bucket_s: self.optional("GCP Loading Time (s)")?,
            run_s: self.number("Epoch Run Time (s)")?,
        })
    }

    /// A file that varies something else leaves the fetch size at 1,024 and the threshold at 0.
    fn setting(&self) -> anyhow::Result<Setting> {
        let of = |name: &str| -> anyhow::Result<Option<u32>> {
            self.optional(name)?.map(|value| whole(name, value)).transpose()
        };
        let batch = of("Batch Size")?.context("no `Batch Size`")?;
        let fetch = of("Fetch Size")?.unwrap_or(1024);
        ensure!(batch > 0 && fetch > 0, "a batch size or fetch size of 0");
        let threshold = of("Minimum Queue Size")?.unwrap_or(0);
        Ok(Setting { batch, fetch, threshold, cache: of("Cache Size")? })
    }

    fn number(&self, name: &str) -> anyhow::Result<f64> {
        self.optional(name)?.with_context(|| format!("no `{name}`"))
    }

    /// Values that are missing, empty or a placeholder.
    fn optional(&self, name: &str) -> anyhow::Result<Option<f64>> {
        let at = self.header.iter().position(|it| it.trim() == name);
        let value = at.and_then(|at| self.values.get(at)).map_or("", |value| value.trim());
        if matches!(value, "" | "N/A") {
            return Ok(None);
        }
        match value.parse::<f64>() {
            Ok(number) if number.is_finite() && number >= 0.0 => Ok(Some(number)),
            _ => bail!("`{name}` is `{value}`; expected a number that is not negative"),
        }
    }
}

fn whole(name: &str, value: f64) -> anyhow::Result<u32> {
    ensure!(
        value.fract() == 0.0 && value <= f64::from(u32::MAX),
        "`{name}` is `{value}`; expected a whole number"
    );
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole, not negative and not too large, as just checked"
    )]
    Ok(value as u32)
}

/// The rows of each configuration and epoch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Means<'a>(BTreeMap<(Setting, u32), Vec<&'a Row>>);

impl<'a> Means<'a> {
    pub(super) fn of(rows: &'a [Row]) -> Self {
        let mut groups: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            groups.entry((row.setting, row.epoch)).or_default().push(row);
        }
        Self(groups)
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = (Setting, u32, &[&'a Row])> {
        self.0.iter().map(|((setting, epoch), rows)| (*setting, *epoch, rows.as_slice()))
    }
}

/// The mean, or `None` without values.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0_u32);
    for value in values {
        sum += value;
        count += 1;
    }
    (count > 0).then(|| sum / f64::from(count))
}
