//! Draws what a run waited for, epoch by epoch, and the memory that it held.

use std::collections::BTreeMap;

use tierfeed_plot::{Axis, COLOURS, DASHES, Fill, Point, Stroke, Svg, label};

use crate::{
    footprint::{Footprint, Moment},
    report::EpochEntry,
};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 720.0;
const UPPER: f64 = 40.0;
const LOWER: f64 = 270.0;
const HEIGHT: f64 = 320.0;
const LEGEND: f64 = RIGHT + 24.0;

/// Bars that are drawn; more epochs share one.
const BARS_MAX: usize = 80;

/// Shorter waits than this share of the longest sum make no legend.
const NAMED_SHARE: f64 = 0.001;

/// The time that trainers waited by cause, one bar for each epoch or for several.
pub(super) fn waits(epochs: &[EpochEntry]) -> String {
    let mut svg = Svg::default();
    let each = epochs.len().div_ceil(BARS_MAX).max(1);
    let bars: Vec<BTreeMap<&str, f64>> = epochs.chunks(each).map(summed).collect();
    let highest = bars.iter().map(|bar| bar.values().sum::<f64>()).fold(0.0, f64::max);
    let causes = longest_first(&bars);
    let heading = match each {
        1 => "Waited in each epoch, s".to_owned(),
        each => format!("Waited in each {each} epochs, s"),
    };
    svg.text((LEFT, UPPER - 16.0), "ink heading", &heading);
    let (x, y) = (axis(count(epochs.len())), Axis::from_zero(highest, (LOWER, UPPER)));
    axes(&mut svg, &x, &y, "epoch");
    let width = (x.at(count(each)) - x.at(0.0)).max(1.0);
    for (at, bar) in bars.iter().enumerate() {
        let left = x.at(count(at * each));
        let mut below = 0.0;
        for (cause, colour) in causes.iter().zip(COLOURS.iter().cycle()) {
            let part = bar.get(cause).copied().unwrap_or(0.0);
            let (top, bottom) = (y.at(below + part), y.at(below));
            if bottom > top {
                let size = ((width - 1.0).max(0.5), bottom - top);
                svg.rectangle((left, top), size, Fill::Colour(colour));
            }
            below += part;
        }
    }
    let total: f64 = bars.iter().flat_map(BTreeMap::values).sum();
    let named = causes.iter().zip(COLOURS.iter().cycle());
    for (at, (cause, colour)) in named.enumerate() {
        let line = UPPER + 10.0 + 20.0 * count(at);
        let part: f64 = bars.iter().filter_map(|bar| bar.get(cause)).sum();
        svg.rectangle((LEGEND, line - 10.0), (12.0, 12.0), Fill::Colour(colour));
        let share = 100.0 * part / total.max(f64::MIN_POSITIVE);
        svg.text((LEGEND + 20.0, line), "ink", &format!("{cause} {share:.1} %"));
    }
    svg.finish(WIDTH, HEIGHT)
}

fn summed(epochs: &[EpochEntry]) -> BTreeMap<&'static str, f64> {
    let mut sum = BTreeMap::new();
    for (cause, part) in epochs.iter().flat_map(|epoch| &epoch.stall_for_s) {
        *sum.entry(*cause).or_default() += part;
    }
    sum
}

/// The causes that can be seen, the longest first.
fn longest_first<'a>(bars: &[BTreeMap<&'a str, f64>]) -> Vec<&'a str> {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for (cause, part) in bars.iter().flatten() {
        *sums.entry(*cause).or_default() += part;
    }
    let most = sums.values().copied().fold(0.0, f64::max);
    let mut causes: Vec<_> =
        sums.into_iter().filter(|(_, sum)| *sum > most * NAMED_SHARE).collect();
    causes.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    causes.into_iter().map(|(cause, _)| cause).collect()
}

/// What staging and each tier held over the time, and what was free.
pub(super) fn memory(footprint: &Footprint) -> String {
    let moments = footprint.timeline.moments();
    let mut svg = Svg::default();
    let mut lines: Vec<(&str, Vec<f64>)> = vec![("staging", each(moments, |it| it.staging_bytes))];
    let names: Vec<&str> =
        moments.first().into_iter().flat_map(|it| it.tier_bytes.keys()).copied().collect();
    for name in names {
        lines.push((name, each(moments, |it| it.tier_bytes.get(name).copied().unwrap_or(0))));
    }
    lines.push(("lent", each(moments, |it| it.lent_bytes)));
    lines.push(("free on the node", each(moments, |it| it.free_bytes)));
    let highest = lines.iter().flat_map(|(_, values)| values).copied().fold(0.0, f64::max);
    let end = moments.last().map_or(0.0, seconds);
    svg.text((LEFT, UPPER - 16.0), "ink heading", "Memory, MiB");
    let (x, y) = (axis(end), Axis::from_zero(highest, (LOWER, UPPER)));
    axes(&mut svg, &x, &y, "seconds since the agent started");
    let strokes = COLOURS.iter().cycle().zip(DASHES.iter().cycle());
    for ((at, (name, values)), (colour, dashes)) in lines.iter().enumerate().zip(strokes) {
        let stroke = Stroke { colour, dashes };
        let points: Vec<Point> = moments
            .iter()
            .zip(values)
            .map(|(moment, value)| (x.at(seconds(moment)), y.at(*value)))
            .collect();
        svg.curve(&points, stroke);
        let line = UPPER + 10.0 + 20.0 * count(at);
        svg.curve_sample((LEGEND, line - 4.0), (LEGEND + 24.0, line - 4.0), stroke);
        svg.text((LEGEND + 32.0, line), "ink", name);
    }
    svg.finish(WIDTH, HEIGHT)
}

#[expect(clippy::cast_precision_loss, reason = "a picture needs no more than 53 bits")]
fn each(moments: &[Moment], of: impl Fn(&Moment) -> u64) -> Vec<f64> {
    moments.iter().map(|moment| of(moment) as f64 / f64::from(1 << 20)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a picture needs no more than 53 bits")]
fn seconds(moment: &Moment) -> f64 {
    moment.time.0 as f64 / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "a picture needs no more than 53 bits")]
fn count(number: usize) -> f64 {
    number as f64
}

fn axis(end: f64) -> Axis {
    Axis::from_zero(end, (LEFT, RIGHT))
}

fn axes(svg: &mut Svg, x: &Axis, y: &Axis, below: &str) {
    for tick in &x.ticks {
        svg.text((x.at(*tick), LOWER + 20.0), "faint middle", &label(*tick));
    }
    for tick in &y.ticks {
        svg.line((LEFT, y.at(*tick)), (RIGHT, y.at(*tick)), "grid");
        svg.text((LEFT - 10.0, y.at(*tick) + 4.5), "faint end", &label(*tick));
    }
    svg.line((LEFT, LOWER), (RIGHT, LOWER), "axis");
    svg.line((LEFT, UPPER), (LEFT, LOWER), "axis");
    svg.text((f64::midpoint(LEFT, RIGHT), LOWER + 42.0), "ink middle", below);
}
