//! Draws a chart of a figure: bars that lie, so that names of groups have room, or curves.
//!
//! 1. The value axis is linear and contains zero: lengths of bars are to each other as their values.
//! 2. Colour and marker tell names apart; patterns of bars and dashes of curves tell where values are from. Bars of
//!    a group stand in the order of the legend, and a missing value keeps its place.
//! 3. The picture is as narrow as a telephone, where its letters keep about their size.

use tierfeed_plot::{Axis, COLOURS, Pattern, Point, Shape, Stroke, Svg, label, text_width, wrap};

use crate::figure::{Along, Chart, Series, Source, Value};

const WIDTH: f64 = 350.0;
const MARGIN: f64 = 12.0;

/// Heights of letters, as the style of `Svg` has them, and of their lines.
const LETTERS: f64 = 13.0;
const SMALL_LETTERS: f64 = 12.0;
const LINE: f64 = 17.0;

const BAR: f64 = 12.0;
const BAR_WITH_GAP: f64 = 17.0;
const GROUP_GAP: f64 = 9.0;
const SAMPLE: f64 = 30.0;
const CURVES_HEIGHT: f64 = 220.0;

/// About this many points of a curve are marked; all have their ranges.
const MARKED_MAX: usize = 16;

/// Up to this many positions are all labelled; with more, round values between them are.
const LABELLED_MAX: usize = 10;

/// Positions are on a logarithmic axis if the last is at least this many times the first, and each at least
/// [`LOGARITHMIC_STEP`] times the one before.
const LOGARITHMIC_RATIO: f64 = 8.0;
const LOGARITHMIC_STEP: f64 = 1.5;

/// The charts of a figure as SVG, without their titles. A name has one colour in all of them.
pub(crate) fn draw(charts: &[Chart]) -> Vec<String> {
    let mut names: Vec<&str> = Vec::new();
    for series in charts.iter().flat_map(|chart| &chart.series) {
        if !names.contains(&series.name.as_str()) {
            names.push(&series.name);
        }
    }
    let one = |chart: &Chart| {
        let looks = looks(&chart.series, &names);
        match &chart.along {
            Along::Groups(groups) => bars(chart, &looks, groups),
            Along::Positions(positions) => curves(chart, &looks, positions),
        }
    };
    charts.iter().map(one).collect()
}

/// The name of a series with its source.
pub(crate) fn series_name(series: &Series) -> String {
    let source = match series.source {
        Source::Published => "published",
        Source::Measured => "measured here",
        Source::Simulated => "simulated",
    };
    format!("{} ({source})", series.name)
}

/// A median, with its range if the turns differ.
pub(crate) fn value_text(value: Value) -> String {
    let Value { median, least, most } = value;
    if least >= most {
        let text = number(median, decimals(median));
        let exact = median.to_string();
        return if exact.len() < text.len() { exact } else { text };
    }
    let decimals = decimals(median.abs().max(least.abs()).max(most.abs()));
    let [median, least, most] = [median, least, most].map(|it| number(it, decimals));
    let until = if least.starts_with('-') { " to " } else { "–" };
    format!("{median} ({least}{until}{most})")
}

fn bars(chart: &Chart, looks: &[Look], groups: &[String]) -> String {
    let mut svg = Svg::default();
    let mut y = legend(&mut svg, chart, looks, |svg, (x, y), look| {
        svg.bar((x, y - BAR / 2.0), (SAMPLE, BAR), look.pattern, look.colour);
    });
    let texts = finite_values(&chart.series).map(value_text);
    let texts_width = texts.map(|it| text_width(&it, SMALL_LETTERS)).fold(0.0, f64::max);
    let axis = value_axis(&chart.series, (MARGIN, WIDTH - texts_width - MARGIN));
    y = lines(&mut svg, y, "faint small", &chart.x);
    for (at, group) in groups.iter().enumerate() {
        y = lines(&mut svg, y, "ink", group) + 2.0;
        let height = chart.series.iter().map(|_| BAR_WITH_GAP).sum::<f64>();
        for tick in axis.ticks.iter().map(|tick| axis.at(*tick)) {
            svg.line((tick, y), (tick, y + height), "grid");
        }
        for (series, look) in chart.series.iter().zip(looks) {
            one_bar(&mut svg, &axis, y, value_at(series, at), *look);
            y += BAR_WITH_GAP;
        }
        svg.line((axis.at(0.0), y - height), (axis.at(0.0), y), "axis");
        y += GROUP_GAP;
    }
    labels_below(&mut svg, &axis, &axis.ticks, y + 8.0);
    y = lines(&mut svg, y + 14.0, "faint", &chart.y);
    svg.finish(WIDTH, y + 6.0)
}

fn one_bar(svg: &mut Svg, axis: &Axis, y: f64, value: Option<Value>, look: Look) {
    let (upper, middle) = (y + (BAR_WITH_GAP - BAR) / 2.0, y + BAR_WITH_GAP / 2.0);
    let zero = axis.at(0.0);
    let Some(value) = value else {
        svg.text((zero + 5.0, middle + 4.0), "faint small", "no value");
        return;
    };
    let end = axis.at(value.median);
    svg.bar((zero.min(end), upper), ((end - zero).abs(), BAR), look.pattern, look.colour);
    svg.range((axis.at(value.least), middle), (axis.at(value.most), middle));
    svg.text((WIDTH - 2.0, middle + 4.0), "ink small end", &value_text(value));
}

fn curves(chart: &Chart, looks: &[Look], positions: &[f64]) -> String {
    let mut svg = Svg::default();
    let y = legend(&mut svg, chart, looks, |svg, (x, y), look| {
        svg.curve_sample((x, y), (x + SAMPLE, y), look.stroke());
        svg.marker((x + SAMPLE / 2.0, y), look.shape, look.pattern, look.colour);
    });
    let upper = lines(&mut svg, y, "faint", &chart.y) + 8.0;
    let lower = upper + CURVES_HEIGHT;
    let y = value_axis(&chart.series, (lower, upper));
    let names = y.ticks.iter().map(|tick| text_width(&label(*tick), LETTERS));
    let left = names.fold(0.0, f64::max) + 10.0;
    let (x, note) = position_axis(positions, (left, WIDTH - 2.0 * MARGIN));
    for tick in &y.ticks {
        svg.line((left, y.at(*tick)), (WIDTH - 2.0 * MARGIN, y.at(*tick)), "grid");
        svg.text((left - 8.0, y.at(*tick) + 4.5), "faint end", &label(*tick));
    }
    svg.line((left, y.at(0.0)), (WIDTH - 2.0 * MARGIN, y.at(0.0)), "axis");
    svg.line((left, upper), (left, lower), "axis");
    for (series, look) in chart.series.iter().zip(looks) {
        one_curve(&mut svg, (&x, &y), positions, series, *look);
    }
    let labelled = if positions.len() <= LABELLED_MAX { positions } else { &x.ticks };
    labels_below(&mut svg, &x, labelled, lower + 18.0);
    let end = lines(&mut svg, lower + 24.0, "faint", &format!("{}{note}", chart.x));
    svg.finish(WIDTH, end + 6.0)
}

fn one_curve(
    svg: &mut Svg,
    (x, y): (&Axis, &Axis),
    positions: &[f64],
    series: &Series,
    look: Look,
) {
    let values: Vec<Option<(usize, f64, Value)>> = (0..)
        .zip(positions)
        .map(|(at, position)| value_at(series, at).map(|value| (at, x.at(*position), value)))
        .collect();
    let each = positions.len().div_ceil(MARKED_MAX);
    for part in values.split(Option::is_none) {
        let points: Vec<_> = part.iter().flatten().collect();
        let place = |(_, at, value): &&(usize, f64, Value)| (*at, y.at(value.median));
        svg.curve(&points.iter().map(place).collect::<Vec<_>>(), look.stroke());
        for (at, x, value) in &points {
            svg.range((*x, y.at(value.least)), (*x, y.at(value.most)));
            if at.is_multiple_of(each) || points.len() == 1 {
                svg.marker((*x, y.at(value.median)), look.shape, look.pattern, look.colour);
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Look {
    colour: &'static str,
    shape: Shape,
    pattern: Pattern,
    dashes: &'static str,
}

impl Look {
    fn stroke(self) -> Stroke<'static> {
        Stroke { colour: self.colour, dashes: self.dashes }
    }
}

/// Series of one name have one colour, wherever they are from.
fn looks(all: &[Series], names: &[&str]) -> Vec<Look> {
    let look = |series: &Series| {
        let at = names.iter().position(|name| *name == series.name).unwrap_or(names.len());
        let (pattern, dashes) = match series.source {
            Source::Published => (Pattern::Hatched, "2 3"),
            Source::Measured => (Pattern::Solid, ""),
            Source::Simulated => (Pattern::Dashed, "7 4"),
        };
        let (colour, shape) = (COLOURS[at % COLOURS.len()], Shape::ALL[at % Shape::ALL.len()]);
        Look { colour, shape, pattern, dashes }
    };
    all.iter().map(look).collect()
}

/// Names the series above the chart, and returns where it starts.
fn legend(
    svg: &mut Svg,
    chart: &Chart,
    looks: &[Look],
    sample: impl Fn(&mut Svg, Point, Look),
) -> f64 {
    let (mut y, left) = (4.0, SAMPLE + 10.0);
    for (series, look) in chart.series.iter().zip(looks) {
        sample(svg, (2.0, y + LINE / 2.0), *look);
        for line in wrap(&series_name(series), WIDTH - left, LETTERS) {
            y += LINE;
            svg.text((left, y - 4.0), "ink", &line);
        }
    }
    y + 8.0
}

/// Writes wrapped text below `y`, and returns where it ends.
fn lines(svg: &mut Svg, y: f64, class: &str, text: &str) -> f64 {
    wrap(text, WIDTH - 4.0, LETTERS).iter().fold(y, |y, line| {
        svg.text((2.0, y + LINE - 4.0), class, line);
        y + LINE
    })
}

/// Writes as many values below an axis as have room.
fn labels_below(svg: &mut Svg, axis: &Axis, values: &[f64], y: f64) {
    let mut free_from = 0.0;
    for value in values {
        let (at, name) = (axis.at(*value), label(*value));
        let half = text_width(&name, LETTERS) / 2.0;
        if at - half >= free_from && at + half <= WIDTH {
            svg.text((at, y), "faint middle", &name);
            free_from = at + half + 6.0;
        }
    }
}

fn value_axis(series: &[Series], pixels: (f64, f64)) -> Axis {
    let lowest = finite_values(series).map(|it| it.least.min(it.median)).fold(0.0, f64::min);
    let highest = finite_values(series).map(|it| it.most.max(it.median)).fold(0.0, f64::max);
    Axis::between(lowest, highest, pixels)
}

/// An axis of the positions, with a word if it is not linear.
fn position_axis(positions: &[f64], pixels: (f64, f64)) -> (Axis, &'static str) {
    let lowest = positions.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = positions.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let grows = positions.windows(2).all(|pair| pair[1] >= pair[0] * LOGARITHMIC_STEP);
    if grows && lowest > 0.0 && highest > lowest * LOGARITHMIC_RATIO {
        (Axis::over(lowest, highest, pixels), " (logarithmic)")
    } else {
        (Axis::between(lowest, highest, pixels), "")
    }
}

fn finite_values(series: &[Series]) -> impl Iterator<Item = Value> {
    series.iter().flat_map(|series| &series.values).filter_map(|value| finite(*value))
}

fn value_at(series: &Series, at: usize) -> Option<Value> {
    finite(series.values.get(at).copied().flatten())
}

fn finite(value: Option<Value>) -> Option<Value> {
    value.filter(|it| [it.median, it.least, it.most].into_iter().all(f64::is_finite))
}

/// Three significant digits, or all of those before the point.
fn number(value: f64, decimals: usize) -> String {
    let digits = format!("{value:.decimals$}");
    if digits.trim_matches(['-', '0', '.']).is_empty() { "0".to_owned() } else { digits }
}

/// The decimals that make three digits of a value, or show one of a small one.
fn decimals(value: f64) -> usize {
    let smaller = [100.0, 10.0, 1.0, 0.1, 0.01, 0.001, 0.000_1, 0.000_01, 0.000_001];
    smaller.iter().take_while(|it| value.abs() < **it).count()
}

#[cfg(test)]
pub(crate) mod tests;
