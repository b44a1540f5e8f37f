//! Repetition in the file of a paper: an item of a list `{ for: { name: [values] }, … }` stands for one item for each
//! value, or each combination of the values of several names, the first name outermost.
//!
//! In texts of the item `{name}` stands for the value, and `{name.key}` for a part of it; a text that is nothing else
//! becomes the value itself. An item that has `each` beside `for` is what stands there; a list there gives all its
//! items. What a trial has below `all` its sides have too, where they do not say otherwise.

use std::thread;

use anyhow::{Context as _, bail};
use serde_yaml::{Mapping, Value};

/// The names of values, the last one first in force.
type Names = Vec<(String, Value)>;

/// # Errors
///
/// If names are no texts, or values no list.
pub(super) fn expanded(file: &Value) -> anyhow::Result<Value> {
    let mut file = repeated(file, &machine())?;
    if let Some(all) = file.as_mapping_mut() {
        // Lists that others refer to by their anchors.
        all.remove("lists");
    }
    file.apply_merge()?;
    for experiment in items_mut(&mut file, "experiments") {
        for trial in items_mut(experiment, "trials") {
            let Some(all) = trial.as_mapping_mut().and_then(|it| it.remove("all")) else {
                continue;
            };
            for side in items_mut(trial, "sides") {
                *side = merged(&all, side);
            }
        }
    }
    Ok(file)
}

fn items_mut<'a>(of: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    of.get_mut(key).and_then(Value::as_sequence_mut).into_iter().flatten()
}

/// What is known of the machine: its cores, and the half of them.
fn machine() -> Names {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let [all, half] = [cores, (cores / 2).max(1)].map(Value::from);
    vec![("cores".to_owned(), all), ("half".to_owned(), half)]
}

/// The keys of both; those of a mapping in both are those of both again, and else `above` is in force.
fn merged(below: &Value, above: &Value) -> Value {
    let (Value::Mapping(below), Value::Mapping(above)) = (below, above) else {
        return above.clone();
    };
    let mut all = below.clone();
    for (key, value) in above {
        let value = all.get(key).map_or_else(|| value.clone(), |below| merged(below, value));
        all.insert(key.clone(), value);
    }
    Value::Mapping(all)
}

fn repeated(value: &Value, names: &Names) -> anyhow::Result<Value> {
    Ok(match value {
        Value::Sequence(items) => {
            let mut all = Vec::new();
            for item in items {
                all.extend(of_item(item, names)?);
            }
            Value::Sequence(all)
        }
        Value::Mapping(all) => {
            let parts = all.iter().map(|(key, value)| Ok((key.clone(), repeated(value, names)?)));
            Value::Mapping(parts.collect::<anyhow::Result<Mapping>>()?)
        }
        Value::String(text) => substituted(text, names),
        other => other.clone(),
    })
}

fn of_item(item: &Value, names: &Names) -> anyhow::Result<Vec<Value>> {
    let Some(loops) = item.get("for") else { return Ok(vec![repeated(item, names)?]) };
    let mut rest = item.as_mapping().context("`for` is a key")?.clone();
    rest.remove("for");
    let rest = rest.get("each").cloned().unwrap_or(Value::Mapping(rest));
    let mut all = vec![names.clone()];
    for (name, values) in loops.as_mapping().context("`for` has names with their values")? {
        let name = name.as_str().context("a name is a text")?;
        for names in std::mem::take(&mut all) {
            let Value::Sequence(values) = repeated(values, &names)? else {
                bail!("{name} has a list of values");
            };
            let with = |value| [&names[..], &[(name.to_owned(), value)]].concat();
            all.extend(values.into_iter().map(with));
        }
    }
    let items = all.iter().map(|names| match repeated(&rest, names)? {
        Value::Sequence(items) => Ok(items),
        item => Ok(vec![item]),
    });
    Ok(items.collect::<anyhow::Result<Vec<_>>>()?.concat())
}

/// Names that are not known stay: they become known when a figure is drawn.
fn substituted(text: &str, names: &Names) -> Value {
    let find = |path: &str| {
        let mut keys = path.split('.');
        let name = keys.next()?;
        let (_, value) = names.iter().rev().find(|(it, _)| it == name)?;
        keys.try_fold(value, |value, key| value.get(key))
    };
    if let Some(value) = text.strip_prefix('{').and_then(|it| find(it.strip_suffix('}')?)) {
        return value.clone();
    }
    let told = replaced(text, |name| {
        let value = find(name)?;
        Some(value.as_str().map_or_else(
            || serde_yaml::to_string(value).unwrap_or_default().trim().to_owned(),
            str::to_owned,
        ))
    });
    Value::String(told)
}

/// The text, with what stands for each `{name}`; those for which there is nothing stay.
pub(super) fn replaced(text: &str, mut of: impl FnMut(&str) -> Option<String>) -> String {
    let mut all = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        all.push_str(before);
        let found = after.split_once('}').and_then(|(name, after)| Some((of(name)?, after)));
        let (told, left) = found.unwrap_or_else(|| ("{".to_owned(), after));
        all.push_str(&told);
        rest = left;
    }
    all + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let [text, expected] = [text, expected].map(|it| serde_yaml::from_str(it).unwrap());
        assert_eq!(expanded(&text).unwrap(), expected);
    }

    #[test]
    fn an_item_is_repeated_for_each_combination_of_values() {
        check(
            "[{ for: { a: [1, 2], b: [{ x: u }, { x: v }] }, name: '{a} {b.x} {c}', is: '{a}' }]",
            "[{ name: '1 u {c}', is: 1 }, { name: '1 v {c}', is: 1 }, \
              { name: '2 u {c}', is: 2 }, { name: '2 v {c}', is: 2 }]",
        );
        check("[x, { for: { a: [1, 2] }, each: 'n {a}' }]", "[x, n 1, n 2]");
        check("[{ for: { a: [[1, 2], [3]], b: '{a}' }, each: ['{b}', x] }]", "[1, x, 2, x, 3, x]");
    }

    #[test]
    fn sides_have_what_all_have_where_they_do_not_say_otherwise() {
        check(
            "{ lists: 0, experiments: [{ trials: [{ all: { a: 1, b: { c: 2, d: 3 } }, \
               sides: [{ a: 4, b: { d: 5 } }, {}] }] }] }",
            "{ experiments: [{ trials: [{ sides: [{ a: 4, b: { c: 2, d: 5 } }, { a: 1, b: { c: 2, d: 3 } }] }] }] }",
        );
    }
}
