//! Checks that dashboard and alert rules ask only for series that agents and managers export.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{fleet, tests};

/// Labels from the target files and from Prometheus itself.
const OF_TARGETS: [&str; 4] = ["tierfeed_job", "tierfeed_node", "instance", "le"];

/// The words of a query that stand before labels in parentheses.
const GROUPING: [&str; 4] = ["by", "on", "ignoring", "group_left"];

/// The series that agents and managers export, with their labels; a series without a value has no labels.
type Exported = BTreeMap<String, BTreeSet<String>>;

fn exported() -> Exported {
    let texts = [tests::text_of_bucket(), fleet::tests::text()];
    let mut series = Exported::new();
    for text in &texts {
        for name in tests::names(text) {
            for suffix in ["", "_bucket", "_sum", "_count"] {
                series.entry(format!("{name}{suffix}")).or_default();
            }
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
            series.entry(name.to_owned()).or_default().extend(in_braces(rest));
        }
    }
    series
}

/// The labels of a selector in braces that `rest` begins with.
fn in_braces(rest: &str) -> Vec<String> {
    let selector = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
    let matchers = selector.map_or("", |(matchers, _)| matchers).split(',');
    let names = matchers.filter_map(|matcher| matcher.split_once('='));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

/// The labels in the parentheses that `rest` begins with.
fn in_parentheses(rest: &str) -> Vec<String> {
    let labels = rest.trim_start().strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let labels = labels.map_or("", |(labels, _)| labels).split(',').map(str::trim);
    labels.filter(|label| !label.is_empty()).map(str::to_owned).collect()
}

/// The words of a query, each with the text behind it.
fn words(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let begins = query.char_indices().filter_map(move |(at, letter)| {
        let before = query[..at].chars().next_back();
        (is_of_word(letter) && !before.is_some_and(is_of_word)).then_some(at)
    });
    begins.map(move |at| {
        let len = query[at..].find(|letter| !is_of_word(letter)).unwrap_or(query.len() - at);
        query[at..].split_at(len)
    })
}

/// The fault of a query; `None` if everything that it names is exported.
fn fault(query: &str, exported: &Exported) -> Option<String> {
    let is_series = |word: &str| word.starts_with("tierfeed_") && !OF_TARGETS.contains(&word);
    let mut known: BTreeSet<&str> = OF_TARGETS.into();
    for (name, rest) in words(query).filter(|(word, _)| is_series(word)) {
        let Some(labels) = exported.get(name) else {
            return Some(format!("nobody exports {name}"));
        };
        known.extend(labels.iter().map(String::as_str));
        let is_foreign = |label: &String| {
            !labels.is_empty() && !labels.contains(label) && !OF_TARGETS.contains(&label.as_str())
        };
        if let Some(label) = in_braces(rest).into_iter().find(is_foreign) {
            return Some(format!("{name} has no label {label}"));
        }
    }
    if known.len() == OF_TARGETS.len() && !words(query).any(|(word, _)| is_series(word)) {
        return Some("it names no series".to_owned());
    }
    let grouped = words(query).filter(|(word, _)| GROUPING.contains(word));
    let mut labels = grouped.flat_map(|(_, rest)| in_parentheses(rest));
    let foreign = labels.find(|label| !known.contains(label.as_str()))?;
    Some(format!("no series of it has the label {foreign}"))
}

/// The strings under every key of this name, at any depth.
fn texts<'a>(value: &'a Value, key: &str) -> Vec<&'a str> {
    match value {
        Value::Object(map) => {
            let own = map.get(key).and_then(Value::as_str);
            own.into_iter().chain(map.values().flat_map(|inner| texts(inner, key))).collect()
        }
        Value::Array(list) => list.iter().flat_map(|inner| texts(inner, key)).collect(),
        _ => Vec::new(),
    }
}

#[track_caller]
fn all_are_exported(file: &str, queries: &[&str]) {
    let exported = exported();
    let faults = queries.iter().filter_map(|query| Some((query, fault(query, &exported)?)));
    assert_eq!(faults.collect::<Vec<_>>(), [], "of {file}");
}

#[test]
fn the_alert_rules_ask_for_what_is_exported() {
    let text = include_str!("../../../../configs/prometheus/alerts.yaml");
    let rules: Value = serde_yaml::from_str(text).unwrap();
    let queries = texts(&rules, "expr");
    assert_eq!(queries.len(), texts(&rules, "alert").len());
    assert_eq!(texts(&rules, "summary").len(), queries.len(), "each says what is wrong");
    all_are_exported("alerts.yaml", &queries);
}

#[test]
fn the_dashboard_asks_for_what_is_exported() {
    let text = include_str!("../../../../configs/grafana/tierfeed.json");
    let dashboard: Value = serde_json::from_str(text).unwrap();
    let queries = texts(&dashboard, "expr");
    let panels = dashboard["panels"].as_array().unwrap();
    let drawn = panels.iter().filter(|panel| panel["type"] != "row");
    assert!(drawn.clone().all(|panel| !texts(panel, "expr").is_empty()), "no panel is empty");
    assert!(queries.len() >= drawn.count());
    all_are_exported("tierfeed.json", &queries);
}

#[test]
fn what_nobody_exports_is_found() {
    let fault = |query| fault(query, &exported()).unwrap();
    assert_eq!(fault("rate(tierfeed_batch_total[5m])"), "nobody exports tierfeed_batch_total");
    let selected = fault("tierfeed_batches_ready{tier=\"cold\"}");
    assert_eq!(selected, "tierfeed_batches_ready has no label tier");
    let grouped = fault("sum by (rank, tier) (tierfeed_batches_ready)");
    assert_eq!(grouped, "no series of it has the label tier");
    assert_eq!(fault("1 + 1"), "it names no series");
}
