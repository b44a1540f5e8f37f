//! `docs/job-file.md` lists exactly the keys that the parser accepts.
//!
//! The parser lists the keys of a mapping in its error for an unknown key.

use std::{collections::BTreeSet, fs, path::Path};

use crate::job::Job;

/// No mapping has this key.
const UNKNOWN: &str = "no-such-key";

/// The keys of the mapping at `path`, or `None` if there is no mapping.
fn keys_below(path: &[String]) -> Option<Vec<String>> {
    let nested = path.iter().rev().fold(format!("{UNKNOWN}: 1"), |inner, key| {
        match key.strip_suffix("[]") {
            Some(list) => format!("{list}: [ {{ {inner} }} ]"),
            None => format!("{key}: {{ {inner} }}"),
        }
    });
    let said = Job::parse(&format!("{{ {nested} }}"), Path::new("a.yaml")).unwrap_err().to_string();
    let (_, expected) = said.split_once(&format!("unknown field `{UNKNOWN}`, expected "))?;
    Some(expected.split('`').skip(1).step_by(2).map(str::to_owned).collect())
}

fn collect(path: &[String], found: &mut BTreeSet<String>) {
    for key in keys_below(path).expect("a mapping") {
        let place: Vec<_> = path.iter().cloned().chain([key.clone()]).collect();
        let list: Vec<_> = path.iter().cloned().chain([format!("{key}[]")]).collect();
        if key == "datasets" {
            // Its keys are the names of datasets.
            collect(&[key, "NAME".to_owned()], found);
            continue;
        }
        if keys_below(&place).is_some() {
            collect(&place, found);
            if key != "on_error" {
                continue;
            }
            // A word is enough, without its mapping.
        }
        found.insert(place.join("."));
        if keys_below(&list).is_some() {
            collect(&list, found);
        }
    }
}

#[test]
fn the_reference_lists_every_key_and_no_other() {
    let mut parsed = BTreeSet::new();
    collect(&[], &mut parsed);
    // What a further dataset has in common with the first one is not listed again.
    let is_listed_above = |key: &String| {
        let own = key.strip_prefix("datasets.NAME.");
        own.is_some_and(|own| {
            let is_of_transform = own.starts_with("transform.") && parsed.contains(own);
            is_of_transform || parsed.contains(&format!("dataset.{own}"))
        })
    };
    let parsed: BTreeSet<_> = parsed.iter().filter(|key| !is_listed_above(key)).cloned().collect();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/job-file.md");
    let page = fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: Vec<_> = rows.map(|row| row.split('`').next().unwrap().to_owned()).collect();
    let once: BTreeSet<_> = listed.iter().cloned().collect();
    assert_eq!(listed.len(), once.len(), "a key is listed twice");
    assert_eq!(parsed, once);
    assert!(parsed.len() > 90, "{} keys", parsed.len());
}

#[test]
fn every_row_of_the_reference_has_its_cells() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/job-file.md");
    for line in fs::read_to_string(page).unwrap().lines().filter(|line| line.starts_with("| `")) {
        assert_eq!(line.matches('|').count(), 5, "{line}");
    }
}
