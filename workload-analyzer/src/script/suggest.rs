//! Writes the job file that a script suggests: keys that are at least likely, the others as comments.

use std::fmt::Write as _;

use super::{Certainty, Fact, Finding, Kind, Literal};

/// What one key of the job file is.
pub(super) enum Key<'f> {
    Known(&'f Fact),
    Unknown(String),
}

/// The loader or pipeline that a job is about: the one for training, else the first.
pub(super) fn main_loader(findings: &[Finding]) -> Option<&Finding> {
    let loaders = || findings.iter().filter(|it| matches!(it.kind, Kind::Loader | Kind::Pipeline));
    let phase = |it: &Finding| it.fact("phase").map(|fact| fact.text.clone());
    let of_training = loaders().find(|it| phase(it).as_deref() == Some("training"));
    of_training.or_else(|| loaders().find(|it| phase(it).is_none())).or_else(|| loaders().next())
}

/// The passes over the data, and where it stands.
pub(super) fn epochs(findings: &[Finding]) -> Option<(&Finding, &Fact)> {
    let known = findings.iter().filter(|it| it.kind == Kind::Epochs);
    let mut facts = known.filter_map(|it| Some((it, it.fact("epochs")?)));
    let first = facts.next()?;
    if first.1.int().is_some() {
        return Some(first);
    }
    Some(facts.find(|(_, fact)| fact.int().is_some()).unwrap_or(first))
}

/// The seed of the order that `loader` reads in.
pub(super) fn seed<'f>(findings: &'f [Finding], loader: &'f Finding) -> Option<&'f Fact> {
    const GLOBAL: [&str; 6] = [
        "torch.manual_seed",
        "lightning.seed_everything",
        "transformers.set_seed",
        "accelerate.utils.set_seed",
        "composer.utils.reproducibility.seed_all",
        "torch.Generator.manual_seed",
    ];
    let of = |names: &[&str]| {
        let mut seeds = findings.iter().filter(|it| it.kind == Kind::Seed);
        seeds.find(|it| names.contains(&it.what.as_str()))?.fact("seed")
    };
    match order(loader)? {
        "torch-distributed" => {
            loader.fact("sampler.seed").or_else(|| of(&["lightning.seed_everything"]))
        }
        "torch-random" if loader.fact("generator").is_some() => {
            of(&["torch.Generator.manual_seed"])
        }
        "torch-random" => of(&GLOBAL[..5]),
        "mosaic" => loader.fact("shuffle_seed"),
        "grain" => loader.fact("seed").or_else(|| of(&["grain.IndexSampler"])),
        "tf-shuffle" => loader.fact("seed"),
        _ => None,
    }
}

/// The order of a loader, if it is at least likely.
pub(super) fn order(loader: &Finding) -> Option<&str> {
    loader.fact("order.shuffle")?.str()
}

/// Ranks on a node, and nodes, where a script says so itself.
pub(super) fn ranks(findings: &[Finding]) -> Option<(&Finding, i64, i64)> {
    findings.iter().filter(|it| it.kind == Kind::Distribution).find_map(|it| {
        let number = |name: &str| it.fact(name).and_then(Fact::int).filter(|number| *number > 0);
        let ranks = number("nprocs").or_else(|| number("devices"))?;
        Some((it, ranks, number("num_nodes").unwrap_or(1)))
    })
}

pub(super) fn job(script: &str, findings: &[Finding]) -> String {
    let mut text = String::new();
    let Some(loader) = main_loader(findings) else {
        add(&mut text, "# no loader was found: nothing can be suggested");
        for reader in findings.iter().filter(|it| it.kind == Kind::Reader) {
            let format = reader.fact("format").map_or("unknown", |format| format.text.as_str());
            let Finding { file, line, what, .. } = reader;
            add(&mut text, &format!("# {file}:{line} reads files with {what}: format {format}"));
        }
        return text;
    };
    let stem = script.rsplit('/').next().unwrap_or(script).trim_end_matches(".py");
    let name: String =
        stem.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '-' }).collect();
    let name = name.trim_matches('-');
    add(&mut text, &format!("# from {}:{}, {}", loader.file, loader.line, loader.what));
    add(&mut text, &format!("name: {}", if name.is_empty() { "job" } else { name }));
    add(&mut text, "dataset:");
    let unknown = |why: &str| Key::Unknown(why.to_owned());
    key(&mut text, "  source", of(loader, "source").unwrap_or(unknown("not found in the script")));
    key(
        &mut text,
        "  format",
        of(loader, "format").unwrap_or(unknown("what is read is not found")),
    );
    if loader.fact("format").is_some_and(|format| format.text == "raw") {
        key(
            &mut text,
            "  record_bytes",
            of(loader, "record_bytes").unwrap_or(unknown("the size of a record")),
        );
    }
    add(&mut text, "order:");
    key(&mut text, "  shuffle", of(loader, "order.shuffle").unwrap_or(unknown("not found")));
    of_order(&mut text, findings, loader);
    let passes = epochs(findings).map(|(_, fact)| as_key(fact));
    key(&mut text, "  epochs", passes.unwrap_or(unknown("no loop over epochs was found")));
    key(&mut text, "batch_size", of(loader, "batch_size").unwrap_or(unknown("not found")));
    match ranks(findings) {
        Some((_, ranks, nodes)) => {
            add(&mut text, &format!("world: {{ nodes: {nodes}, ranks_per_node: {ranks} }}"));
        }
        None => add(&mut text, "# world: the launcher decides how many nodes and ranks there are"),
    }
    text
}

/// The keys that only the order of `loader` has.
fn of_order(text: &mut String, findings: &[Finding], loader: &Finding) {
    let Some(order) = order(loader) else { return };
    let takes_seed = !matches!(order, "sequential" | "published");
    if takes_seed {
        let unknown = Key::Unknown("no seed is set; without one use `published`".to_owned());
        key(text, "  seed", seed(findings, loader).map_or(unknown, as_key));
    }
    match order {
        "torch-distributed" => {
            let drop_last = loader.fact("sampler.drop_last");
            if let Some(drop_last) = drop_last.filter(|fact| fact.bool() == Some(true)) {
                key(text, "  drop_last", as_key(drop_last));
            }
        }
        "torch-random" => {
            if loader.fact("generator").is_some() {
                add(text, "  generator: loader");
            }
            let workers = loader.fact("persistent_workers");
            if let Some(workers) = workers.filter(|fact| fact.bool() == Some(true)) {
                key(text, "  persistent_workers", as_key(workers));
            }
        }
        "tf-shuffle" => {
            let unknown = Key::Unknown("the buffer of `shuffle` is not known".to_owned());
            key(text, "  buffer", of(loader, "buffer_size").unwrap_or(unknown));
            let global = findings.iter().find(|it| it.what == "tensorflow.random.set_seed");
            if let Some(global) = global.and_then(|it| it.fact("seed")) {
                key(text, "  global_seed", as_key(global));
            }
            let reshuffle = loader.fact("reshuffle_each_iteration");
            if let Some(reshuffle) = reshuffle.filter(|fact| fact.bool() == Some(false)) {
                key(text, "  reshuffle", as_key(reshuffle));
            }
        }
        "mosaic" => {
            key(
                text,
                "  shard_samples",
                Key::Unknown("samples in a shard: see index.json".to_owned()),
            );
            for (name, fact) in [
                ("  algorithm", "shuffle_algo"),
                ("  canonical_nodes", "num_canonical_nodes"),
                ("  shuffle_block", "shuffle_block_size"),
            ] {
                if let Some(known) = of(loader, fact) {
                    key(text, name, known);
                }
            }
        }
        _ => {}
    }
}

fn of<'f>(loader: &'f Finding, name: &str) -> Option<Key<'f>> {
    loader.fact(name).map(as_key)
}

fn as_key(fact: &Fact) -> Key<'_> {
    let is_known = fact.certainty != Certainty::Unknown && scalar(&fact.value).is_some();
    if is_known {
        return Key::Known(fact);
    }
    let why = fact.why.as_deref().unwrap_or("unknown");
    Key::Unknown(format!("{}: {why}", fact.text))
}

fn key(text: &mut String, name: &str, key: Key<'_>) {
    match key {
        Key::Known(fact) => {
            let value = scalar(&fact.value).unwrap_or_default();
            let comment = match (fact.certainty, fact.why.as_deref()) {
                (Certainty::Certain, _) => String::new(),
                (certainty, Some(why)) => format!("  # {certainty}: {}", one_line(why)),
                (certainty, None) => format!("  # {certainty}"),
            };
            add(text, &format!("{name}: {value}{comment}"));
        }
        Key::Unknown(why) => {
            let (indent, name) = name.split_at(name.len() - name.trim_start().len());
            add(text, &format!("{indent}# {name}: {}", one_line(&why)));
        }
    }
}

/// As YAML.
fn scalar(value: &Literal) -> Option<String> {
    match value {
        Literal::Bool(bool) => Some(bool.to_string()),
        Literal::Int(int) => Some(int.to_string()),
        Literal::Float(float) => Some(float.to_string()),
        Literal::Text(text) => Some(quoted(text)),
        Literal::Nothing | Literal::List(_) => None,
    }
}

fn quoted(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_./-".contains(letter);
    let starts =
        text.chars().next().is_some_and(|first| first.is_ascii_alphabetic() || first == '/');
    if starts
        && text.chars().all(is_plain)
        && !["true", "false", "null", "yes", "no", "on", "off"].contains(&text)
    {
        return text.to_owned();
    }
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            control if control.is_control() => {
                write!(quoted, "\\u{:04x}", u32::from(control))
                    .expect("writing to a string cannot fail");
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

fn add(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("writing to a string cannot fail");
}
