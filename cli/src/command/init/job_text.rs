//! The job file, with a comment for each value that says where it comes from.

use std::path::Path;

use serde_json::Value;
use tierfeed_dataset::keys::{self, DatasetKeys};

use super::script::{Key, Script};

#[derive(Debug)]
pub(super) struct Draft<'a> {
    pub(super) name: String,
    pub(super) dataset: &'a DatasetKeys,
    pub(super) why_dataset: &'a str,
    /// The source of a dataset that is held out, in the same format.
    pub(super) held_out: Option<&'a str>,
    pub(super) script: Option<&'a Script>,
    /// What the script does and the job does not.
    pub(super) warnings: &'a [String],
    pub(super) batch_size: (u32, String),
    /// Nodes, and training processes on each; `None` leaves the world to the launcher.
    pub(super) ranks: Option<(u32, u32)>,
    pub(super) tiers: Vec<String>,
    pub(super) contents: Option<String>,
}

/// The order of a job, and why it is not the script's if it is not.
#[derive(Debug)]
pub(super) enum Order<'a> {
    OfScript(&'a Script),
    Usual(String),
}

impl Draft<'_> {
    pub(super) fn text(&self, order: &Order<'_>) -> String {
        let mut lines =
            vec!["# Written by `tierfeed init`. docs/job-file.md has every key.".to_owned()];
        lines.extend(self.warnings.iter().map(|it| format!("# Warning: {}", one_line(it))));
        lines.extend([format!("name: {}", self.name), "dataset:".to_owned()]);
        if let Some(contents) = &self.contents {
            lines.push(format!("  # {contents}"));
        }
        lines.extend(self.dataset_lines());
        if let Some(source) = self.held_out {
            let (source, format) = (scalar(source), self.dataset.format_name());
            lines.push("# Read by the same agent, with a loader of its own: TierLoader(dataset=\"validation\", …).".to_owned());
            lines.push("# datasets:".to_owned());
            lines.push(format!("#   validation: {{ source: {source}, format: {format} }}"));
        }
        lines.push("order:".to_owned());
        lines.extend(self.order_lines(order));
        let (batch_size, why) = &self.batch_size;
        lines.push("# Samples per rank and step.".to_owned());
        lines.push(line("batch_size", &batch_size.to_string(), why));
        lines.push(
            "# How long the trainer computes on a batch: `tierfeed analyze` and `plan` need it."
                .to_owned(),
        );
        lines.push("# step_time: 120 ms".to_owned());
        match self.ranks {
            Some((nodes, ranks)) => {
                lines.push(format!("world: {{ nodes: {nodes}, ranks_per_node: {ranks} }}"));
            }
            None => lines.push(
                "# world: as the launcher says; { nodes: 1, ranks_per_node: 1 } without one"
                    .to_owned(),
            ),
        }
        lines.extend(self.tiers.iter().cloned());
        lines.push(String::new());
        lines.join("\n")
    }

    fn dataset_lines(&self) -> Vec<String> {
        let line_of = |(key, values): (&keys::Key, &[String])| {
            let values: Vec<_> = values.iter().map(|it| value_of_key(it)).collect();
            let value =
                if key.is_list { format!("[{}]", values.join(", ")) } else { values.concat() };
            let why = if key.name == "source" { self.why_dataset } else { "" };
            line(&format!("  {}", key.name), &value, why)
        };
        self.dataset.given().map(line_of).collect()
    }

    fn order_lines(&self, order: &Order<'_>) -> Vec<String> {
        let mut lines = Vec::new();
        match order {
            Order::OfScript(script) => {
                let why =
                    script.key("order.shuffle").map(|key| key.from(script)).unwrap_or_default();
                lines.push(line("  shuffle", &script.shuffle, &why));
                lines.extend(script.keys_of_order().filter_map(|key| of_script(key, script)));
            }
            Order::Usual(why) => {
                lines.push(line("  shuffle", "torch-distributed", why));
                lines.push("  seed: 0".to_owned());
            }
        }
        let epochs = self.script.and_then(|script| {
            let key = script.key("order.epochs")?;
            key.number()?;
            of_script(key, script)
        });
        lines.push(epochs.unwrap_or_else(|| {
            "  # epochs: 1000 unless it is given; a training may read fewer".to_owned()
        }));
        lines
    }
}

/// A sentence about an order that is not certainly that of the script.
pub(super) fn assumed_of(order: &Order<'_>, script: Option<&Script>) -> Option<String> {
    match order {
        Order::Usual(_) if script.is_none() => None,
        Order::Usual(why) => Some(format!("order: torch-distributed with seed 0, because {why}")),
        Order::OfScript(script) if script.hands_order_over() => None,
        Order::OfScript(script) => {
            let key = script.key("order.shuffle").filter(|key| !key.is_certain)?;
            Some(format!("order: {}, {}", script.shuffle, key.from(script)))
        }
    }
}

/// The order of the job: that of the script, or the reason why it is not.
pub(super) fn order_of(script: Option<&Script>) -> Order<'_> {
    let Some(script) = script else { return Order::Usual(String::new()) };
    let why = |name: &str| script.key(name).and_then(|key| key.why.clone()).unwrap_or_default();
    let is_known = |name: &str| script.key(name).is_some_and(|key| key.value.is_some());
    let shuffle = script.shuffle.as_str();
    match shuffle {
        "sequential" | "torch-distributed" => Order::OfScript(script),
        "published" if script.hands_order_over() => Order::OfScript(script),
        "torch-random" | "grain" if script.is_distributed => {
            Order::Usual(format!("with several ranks {shuffle} is not that of the script"))
        }
        "torch-random" | "grain" if is_known("order.seed") => Order::OfScript(script),
        "torch-random" | "grain" => Order::Usual(why("order.seed")),
        "tf-shuffle" if is_known("order.seed") && is_known("order.buffer") => {
            Order::OfScript(script)
        }
        "" => {
            Order::Usual(format!("the order of the script is not known: {}", why("order.shuffle")))
        }
        other => {
            Order::Usual(format!("that of the script, {other}, needs more than the script says"))
        }
    }
}

fn of_script(key: &Key, script: &Script) -> Option<String> {
    let name = key.name.rsplit('.').next()?;
    let value = match key.value.as_ref()? {
        Value::String(text) => scalar(text),
        other => other.to_string(),
    };
    Some(line(&format!("  {name}"), &value, &key.from(script)))
}

fn line(key: &str, value: &str, why: &str) -> String {
    let comment = if why.is_empty() { String::new() } else { format!("  # {}", one_line(why)) };
    format!("{key}: {value}{comment}")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Numbers and truth values are read as they are typed.
fn value_of_key(text: &str) -> String {
    let is_number = text.parse::<u64>().is_ok_and(|number| number.to_string() == text);
    if is_number || text == "true" { text.to_owned() } else { scalar(text) }
}

/// A text as a scalar of YAML; JSON's strings are those of YAML.
fn scalar(text: &str) -> String {
    let is_plain_character = |it: char| it.is_ascii_alphanumeric() || "_./-".contains(it);
    let starts_plainly =
        text.starts_with(|it: char| it.is_ascii_alphabetic() || it == '/' || it == '.');
    let is_word =
        ["true", "false", "null", "yes", "no", "on", "off"].contains(&text.to_lowercase().as_str());
    if starts_plainly
        && text.chars().all(is_plain_character)
        && !is_word
        && text.parse::<f64>().is_err()
    {
        return text.to_owned();
    }
    Value::from(text).to_string()
}

pub(super) fn name(source: &str) -> String {
    const NAME_CHARS_MAX: usize = 48;
    let trimmed = source.trim_end_matches('/');
    let last = Path::new(trimmed).file_name().map(|it| it.to_string_lossy().into_owned());
    let last = last.filter(|it| it != ".").unwrap_or_else(|| "training".to_owned());
    let plain = |it: char| if it.is_ascii_alphanumeric() || "-_.".contains(it) { it } else { '-' };
    let name: String = last.chars().map(plain).take(NAME_CHARS_MAX).collect();
    let name = name.trim_matches(['-', '.']);
    if name.is_empty() { "training".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_job_is_made_of_any_source() {
        for (source, expected) in [
            ("/data/imagenet/train/", "train"),
            ("s3://bucket/my set", "my-set"),
            (".", "training"),
            ("/", "training"),
            ("../..", "training"),
            ("été", "t"),
        ] {
            assert_eq!(name(source), expected, "{source}");
        }
    }

    #[test]
    fn only_a_plain_text_stands_without_quotation_marks() {
        for plain in ["./data/train", "/a-b/c_d.e", "image"] {
            assert_eq!(scalar(plain), plain);
        }
        for text in ["1e3", "true", "a: b", "s3://x", "#x", "", "- a", "a\nb", "12", ".5", "Off"] {
            let quoted = scalar(text);
            assert!(quoted.starts_with('"'), "{quoted}");
            assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), text);
        }
    }
}
