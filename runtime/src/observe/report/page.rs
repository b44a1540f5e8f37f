//! The report as an HTML page in one file without external resources.
//!
//! It shows the content of `report.json`, most important first. Only the functions that write an element
//! escape text, as in [`tierfeed_plot::Svg`].

mod pictures;

use std::fmt::Write as _;

use tierfeed_core::{fleet::schedule::Figures, units::Bytes};
use tierfeed_plot::escape;

use super::{EpochEntry, FaultEntry, Report, TierEntry};
use crate::observe::footprint::TimelinePoint;

/// The most faults and changes of memory that are listed.
const LISTED_MAX: usize = 50;

/// Follows the browser's colour scheme, as the pictures do.
const STYLE: &str = "
body { font: 15px/1.5 system-ui, sans-serif; max-width: 980px; margin: 2em auto; padding: 0 1em;
  color: #1f2328; background: #ffffff; }
h1 { font-size: 1.4em; } h2 { font-size: 1.15em; margin-top: 2em; }
.verdict { font-size: 1.15em; font-weight: 600; }
table { border-collapse: collapse; } td, th { padding: 0.2em 0.9em 0.2em 0; text-align: right; }
td:first-child, th:first-child { text-align: left; } th { font-weight: 600; }
svg { max-width: 100%; height: auto; }
@media (prefers-color-scheme: dark) { body { color: #e8eaed; background: #14171c; } }
";

impl Report {
    #[must_use]
    pub fn page(&self) -> String {
        let mut page = Page::default();
        let job = &self.job;
        page.element("h1", &format!("{job}, node {}", self.node));
        page.text("p", "verdict", &self.verdict);
        page.list(self.advice.iter().map(|advice| format!("would help: {}", advice.text)));
        page.element("h2", "The run");
        page.table(&["", ""], self.figures().map(|(name, value)| vec![name.to_owned(), value]));
        page.element("h2", "Waits");
        page.picture(&pictures::waits(&self.epochs));
        page.element("h2", "Tiers");
        page.list(self.choices().into_iter());
        let titles = ["tier", "cache", "samples read", "bytes read", "bytes written", "busy"];
        page.table(&titles, self.tiers.iter().map(|tier| self.tier_row(tier)));
        let titles = ["place", "latency", "rate", "figures from", "decision"];
        let tier = |tier: &TierEntry| speed_row(tier.name, &tier.figures, &tier.decision);
        let cold = speed_row("cold store", &self.cold_store, "below all tiers");
        page.table(&titles, self.tiers.iter().map(tier).chain([cold]));
        if let Some(transform) = &self.transform {
            page.element("h2", "Transform");
            let rows = transform.rows().into_iter();
            page.table(&["", ""], rows.map(|(name, value)| vec![name.to_owned(), value]));
        }
        page.element("h2", "Memory");
        page.picture(&pictures::memory(&self.memory));
        page.picture(&pictures::free(&self.memory));
        let changed = |moment: &TimelinePoint| {
            let at = moment.time.0 / 1_000_000_000;
            moment.changes.iter().map(|change| format!("{at} s: {change}")).collect::<Vec<_>>()
        };
        page.list(self.memory.timeline.points().iter().flat_map(changed).take(LISTED_MAX));
        page.element("h2", "Epochs");
        let titles = [
            "epoch",
            "batches served",
            "self-read",
            "read cold",
            "no policy below",
            "hits",
            "ready",
            "waited",
        ];
        page.table(&titles, self.epochs.iter().map(epoch_row));
        if self.fault_count > 0 {
            page.element("h2", "Faults");
            let fault = |FaultEntry { sample, object, fault, reason }: &FaultEntry| {
                let reason = reason.as_ref().map(|it| format!(", {it}"));
                format!("sample {sample} of {object}: {fault}{}", reason.unwrap_or_default())
            };
            page.list(self.faults.iter().take(LISTED_MAX).map(fault));
        }
        page.finish(&format!("tierfeed: {job}"))
    }

    fn figures(&self) -> impl Iterator<Item = (&'static str, String)> {
        let waits = self.batch_wait_s;
        [
            ("policy", self.policy.to_owned()),
            (
                "batches",
                format!(
                    "{} used: {} served by the agent, {} read by trainers themselves",
                    self.used_batches, self.steps, self.self_read_batches
                ),
            ),
            (
                "samples",
                format!(
                    "{} served, {} self-read, {} skipped",
                    self.samples, self.self_read_samples, self.skipped_samples
                ),
            ),
            ("handed over", Bytes(self.bytes).to_string()),
            ("time", format!("{:.2} s, at best {:.2} s", self.wall_s, self.lower_bound_s)),
            (
                "waited",
                format!(
                    "{:.3} s, {:.3} s of it for the first batch, {:.3} s for decoding",
                    self.stall_s,
                    self.first_stall_s,
                    self.stall_for_s.get("decoding").copied().unwrap_or(0.0)
                ),
            ),
            (
                "a batch was waited for, before decoding",
                format!(
                    "{:.4} s at the median, {:.4} s at p99, {:.4} s at most",
                    waits.p50, waits.p99, waits.max
                ),
            ),
            ("CPU time of the agent", self.agent_cpu.line()),
            ("read cold", Bytes(self.cold_read_bytes).to_string()),
            (
                "of that, from the page cache",
                Bytes(self.page_cache.map_or(0, |it| it.read_bytes)).to_string(),
            ),
            ("of that, into tiers ahead of staging", Bytes(self.ahead_bytes()).to_string()),
            ("read in vain", Bytes(self.wasted_bytes).to_string()),
            (
                "faults",
                format!("{} of samples, {} of tiers", self.fault_count, self.tier_fault_count),
            ),
            (
                "memory of the job at its peak",
                format!(
                    "{} of {} budgeted",
                    Bytes(self.memory.peak_job_bytes),
                    Bytes(self.memory.budget_bytes)
                ),
            ),
            (
                "memory of the agent itself at its peak",
                Bytes(self.memory.peak_own_bytes).to_string(),
            ),
            (
                "order",
                self.order_digest.clone().unwrap_or_else(|| "too long to be told".to_owned()),
            ),
        ]
        .into_iter()
    }

    fn tier_row(&self, tier: &TierEntry) -> Vec<String> {
        let mark = if tier.emulated { " (emulated)" } else { "" };
        let read = self.tier_read_bytes.get(tier.name).copied().unwrap_or(0);
        vec![
            format!("{}{mark}", tier.name),
            Bytes(tier.cache_bytes).to_string(),
            self.tier_hits.get(tier.name).copied().unwrap_or(0).to_string(),
            Bytes(read).to_string(),
            Bytes(tier.written_bytes).to_string(),
            format!("{:.2} s", self.busy_s.get(tier.name).copied().unwrap_or(0.0)),
        ]
    }
}

fn speed_row(place: &str, figures: &Figures, decision: &str) -> Vec<String> {
    let unknown = || "not known".to_owned();
    let latency = figures.latency.map_or_else(unknown, |it| it.to_string());
    let rate = figures.bandwidth.map_or_else(unknown, |it| it.to_string());
    vec![place.to_owned(), latency, rate, figures.from.clone(), decision.to_owned()]
}

fn epoch_row(epoch: &EpochEntry) -> Vec<String> {
    vec![
        epoch.epoch.to_string(),
        epoch.batches.to_string(),
        epoch.self_read_batches.to_string(),
        Bytes(epoch.cold_read_bytes).to_string(),
        Bytes(epoch.minimal_cold_bytes).to_string(),
        format!("{:.1} %", epoch.hit_ratio * 100.0),
        format!("{:.1} %", epoch.ready_ratio * 100.0),
        format!("{:.3} s", epoch.stall_s),
    ]
}

#[derive(Debug, Default)]
struct Page(String);

impl Page {
    fn element(&mut self, name: &str, text: &str) {
        self.push(&format!("<{name}>{}</{name}>\n", escape(text)));
    }

    fn text(&mut self, name: &str, class: &str, text: &str) {
        self.push(&format!("<{name} class=\"{class}\">{}</{name}>\n", escape(text)));
    }

    fn list(&mut self, items: impl Iterator<Item = String>) {
        let items: Vec<_> = items.map(|item| format!("<li>{}</li>\n", escape(&item))).collect();
        if !items.is_empty() {
            self.push(&format!("<ul>\n{}</ul>\n", items.concat()));
        }
    }

    fn table(&mut self, titles: &[&str], rows: impl Iterator<Item = Vec<String>>) {
        self.push("<table>\n");
        if titles.iter().any(|title| !title.is_empty()) {
            self.push(&cells("th", titles.iter().copied()));
        }
        for row in rows {
            self.push(&cells("td", row.iter().map(String::as_str)));
        }
        self.push("</table>\n");
    }

    fn picture(&mut self, svg: &str) {
        self.push(svg);
    }

    fn finish(self, title: &str) -> String {
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
            escape(title),
            self.0
        )
    }

    fn push(&mut self, text: &str) {
        self.0.write_str(text).expect("a String takes everything");
    }
}

fn cells<'a>(name: &str, row: impl Iterator<Item = &'a str>) -> String {
    let cells: Vec<_> = row.map(|cell| format!("<{name}>{}</{name}>", escape(cell))).collect();
    format!("<tr>{}</tr>\n", cells.concat())
}
