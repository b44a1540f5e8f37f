//! The picture as a tree of elements.

use std::collections::BTreeSet;

use roxmltree::{Document, Node};

use super::*;

fn picture(job: &str, samples: u32, notes: &[String]) -> String {
    let runs = [policy::Kind::Gap, policy::Kind::Fifo, policy::Kind::None]
        .map(|policy| followed(&settings(samples, 1, 10), policy));
    let drawn = runs.each_ref().map(|(prediction, curve)| PlottedPolicy { prediction, curve });
    plot(job, notes, &drawn)
}

fn check(svg: &str, claim: impl Fn(&Document<'_>)) {
    claim(&Document::parse(svg).unwrap_or_else(|error| panic!("{error}:\n{svg}")));
}

fn all<'a>(document: &'a Document<'_>, name: &'static str) -> Vec<Node<'a, 'a>> {
    document.descendants().filter(|node| node.has_tag_name(name)).collect()
}

fn texts<'a>(document: &'a Document<'_>) -> Vec<&'a str> {
    all(document, "text").iter().filter_map(Node::text).collect()
}

fn points(line: &Node<'_, '_>) -> Vec<(f64, f64)> {
    let points = line.attribute("points").unwrap().split(' ');
    let point = |it: (&str, &str)| (it.0.parse().unwrap(), it.1.parse().unwrap());
    points.map(|it| point(it.split_once(',').unwrap())).collect()
}

#[test]
fn there_is_a_line_for_each_policy_in_each_panel() {
    check(&picture("job", 500, &[]), |document| {
        let lines = all(document, "polyline");
        assert_eq!(lines.len(), 2 * 3);
        for line in &lines {
            let points = points(line);
            assert_eq!(points.len(), 2 * 3 * 32, "each of 96 steps is a level");
            assert!(points.windows(2).all(|it| it[0].0 <= it[1].0), "steps go to the right");
        }
        let texts = texts(document);
        for name in ["gap", "fifo", "none", "least possible"] {
            assert_eq!(texts.iter().filter(|text| **text == name).count(), 1, "{name}");
        }
    });
}

/// `none` reads everything cold; `gap` keeps 160 of 500, all at one height.
#[test]
fn more_cold_bytes_are_drawn_higher() {
    check(&picture("job", 500, &[]), |document| {
        let lines = all(document, "polyline");
        let heights = |line: usize| {
            let points = points(&lines[line]);
            let later = points.iter().skip(2 * 32).map(|point| point.1);
            later.clone().sum::<f64>() / f64::from(u32::try_from(later.count()).unwrap())
        };
        assert!(heights(0) > heights(1) && heights(1) > heights(2), "down is less");
    });
}

#[test]
fn axes_have_units_and_epochs_are_named() {
    check(&picture("job", 500, &[]), |document| {
        let texts = texts(document);
        for text in ["MB in each step", "ms in each step", "step of the run", "epoch 2", "0"] {
            assert!(texts.contains(&text), "{text} is not in {texts:?}");
        }
        assert!(texts.contains(&"96 steps, each drawn"), "{texts:?}");
    });
}

#[test]
fn a_long_run_is_drawn_as_means() {
    check(&picture("job", 5_000, &[]), |document| {
        let columns = usize::try_from(curve::COLUMNS_MAX).unwrap();
        assert!(all(document, "polyline").iter().all(|it| points(it).len() == 2 * columns));
        let texts = texts(document);
        assert!(texts.contains(&"939 steps, drawn as means of about 4"), "{texts:?}");
    });
}

#[test]
fn the_picture_is_as_high_as_its_legend() {
    let run = followed(&settings(100, 1, 2), policy::Kind::Gap);
    let drawn = vec![PlottedPolicy { prediction: &run.0, curve: &run.1 }; 12];
    check(&plot("job", &[], &drawn), |document| {
        let height: f64 = document.root_element().attribute("height").unwrap().parse().unwrap();
        let lowest = |it: &Node<'_, '_>| it.attribute("y").unwrap().parse::<f64>().unwrap();
        assert!(all(document, "text").iter().all(|text| lowest(text) < height));
        let looks = |it: &Node<'_, '_>| {
            (
                it.attribute("stroke").map(str::to_owned),
                it.attribute("stroke-dasharray").map(str::to_owned),
            )
        };
        let lines = all(document, "polyline");
        let different: BTreeSet<_> = lines.iter().take(12).map(looks).collect();
        assert_eq!(different.len(), 12, "no two policies look alike");
    });
}

#[test]
fn equal_runs_give_equal_pictures() {
    assert_eq!(picture("job", 300, &[]), picture("job", 300, &[]));
}

#[test]
fn names_that_look_like_markup_stay_text() {
    let notes = ["<b>&".to_owned()];
    check(&picture("</svg><script>", 100, &notes), |document| {
        let texts = texts(document);
        assert!(texts.contains(&"Plan of </svg><script>") && texts.contains(&"<b>&"), "{texts:?}");
        assert!(all(document, "script").is_empty());
    });
}

#[test]
fn a_run_without_policies_or_with_one_step_is_a_picture_too() {
    check(&plot("job", &[], &[]), |document| assert!(all(document, "polyline").is_empty()));
    check(&picture("job", 1, &[]), |document| {
        assert!(all(document, "polyline").iter().all(|it| points(it).len() == 2 * 3));
    });
}
