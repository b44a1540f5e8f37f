//! The figures of an agent or a manager as metrics that Prometheus reads.
//!
//! Nothing is stored for metrics: on a request, the agent's loop collects the counters of session and data
//! plane, the manager's loop those of its fleet, and the task that serves the request writes the text. So
//! metrics cost nothing until they are read, and those of one answer are of one moment.
//!
//! The number of label values is bounded: kinds of tiers, the kind of source, causes, faults, the ranks of
//! this node.

mod fleet;
mod scrape;
mod server;
mod view;

pub use fleet::ManagerCounters;
pub use scrape::{SCRAPE_BYTES_MAX, Scrape, ScrapeError};
pub use server::{Network, Request, ServeError, Server, Target, Trace};
pub use view::View;

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::{MetricType, exemplar::Exemplar},
    registry::{Registry, Unit},
};
use tierfeed_core::{
    session::Waits,
    units::{Nanoseconds, seconds},
};
use tierfeed_prefetcher::plane::DURATION_BOUNDS;

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub type Labels = Vec<(&'static str, String)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Count(u64),
    /// A time in seconds.
    Seconds(f64),
    /// The upper bound in seconds and the count of each bucket, the last one unbounded, and the sum.
    Durations(Vec<(f64, u64)>, f64),
    /// The value of an info metric.
    Present,
}

#[derive(Debug, Clone)]
pub struct Family {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    kind: FamilyKind,
    samples: Vec<(Labels, Value)>,
}

impl Family {
    fn new(name: &'static str, help: &'static str, unit: Option<Unit>, kind: FamilyKind) -> Self {
        Self { name, help, unit, kind, samples: Vec::new() }
    }

    /// Adds the value to a series that has these labels already, because two tiers may be of one kind.
    fn add(&mut self, labels: Labels, value: Value) {
        match self.samples.iter_mut().find(|(other, _)| *other == labels) {
            Some((_, sum)) => sum.add(value),
            None => self.samples.push((labels, value)),
        }
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kind = match self.kind {
            FamilyKind::Counter => MetricType::Counter,
            FamilyKind::Gauge => MetricType::Gauge,
            FamilyKind::Histogram => MetricType::Histogram,
            FamilyKind::Info => MetricType::Info,
        };
        let mut metric =
            encoder.encode_descriptor(self.name, self.help, self.unit.as_ref(), kind)?;
        for (labels, value) in &self.samples {
            match (self.kind, labels.is_empty()) {
                (FamilyKind::Info, _) => metric.encode_info(labels)?,
                (_, true) => value.encode(self.kind, &mut metric)?,
                (_, false) => value.encode(self.kind, &mut metric.encode_family(labels)?)?,
            }
        }
        Ok(())
    }
}

impl Value {
    /// Durations in the buckets of the data plane and one unbounded bucket.
    #[must_use]
    pub fn durations(counts: &[u64], sum: Nanoseconds) -> Self {
        let bounds = DURATION_BOUNDS.iter().map(|bound| seconds(*bound));
        let buckets = bounds.chain([f64::INFINITY]).zip(counts.iter().copied()).collect();
        Self::Durations(buckets, seconds(sum))
    }

    /// Waits in the same buckets. A wait within 1/16 below a bound may count in the next bucket.
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

    fn encode(&self, kind: FamilyKind, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        let no_exemplar: Option<&Exemplar<NoLabelSet, u64>> = None;
        match (self, kind) {
            (Self::Count(value), FamilyKind::Counter) => metric.encode_counter(value, no_exemplar),
            (Self::Seconds(value), FamilyKind::Counter) => {
                metric.encode_counter(value, no_exemplar)
            }
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

#[derive(Debug, Clone)]
pub struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|family| family.encode(&mut encoder))
    }
}

impl Families {
    #[must_use]
    pub fn text(self) -> String {
        let mut registry = Registry::with_prefix("tierfeed");
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("writing to a string cannot fail");
        text
    }
}

#[cfg(test)]
mod queries;
#[cfg(test)]
mod tests;
