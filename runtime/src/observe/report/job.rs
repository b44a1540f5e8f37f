//! The report of a job of several nodes: what each node summed up, and which waited longest and for what.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use serde::{Deserialize, Serialize};
use tierfeed_core::units::Bytes;

use super::{Report, WriteError, put, put_json, verdict::NOTICEABLE};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeSummary {
    pub node: u32,
    pub host: String,
    /// The exit code of the first of its ranks that failed, or 0.
    pub ended_with: u8,
    /// The path of its own report, on its host.
    pub report: String,
    /// The first sentence of its report; absent if its agent wrote none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// The change that would shorten its waits the most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    pub complaints: Vec<String>,
    pub used_batches: u64,
    /// Batches that its agent served.
    pub steps: u64,
    /// Bytes in the batches that its agent served.
    pub bytes: u64,
    pub cold_read_bytes: u64,
    pub wall_s: f64,
    /// How long a reader waited; the mean over its readers.
    pub stall_s: f64,
    pub stall_for_s: BTreeMap<String, f64>,
    pub ranks: Vec<RankWaits>,
    pub order_digest: Option<String>,
    /// Samples that could not be read.
    pub fault_count: u64,
}

/// The waits of a rank for its batches, without decoding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankWaits {
    /// The number of the rank in the job.
    pub rank: u32,
    pub batches: u64,
    pub waited_s: f64,
    pub p99_s: f64,
    pub max_s: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobReport {
    /// A sentence: which node waited longest and for what, and which ended with a failure.
    pub verdict: String,
    pub job: String,
    /// The exit code of the first rank that failed, or 0.
    pub ended_with: u8,
    /// Nodes that told nothing at the end: lost, or never there.
    pub silent_nodes: Vec<u32>,
    pub used_batches: u64,
    /// Batches that agents served.
    pub steps: u64,
    /// Bytes in the batches that agents served.
    pub bytes: u64,
    pub cold_read_bytes: u64,
    /// The longest training of a node, in seconds.
    pub wall_s: f64,
    /// The mean over nodes, in seconds.
    pub stall_s: f64,
    /// All nodes that said something, by number.
    pub nodes: Vec<NodeSummary>,
}

impl NodeSummary {
    #[must_use]
    pub fn without_report(node: u32, host: String, ended_with: u8, path: &Path) -> Self {
        let report = path.display().to_string();
        Self { node, host, ended_with, report, ..Self::default() }
    }

    #[must_use]
    pub fn with(self, report: &Report) -> Self {
        let by_cause = report.stall_for_s.iter().map(|(cause, s)| ((*cause).to_owned(), *s));
        Self {
            verdict: Some(report.verdict.clone()),
            advice: report.advice.first().map(|advice| advice.text.clone()),
            complaints: report.ranks.complaints(),
            used_batches: report.used_batches,
            steps: report.steps,
            bytes: report.bytes,
            cold_read_bytes: report.cold_read_bytes,
            wall_s: report.wall_s,
            stall_s: report.stall_s,
            stall_for_s: by_cause.collect(),
            ranks: report.rank_waits.clone(),
            order_digest: report.order_digest.clone(),
            fault_count: report.fault_count,
            ..self
        }
    }

    fn main_cause(&self) -> Option<&str> {
        let longest = self.stall_for_s.iter().max_by(|one, other| one.1.total_cmp(other.1));
        longest.filter(|(_, s)| **s > 0.0).map(|(cause, _)| cause.as_str())
    }

    fn slowest_rank(&self) -> Option<&RankWaits> {
        self.ranks.iter().max_by(|one, other| one.waited_s.total_cmp(&other.waited_s))
    }
}

impl JobReport {
    /// `ended_with` is the code of the first rank that failed.
    #[must_use]
    pub fn of(job: &str, nodes: u32, ended_with: u8, mut told: Vec<NodeSummary>) -> Self {
        told.sort_by_key(|it| it.node);
        let is_silent = |node: &u32| !told.iter().any(|it| it.node == *node);
        let silent_nodes: Vec<_> = (0..nodes).filter(is_silent).collect();
        let sum = |of: fn(&NodeSummary) -> u64| told.iter().map(of).sum::<u64>();
        let reporting: Vec<_> = told.iter().filter(|it| it.verdict.is_some()).collect();
        Self {
            verdict: verdict(&reporting, &told, &silent_nodes),
            job: job.to_owned(),
            ended_with,
            silent_nodes,
            used_batches: sum(|it| it.used_batches),
            steps: sum(|it| it.steps),
            bytes: sum(|it| it.bytes),
            cold_read_bytes: sum(|it| it.cold_read_bytes),
            wall_s: reporting.iter().map(|it| it.wall_s).fold(0.0, f64::max),
            stall_s: mean(reporting.iter().map(|it| it.stall_s)),
            nodes: told,
        }
    }

    /// The verdict, complaints, and what would help the node that waited longest.
    #[must_use]
    pub fn head(&self) -> String {
        let mut lines = vec![format!("{}: {}", self.job, self.verdict)];
        for it in &self.nodes {
            lines.extend(it.complaints.iter().map(|what| format!("  node {}: {what}", it.node)));
        }
        let advised = self.nodes.iter().filter(|it| it.advice.is_some());
        let slowest = advised.max_by(|one, other| one.stall_s.total_cmp(&other.stall_s));
        lines.extend(slowest.and_then(|it| {
            let advice = it.advice.as_ref()?;
            Some(format!("  would help on node {}: {advice}", it.node))
        }));
        lines.join("\n")
    }

    /// The report as text: a sentence, then a line for each node.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { job, verdict, used_batches, bytes, cold_read_bytes, wall_s, .. } = self;
        let mut text = format!("{job}: {verdict}\n");
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{job}: {used_batches} batches, {} in {wall_s:.2} s on {} nodes, cold {}",
            Bytes(*bytes),
            self.nodes.len(),
            Bytes(*cold_read_bytes)
        );
        for it in &self.nodes {
            let ended = if it.ended_with == 0 { "" } else { ", failed" };
            let _ = write!(
                text,
                "  node {} ({}{ended}): {} batches, stall {:.3} s of {:.2} s",
                it.node, it.host, it.used_batches, it.stall_s, it.wall_s
            );
            if let Some(cause) = it.main_cause() {
                let _ = write!(text, ", most for {cause}");
            }
            if let Some(RankWaits { rank, waited_s, max_s, .. }) = it.slowest_rank() {
                let _ =
                    write!(text, "; rank {rank} longest: {waited_s:.3} s, at once {max_s:.3} s");
            }
            let _ = writeln!(text, ", cold {}", Bytes(it.cold_read_bytes));
            for complaint in &it.complaints {
                let _ = writeln!(text, "    {complaint}");
            }
        }
        text
    }

    /// Writes the report as JSON and, beside it, as text, each atomically.
    pub fn write(&self, path: &Path) -> Result<(), WriteError> {
        put_json(path, self)?;
        put(&path.with_extension("txt"), &self.text())
    }
}

fn verdict(reporting: &[&NodeSummary], all: &[NodeSummary], silent: &[u32]) -> String {
    let mut parts = Vec::new();
    for it in all.iter().filter(|it| it.ended_with != 0) {
        parts.push(format!("node {} ({}) ended with code {}", it.node, it.host, it.ended_with));
    }
    if !silent.is_empty() {
        let silent: Vec<_> = silent.iter().map(u32::to_string).collect();
        parts.push(format!("nothing was heard at the end from node {}", silent.join(", ")));
    }
    let slowest =
        reporting.iter().max_by(|one, other| one.stall_s.total_cmp(&other.stall_s)).copied();
    parts.extend(slowest.map(|slowest| waits(slowest, reporting)));
    if parts.is_empty() { "no node told anything".to_owned() } else { parts.join("; ") }
}

/// A sentence: which node waited longest, for what, and how long the others waited.
fn waits(slowest: &NodeSummary, all: &[&NodeSummary]) -> String {
    let NodeSummary { node, host, stall_s, wall_s, .. } = slowest;
    if *stall_s <= wall_s * NOTICEABLE {
        return format!(
            "no node waited noticeably for data, at most {stall_s:.3} s of {wall_s:.2} s"
        );
    }
    let cause = slowest.main_cause().map(|cause| format!(", most for {cause}")).unwrap_or_default();
    let others = all.iter().filter(|it| it.node != *node).map(|it| it.stall_s);
    let others = mean(others);
    format!(
        "node {node} ({host}) waited longest for data: {stall_s:.3} s of {wall_s:.2} s{cause}; the others \
         {others:.3} s on average"
    )
}

#[expect(clippy::cast_precision_loss, reason = "a job has fewer than 2^53 nodes")]
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(node: u32, stall_s: f64, cause: &str) -> NodeSummary {
        let path = Path::new("/runs/job/node/report.json");
        NodeSummary {
            verdict: Some("served all".to_owned()),
            wall_s: 100.0,
            stall_s,
            stall_for_s: BTreeMap::from([(cause.to_owned(), stall_s), ("turn".to_owned(), 0.01)]),
            used_batches: 50,
            ..NodeSummary::without_report(node, format!("n{node}"), 0, path)
        }
    }

    #[test]
    fn the_node_that_waited_longest_is_named_with_its_cause() {
        let nodes = vec![node(2, 12.5, "cold-store"), node(0, 1.0, "start"), node(1, 2.0, "start")];
        let report = JobReport::of("small", 3, 0, nodes);
        assert_eq!(
            report.verdict,
            "node 2 (n2) waited longest for data: 12.500 s of 100.00 s, most for cold-store; the others \
             1.500 s on average"
        );
        assert_eq!((report.used_batches, report.nodes[2].node), (150, 2));
        assert!(report.text().contains("node 2 (n2): 50 batches, stall 12.500 s of 100.00 s"));
        assert_eq!(report.head(), format!("small: {}", report.verdict));
    }

    #[test]
    fn nodes_that_failed_or_are_missing_come_first() {
        let failed = NodeSummary { ended_with: 7, ..node(1, 0.0, "start") };
        let report = JobReport::of("small", 3, 7, vec![failed, node(0, 0.1, "start")]);
        assert_eq!(report.silent_nodes, [2]);
        assert_eq!(
            report.verdict,
            "node 1 (n1) ended with code 7; nothing was heard at the end from node 2; no node waited \
             noticeably for data, at most 0.100 s of 100.00 s"
        );
    }

    #[test]
    fn a_summary_reads_as_it_is_written() {
        let one = node(1, 0.5, "hand-off");
        let text = serde_json::to_vec(&one).unwrap();
        assert_eq!(serde_json::from_slice::<NodeSummary>(&text).unwrap(), one);
    }
}
