//! Draws latency under load: one line for each pair of nodes and each kind of traffic.

use tierfeed_plot::{Axis, COLOURS, DASHES, Point, Stroke, Svg};

use super::{MARGIN, WIDTH};
use crate::report::{LoadedLatency, Pair, Report};

const HEIGHT: f64 = 380.0;
const LEGEND: f64 = 230.0;

/// A curve as it is drawn.
struct Line<'a> {
    pair: &'a Pair,
    curve: &'a LoadedLatency,
    stroke: Stroke<'static>,
}

/// Draws from `top` on; where it ends.
pub(super) fn draw(svg: &mut Svg, report: &Report, top: f64) -> f64 {
    svg.text((MARGIN, top), "ink heading", "Latency under load");
    let lines = lines(report);
    if lines.is_empty() {
        svg.text((MARGIN, top + 26.0), "faint", "not measured; a full probe measures it");
        return top + 26.0;
    }
    let (left, right) = (MARGIN + 56.0, WIDTH - MARGIN - LEGEND);
    let (upper, lower) = (top + 48.0, top + 48.0 + HEIGHT);
    let points = || lines.iter().flat_map(|line| line.curve.points.iter());
    let latencies = || points().map(|point| point.latency_ns.median);
    let highest = points().map(|point| point.bytes_per_s / 1e9).fold(0.0, f64::max);
    let x = Axis::from_zero(highest, (left, right));
    let slowest = latencies().fold(0.0, f64::max);
    let y = Axis::over(latencies().fold(f64::INFINITY, f64::min), slowest, (lower, upper));
    draw_axes(svg, &x, &y, (left, upper), (right, lower));
    for line in &lines {
        draw_line(svg, line, &x, &y);
    }
    let end = draw_legend(svg, &lines, (right + 26.0, upper + 6.0));
    end.max(lower + 44.0)
}

fn lines(report: &Report) -> Vec<Line<'_>> {
    let pairs = report.pairs.iter().filter(|pair| !pair.loaded_latency.is_empty());
    let lines = pairs.zip(COLOURS.iter().cycle()).flat_map(|(pair, colour)| {
        let curves = pair.loaded_latency.iter().zip(DASHES.iter().cycle());
        curves.map(move |(curve, dashes)| Line { pair, curve, stroke: Stroke { colour, dashes } })
    });
    lines.collect()
}

fn draw_axes(svg: &mut Svg, x: &Axis, y: &Axis, (left, upper): Point, (right, lower): Point) {
    for tick in &x.ticks {
        let at = x.at(*tick);
        svg.line((at, upper), (at, lower), "grid");
        svg.text((at, lower + 20.0), "faint middle", &tick.to_string());
    }
    for tick in &y.ticks {
        let at = y.at(*tick);
        svg.line((left, at), (right, at), "grid");
        svg.text((left - 10.0, at + 4.5), "faint end", &tick.to_string());
    }
    svg.line((left, lower), (right, lower), "axis");
    svg.line((left, upper), (left, lower), "axis");
    svg.text((f64::midpoint(left, right), lower + 40.0), "ink middle", "traffic, GB/s");
    svg.text((MARGIN, upper - 18.0), "ink", "idle or loaded latency, ns");
}

fn draw_line(svg: &mut Svg, line: &Line<'_>, x: &Axis, y: &Axis) {
    let place = |rate: f64, latency| (x.at(rate / 1e9), y.at(latency));
    let points = line.curve.points.iter();
    let points: Vec<Point> =
        points.map(|point| place(point.bytes_per_s, point.latency_ns.median)).collect();
    svg.curve(&points, line.stroke);
    if let Some((knee, idle)) = knee(line.curve) {
        svg.ring(place(knee, 2.0 * idle), line.stroke.colour);
    }
}

/// The traffic of the knee, and the latency without any.
fn knee(curve: &LoadedLatency) -> Option<(f64, f64)> {
    Some((curve.knee_bytes_per_s?, curve.points.first()?.latency_ns.median))
}

fn draw_legend(svg: &mut Svg, lines: &[Line<'_>], (x, y): Point) -> f64 {
    svg.text((x, y + 4.5), "faint small", "NUMA nodes, traffic");
    let mut at = y + 21.0;
    for line in lines {
        svg.curve_sample((x, at), (x + 30.0, at), line.stroke);
        svg.text((x + 40.0, at + 4.5), "ink small", &label(line));
        at += 19.0;
    }
    svg.ring((x + 15.0, at + 4.0), COLOURS[0]);
    svg.text((x + 40.0, at + 8.5), "faint small", "twice the idle latency");
    at + 19.0
}

fn label(line: &Line<'_>) -> String {
    let Line { pair, curve, .. } = line;
    let contended = curve.points.iter().any(|point| point.latency_ns.contended);
    let flag = if contended { ", contended" } else { "" };
    format!("{} to {}, {}{flag}", pair.initiator, pair.target, curve.traffic.name())
}
