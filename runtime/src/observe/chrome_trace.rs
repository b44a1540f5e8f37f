//! Writes the recording of an agent as JSON in the Trace Event Format of Chrome, which Perfetto opens.
//!
//! Times are as in `torch.profiler`: microseconds after `baseTimeNanoseconds`, which counts nanoseconds
//! since 1970. So both use one clock, and [`merge()`] only has to shift one of them. Slices of one track are
//! disjoint or nested: concurrent operations are spread over several tracks.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. Slices on a track are disjoint or nested.
//! 2. Events are sorted by start time, longer ones first.
//! 3. Merging does not change an event's time since 1970.

mod merge;
mod tracks;

pub use merge::{MergeError, TRACE_BYTES_MAX, merge};

use serde_json::{Map, Value, json};
use tierfeed_core::{
    id::BatchId,
    session::Fault,
    units::{Nanoseconds, float},
};
use tierfeed_prefetcher::recorder::{Endpoint, Event, EventKind, Recording};

use self::tracks::Tracks;
use super::report;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub node: u32,
    pub kinds: Vec<&'static str>,
}

#[must_use]
pub fn write(recording: &Recording, author: &Process) -> String {
    let mut tracks = Tracks::default();
    let mut events: Vec<Event> = recording.events.clone();
    events.sort_by_key(|event| (event.at, std::cmp::Reverse(event.lasted)));
    let mut lines: Vec<Line> = Vec::with_capacity(events.len());
    for (number, event) in events.iter().enumerate() {
        author.put(event, number, &mut tracks, &mut lines);
    }
    // Asynchronous slices have two lines, a start and an end. The sort is stable.
    lines.sort_by_key(|(at, _)| *at);
    let head = json!({
        "schemaVersion": 1,
        "baseTimeNanoseconds": recording.zero_since_1970.0,
        "displayTimeUnit": "ms",
        "tierfeedDroppedEvents": recording.dropped,
    });
    let names = author.names(&tracks).into_iter().map(|name| name.to_string());
    let all: Vec<String> = names.chain(lines.into_iter().map(|(_, text)| text)).collect();
    let head = head.to_string();
    let head = head.trim_end_matches('}');
    format!("{head},\"traceEvents\":[\n{}\n]}}\n", all.join(",\n"))
}

/// The time of an event and its JSON text; a tree of values would take many times the memory.
type Line = (Nanoseconds, String);

impl Process {
    fn names(&self, tracks: &Tracks) -> Vec<Value> {
        let name = |what: &str, tid: u32, name: &str| json!({"ph": "M", "name": what, "pid": self.pid, "tid": tid, "args": {"name": name}});
        let process = format!("tierfeed agent of node {}", self.node);
        let mut names = vec![name("process_name", 0, &process)];
        names.extend(tracks.names().map(|(tid, text)| name("thread_name", tid, text)));
        names
    }

    fn put(&self, event: &Event, number: usize, tracks: &mut Tracks, into: &mut Vec<Line>) {
        let args = self.args(event);
        let (name, group, category) = self.describe(event);
        match event.kind {
            // Several batches of a rank are staged and held at the same time: asynchronous slices.
            EventKind::Staged(_) | EventKind::Held(_) => {
                let tid = tracks.shared(&group);
                let ends = [("b", event.at, Some(args)), ("e", end(event), None)];
                for (phase, at, args) in ends {
                    let event = self.event(phase, &name, category, tid, at, |fields| {
                        fields.insert("id".to_owned(), number.into());
                        fields.extend(args.map(|args| ("args".to_owned(), args)));
                    });
                    into.push((at, event));
                }
            }
            EventKind::Connected(_)
            | EventKind::Disconnected(_)
            | EventKind::TierResized(..)
            | EventKind::StagingResized(_)
            | EventKind::Divided { .. } => {
                let tid = tracks.shared(&group);
                let at = event.at;
                let event = self.event("i", &name, category, tid, at, |fields| {
                    fields.insert("s".to_owned(), "t".into());
                    fields.insert("args".to_owned(), args);
                });
                into.push((at, event));
            }
            // A wait and its parts are nested.
            EventKind::Waited(_) | EventKind::WaitPart(..) => {
                let tid = tracks.shared(&group);
                into.push((event.at, self.slice(&name, category, tid, event, args)));
            }
            EventKind::Moved { .. }
            | EventKind::Transformed { .. }
            | EventKind::Arena(..)
            | EventKind::Chunk(..) => {
                let tid = tracks.free(&group, event.at, end(event));
                into.push((event.at, self.slice(&name, category, tid, event, args)));
            }
        }
    }

    fn slice(&self, name: &str, category: &str, tid: u32, event: &Event, args: Value) -> String {
        self.event("X", name, category, tid, event.at, |fields| {
            fields.insert("dur".to_owned(), microseconds(event.lasted));
            fields.insert("args".to_owned(), args);
        })
    }

    fn event(
        &self,
        phase: &str,
        name: &str,
        category: &str,
        tid: u32,
        at: Nanoseconds,
        more: impl FnOnce(&mut Map<String, Value>),
    ) -> String {
        let mut fields = Map::new();
        fields.insert("ph".to_owned(), phase.into());
        fields.insert("name".to_owned(), name.into());
        fields.insert("cat".to_owned(), category.into());
        fields.insert("pid".to_owned(), self.pid.into());
        fields.insert("tid".to_owned(), tid.into());
        fields.insert("ts".to_owned(), microseconds(at));
        more(&mut fields);
        Value::Object(fields).to_string()
    }

    /// The name of an event, of its track, and its category.
    fn describe(&self, event: &Event) -> (String, String, &'static str) {
        let batch = |BatchId { epoch, step, .. }: BatchId| format!("batch {}:{}", epoch.0, step.0);
        let of = |BatchId { rank, .. }: BatchId, what: &str| format!("rank {} {what}", rank.0);
        match event.kind {
            EventKind::Moved { from, to, .. } => match (from, to) {
                (Endpoint::Cold, _) => {
                    ("read".to_owned(), "reads from the cold store".to_owned(), "read")
                }
                (_, Endpoint::Staging) => {
                    ("promote".to_owned(), format!("copies from {}", self.end(from)), "copy")
                }
                (Endpoint::Tier(lower), Endpoint::Tier(upper)) if upper < lower => {
                    ("promote".to_owned(), format!("copies from {}", self.end(from)), "copy")
                }
                _ => ("demote".to_owned(), format!("copies to {}", self.end(to)), "copy"),
            },
            EventKind::Transformed { .. } => {
                ("transform".to_owned(), "transforms".to_owned(), "transform")
            }
            EventKind::Arena(rank, _) => {
                (format!("staging memory of rank {}", rank.0), "memory".to_owned(), "memory")
            }
            EventKind::Chunk(tier, _) => (
                format!("chunk of {}", self.end(Endpoint::Tier(tier))),
                "memory".to_owned(),
                "memory",
            ),
            EventKind::Staged(id) => (batch(id), of(id, "staged"), "staging"),
            EventKind::Waited(id) => (format!("wait for {}", batch(id)), of(id, "waits"), "wait"),
            EventKind::WaitPart(id, cause) => {
                (report::cause_name(cause, &self.kinds).to_owned(), of(id, "waits"), "wait")
            }
            EventKind::Held(id) => (batch(id), of(id, "holds"), "lease"),
            EventKind::TierResized(tier, _) => {
                (format!("resize {}", self.end(Endpoint::Tier(tier))), "events".to_owned(), "event")
            }
            EventKind::StagingResized(_) => {
                ("limit staging".to_owned(), "events".to_owned(), "event")
            }
            EventKind::Divided { rank, .. } => {
                (format!("divide threads for rank {}", rank.0), "events".to_owned(), "event")
            }
            EventKind::Connected(rank) => {
                (format!("trainer of rank {} connected", rank.0), "events".to_owned(), "event")
            }
            EventKind::Disconnected(rank) => {
                (format!("trainer of rank {} gone", rank.0), "events".to_owned(), "event")
            }
        }
    }

    fn args(&self, event: &Event) -> Value {
        let fault = |fault: Option<Fault>| fault.map(Fault::name);
        let batch =
            |id: BatchId| json!({"epoch": id.epoch.0, "step": id.step.0, "rank": id.rank.0});
        match event.kind {
            EventKind::Moved { from, to, sample, samples, len, fault: error } => json!({
                "sample": sample.0,
                "samples": samples,
                "bytes": len.0,
                "from": self.end(from),
                "to": self.end(to),
                "fault": fault(error),
            }),
            EventKind::Transformed { sample, form, len, fault: error } => json!({
                "sample": sample.0,
                "bytes": len.0,
                "from": form.name(),
                "fault": fault(error),
            }),
            EventKind::Arena(_, error) | EventKind::Chunk(_, error) => {
                json!({"fault": fault(error)})
            }
            EventKind::Staged(id)
            | EventKind::Waited(id)
            | EventKind::WaitPart(id, _)
            | EventKind::Held(id) => batch(id),
            EventKind::TierResized(_, chunks) => json!({"chunks_max": chunks}),
            EventKind::StagingResized(batches) => json!({"batches_max": batches}),
            EventKind::Divided { loading, transforming, .. } => {
                json!({"loading": loading, "transforming": transforming})
            }
            EventKind::Connected(_) | EventKind::Disconnected(_) => json!({}),
        }
    }

    fn end(&self, end: Endpoint) -> &'static str {
        match end {
            Endpoint::Cold => "cold-store",
            Endpoint::Staging => "staging",
            Endpoint::Tier(tier) => {
                self.kinds.get(usize::from(tier.0)).copied().unwrap_or("unknown")
            }
        }
    }
}

fn end(event: &Event) -> Nanoseconds {
    Nanoseconds(event.at.0.saturating_add(event.lasted.0))
}

fn microseconds(time: Nanoseconds) -> Value {
    json!(float(time.0) / 1000.0)
}

#[cfg(test)]
mod tests;
