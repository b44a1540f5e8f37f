//! A figure or table of a paper, as it was published and as it is here.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Paper {
    /// `DeepMemoryDL` (CXL memory for deep learning).
    DeepMemory,
    /// Lobster (load balance of data loading).
    Lobster,
    /// DELI (object storage and a cache of samples).
    Deli,
    /// `DLCache` (a cache for shared datasets).
    DlCache,
    /// Questions of later papers.
    Newer,
    /// No paper: the loaders that people use.
    Loaders,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figure {
    /// The name in `tierfeed-bench paper NAME`, such as `deep-memory-8`.
    pub name: String,
    pub paper: Paper,
    /// The figure or table as the paper numbers it, such as "Figure 8".
    pub number: String,
    pub title: String,
    pub setting: String,
    pub charts: Vec<Chart>,
    /// Claims of the paper, with the same ratio here.
    pub headlines: Vec<Headline>,
    pub predictions: Vec<Prediction>,
    /// The parts that were emulated, and the check of each emulation.
    pub emulated: Vec<String>,
    pub command: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Chart {
    /// Empty unless the figure has several.
    pub title: String,
    /// With its unit.
    pub x: String,
    /// With its unit.
    pub y: String,
    pub along: Along,
    /// The series, each with a value for each group or position.
    pub series: Vec<Series>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Along {
    /// Groups of bars, one bar for each series.
    Groups(Vec<String>),
    Positions(Vec<f64>),
}

/// Bars of one colour, or a curve.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Series {
    pub name: String,
    pub source: Source,
    /// A value for each group or position; `None` where there is none.
    pub values: Vec<Option<Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Printed in the paper, or read off its figure.
    Published,
    Measured,
    Simulated,
}

/// A median with the range of its turns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Value {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

/// A claim of a paper, beside the same ratio here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Headline {
    /// For instance "time against constrained memory".
    pub what: String,
    /// For instance "-34 %".
    pub published: String,
    /// For instance "-41 % (-38 to -43)".
    pub here: String,
    /// The value `here` as a number of which more is better; `None` if nothing was measured.
    #[serde(default)]
    pub measured: Option<Value>,
    pub verdict: Verdict,
    /// The reason why it was not reached, or cannot be compared; empty if there is nothing to say.
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Better here than published, by more than the range of the turns.
    Beaten,
    /// As published, within the range of the turns.
    Reproduced,
    NotReached,
    /// The turns differ too much to tell.
    Inconclusive,
    /// The emulation does not allow the comparison.
    NotComparable,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Prediction {
    pub run: String,
    pub predicted_cold_bytes: u64,
    pub cold_bytes: u64,
    /// The part of it that trainers read themselves, most often while their agent started.
    #[serde(default)]
    pub self_read_bytes: u64,
    pub predicted_s: f64,
    pub seconds: f64,
    /// Seconds of these in which the training waits, as predicted: the rest is what steps took in the run.
    #[serde(default)]
    pub predicted_stall_s: f64,
    #[serde(default)]
    pub stall_s: f64,
}

impl Figure {
    #[must_use]
    pub fn named(paper: Paper, name: &str, number: &str, title: &str) -> Self {
        Self {
            name: name.to_owned(),
            paper,
            number: number.to_owned(),
            title: title.to_owned(),
            setting: String::new(),
            charts: Vec::new(),
            headlines: Vec::new(),
            predictions: Vec::new(),
            emulated: Vec::new(),
            command: format!("tierfeed-bench paper {name}"),
        }
    }
}

impl Along {
    pub(crate) fn groups<const N: usize>(names: [&str; N]) -> Self {
        Self::Groups(names.map(str::to_owned).to_vec())
    }
}

impl Series {
    pub(crate) fn published(name: impl Into<String>, values: Vec<Option<Value>>) -> Self {
        Self { name: name.into(), source: Source::Published, values }
    }

    pub(crate) fn measured(name: impl Into<String>, values: Vec<Option<Value>>) -> Self {
        Self { name: name.into(), source: Source::Measured, values }
    }

    pub(crate) fn simulated(name: impl Into<String>, values: Vec<Option<Value>>) -> Self {
        Self { name: name.into(), source: Source::Simulated, values }
    }
}

impl Chart {
    /// A chart without a title, as that of a figure that has one only.
    pub(crate) fn new(x: &str, y: &str, along: Along, series: Vec<Series>) -> Self {
        Self { title: String::new(), x: x.to_owned(), y: y.to_owned(), along, series }
    }

    pub(crate) fn titled(self, title: &str) -> Self {
        Self { title: title.to_owned(), ..self }
    }
}

impl Value {
    /// The median and the range; `None` without turns.
    #[must_use]
    pub fn of(turns: &[f64]) -> Option<Self> {
        Some(Self {
            median: tierfeed_harness::statistics::percentile(turns, 50)?,
            least: turns.iter().copied().fold(f64::INFINITY, f64::min),
            most: turns.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }

    /// The value without an amount that each turn has.
    #[must_use]
    pub fn less(self, amount: f64) -> Self {
        let Self { median, least, most } = self;
        Self { median: median - amount, least: least - amount, most: most - amount }
    }

    /// A value without a range, as papers print them.
    #[must_use]
    pub const fn exactly(value: f64) -> Self {
        Self { median: value, least: value, most: value }
    }
}
