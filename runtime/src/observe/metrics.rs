//! The figures of an agent or a manager as metrics that Prometheus reads.
//!
//! Nothing is kept for this: when somebody asks, the loop of the agent lists what the session and the
//! data plane count anyway, that of the manager what its fleet knows, and whoever asked has it written.
//! So metrics cost nothing until they are read, and those of one answer are of one moment.
//!
//! Labels are bounded: kinds of tiers, the kind of source, causes, faults, the ranks of this node.

mod fleet;
mod scrape;
mod server;
mod view;

pub use fleet::{Message, Tally};
pub use scrape::{SCRAPE_BYTES_MAX, Scrape, ScrapeError};
pub use server::{Ask, Network, ServeError, Server, Target, Trace};
pub use view::View;

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::{MetricType, exemplar::Exemplar},
    registry::{Registry, Unit},
};
use tierfeed_core::{session::Waits, units::Nanoseconds};
use tierfeed_prefetcher::plane::DURATION_BOUNDS;

/// What the answer is written in.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Names with their values.
pub type Labels = Vec<(&'static str, String)>;

/// What sort of figure a family has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// It only grows.
    Counter,
    /// It is as it is.
    Gauge,
    /// How often what was how long.
    Histogram,
    /// Labels are all that there is.
    Info,
}

/// A figure.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Things or bytes.
    Count(u64),
    /// Seconds.
    Seconds(f64),
    /// Durations in buckets, each with the longest that is in it; the last has no end.
    Durations(Vec<(f64, u64)>, f64),
    /// No figure.
    Present,
}

/// Figures of one name.
#[derive(Debug, Clone)]
pub struct Family {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    sort: Sort,
    samples: Vec<(Labels, Value)>,
}

impl Family {
    fn new(name: &'static str, help: &'static str, unit: Option<Unit>, sort: Sort) -> Self {
        Self { name, help, unit, sort, samples: Vec::new() }
    }

    /// Adds a figure, to the one with the same labels if there is one: two tiers may be of one kind.
    fn add(&mut self, labels: Labels, value: Value) {
        match self.samples.iter_mut().find(|(other, _)| *other == labels) {
            Some((_, sum)) => sum.add(value),
            None => self.samples.push((labels, value)),
        }
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let sort = match self.sort {
            Sort::Counter => MetricType::Counter,
            Sort::Gauge => MetricType::Gauge,
            Sort::Histogram => MetricType::Histogram,
            Sort::Info => MetricType::Info,
        };
        let mut metric =
            encoder.encode_descriptor(self.name, self.help, self.unit.as_ref(), sort)?;
        for (labels, value) in &self.samples {
            match (self.sort, labels.is_empty()) {
                (Sort::Info, _) => metric.encode_info(labels)?,
                (_, true) => value.encode(self.sort, &mut metric)?,
                (_, false) => value.encode(self.sort, &mut metric.encode_family(labels)?)?,
            }
        }
        Ok(())
    }
}

impl Value {
    /// Durations with the same bounds as those of the data plane, and one bucket beyond.
    #[must_use]
    pub fn durations(counts: &[u64], sum: Nanoseconds) -> Self {
        let bounds = DURATION_BOUNDS.iter().map(|bound| seconds(*bound));
        let buckets = bounds.chain([f64::INFINITY]).zip(counts.iter().copied()).collect();
        Self::Durations(buckets, seconds(sum))
    }

    /// The same of waits. A wait may count for the next longer bucket if it is within 1/16 of a bound.
    #[must_use]
    pub fn waits(waits: &Waits) -> Self {
        let mut counts = [0; DURATION_BOUNDS.len() + 1];
        for (longest, count) in waits.buckets() {
            counts[DURATION_BOUNDS.partition_point(|bound| *bound < longest)] += count;
        }
        Self::durations(&counts, waits.sum())
    }

    fn add(&mut self, other: Self) {
        match (self, other) {
            (Self::Count(sum), Self::Count(value)) => *sum = sum.saturating_add(value),
            (Self::Seconds(sum), Self::Seconds(value)) => *sum += value,
            (Self::Durations(buckets, sum), Self::Durations(others, other)) => {
                for ((_, count), (_, value)) in buckets.iter_mut().zip(others) {
                    *count += value;
                }
                *sum += other;
            }
            (_, _) => (),
        }
    }

    fn encode(&self, sort: Sort, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        let no_exemplar: Option<&Exemplar<NoLabelSet, u64>> = None;
        match (self, sort) {
            (Self::Count(value), Sort::Counter) => metric.encode_counter(value, no_exemplar),
            (Self::Seconds(value), Sort::Counter) => metric.encode_counter(value, no_exemplar),
            (Self::Count(value), _) => metric.encode_gauge(value),
            (Self::Seconds(value), _) => metric.encode_gauge(value),
            (Self::Durations(buckets, sum), _) => {
                let count = buckets.iter().map(|(_, count)| count).sum();
                metric.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
            }
            (Self::Present, _) => Ok(()),
        }
    }
}

/// All figures of one moment.
#[derive(Debug, Clone)]
pub struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|family| family.encode(&mut encoder))
    }
}

impl Families {
    /// The text that Prometheus reads.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "writing to a string cannot fail")]
    pub fn text(self) -> String {
        let mut registry = Registry::with_prefix("tierfeed");
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("writing to a string cannot fail");
        text
    }
}

#[expect(clippy::cast_precision_loss, reason = "a metric needs no more than 53 bits")]
fn seconds(time: Nanoseconds) -> f64 {
    time.0 as f64 / 1e9
}

#[cfg(test)]
mod tests;
