//! Tests of the charts.

use std::collections::BTreeMap;

use super::*;

/// An element of a page, with the text that stands directly in it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) text: String,
}

/// All elements in the order in which they start; panics if the markup is not well-formed.
pub(crate) fn elements(markup: &str) -> Vec<Element> {
    let (mut all, mut open): (Vec<Element>, Vec<usize>) = (Vec::new(), Vec::new());
    let parts = markup.strip_prefix("<!DOCTYPE html>").unwrap_or(markup).split('<');
    for part in parts.filter(|part| !part.trim().is_empty()) {
        let (tag, text) = part.split_once('>').unwrap_or_else(|| panic!("no tag: {part}"));
        if let Some(name) = tag.strip_prefix('/') {
            let at = open.pop().unwrap_or_else(|| panic!("{name} ends without a start"));
            assert_eq!(all[at].name, name, "{all:#?}");
        } else {
            let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
            let name = name.trim_end_matches('/').to_owned();
            let attributes = read_attributes(attributes.trim_end_matches('/'));
            all.push(Element { name, attributes, text: String::new() });
            if !tag.ends_with('/') {
                open.push(all.len() - 1);
            }
        }
        match open.last() {
            Some(at) => all[*at].text.push_str(&unescape(text.trim_end_matches('\n'))),
            None => assert_eq!(text.trim(), "", "text outside of all elements"),
        }
    }
    assert!(open.is_empty(), "elements do not end: {open:?}");
    all
}

fn read_attributes(text: &str) -> BTreeMap<String, String> {
    let mut attributes = BTreeMap::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (key, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("no value: {text}"));
        assert!(key.chars().all(|it| it.is_ascii_alphanumeric() || it == '-'), "{text}");
        let (value, after) = after.split_once('"').unwrap_or_else(|| panic!("no end: {text}"));
        let twice = attributes.insert(key.to_owned(), unescape(value));
        assert_eq!(twice, None, "{key} is there twice: {text}");
        rest = after.trim();
    }
    attributes
}

fn unescape(text: &str) -> String {
    let mut parts = text.split('&');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (name, rest) = part.split_once(';').unwrap_or_else(|| panic!("a bare &: {part}"));
        let letter = match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            other => panic!("an unknown entity: {other}"),
        };
        format!("{text}{letter}{rest}")
    })
}

#[expect(clippy::unnecessary_wraps, reason = "values of a series may be missing")]
pub(crate) fn value(median: f64, least: f64, most: f64) -> Option<Value> {
    Some(Value { median, least, most })
}

pub(crate) fn groups(names: &[&str]) -> Along {
    Along::Groups(names.iter().map(|name| (*name).to_owned()).collect())
}

pub(crate) fn series(name: &str, source: Source, values: &[Option<Value>]) -> Series {
    Series { name: name.to_owned(), source, values: values.to_vec() }
}

pub(crate) fn measured(name: &str, values: &[Option<Value>]) -> Series {
    series(name, Source::Measured, values)
}

pub(crate) fn chart(along: Along, series: Vec<Series>) -> Chart {
    let (x, y) = ("environment".to_owned(), "time of an epoch, s".to_owned());
    Chart { title: String::new(), x, y, along, series }
}

fn drawn(chart: &Chart) -> Vec<Element> {
    elements(&draw(std::slice::from_ref(chart)).concat())
}

fn exactly(values: &[f64]) -> Vec<Option<Value>> {
    values.iter().map(|it| Some(Value::exactly(*it))).collect()
}

fn attribute(element: &Element, key: &str) -> f64 {
    element.attributes[key].parse().expect("a number")
}

fn has_class(element: &Element, class: &str) -> bool {
    element.attributes.get("class").is_some_and(|it| it.split(' ').any(|it| it == class))
}

fn bars_of(drawing: &[Element], legend: usize) -> Vec<&Element> {
    let bars = drawing.iter().filter(|it| it.name == "rect" && has_class(it, "bar"));
    bars.skip(legend).collect()
}

/// The pixel of a value on an axis, by two of its labels.
fn pixel(drawing: &[Element], axis: &str, labels: [&str; 2], value: f64) -> f64 {
    let place = |label: &str| {
        let is_label = |it: &&Element| it.text == label && has_class(it, "faint");
        attribute(drawing.iter().find(is_label).expect("the label of a tick"), axis)
    };
    let [from, to] = labels.map(|it| it.parse::<f64>().expect("a number"));
    let (first, second) = (place(labels[0]), place(labels[1]));
    first + (value - from) / (to - from) * (second - first)
}

fn assert_close(one: f64, other: f64) {
    assert!((one - other).abs() <= 0.2, "{one} is not {other}");
}

#[test]
fn bars_start_at_zero_and_end_at_their_values_and_ranges_at_theirs() {
    let values = [value(10.0, 9.0, 19.0), value(20.0, 20.0, 20.0)];
    let drawing = drawn(&chart(groups(&["a", "b"]), vec![measured("tierfeed", &values)]));
    let at = |value| pixel(&drawing, "x", ["0", "20"], value);
    let bars = bars_of(&drawing, 1);
    assert_eq!(bars.len(), 2);
    for (bar, value) in bars.into_iter().zip([10.0, 20.0]) {
        assert_close(attribute(bar, "x"), at(0.0));
        assert_close(attribute(bar, "x") + attribute(bar, "width"), at(value));
    }
    let ranges: Vec<_> = drawing.iter().filter(|it| has_class(it, "range")).collect();
    assert_eq!(ranges.len(), 1, "one value has no range");
    let ends = ranges[0].attributes["d"].split(['M', 'L', ' ']).filter(|it| !it.is_empty());
    let ends: Vec<f64> = ends.map(|it| it.parse().expect("a number")).collect();
    assert_close(ends[0], at(9.0));
    assert_close(ends[2], at(19.0));
}

#[test]
fn bars_of_less_than_zero_end_at_zero() {
    let values = exactly(&[-30.0, 10.0]);
    let drawing = drawn(&chart(groups(&["a", "b"]), vec![measured("tierfeed", &values)]));
    let at = |value| pixel(&drawing, "x", ["-20", "10"], value);
    let bars = bars_of(&drawing, 1);
    assert_close(attribute(bars[0], "x"), at(-30.0));
    assert_close(attribute(bars[0], "x") + attribute(bars[0], "width"), at(0.0));
    assert_close(attribute(bars[1], "x"), at(0.0));
}

#[test]
fn curves_go_through_their_values_on_an_axis_from_zero_and_end_where_one_is_missing() {
    let mut values = exactly(&[90.0, 95.0, 0.0, 100.0, 98.0]);
    values[1] = value(95.0, 80.0, 100.0);
    values[2] = None;
    let positions = Along::Positions(vec![1.0, 2.0, 3.0, 4.0, 5.0]);
    let drawing = drawn(&chart(positions, vec![measured("tierfeed", &values)]));
    let x = |value| pixel(&drawing, "x", ["1", "5"], value);
    let y = |value| pixel(&drawing, "y", ["0", "100"], value) - 4.5;
    let curves = drawing.iter().filter(|it| it.name == "polyline");
    let points: Vec<Vec<Point>> = curves
        .map(|it| {
            let points = it.attributes["points"].split(' ').filter_map(|it| it.split_once(','));
            points.map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap())).collect()
        })
        .collect();
    assert_eq!(points.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2], "{points:?}");
    let expected = [(1.0, 90.0), (2.0, 95.0), (4.0, 100.0), (5.0, 98.0)];
    for (point, (position, value)) in points.iter().flatten().zip(expected) {
        assert_close(point.0, x(position));
        assert_close(point.1, y(value));
    }
    let range = drawing.iter().find(|it| has_class(it, "range")).expect("a range");
    let ends = range.attributes["d"].split(['M', 'L', ' ']).filter(|it| !it.is_empty());
    let ends: Vec<f64> = ends.map(|it| it.parse().expect("a number")).collect();
    assert_close(ends[1], y(80.0));
    assert_close(ends[3], y(100.0));
}

#[test]
fn positions_that_multiply_are_on_a_logarithmic_axis_that_says_so() {
    let curve = |positions: &[f64]| {
        let values = exactly(&vec![1.0; positions.len()]);
        drawn(&chart(Along::Positions(positions.to_vec()), vec![measured("a", &values)]))
    };
    let says = |drawing: &[Element]| drawing.iter().any(|it| it.text.contains("logarithmic"));
    assert!(says(&curve(&[1.0, 2.0, 4.0, 8.0, 16.0])));
    assert!(!says(&curve(&[1.0, 4.0, 7.0, 10.0])));
    assert!(!says(&curve(&[0.0, 2.0, 20.0])));
}

#[test]
fn every_point_has_its_range_and_not_every_one_its_marker() {
    let positions: Vec<f64> = (1..=100).map(f64::from).collect();
    let mut values = vec![value(5.0, 4.0, 6.0); 100];
    values[50] = None;
    values[52] = None;
    let drawing = drawn(&chart(Along::Positions(positions), vec![measured("a", &values)]));
    assert_eq!(drawing.iter().filter(|it| has_class(it, "range")).count(), 98);
    let markers: Vec<_> = drawing.iter().filter(|it| it.name == "circle").collect();
    assert!(markers.len() < 20, "{}", markers.len());
    let alone = drawing.iter().filter(|it| it.name == "polyline").nth(1).expect("a curve");
    let (x, _) = alone.attributes["points"].split_once(',').expect("a point");
    assert!(markers.iter().any(|it| it.attributes["cx"] == x), "a point alone is marked");
}

#[test]
fn where_values_are_from_shows_without_colour() {
    let one = exactly(&[10.0]);
    let sources = [Source::Published, Source::Measured, Source::Simulated];
    let all: Vec<_> = sources.map(|source| series("tf.data", source, &one)).into();
    for along in [groups(&["a"]), Along::Positions(vec![1.0])] {
        let drawing = drawn(&chart(along, all.clone()));
        let is_mark =
            |it: &&Element| (it.name == "rect" && has_class(it, "bar")) || it.name == "polyline";
        let marks: Vec<_> = drawing.iter().filter(is_mark).collect();
        let look = |it: &Element| {
            let get = |key: &str| it.attributes.get(key).cloned().unwrap_or_default();
            (get("class"), get("stroke-dasharray"))
        };
        let looks: std::collections::BTreeSet<_> = marks.iter().map(|it| look(it)).collect();
        assert_eq!(looks.len(), 3, "{looks:?}");
        let colours: std::collections::BTreeSet<_> =
            marks.iter().map(|it| &it.attributes["stroke"]).collect();
        assert_eq!(colours.len(), 1, "one name is of one colour");
    }
}

#[test]
fn a_name_has_one_colour_in_all_charts_of_a_figure() {
    let one = exactly(&[10.0]);
    let first = chart(groups(&["a"]), vec![measured("tf.data", &one), measured("own", &one)]);
    let second = chart(groups(&["a"]), vec![measured("own", &one)]);
    let drawings = draw(&[first, second]);
    let colour = |drawing: &str, series: usize| {
        let bars = elements(drawing).into_iter().filter(|it| has_class(it, "bar"));
        bars.map(|it| it.attributes["fill"].clone()).nth(series).expect("a sample")
    };
    assert_eq!(colour(&drawings[0], 1), colour(&drawings[1], 0));
    assert_ne!(colour(&drawings[0], 0), colour(&drawings[1], 0));
}

#[test]
fn no_text_is_cut_and_none_lies_on_another() {
    let long = "constrained memory and a RAM disk in CXL memory, with all of the dataset";
    let word = "a_name_without_a_space_that_is_longer_than_the_picture_is_wide_by_some";
    let values = [value(1_234_567.0, 1_200_000.0, 1_300_000.0), value(0.001, -5.0, 9.0), None];
    let all = vec![
        series(long, Source::Published, &values),
        series(word, Source::Simulated, &values),
        measured("WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW", &values),
    ];
    for along in [groups(&[long, word, "c"]), Along::Positions(vec![0.001, 5.0, 1e7])] {
        let mut chart = chart(along, all.clone());
        (chart.x, chart.y) = (long.to_owned(), word.to_owned());
        let drawing = drawn(&chart);
        let height = attribute(&drawing[0], "height");
        let boxes: Vec<_> = drawing.iter().filter(|it| it.name == "text").map(extent).collect();
        assert!(boxes.len() > 10, "{boxes:?}");
        for bar in bars_of(&drawing, all.len()) {
            let (end, upper) = (attribute(bar, "x") + attribute(bar, "width"), attribute(bar, "y"));
            let lies_on = boxes.iter().find(|(_, (left, top), (right, bottom))| {
                (*top..=*bottom).contains(&(upper + BAR / 2.0)) && *left < end && *right > end
            });
            assert_eq!(lies_on, None, "a bar ends in a text");
        }
        for (at, (text, (x, y), (right, bottom))) in boxes.iter().enumerate() {
            assert!(*x >= 0.0 && *right <= WIDTH && *y >= 0.0 && *bottom <= height, "{text}");
            for (other, (left, top), (end, lowest)) in &boxes[..at] {
                let is_apart = right <= left || end <= x || bottom <= top || lowest <= y;
                assert!(is_apart, "{text:?} lies on {other:?}");
            }
        }
    }
}

/// The letters of a text, with its upper left and lower right corner.
fn extent(text: &Element) -> (&str, Point, Point) {
    let size = if has_class(text, "small") { SMALL_LETTERS } else { LETTERS };
    let (x, y) = (attribute(text, "x"), attribute(text, "y"));
    let width = text_width(&text.text, size);
    let left = match text {
        text if has_class(text, "end") => x - width,
        text if has_class(text, "middle") => x - width / 2.0,
        _ => x,
    };
    (&text.text, (left, y - size * 0.75), (left + width, y + size * 0.2))
}

#[test]
fn what_is_missing_keeps_its_place_and_says_so() {
    let values = [None, value(f64::NAN, 1.0, 2.0)];
    let all = vec![measured("a", &values), measured("b", &exactly(&[3.0]))];
    let drawing = drawn(&chart(groups(&["x", "y"]), all));
    assert_eq!(bars_of(&drawing, 2).len(), 1);
    assert_eq!(drawing.iter().filter(|it| it.text == "no value").count(), 3);
}

#[test]
fn groups_and_series_without_any_value_are_left_out() {
    let empty = || measured("empty", &[None; 3]);
    let one = value(1.0, 1.0, 1.0);
    let all = vec![measured("a", &[one, None, None]), empty(), measured("b", &[one, None, one])];
    let filled = chart(groups(&["x", "y", "z"]), all).filled().expect("two series have values");
    let Along::Groups(names) = &filled.along else { panic!("{filled:?}") };
    assert_eq!(names, &["x", "z"]);
    let values = filled.series.iter().map(|it| (it.name.as_str(), it.values.clone()));
    assert_eq!(values.collect::<Vec<_>>(), [("a", vec![one, None]), ("b", vec![one; 2])]);
    assert!(chart(groups(&["x", "y", "z"]), vec![empty()]).filled().is_none());
    assert!(chart(Along::Positions(vec![1.0, 2.0, 3.0]), vec![empty()]).filled().is_none());
}

#[test]
fn values_have_three_digits_and_ranges_as_many() {
    let text = |median, least, most| value_text(Value { median, least, most });
    assert_eq!(text(12.34, 11.96, 13.0), "12.3 (12.0–13.0)");
    assert_eq!(text(101.4, 99.5, 102.6), "101 (100–103)");
    assert_eq!(text(-41.23, -48.0, -35.0), "-41.2 (-48.0 to -35.0)");
    assert_eq!(text(0.0, 0.0, 0.0), "0");
    let exactly = |it| value_text(Value::exactly(it));
    assert_eq!([98.0, 1.5, 0.1 + 0.2, 1_234_567.0].map(exactly), ["98", "1.5", "0.300", "1234567"]);
    assert_eq!(exactly(0.000_012_345), "0.0000123");
}
