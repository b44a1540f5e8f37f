//! The picture as a tree of elements, on reports made by hand.

use roxmltree::{Document, Node};

use crate::report::{Report, plot, tests_support::full};

fn check(report: &Report, claim: impl Fn(&Document<'_>)) {
    let svg = plot(report);
    claim(&Document::parse(&svg).unwrap_or_else(|error| panic!("{error}:\n{svg}")));
}

fn all<'a>(document: &'a Document<'_>, name: &'static str) -> Vec<Node<'a, 'a>> {
    document.descendants().filter(|node| node.has_tag_name(name)).collect()
}

fn texts<'a>(document: &'a Document<'_>) -> Vec<&'a str> {
    all(document, "text").iter().filter_map(Node::text).collect()
}

#[test]
fn there_is_one_line_for_each_curve_and_a_ring_for_each_knee() {
    let mut report = full();
    let curves = report.pairs.iter().map(|pair| pair.loaded_latency.len()).sum::<usize>();
    let legend = 1;
    check(&report, |document| {
        assert_eq!(all(document, "polyline").len(), curves);
        assert_eq!(all(document, "circle").len(), curves + legend);
    });
    report.pairs[0].loaded_latency[0].knee_bytes_per_s = None;
    check(&report, |document| assert_eq!(all(document, "circle").len(), curves));
}

#[test]
fn a_curve_has_all_its_points_and_rises_from_left_to_right() {
    check(&full(), |document| {
        let points = all(document, "polyline")[0].attribute("points").unwrap();
        let points: Vec<(f64, f64)> = points
            .split(' ')
            .map(|point| point.split_once(',').unwrap())
            .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
            .collect();
        assert_eq!(points.len(), full().pairs[0].loaded_latency[0].points.len());
        assert!(points.windows(2).all(|it| it[0].0 < it[1].0 && it[0].1 >= it[1].1), "{points:?}");
    });
}

#[test]
fn the_heat_map_has_a_cell_with_a_number_for_each_pair() {
    check(&full(), |document| {
        let background = 1;
        assert_eq!(all(document, "rect").len(), 3 * 3 + background);
        let texts = texts(document);
        assert_eq!(texts.iter().filter(|text| **text == "364").count(), 1);
        assert_eq!(texts.iter().filter(|text| **text == "-").count(), 3, "node 2 has no CPUs");
    });
}

#[test]
fn axes_have_units_and_ticks() {
    check(&full(), |document| {
        let texts = texts(document);
        for text in ["traffic, GB/s", "idle or loaded latency, ns", "0", "100"] {
            assert!(texts.contains(&text), "{text} is not in {texts:?}");
        }
    });
}

#[test]
fn what_is_emulated_or_contended_is_said() {
    let mut report = full();
    report.pairs[1].loaded_latency[0].points[3].latency_ns.contended = true;
    check(&report, |document| {
        let texts = texts(document);
        assert!(texts.contains(&"emulated, so not drawn: cxl-memory-2"), "{texts:?}");
        assert!(texts.contains(&"contended while it was measured: storage"), "{texts:?}");
        assert!(texts.contains(&"0 to 1, read, contended"), "{texts:?}");
    });
}

#[test]
fn names_that_look_like_markup_stay_text() {
    let mut report = full();
    report.host = "</svg>&\"<script>\u{1}".to_owned();
    check(&report, |document| {
        assert!(texts(document).contains(&"Memory of </svg>&\"<script>\u{fffd}"));
        assert!(all(document, "script").is_empty());
    });
}

#[test]
fn a_report_without_curves_says_so() {
    let mut report = full();
    report.pairs.clear();
    report.numa.latency_ns = vec![vec![None; 3]; 3];
    check(&report, |document| {
        assert!(all(document, "polyline").is_empty());
        assert!(texts(document).contains(&"not measured; a full probe measures it"));
        assert!(texts(document).contains(&"not measured"));
    });
}

#[test]
fn a_single_node_is_a_single_cell() {
    let mut report = full();
    report.numa.nodes.truncate(1);
    report.numa.latency_ns = vec![vec![Some(101.0)]];
    check(&report, |document| assert!(texts(document).contains(&"101")));
}
