//! The figures of an agent or a manager as metrics that Prometheus reads.
//!
//! Nothing is stored for metrics: on a request, the loop of the agent or of the manager collects its figures,
//! and the task that serves the request writes the text. So metrics cost nothing until they are read, and
//! those of one answer are of one moment.
//!
//! The number of label values is bounded: kinds of tiers, the kind of source, causes, faults, the ranks of
//! this node.

mod agent;
mod fleet;
mod server;

pub use agent::of_agent;
pub use fleet::ManagerCounters;
pub use server::{Network, Page, Request, ServeError, Server, Target, Text};

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::{MetricType, exemplar::Exemplar},
    registry::{Registry, Unit},
};
use tierfeed_core::{
    session::Waits,
    units::{Bytes, Nanoseconds, seconds},
};
use tierfeed_prefetcher::plane::{DURATION_BOUNDS, Durations};

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Count(u64),
    /// A time in seconds.
    Seconds(f64),
    /// The upper bound in seconds and the count of each bucket, the last one unbounded, and the sum.
    Durations(Vec<(f64, u64)>, f64),
    /// The value of an info metric.
    Present,
}

#[derive(Debug, Clone)]
struct Family {
    kind: MetricType,
    /// Its last word is its unit, if it has one.
    name: &'static str,
    help: &'static str,
    series: Vec<(Labels, Value)>,
}

/// One value without labels.
fn one(value: impl Into<Value>) -> [(Labels, Value); 1] {
    [labelled([], value)]
}

fn labelled<const LABELS: usize>(
    labels: [(&'static str, &str); LABELS],
    value: impl Into<Value>,
) -> (Labels, Value) {
    (labels.map(|(name, value)| (name, value.to_owned())).into(), value.into())
}

#[derive(Debug, Clone, Default)]
pub struct Families(Vec<Family>);

impl Families {
    fn info<const LABELS: usize>(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: [(&'static str, &str); LABELS],
    ) {
        self.add(MetricType::Info, name, help, [labelled(labels, Value::Present)]);
    }

    fn about(&mut self, job: &str, policy: &str) {
        let labels = [("job", job), ("policy", policy)];
        self.info("job", "The job and its rule of retention", labels);
    }

    fn version(&mut self) {
        self.info("build", "The version of tierfeed", [("version", env!("CARGO_PKG_VERSION"))]);
    }

    /// Series with the same labels become one, because two tiers may be of one kind.
    fn add(
        &mut self,
        kind: MetricType,
        name: &'static str,
        help: &'static str,
        all: impl IntoIterator<Item = (Labels, Value)>,
    ) {
        let mut series: Vec<(Labels, Value)> = Vec::new();
        for (labels, value) in all {
            match series.iter_mut().find(|(other, _)| *other == labels) {
                Some((_, sum)) => sum.add(value),
                None => series.push((labels, value)),
            }
        }
        self.0.push(Family { kind, name, help, series });
    }

    #[must_use]
    pub fn text(self) -> String {
        let mut registry = Registry::with_prefix("tierfeed");
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("writing to a string cannot fail");
        text
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|family| family.encode(&mut encoder))
    }
}

impl Family {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (name, unit) = match self.name.rsplit_once('_') {
            Some((name, "bytes")) => (name, Some(Unit::Bytes)),
            Some((name, "seconds")) => (name, Some(Unit::Seconds)),
            _ => (self.name, None),
        };
        let mut metric = encoder.encode_descriptor(name, self.help, unit.as_ref(), self.kind)?;
        for (labels, value) in &self.series {
            match (value, labels.is_empty()) {
                (Value::Present, _) => metric.encode_info(labels)?,
                (_, true) => value.encode(self.kind, &mut metric)?,
                (_, false) => value.encode(self.kind, &mut metric.encode_family(labels)?)?,
            }
        }
        Ok(())
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<&u64> for Value {
    fn from(count: &u64) -> Self {
        Self::Count(*count)
    }
}

impl From<u32> for Value {
    fn from(count: u32) -> Self {
        Self::Count(count.into())
    }
}

impl From<bool> for Value {
    fn from(is_so: bool) -> Self {
        Self::Count(is_so.into())
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Self::Count(bytes.0)
    }
}

impl From<Nanoseconds> for Value {
    fn from(time: Nanoseconds) -> Self {
        Self::Seconds(seconds(time))
    }
}

impl From<&Waits> for Value {
    /// Waits in the buckets of the data plane. A wait within 1/16 below a bound may count in the next bucket.
    fn from(waits: &Waits) -> Self {
        let mut counts = [0; DURATION_BOUNDS.len() + 1];
        for (longest, count) in waits.buckets() {
            counts[DURATION_BOUNDS.partition_point(|bound| *bound < longest)] += count;
        }
        Self::durations(&counts, waits.sum())
    }
}

impl From<&Durations> for Value {
    fn from(Durations { buckets, sum }: &Durations) -> Self {
        Self::durations(buckets, *sum)
    }
}

impl Value {
    /// Durations in the buckets of the data plane and one unbounded bucket.
    fn durations(counts: &[u64], sum: Nanoseconds) -> Self {
        let bounds = DURATION_BOUNDS.iter().map(|bound| seconds(*bound));
        let buckets = bounds.chain([f64::INFINITY]).zip(counts.iter().copied()).collect();
        Self::Durations(buckets, seconds(sum))
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

    fn encode(&self, kind: MetricType, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        let no_exemplar: Option<&Exemplar<NoLabelSet, u64>> = None;
        match (self, kind) {
            (Self::Count(value), MetricType::Counter) => metric.encode_counter(value, no_exemplar),
            (Self::Seconds(value), MetricType::Counter) => {
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

#[cfg(test)]
mod queries;
#[cfg(test)]
mod tests;
