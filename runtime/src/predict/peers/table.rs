//! A plan with peers as a text table.

use std::fmt::{self, Display};

use tierfeed_core::units::Bytes;

use super::{Figures, SharedCachePlan};

impl Display for SharedCachePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} nodes keep {} together; each round of {} steps is decided at once, {} epochs ahead",
            self.nodes,
            Bytes(self.capacity_bytes),
            self.round_steps,
            self.ahead_epochs,
        )?;
        writeln!(
            f,
            "{:>6}{:>12}{:>12}{:>8}{:>8}{:>12}{:>12}{:>12}{:>10}{:>10}",
            "epoch",
            "cold",
            "least cold",
            "local",
            "best",
            "from peers",
            "written",
            "sends most",
            "receives",
            "keeps",
        )?;
        for epoch in &self.epochs {
            row(f, &epoch.epoch.to_string(), &epoch.figures)?;
        }
        row(f, "all", &self.total)
    }
}

fn row(f: &mut fmt::Formatter<'_>, epoch: &str, figures: &Figures) -> fmt::Result {
    let size = |bytes: u64| Bytes(bytes).to_string();
    let best = figures.best_local_ratio.map(|best| format!("{:.1}%", best * 100.0));
    writeln!(
        f,
        "{epoch:>6}{:>12}{:>12}{:>7.1}%{:>8}{:>12}{:>12}{:>12.3}{:>10.3}{:>10.3}",
        size(figures.cold_read_bytes),
        size(figures.minimal_cold_bytes),
        figures.local_ratio * 100.0,
        best.as_deref().unwrap_or("-"),
        size(figures.peer_read_bytes),
        size(figures.written_bytes),
        figures.sent_imbalance,
        figures.received_imbalance,
        figures.kept_imbalance,
    )
}
