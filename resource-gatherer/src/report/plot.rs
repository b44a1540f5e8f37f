//! Draws a report as SVG: latency under load as curves, latency from node to node as a heat map.
//!
//! Colours follow the reader's scheme, light or dark, by a media query; a renderer that knows none draws
//! on white. Every figure that is drawn is written too.

mod curves;
mod heat_map;
#[cfg(test)]
mod tests;

use tierfeed_plot::Svg;

use super::Report;

/// The width of the picture; its height follows from what there is.
const WIDTH: f64 = 960.0;

/// Between the edge of the picture and everything in it.
const MARGIN: f64 = 28.0;

/// The picture as the text of an SVG file.
#[must_use]
pub fn plot(report: &Report) -> String {
    let mut svg = Svg::default();
    let mut y = MARGIN + 16.0;
    svg.text((MARGIN, y), "ink title", &format!("Memory of {}", report.host));
    for line in subtitles(report) {
        y += 20.0;
        svg.text((MARGIN, y), "faint", &line);
    }
    y = curves::draw(&mut svg, report, y + 40.0);
    y = heat_map::draw(&mut svg, report, y + 48.0);
    svg.finish(WIDTH, y + MARGIN)
}

fn subtitles(report: &Report) -> Vec<String> {
    let machine = if report.conditions.is_virtual { ", in a virtual machine" } else { "" };
    let kernel = &report.conditions.kernel;
    let kernel = if kernel.is_empty() { "kernel unknown" } else { kernel };
    let mut lines = vec![format!("measured by tierfeed on Linux {kernel}{machine}")];
    let names = |wanted: fn(&super::Tier) -> bool| {
        let tiers = report.tiers.iter().filter(|tier| wanted(tier));
        tiers.map(|tier| tier.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let emulated = names(|tier| tier.emulated);
    let contended = names(|tier| tier.quality.contended);
    if !emulated.is_empty() {
        lines.push(format!("emulated, so not drawn: {emulated}"));
    }
    if !contended.is_empty() {
        lines.push(format!("contended while it was measured: {contended}"));
    }
    lines
}
