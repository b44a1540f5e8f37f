//! Draws the waits of a run by epoch and cause, and held and free memory over time.

use std::collections::BTreeMap;

use tierfeed_core::units::{float, seconds};
use tierfeed_plot::{Axis, COLOURS, DASHES, Fill, Point, Stroke, Svg, label};

use crate::observe::{
    footprint::{Footprint, TimelinePoint},
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

/// Bars that are labelled with their epoch.
const BARS_NAMED_MAX: usize = 20;

/// The share of its slot that a bar fills, and its greatest width in pixels.
const BAR_SHARE: f64 = 0.8;
const BAR_WIDTH_MAX: f64 = 60.0;

/// A budget is drawn as a line if the held memory reaches this share of it; else it is only named.
const DRAWN_SHARE: f64 = 0.25;

/// Causes below this share of the highest bar are left out of the legend.
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
    let y = Axis::from_zero(highest, (LOWER, UPPER));
    frame(&mut svg, &y, "epoch");
    let slot = (RIGHT - LEFT) / count(bars.len().max(1));
    let width = (slot * BAR_SHARE).min(BAR_WIDTH_MAX);
    let named_each = bars.len().div_ceil(BARS_NAMED_MAX).max(1);
    for (at, bar) in bars.iter().enumerate() {
        let middle = LEFT + slot * (count(at) + 0.5);
        if at.is_multiple_of(named_each) {
            svg.text((middle, LOWER + 20.0), "faint middle", &(at * each).to_string());
        }
        let mut below = 0.0;
        for (cause, colour) in causes.iter().zip(COLOURS.iter().cycle()) {
            let part = bar.get(cause).copied().unwrap_or(0.0);
            let (top, bottom) = (y.at(below + part), y.at(below));
            if bottom > top {
                let corner = (middle - width / 2.0, top);
                svg.rectangle(corner, (width, bottom - top), Fill::Colour(colour));
            }
            below += part;
        }
    }
    let total: f64 = bars.iter().flat_map(BTreeMap::values).sum();
    let named = causes.iter().zip(COLOURS.iter().cycle());
    for (at, (cause, colour)) in named.enumerate() {
        let line = legend_line(at);
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

/// Staging and each tier over time, with their budget.
pub(super) fn memory(footprint: &Footprint) -> String {
    let moments = footprint.timeline.points();
    let mut lines: Vec<(&str, Vec<f64>)> = vec![("staging", each(moments, |it| it.staging_bytes))];
    let names: Vec<&str> =
        moments.first().into_iter().flat_map(|it| it.tier_bytes.keys()).copied().collect();
    for name in names {
        lines.push((name, each(moments, |it| it.tier_bytes.get(name).copied().unwrap_or(0))));
    }
    lines.push(("lent", each(moments, |it| it.lent_bytes)));
    over_time(
        "Memory and disk that the job holds, MiB",
        moments,
        &lines,
        mib(footprint.budget_bytes),
    )
}

pub(super) fn free(footprint: &Footprint) -> String {
    let moments = footprint.timeline.points();
    let lines = [("free", each(moments, |it| it.free_bytes))];
    over_time("Memory free on the node, MiB", moments, &lines, 0.0)
}

/// Curves on one scale, with a line for their limit, if there is one.
fn over_time(
    heading: &str,
    moments: &[TimelinePoint],
    lines: &[(&str, Vec<f64>)],
    limit: f64,
) -> String {
    let mut svg = Svg::default();
    let highest = lines.iter().flat_map(|(_, values)| values).copied().fold(0.0, f64::max);
    let is_drawn = limit > 0.0 && highest >= limit * DRAWN_SHARE;
    let end = moments.last().map_or(0.0, |it| seconds(it.time));
    svg.text((LEFT, UPPER - 16.0), "ink heading", heading);
    let y = Axis::from_zero(if is_drawn { highest.max(limit) } else { highest }, (LOWER, UPPER));
    let x = axis(end);
    frame(&mut svg, &y, "seconds since the agent started");
    for tick in &x.ticks {
        svg.text((x.at(*tick), LOWER + 20.0), "faint middle", &label(*tick));
    }
    let strokes = COLOURS.iter().cycle().zip(DASHES.iter().cycle());
    for ((at, (name, values)), (colour, dashes)) in lines.iter().enumerate().zip(strokes) {
        let stroke = Stroke { colour, dashes };
        let points: Vec<Point> = moments
            .iter()
            .zip(values)
            .map(|(moment, value)| (x.at(seconds(moment.time)), y.at(*value)))
            .collect();
        svg.curve(&points, stroke);
        let line = legend_line(at);
        svg.curve_sample((LEGEND, line - 4.0), (LEGEND + 24.0, line - 4.0), stroke);
        svg.text((LEGEND + 32.0, line), "ink", name);
    }
    if limit > 0.0 {
        let line = legend_line(lines.len());
        if is_drawn {
            svg.line((LEFT, y.at(limit)), (RIGHT, y.at(limit)), "limit");
            svg.line((LEGEND, line - 4.0), (LEGEND + 24.0, line - 4.0), "limit");
        }
        svg.text(
            (LEGEND + 32.0, line),
            "ink",
            &format!("budget of memory: {}", label(limit.round())),
        );
    }
    svg.finish(WIDTH, HEIGHT)
}

fn legend_line(at: usize) -> f64 {
    UPPER + 10.0 + 20.0 * count(at)
}

fn mib(bytes: u64) -> f64 {
    float(bytes) / f64::from(1 << 20)
}

fn each(moments: &[TimelinePoint], of: impl Fn(&TimelinePoint) -> u64) -> Vec<f64> {
    moments.iter().map(|moment| mib(of(moment))).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a picture needs no more than 53 bits")]
fn count(number: usize) -> f64 {
    number as f64
}

fn axis(end: f64) -> Axis {
    Axis::from_zero(end, (LEFT, RIGHT))
}

fn frame(svg: &mut Svg, y: &Axis, below: &str) {
    for tick in &y.ticks {
        svg.line((LEFT, y.at(*tick)), (RIGHT, y.at(*tick)), "grid");
        svg.text((LEFT - 10.0, y.at(*tick) + 4.5), "faint end", &label(*tick));
    }
    svg.line((LEFT, LOWER), (RIGHT, LOWER), "axis");
    svg.line((LEFT, UPPER), (LEFT, LOWER), "axis");
    svg.text((f64::midpoint(LEFT, RIGHT), LOWER + 42.0), "ink middle", below);
}

#[cfg(test)]
mod tests {
    use tierfeed_core::{
        budget::{Free, Pool, Reading},
        units::{Bytes, Nanoseconds},
    };
    use tierfeed_prefetcher::plane::Usage;

    use super::*;
    use crate::observe::footprint::MemoryState;

    /// Of a node with 24,000 MiB free.
    fn footprint(held: Bytes, budget: Bytes) -> Footprint {
        let free = Free { bytes: Bytes::mib(24_000), kept: Bytes(0) };
        let reading = Reading {
            now: Nanoseconds(1_000_000_000),
            waited: None,
            free: [(Pool(0), free)].into(),
            tiers: Vec::new(),
            staging: Bytes(0),
        };
        let usage = Usage { arenas: held, tiers: Vec::new() };
        let state = MemoryState { batches: 4, waiting: None, lent: Bytes(0) };
        let mut footprint = Footprint { budget_bytes: budget.0, ..Footprint::default() };
        footprint.timeline.note(&reading, &usage, state, &[]);
        footprint
    }

    #[test]
    fn what_is_free_is_on_another_scale_than_what_is_held() {
        let footprint = footprint(Bytes::mib(10), Bytes::mib(34));
        let (held, free) = (memory(&footprint), free(&footprint));
        assert!(held.contains(">staging<") && !held.contains(">free<"), "{held}");
        assert!(free.contains(">free<") && !free.contains(">staging<"), "{free}");
        assert!(!held.contains("000<"), "10 MiB need no thousands: {held}");
    }

    #[test]
    fn a_budget_far_above_what_is_held_is_named_and_not_drawn() {
        let drawn = memory(&footprint(Bytes::mib(10), Bytes::mib(34)));
        assert!(drawn.contains("\"limit\"") && drawn.contains("budget of memory: 34<"), "{drawn}");
        let named = memory(&footprint(Bytes::mib(10), Bytes::mib(2000)));
        assert!(!named.contains("\"limit\"") && named.contains("budget of memory: 2"), "{named}");
    }
}
