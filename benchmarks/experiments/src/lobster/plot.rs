//! Plots the share of ready samples over the bandwidth of the cold store.

use tierfeed_plot::{Axis, COLOURS, DASHES, Point, Stroke, Svg, label};

use super::{Outcome, PUBLISHED, Row, by_policy};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 560.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 720.0;
const UPPER: f64 = 80.0;
const LOWER: f64 = 500.0;

/// One curve for each policy, a dotted line for each published figure and one for the bound.
#[must_use]
pub fn plot(outcome: &Outcome) -> String {
    let mut svg = Svg::default();
    let x = Axis::from_zero(1.0, (LEFT, RIGHT));
    let y = Axis::from_zero(1.0, (LOWER, UPPER));
    svg.text((LEFT, 34.0), "ink title", "Samples there when needed");
    let setting = format!(
        "One node, 8 ranks, ImageNet-1K sizes divided by {}, a cache of 40 of 135 GB",
        outcome.scale
    );
    svg.text((LEFT, 56.0), "faint", &setting);
    axes(&mut svg, &x, &y);
    for (system, hits) in PUBLISHED {
        let at = y.at(hits);
        svg.line((LEFT, at), (RIGHT, at), "limit");
        svg.text((RIGHT - 6.0, at - 5.0), "faint small end", &format!("{system}, published"));
    }
    curves(&mut svg, outcome, &x, &y);
    svg.finish(WIDTH, HEIGHT)
}

fn axes(svg: &mut Svg, x: &Axis, y: &Axis) {
    for tick in &x.ticks {
        let at = x.at(*tick);
        svg.line((at, UPPER), (at, LOWER), "grid");
        svg.text((at, LOWER + 20.0), "faint middle", &label(*tick));
    }
    for tick in &y.ticks {
        let at = y.at(*tick);
        svg.line((LEFT, at), (RIGHT, at), "grid");
        svg.text((LEFT - 10.0, at + 4.5), "faint end", &label(*tick));
    }
    svg.line((LEFT, LOWER), (RIGHT, LOWER), "axis");
    svg.line((LEFT, UPPER), (LEFT, LOWER), "axis");
    let middle = f64::midpoint(LEFT, RIGHT);
    svg.text((middle, LOWER + 42.0), "ink middle", "cold bandwidth, of what the job needs");
}

fn curves(svg: &mut Svg, outcome: &Outcome, x: &Axis, y: &Axis) {
    let bound = |row: &Row| (x.at(row.bandwidth), y.at(row.bound));
    let bounds: Vec<Point> = by_policy(outcome).next().into_iter().flatten().map(bound).collect();
    for ends in bounds.windows(2) {
        svg.line(ends[0], ends[1], "limit");
    }
    let strokes = DASHES.iter().flat_map(|dashes| COLOURS.map(|colour| Stroke { colour, dashes }));
    let mut legend = UPPER;
    for (rows, stroke) in by_policy(outcome).zip(strokes) {
        let place = |row: &Row| (x.at(row.bandwidth), y.at(row.ready));
        svg.curve(&rows.iter().map(place).collect::<Vec<Point>>(), stroke);
        svg.curve_sample((RIGHT + 8.0, legend), (RIGHT + 38.0, legend), stroke);
        let policy = rows.first().map_or("", |row| row.policy);
        svg.text((RIGHT + 48.0, legend + 4.5), "ink small", policy);
        legend += 17.0;
    }
}
