//! The tiers, and how each node sees them.

use super::{
    COLUMNS, Report, Style, figure, grid,
    grid::{Grid, Lean},
    heading,
};
use crate::report::{Access, Basis, Figures, Tier};

pub(super) fn tiers(report: &Report, style: Style) -> String {
    let mut grid = Grid::new([
        ("tier", Lean::Left),
        ("GiB", Lean::Right),
        ("free", Lean::Right),
        ("read GB/s", Lean::Right),
        ("write GB/s", Lean::Right),
        ("copy GB/s", Lean::Right),
        ("latency", Lean::Right),
        ("IOPS", Lean::Right),
        ("where", Lean::Left),
    ]);
    for tier in &report.tiers {
        grid.row(row(tier));
        for line in remarks(tier) {
            grid.warning(line);
        }
    }
    heading(style, &format!("tiers of {}, fastest first", report.host)) + &grid.show(style)
}

pub(super) fn views(report: &Report, style: Style) -> Option<String> {
    if report.views.len() < 2 {
        return None;
    }
    let mut grid = Grid::new([("from", Lean::Left), ("nodes, fastest first", Lean::Left)]);
    for view in &report.views {
        let tiers: Vec<String> = view.tiers.iter().map(|nodes| list(nodes)).collect();
        grid.row([format!("NUMA {}", view.initiator), tiers.join(" | ")]);
    }
    Some(heading(style, "memory tiers as the CPUs of each node see them") + &grid.show(style))
}

fn row(tier: &Tier) -> [String; 9] {
    let figures = &tier.estimates;
    [
        tier.name.clone(),
        figure::gibibytes(tier.capacity_bytes),
        figure::gibibytes(tier.free_bytes),
        figure::rate(figures.read_bytes_per_s),
        figure::rate(figures.write_bytes_per_s),
        figure::rate(figures.copy_bytes_per_s),
        figure::latency(figures.idle_latency_ns),
        figure::operations(figures.random_read_iops),
        place(tier),
    ]
}

fn place(tier: &Tier) -> String {
    match (&tier.path, tier.memory) {
        (Some(path), _) => path.display().to_string(),
        (None, _) if tier.numa_nodes.is_empty() => figure::NONE.to_owned(),
        (None, None) => format!("NUMA {}", list(&tier.numa_nodes)),
        (None, Some(class)) => format!("NUMA {}, {}", list(&tier.numa_nodes), class.name()),
    }
}

fn list(nodes: &[u32]) -> String {
    nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

fn remarks(tier: &Tier) -> Vec<String> {
    let has_figures = tier.estimates != Figures::default();
    let is_measured = has_figures && !tier.emulated;
    let flags = [
        (tier.emulated, "emulated"),
        (!has_figures, "not measured"),
        (is_measured && !tier.quality.converged, "not converged"),
        (tier.quality.contended, "contended"),
        (tier.access == Some(Access::Buffered), "through the page cache"),
        (tier.source == Basis::Config, "by configuration"),
        (tier.source == Basis::Rated, "placed by what the firmware states"),
        (tier.source == Basis::Kind, "placed by its kind alone"),
    ];
    let flags: Vec<&str> =
        flags.into_iter().filter(|(applies, _)| *applies).map(|(_, text)| text).collect();
    let texts = std::iter::once(flags.join(", ")).chain(tier.remarks.iter().cloned());
    texts.flat_map(|text| grid::wrapped(&text, 2, COLUMNS)).collect()
}
