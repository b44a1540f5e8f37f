//! Draws a plan: cold reads and stall of each step, a line for each policy, and the lower bound of cold
//! reads.
//!
//! Long runs are drawn as means over columns of steps; the picture states the width of a column.

use tierfeed_core::units::{Bytes, Nanoseconds};
use tierfeed_plot::{Axis, COLOURS, DASHES, Point, Stroke, Svg, label};

use super::{
    Prediction,
    curve::{Column, Curve},
    figures::{number, seconds},
};

/// A policy in a picture.
#[derive(Debug, Clone, Copy)]
pub struct PlottedPolicy<'a> {
    /// The totals.
    pub prediction: &'a Prediction,
    /// The values over the steps.
    pub curve: &'a Curve,
}

const WIDTH: f64 = 960.0;
const MARGIN: f64 = 28.0;
const LEGEND: f64 = 210.0;
const LEFT: f64 = MARGIN + 64.0;
const RIGHT: f64 = WIDTH - MARGIN - LEGEND;
const PANEL: f64 = 230.0;

/// The most epochs that are labelled; more labels would overlap.
const EPOCHS_NAMED_MAX: usize = 12;

const BYTES: [(f64, &str); 4] = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")];
const SECONDS: [(f64, &str); 4] = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")];

/// The picture as the text of an SVG file. The title contains `job`; `notes` are below it.
///
/// All curves are of one job: they have equally many steps.
#[must_use]
pub fn plot(job: &str, notes: &[String], policies: &[PlottedPolicy<'_>]) -> String {
    let mut svg = Svg::default();
    let mut y = MARGIN + 16.0;
    svg.text((MARGIN, y), "ink title", &format!("Plan of {job}"));
    for line in notes.iter().cloned().chain(policies.first().map(|it| resolution(it.curve))) {
        y += 20.0;
        svg.text((MARGIN, y), "faint", &line);
    }
    let cold = Panel { heading: "Cold reads of a step", top: y + 44.0, units: &BYTES };
    let least = policies.first().map(|it| least(it)).unwrap_or_default();
    let lower = cold.draw(&mut svg, policies, |it| number(Bytes(it.cold)), &least);
    let legend_end = legend(&mut svg, policies, cold.top + 62.0);
    let stall = Panel { heading: "Stall of a step", top: lower + 56.0, units: &SECONDS };
    let lower = stall.draw(&mut svg, policies, |it| seconds(Nanoseconds(it.stall)), &[]);
    svg.text((f64::midpoint(LEFT, RIGHT), lower + 40.0), "ink middle", "step of the run");
    svg.finish(WIDTH, legend_end.max(lower + 40.0) + MARGIN)
}

fn resolution(curve: &Curve) -> String {
    let (steps, columns) = (curve.steps(), curve.columns().len() as u64);
    if steps <= columns {
        return format!("{steps} steps, each drawn");
    }
    format!("{steps} steps, drawn as means of about {}", steps.div_ceil(columns.max(1)))
}

/// A level of the bound: first step, last step, bytes in each.
type Level = (u64, u64, f64);

/// The lower bound of each epoch, spread evenly over its steps.
fn least(drawn: &PlottedPolicy<'_>) -> Vec<Level> {
    let ends = drawn.curve.epochs().skip(1).chain([drawn.curve.steps()]);
    let levels = drawn.curve.epochs().zip(ends).zip(&drawn.prediction.epochs);
    let level = |((start, end), epoch): ((u64, u64), &super::Epoch)| {
        let steps = number(Bytes(end - start));
        (start, end, number(Bytes(epoch.figures.minimal_cold_bytes)) / steps.max(1.0))
    };
    levels.map(level).filter(|(start, end, _)| start < end).collect()
}

/// A panel with axes of its own.
struct Panel<'a> {
    heading: &'a str,
    top: f64,
    /// From the largest to the smallest.
    units: &'a [(f64, &'a str)],
}

impl Panel<'_> {
    /// Draws the mean of `value` in each column; returns the lower edge.
    fn draw(
        &self,
        svg: &mut Svg,
        policies: &[PlottedPolicy<'_>],
        value: impl Fn(&Column) -> f64,
        limit: &[Level],
    ) -> f64 {
        let mean = |column: &Column| value(column) / number(Bytes(column.steps)).max(1.0);
        let values = policies.iter().flat_map(|it| it.curve.columns()).map(&mean);
        let highest = values.chain(limit.iter().map(|level| level.2)).fold(0.0, f64::max);
        let (scale, unit) = unit_for(highest, self.units);
        let (upper, lower) = (self.top + 48.0, self.top + 48.0 + PANEL);
        let steps = policies.first().map_or(0, |it| it.curve.steps());
        let x = Axis::from_zero(number(Bytes(steps)), (LEFT, RIGHT));
        let y = Axis::from_zero(highest / scale, (lower, upper));
        svg.text((MARGIN, self.top), "ink heading", self.heading);
        svg.text((MARGIN, self.top + 22.0), "ink", &format!("{unit} in each step"));
        axes(svg, &x, &y, (upper, lower));
        if let Some(first) = policies.first() {
            epochs(svg, &x, first.curve, (upper, lower));
        }
        for (start, end, level) in limit {
            let (from, to) = (x.at(number(Bytes(*start))), x.at(number(Bytes(*end))));
            let at = y.at(level / scale);
            svg.line((from, at), (to, at), "limit");
        }
        for (drawn, stroke) in policies.iter().zip(strokes()) {
            let place = |column: &Column| y.at(mean(column) / scale);
            svg.curve(&staircase(drawn.curve, &x, place), stroke);
        }
        lower
    }
}

/// The largest unit that the value reaches.
fn unit_for<'a>(highest: f64, units: &[(f64, &'a str)]) -> (f64, &'a str) {
    let reached = units.iter().find(|(scale, _)| highest >= *scale);
    reached.or(units.last()).copied().unwrap_or((1.0, ""))
}

/// A column is a range of steps, so its mean is drawn as a horizontal line.
fn staircase(curve: &Curve, x: &Axis, place: impl Fn(&Column) -> f64) -> Vec<Point> {
    let columns = curve.columns();
    let width = number(Bytes(curve.steps())) / number(Bytes(columns.len() as u64)).max(1.0);
    let level = |(at, column): (u32, &Column)| {
        let (left, height) = (f64::from(at) * width, place(column));
        [(x.at(left), height), (x.at(left + width), height)]
    };
    (0..).zip(columns).flat_map(level).collect()
}

fn axes(svg: &mut Svg, x: &Axis, y: &Axis, (upper, lower): (f64, f64)) {
    for tick in &x.ticks {
        svg.line((x.at(*tick), lower), (x.at(*tick), lower + 5.0), "axis");
        svg.text((x.at(*tick), lower + 20.0), "faint middle", &label(*tick));
    }
    for tick in &y.ticks {
        svg.line((LEFT, y.at(*tick)), (RIGHT, y.at(*tick)), "grid");
        svg.text((LEFT - 10.0, y.at(*tick) + 4.5), "faint end", &label(*tick));
    }
    svg.line((LEFT, lower), (RIGHT, lower), "axis");
    svg.line((LEFT, upper), (LEFT, lower), "axis");
}

/// Marks the starts of epochs; of many, only those that are labelled.
fn epochs(svg: &mut Svg, x: &Axis, curve: &Curve, (upper, lower): (f64, f64)) {
    let stride = curve.epochs().count().div_ceil(EPOCHS_NAMED_MAX).max(1);
    for (epoch, start) in curve.epochs().enumerate().step_by(stride) {
        let at = x.at(number(Bytes(start)));
        svg.line((at, upper), (at, lower), "grid");
        svg.text((at + 4.0, upper - 5.0), "faint small", &format!("epoch {epoch}"));
    }
}

fn strokes() -> impl Iterator<Item = Stroke<'static>> {
    let looks = COLOURS.iter().cycle().zip(DASHES.iter().cycle());
    looks.map(|(colour, dashes)| Stroke { colour, dashes })
}

/// The legend with the totals of each policy; returns its lower edge.
fn legend(svg: &mut Svg, policies: &[PlottedPolicy<'_>], top: f64) -> f64 {
    let (x, mut y) = (RIGHT + 26.0, top);
    for (drawn, stroke) in policies.iter().zip(strokes()) {
        svg.curve_sample((x, y), (x + 30.0, y), stroke);
        let total = &drawn.prediction.total;
        svg.text((x + 40.0, y + 4.5), "ink", drawn.prediction.policy);
        let cold = format!("{} cold", Bytes(total.cold_read_bytes));
        svg.text((x + 40.0, y + 21.0), "faint small", &cold);
        let times = format!("{:.3} s, stall {:.3} s", total.duration_s, total.stall_s);
        svg.text((x + 40.0, y + 37.0), "faint small", &times);
        y += 58.0;
    }
    let Some(first) = policies.first() else { return y };
    let total = &first.prediction.total;
    svg.line((x, y), (x + 30.0, y), "limit");
    svg.text((x + 40.0, y + 4.5), "ink", "least possible");
    let cold = format!("{} cold", Bytes(total.minimal_cold_bytes));
    svg.text((x + 40.0, y + 21.0), "faint small", &cold);
    let bound = format!("{:.3} s", total.lower_bound_s);
    svg.text((x + 40.0, y + 37.0), "faint small", &bound);
    y + 37.0
}
