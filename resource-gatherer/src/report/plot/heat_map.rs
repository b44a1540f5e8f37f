//! Draws idle latency from node to node: a cell for each pair, with its number.

use tierfeed_plot::{Fill, Svg};

use super::{MARGIN, WIDTH};
use crate::report::Report;

/// Cells get smaller where there are many nodes, so that the picture keeps its width.
const CELL_MAX: f64 = 92.0;
const ROW_LABEL: f64 = 76.0;

/// From the fastest to the slowest; dark and light can be told apart in grey too.
const COLOURS: [[f64; 3]; 4] =
    [[222.0, 240.0, 232.0], [127.0, 198.0, 190.0], [44.0, 127.0, 160.0], [24.0, 52.0, 104.0]];

/// From here on, text on a cell is white.
const DARK_FROM: f64 = 0.6;

/// Draws from `top` on; where it ends.
pub(super) fn draw(svg: &mut Svg, report: &Report, top: f64) -> f64 {
    svg.text((MARGIN, top), "ink heading", "Idle latency, ns");
    let nodes = &report.numa.nodes;
    let measured = || report.numa.latency_ns.iter().flatten().flatten().copied();
    if nodes.is_empty() || measured().next().is_none() {
        svg.text((MARGIN, top + 26.0), "faint", "not measured");
        return top + 26.0;
    }
    let left = MARGIN + ROW_LABEL;
    #[expect(clippy::cast_precision_loss, reason = "a host has few nodes")]
    let width = ((WIDTH - MARGIN - left) / nodes.len() as f64).min(CELL_MAX);
    let height = (width * 0.55).max(18.0);
    let range = (measured().fold(f64::INFINITY, f64::min), measured().fold(0.0, f64::max));
    svg.text((left, top + 24.0), "faint", "memory of node");
    let mut y = top + 38.0;
    for (column, node) in (0..).map(f64::from).zip(nodes) {
        let middle = left + (column + 0.5) * width;
        svg.text((middle, y + 10.0), "ink small middle", &node.to_string());
    }
    y += 18.0;
    for (node, row) in nodes.iter().zip(&report.numa.latency_ns) {
        let label = format!("CPUs of {node}");
        svg.text((left - 10.0, y + height / 2.0 + 4.5), "ink small end", &label);
        for (column, latency) in (0..).map(f64::from).zip(row) {
            draw_cell(svg, (left + column * width, y), (width, height), *latency, range);
        }
        y += height;
    }
    y
}

fn draw_cell(
    svg: &mut Svg,
    (x, y): (f64, f64),
    (width, height): (f64, f64),
    latency: Option<f64>,
    range: (f64, f64),
) {
    let inside = (width - 2.0, height - 2.0);
    let middle = (x + width / 2.0, y + height / 2.0 + 4.5);
    let Some(latency) = latency else {
        svg.rectangle((x, y), inside, Fill::Class("empty"));
        return svg.text(middle, "faint middle", "-");
    };
    let share = share(latency, range);
    svg.rectangle((x, y), inside, Fill::Colour(&colour(share)));
    let ink = if share >= DARK_FROM { "on-dark middle" } else { "on-light middle" };
    svg.text(middle, ink, &format!("{latency:.0}"));
}

/// Where `latency` lies between the fastest and the slowest, by ratio.
fn share(latency: f64, (fastest, slowest): (f64, f64)) -> f64 {
    let whole = (slowest / fastest).ln();
    if whole > 0.0 { ((latency / fastest).ln() / whole).clamp(0.0, 1.0) } else { 0.0 }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the share is within 0..=1"
)]
fn colour(share: f64) -> String {
    let place = share * 3.0;
    let index = (place.floor() as usize).min(2);
    let between = place - place.floor().min(2.0);
    let (from, to) = (COLOURS[index], COLOURS[index + 1]);
    let [red, green, blue] =
        [0, 1, 2].map(|part| (from[part] + (to[part] - from[part]) * between).round() as u8);
    format!("#{red:02x}{green:02x}{blue:02x}")
}
