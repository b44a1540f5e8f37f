//! The file of a paper: its trainings, and the charts and claims of its figures, as data.
//!
//! Texts may have `{NAME}` for what is known when a figure is drawn ([`super::drawing`]), and `{MEASURE @ SIDE}` for a
//! median. An item of a list with `for` stands for several, see [`super::expansion`].

use std::{collections::BTreeSet, str::FromStr};

use anyhow::Context as _;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value as Json;
use tierfeed_core::units::{BytesPerSecond, Nanoseconds};

use super::{expansion, measure::Measure, scatter::Points};
use crate::{
    bucket::Pace,
    figure::{Paper, Source},
    stage::Extent,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PaperFile {
    pub(super) paper: Paper,
    /// Without it nothing is trained on a stage: samples are small, in a bucket of DELI.
    pub(super) stage: Option<Ground>,
    pub(super) experiments: Vec<Experiment>,
}

/// The disk, and the photographs on it.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Ground {
    #[serde(deserialize_with = "quantity")]
    pub(super) disk: BytesPerSecond,
    /// Room on the disk, in copies of the photographs.
    pub(super) copies: u64,
    /// The most photographs, and the most in a quick run.
    pub(super) photographs: u32,
    pub(super) photographs_quick: u32,
}

/// Trials, which run one after the other, and the figures that show them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Experiment {
    #[serde(default)]
    pub(super) trials: Vec<Trial>,
    /// What is measured otherwise than by trials.
    pub(super) special: Option<Special>,
    pub(super) figures: Vec<FigureFile>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Special {
    Probe,
    Reuse,
    Accuracy,
    Eviction,
}

/// Sides whose turns alternate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Trial {
    #[serde(default)]
    pub(super) name: String,
    /// If it runs in full or in quick runs only.
    pub(super) only: Option<Extent>,
    /// What `{trials}` stands for in the setting of a figure.
    #[serde(default)]
    pub(super) setting: String,
    /// The limit of the disk, or of that of each node, if not that of the paper.
    #[serde(default, deserialize_with = "optional_quantity")]
    pub(super) disk: Option<BytesPerSecond>,
    #[serde(default)]
    pub(super) data: Data,
    /// The steps of an epoch take this share of the time in which the disk of a node gives what its ranks read.
    pub(super) compute_to_load: Option<f64>,
    pub(super) phases: Option<Phases>,
    pub(super) sides: Vec<SideFile>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Data {
    #[default]
    Photographs,
    /// With some that take far longer to decode.
    WithSlow,
    /// Four times the photographs, on shared storage.
    Shared,
    Recordings,
    /// The photographs in memory, as files.
    RamDisk,
    /// The samples of DELI.
    Bucket,
}

/// One epoch with steps of several lengths, one after the other.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Phases {
    /// As shares of the time that a batch takes where nothing is computed.
    pub(super) steps: Vec<f64>,
    /// The side whose batches are timed for that.
    pub(super) of: String,
}

/// A training.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SideFile {
    pub(super) name: String,
    /// If it runs in full or in quick runs only.
    pub(super) only: Option<Extent>,
    pub(super) loader: String,
    /// If it reads other data than the trial.
    pub(super) data: Option<Data>,
    pub(super) batch_size: u32,
    pub(super) epochs: u32,
    #[serde(default)]
    pub(super) step_s: f64,
    pub(super) workers: u32,
    pub(super) decode: bool,
    /// A `size` in it is an expression, see [`super::sizes`].
    #[serde(default = "empty")]
    pub(super) job: Json,
    /// Memory for page cache or tiers, beside the need of the processes; all of the machine if it is not given.
    pub(super) room: Option<String>,
    /// What `tierfeed hog` takes beside the training.
    pub(super) hog: Option<String>,
    /// Reads from a bucket as far as this.
    pub(super) bucket: Option<Pace>,
    /// Nodes, each with a disk and with [`Self::room`]; this host if it is not given.
    pub(super) nodes: Option<u32>,
    #[serde(default = "one")]
    pub(super) ranks_per_node: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FigureFile {
    pub(super) name: String,
    pub(super) number: String,
    pub(super) title: String,
    /// If it has no quick run.
    pub(super) only: Option<Extent>,
    #[serde(default, deserialize_with = "joined")]
    pub(super) setting: String,
    #[serde(default)]
    pub(super) emulated: Vec<String>,
    /// The trials that it shows; all if empty.
    #[serde(default)]
    pub(super) trials: Vec<String>,
    /// That of charts and claims which name no other.
    pub(super) measure: Option<Measure>,
    #[serde(default)]
    pub(super) charts: Vec<ChartFile>,
    #[serde(default)]
    pub(super) claims: Vec<ClaimFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ChartFile {
    #[serde(default)]
    pub(super) title: String,
    #[serde(default)]
    pub(super) x: String,
    pub(super) y: String,
    pub(super) groups: Option<Vec<String>>,
    /// Without groups and positions these are counted from 0.
    pub(super) positions: Option<Vec<f64>>,
    pub(super) measure: Option<Measure>,
    /// Shares in per cent.
    #[serde(default)]
    pub(super) in_percent: bool,
    /// In per cent of the median of this side.
    pub(super) percent_of: Option<String>,
    /// How many times as fast as this side.
    pub(super) faster_than: Option<String>,
    #[serde(default)]
    pub(super) series: Vec<SeriesFile>,
    /// Instead of series.
    pub(super) scatter: Option<Points>,
}

/// A value for each group or position: published ones, one of each side, or several of one side.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SeriesFile {
    pub(super) name: String,
    pub(super) published: Option<Vec<Option<f64>>>,
    /// Published values are shown in per cent of this.
    pub(super) of: Option<f64>,
    #[serde(default)]
    pub(super) sides: Vec<Option<String>>,
    pub(super) side: Option<String>,
    pub(super) measure: Option<Measure>,
    /// The first turn alone.
    #[serde(default)]
    pub(super) first_turn: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ClaimFile {
    pub(super) what: String,
    pub(super) kind: Kind,
    #[serde(default)]
    pub(super) published: f64,
    /// Where the published figure is told by other words.
    pub(super) printed: Option<String>,
    pub(super) ours: Option<String>,
    pub(super) theirs: Option<String>,
    /// Of these the one with the least value.
    #[serde(default)]
    pub(super) theirs_least: Vec<String>,
    /// Instead of both: the mean of the ratios of several.
    #[serde(default)]
    pub(super) over: Vec<Pair>,
    pub(super) measure: Option<Measure>,
    /// The difference from what was published that says nothing.
    pub(super) tolerance: Option<f64>,
    /// The reason why it is not reached, if it is not.
    #[serde(default)]
    pub(super) because: String,
    /// Instead: the sides of tierfeed whose waits are all that it could gain.
    #[serde(default)]
    pub(super) waits_of: Vec<Named>,
    /// The reason why it is not judged.
    pub(super) unjudged: Option<String>,
    /// It has no floor.
    #[serde(default)]
    pub(super) unmeasured: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    LessTime,
    Falls,
    NoSlower,
    TimesAsFast,
    TimesAsMuch,
    FewerPoints,
    AtLeast,
    AtMost,
    Ratio,
    Line,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pair {
    pub(super) name: String,
    pub(super) ours: String,
    pub(super) theirs: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) side: String,
}

impl PaperFile {
    /// # Errors
    ///
    /// If the text is no YAML, or has other keys.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let file = expansion::expanded(&serde_yaml::from_str(text)?)?;
        let file: Json = serde_json::to_value(file).context("a file has keys of text")?;
        Ok(serde_json::from_value(file)?)
    }

    pub(super) fn figures(&self) -> impl Iterator<Item = &FigureFile> {
        self.experiments.iter().flat_map(|it| &it.figures)
    }
}

impl Experiment {
    /// The names of its sides that figures show, or that others are timed by.
    pub(super) fn shown<'a>(
        &'a self,
        figures: impl Iterator<Item = &'a FigureFile>,
    ) -> BTreeSet<&'a str> {
        let timed = self.trials.iter().filter_map(|it| it.phases.as_ref()).map(|it| &it.of);
        let mut all: BTreeSet<&str> = timed.map(String::as_str).collect();
        for FigureFile { charts, claims, .. } in figures {
            for ChartFile { percent_of, faster_than, series, scatter, .. } in charts {
                all.extend(scatter.iter().flat_map(Points::shown));
                all.extend(percent_of.iter().chain(faster_than).map(String::as_str));
                let sides = |it: &'a SeriesFile| it.sides.iter().flatten().chain(&it.side);
                all.extend(series.iter().flat_map(sides).map(String::as_str));
            }
            for ClaimFile { ours, theirs, theirs_least, over, waits_of, .. } in claims {
                all.extend(ours.iter().chain(theirs).chain(theirs_least).map(String::as_str));
                all.extend(over.iter().flat_map(|it| [&it.ours[..], &it.theirs]));
                all.extend(waits_of.iter().map(|it| &it.side[..]));
            }
        }
        all
    }
}

impl ChartFile {
    /// How many groups or positions there are, if that is known before.
    pub(super) fn places(&self) -> Option<usize> {
        self.groups.as_ref().map(Vec::len).or(self.positions.as_ref().map(Vec::len))
    }
}

impl SeriesFile {
    pub(super) fn source(&self) -> Source {
        if self.published.is_some() { Source::Published } else { Source::Measured }
    }
}

impl<'de> Deserialize<'de> for Pace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct PaceFile {
            #[serde(deserialize_with = "quantity")]
            latency: Nanoseconds,
            #[serde(default, deserialize_with = "optional_quantity")]
            together: Option<BytesPerSecond>,
        }
        let PaceFile { latency, together } = PaceFile::deserialize(deserializer)?;
        Ok(Self { latency, together, connection: None })
    }
}

fn quantity<'de, D, Q>(deserializer: D) -> Result<Q, D::Error>
where
    D: Deserializer<'de>,
    Q: FromStr<Err: std::fmt::Display>,
{
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

fn optional_quantity<'de, D, Q>(deserializer: D) -> Result<Option<Q>, D::Error>
where
    D: Deserializer<'de>,
    Q: FromStr<Err: std::fmt::Display>,
{
    quantity(deserializer).map(Some)
}

/// A text, or several one after the other.
fn joined<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Json::deserialize(deserializer)? {
        Json::Array(texts) => {
            Ok(texts.iter().filter_map(Json::as_str).collect::<Vec<_>>().join(" "))
        }
        text => serde_json::from_value(text).map_err(D::Error::custom),
    }
}

fn empty() -> Json {
    Json::Object(serde_json::Map::new())
}

const fn one() -> u32 {
    1
}
