//! Finds the line of a key in a YAML text, and keys that are repeated in one mapping.
//!
//! The parser knows the position of every value but reports it only in errors. So a visitor descends to the
//! key with the parser itself and fails there on purpose. All styles of YAML (quoted keys, flow style,
//! comments, anchors) are handled without a second YAML parser.

use std::{collections::BTreeSet, fmt};

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// The line, from 1, of the value at the path `keys`, or of its nearest parent that exists.
pub(crate) fn line_of(text: &str, keys: &[&str]) -> usize {
    (0..=keys.len()).rev().find_map(|len| exact_line_of(text, &keys[..len])).unwrap_or(1)
}

/// Fails at the first repeated key of a mapping; the error names the line of its first occurrence.
pub(crate) fn refuse_repeated_keys(text: &str) -> Result<(), serde_yaml::Error> {
    let walk = |first_line| {
        Walk { goal: None, first_line }.deserialize(serde_yaml::Deserializer::from_str(text))
    };
    let Err(error) = walk(None) else { return Ok(()) };
    match first_line_of_repeated(text, &error.to_string()) {
        // A second walk, whose error can name that line.
        Some(line) => walk(Some(line)),
        None => Err(error),
    }
}

/// The line of the first occurrence of a repeated key, from the error message of a walk: the parser puts
/// the path of the mapping in front of it.
fn first_line_of_repeated(text: &str, said: &str) -> Option<usize> {
    let (parents, rest) = said.split_once(REPEATED)?;
    let (key, _) = rest.split_once('`')?;
    let parents = parents.strip_suffix(": ").unwrap_or_default();
    let mut keys: Vec<&str> = parents.split('.').filter(|key| !key.is_empty()).collect();
    keys.push(key);
    exact_line_of(text, &keys)
}

/// The line, from 1, of the value at the path `keys`, if it exists.
pub(crate) fn exact_line_of(text: &str, keys: &[&str]) -> Option<usize> {
    match (Walk { goal: Some(keys), first_line: None })
        .deserialize(serde_yaml::Deserializer::from_str(text))
    {
        Err(error) if error.to_string().contains(FOUND) => Some(error.location()?.line()),
        _ => None,
    }
}

/// The text of the error that ends a successful search; no other error holds a control character.
const FOUND: &str = "\u{1}arrived\u{1}";

/// The text in front of a repeated key in an error message.
const REPEATED: &str = "the key `";

/// Visits everything below a value, or fails with [`FOUND`] once no key of `goal` is left.
#[derive(Clone, Copy)]
struct Walk<'a> {
    goal: Option<&'a [&'a str]>,
    /// The line of the first occurrence of the key that the walk will find repeated.
    first_line: Option<usize>,
}

impl Walk<'_> {
    fn enter<E: de::Error>(self) -> Result<(), E> {
        if self.goal == Some(&[]) { Err(E::custom(FOUND)) } else { Ok(()) }
    }

    /// The walk for the value of `key`: without a goal if that lies elsewhere.
    fn below(self, key: &str) -> Self {
        let rest = self.goal.and_then(<[_]>::split_first);
        let goal = rest.filter(|(first, _)| **first == key).map(|(_, rest)| rest);
        Self { goal, ..self }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping, a list or a single value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.enter()?;
        let mut seen = BTreeSet::new();
        while let Some(key) =
            map.next_key_seed(NewKey { seen: &seen, first_line: self.first_line })?
        {
            map.next_value_seed(self.below(&key))?;
            seen.insert(key);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.enter()?;
        // A goal names an element by its index.
        let mut index = 0;
        while seq.next_element_seed(self.below(&index.to_string()))?.is_some() {
            index += 1;
        }
        Ok(())
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<(), E> {
        self.enter()
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<(), E> {
        self.enter()
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<(), E> {
        self.enter()
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<(), E> {
        self.enter()
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<(), E> {
        self.enter()
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.enter()
    }

    /// The value of an empty document.
    fn visit_none<E: de::Error>(self) -> Result<(), E> {
        self.enter()
    }
}

/// Reads a key and fails inside it if it is repeated, so that the error carries the line of the key.
struct NewKey<'a> {
    seen: &'a BTreeSet<String>,
    first_line: Option<usize>,
}

impl<'de> DeserializeSeed<'de> for NewKey<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NewKey<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<String, E> {
        if self.seen.contains(key) {
            let before = self
                .first_line
                .map_or_else(String::new, |line| format!(", and on line {line} before"));
            return Err(E::custom(format_args!(
                "{REPEATED}{key}` stands here again{before}; keep one"
            )));
        }
        Ok(key.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# a comment: with a colon
name: resnet50

dataset:
  \"source\": &here /data
  emulate: { latency: 1 ms,
             bandwidth: 1 GB/s }
world: {
  nodes: 1 }
tiers:
  scratch:
    path: *here
    size:
      1 GiB
steps:
  - resize: 256
  - { center_crop: 224,
      layout: hwc }
";

    #[track_caller]
    fn check(keys: &[&str], line: usize) {
        assert_eq!(line_of(TEXT, keys), line, "{keys:?}");
    }

    #[test]
    fn every_style_of_yaml_is_found_at_its_line() {
        check(&["name"], 2);
        check(&["dataset", "source"], 5);
        check(&["dataset", "emulate", "latency"], 6);
        check(&["dataset", "emulate", "bandwidth"], 7);
        check(&["world", "nodes"], 9);
        check(&["tiers", "scratch", "size"], 14);
        check(&["steps", "0", "resize"], 16);
        check(&["steps", "1", "layout"], 18);
    }

    #[test]
    fn a_key_that_is_not_there_is_placed_at_its_parent() {
        check(&["tiers", "scratch", "reserve"], 12);
        check(&["world", "ranks_per_node"], 8);
        check(&["nothing", "of", "this"], 2);
    }

    #[test]
    fn a_text_that_is_no_mapping_has_one_line() {
        assert_eq!(line_of("", &["name"]), 1);
        assert_eq!(line_of("[1, 2", &["name"]), 1);
        assert_eq!(line_of("{a: b", &["a"]), 1);
    }

    #[test]
    fn a_repeated_key_is_refused_at_its_second_line() {
        let error = refuse_repeated_keys("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n").unwrap_err();
        assert_eq!(error.location().map(|location| location.line()), Some(5));
        let sentence = "b: the key `c` stands here again, and on line 3 before; keep one";
        assert!(error.to_string().contains(sentence), "{error}");
        assert!(refuse_repeated_keys("a: { c: 1 }\nb: { c: 1 }\n").is_ok());
    }
}
