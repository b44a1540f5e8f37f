//! What to be careful about: who disagrees, what was left out, how the machine was set.

use super::{super::style::Paint, COLUMNS, Report, Style, figure, grid::wrapped, heading};
use crate::report::{Comparison, Source};

pub(super) fn warnings(report: &Report, style: Style) -> Option<String> {
    let lines: Vec<String> = report
        .comparisons
        .iter()
        .filter(|comparison| comparison.differs)
        .flat_map(|comparison| wrapped(&sentence(comparison), 2, COLUMNS))
        .map(|line| style.paint(&line, Paint::Warning) + "\n")
        .collect();
    section(style, "stated and measured differ by more than 25 %", &lines)
}

pub(super) fn skipped(report: &Report, style: Style) -> Option<String> {
    let lines: Vec<String> = report
        .skipped
        .iter()
        .flat_map(|it| wrapped(&format!("{}: {}", it.what, it.why), 2, COLUMNS))
        .map(|line| line + "\n")
        .collect();
    section(style, "left out", &lines)
}

pub(super) fn conditions(report: &Report, style: Style) -> Option<String> {
    let it = &report.conditions;
    let yes_or_no = |value: bool| if value { "on" } else { "off" };
    let parts = [
        (!it.kernel.is_empty()).then(|| format!("kernel {}", it.kernel)),
        it.is_virtual.then(|| "virtual machine".to_owned()),
        it.governor.as_ref().map(|governor| format!("governor {governor}")),
        it.boost.map(|boost| format!("boost {}", yes_or_no(boost))),
        it.smt.map(|smt| format!("SMT {}", yes_or_no(smt))),
        it.transparent_huge_pages.as_ref().map(|mode| format!("huge pages {mode}")),
        it.numa_balancing.map(|value| format!("NUMA balancing {}", yes_or_no(value))),
        it.load_1min.map(|load| format!("load {load:.1}")),
        it.steal_share.map(|share| format!("stolen {:.1} %", share * 100.0)),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let lines: Vec<String> =
        wrapped(&parts.join(", "), 2, COLUMNS).into_iter().map(|line| line + "\n").collect();
    section(style, "measured under", &lines)
}

fn section(style: Style, name: &str, lines: &[String]) -> Option<String> {
    (!lines.is_empty()).then(|| heading(style, name) + &lines.concat())
}

fn sentence(comparison: &Comparison) -> String {
    let Comparison { node, figure, stated, measured, source, .. } = comparison;
    let who = match source {
        Source::Hmat => "the firmware states",
        Source::KernelTier => "the kernel made",
    };
    let value = |value: f64| match figure.as_str() {
        "memory_tier" => format!("memory_tier{value:.0}"),
        name if name.ends_with("_ns") => figure::time(Some(value)),
        _ => format!("{} GB/s", figure::digits(value / 1e9)),
    };
    let what = match figure.as_str() {
        "idle_latency_ns" => " of latency",
        "read_bytes_per_s" => " of reads",
        "write_bytes_per_s" => " of writes",
        _ => "",
    };
    let (stated, measured) = (value(*stated), value(*measured));
    match figure.as_str() {
        "memory_tier" => {
            format!("NUMA node {node}: {who} {stated}, the figures make {measured}")
        }
        _ => format!("NUMA node {node}: {who} {stated}{what}, measured {measured}"),
    }
}
