//! A figure or table of a paper, as it was published and as it is here.

use serde::{Deserialize, Serialize};

/// Where a figure is from.
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

/// A figure with what it says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figure {
    /// The name in `tierfeed-bench paper NAME`, such as `deep-memory-8`.
    pub name: String,
    /// The paper.
    pub paper: Paper,
    /// The figure or table as the paper numbers it, such as "Figure 8".
    pub number: String,
    /// What it shows.
    pub title: String,
    /// What ran here, in one or two sentences.
    pub setting: String,
    /// The charts, drawn as in the paper.
    pub charts: Vec<Chart>,
    /// What the paper claims by it, with the same ratio here.
    pub headlines: Vec<Headline>,
    /// What the simulator predicted of runs.
    pub predictions: Vec<Prediction>,
    /// What was emulated, and how the emulation was checked.
    pub emulated: Vec<String>,
    /// The command that repeats it.
    pub command: String,
}

/// A chart.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Chart {
    /// What it shows, if the figure has several.
    pub title: String,
    /// What the horizontal axis is, with its unit.
    pub x: String,
    /// What the vertical axis is, with its unit.
    pub y: String,
    /// Names of groups of bars, or positions of the points of curves.
    pub along: Along,
    /// The series, each with a value for each group or position.
    pub series: Vec<Series>,
}

/// What values lie along the horizontal axis.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Along {
    /// Groups of bars, one bar for each series.
    Groups(Vec<String>),
    /// Positions of points that a line connects.
    Positions(Vec<f64>),
}

/// Bars of one colour, or a curve.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Where its values are from.
    pub source: Source,
    /// A value for each group or position; none where there is none.
    pub values: Vec<Option<Value>>,
}

/// Where values are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Printed in the paper, or read off its figure.
    Published,
    /// Measured here.
    Measured,
    /// Predicted by the simulator.
    Simulated,
}

/// A median with the range of its turns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// The median.
    pub median: f64,
    /// The least of the turns.
    pub least: f64,
    /// The most of the turns.
    pub most: f64,
}

/// A claim of a paper, beside the same ratio here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Headline {
    /// What is compared, such as "time against constrained memory".
    pub what: String,
    /// As the paper has it, such as "-34 %".
    pub published: String,
    /// The same here, such as "-41 % (-38 to -43)".
    pub here: String,
    /// The same as a number that is better if it is more; none if nothing was measured.
    #[serde(default)]
    pub measured: Option<Value>,
    /// What became of it.
    pub verdict: Verdict,
    /// Why it was not reached, or cannot be compared; empty if there is nothing to say.
    pub why: String,
}

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Better here than published, by more than the turns lie apart.
    Beaten,
    /// As published, within what the turns lie apart.
    Reproduced,
    /// Less than published.
    NotReached,
    /// The turns lie too far apart to tell.
    Inconclusive,
    /// The emulation does not allow the comparison.
    NotComparable,
}

/// What the simulator said of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Prediction {
    /// The run.
    pub run: String,
    /// Bytes read from the cold store, as predicted.
    pub predicted_cold_bytes: u64,
    /// Bytes read from the cold store.
    pub cold_bytes: u64,
    /// The part of it that trainers read themselves, most often while their agent started.
    #[serde(default)]
    pub self_read_bytes: u64,
    /// Seconds of all epochs, as predicted.
    pub predicted_s: f64,
    /// Seconds of all epochs.
    pub seconds: f64,
    /// Seconds of these in which the training waits, as predicted: the rest is what steps took in the run.
    #[serde(default)]
    pub predicted_stall_s: f64,
    /// Seconds in which the training waited.
    #[serde(default)]
    pub stall_s: f64,
}

impl Figure {
    /// A figure that shows nothing yet.
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

impl Chart {
    /// Without groups and series that have no value at all; `None` if nothing is left. Positions all stay: curves show
    /// their gaps.
    pub(crate) fn filled(mut self) -> Option<Self> {
        self.series.retain(|series| series.values.iter().any(Option::is_some));
        if let Along::Groups(groups) = &mut self.along {
            let has_value = |at: usize| {
                let mut values = self.series.iter().filter_map(|series| series.values.get(at));
                values.any(Option::is_some)
            };
            let is_filled: Vec<bool> = (0..groups.len()).map(has_value).collect();
            for series in &mut self.series {
                let mut of_groups = is_filled.iter();
                series.values.retain(|_| of_groups.next() == Some(&true));
            }
            let mut of_groups = is_filled.iter();
            groups.retain(|_| of_groups.next() == Some(&true));
        }
        (!self.series.is_empty()).then_some(self)
    }
}

impl Value {
    /// The median of turns and their range; `None` of no turn.
    #[must_use]
    pub fn of(turns: &[f64]) -> Option<Self> {
        Some(Self {
            median: tierfeed_harness::statistics::percentile(turns, 50)?,
            least: turns.iter().copied().fold(f64::INFINITY, f64::min),
            most: turns.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }

    /// The same without an amount that each turn has.
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
