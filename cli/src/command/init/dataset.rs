//! The dataset: as the user names it, else as the script says, else as names of files show it.

use std::{
    ffi::OsStr,
    fmt,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use tierfeed_dataset::{
    format::FORMATS,
    keys::{DatasetKeys, KeyConflict, KeyError},
    recognition::{self, Directory, Recognized},
    source::Location,
};

use super::{
    Init,
    questions::Questions,
    script::{Key, Script},
    surroundings::{Surroundings, joined},
};
use crate::{
    command::dataset_keys::{self, option, refused},
    failure::Failure,
    output,
};

#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) keys: DatasetKeys,
    pub(super) why: String,
    /// A dataset beside it that is held out by its name, in the same format.
    pub(super) held_out: Option<String>,
    /// Files in it that are held out by their names.
    pub(super) warning: Option<String>,
}

#[derive(Debug)]
struct Source {
    text: String,
    format: Option<String>,
    why: String,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format = self.format.as_deref().unwrap_or("unknown format");
        write!(f, "{} ({format})", self.text)
    }
}

/// Chooses source and format. `named` is the source that the user names; without it `folder` is searched.
pub(super) fn choose(
    arguments: &Init,
    named: Option<&str>,
    (folder, surroundings): (&Path, &Surroundings),
    script: Option<&Script>,
    questions: &mut Questions,
) -> Result<Chosen, Failure> {
    let source = match named {
        Some(text) => Source { text: text.to_owned(), format: None, why: "as named".to_owned() },
        None => unnamed(folder, surroundings, script, questions)?,
    };
    let (format, pattern) = match arguments.format.clone().or(source.format) {
        Some(format) => (format, None),
        None => format_of(arguments, &source.text, script)?,
    };
    let mut keys =
        dataset_keys::of_options(&source.text, &arguments.bucket, &format, &arguments.keys);
    if let Some(pattern) = pattern.filter(|_| !keys.has("glob")) {
        keys = keys.with("glob", pattern);
    }
    complete(&mut keys, script, questions)?;
    let held_out = held_out(folder, surroundings, &keys);
    let warning = held_out_files(&keys);
    Ok(Chosen { keys, why: source.why, held_out, warning })
}

/// A warning if files of the dataset are named as training data and others as held out.
fn held_out_files(keys: &DatasetKeys) -> Option<String> {
    if keys.has("glob") || keys.has("manifest") {
        return None;
    }
    let seen = Surroundings::of(Path::new(keys.source())).ok()?.directories;
    let directories = seen.iter().map(|it| &it.path).filter(|path| !path.contains(&b'/'));
    let names = seen.first()?.files.iter().chain(directories);
    let names = names.map(|name| String::from_utf8_lossy(name).into_owned());
    let (held_out, others): (Vec<_>, Vec<_>) = names.partition(|name| is_named_held_out(name));
    let first = held_out.iter().min()?;
    let is_split = others.iter().any(|name| words(name).any(|word| word.starts_with("train")));
    is_split.then(|| {
        format!(
            "{}: {} entries are held out by their names, such as {first}, and the job trains on them; give those of \
             the training a folder of their own, or pick them with --glob",
            keys.source(),
            held_out.len()
        )
    })
}

/// The format by the names of the files, else as the script says, else files that are samples one by one, with a
/// pattern for them.
fn format_of(
    arguments: &Init,
    source: &str,
    script: Option<&Script>,
) -> Result<(String, Option<String>), Failure> {
    let directories = names_below(arguments, source)?;
    let seen = recognition::recognize(&directories);
    let here = seen.iter().find(|it| it.path.is_empty());
    match here.or_else(|| seen.first()) {
        Some(it) if !it.path.is_empty() && it.format == "image-folder" => {
            let below = Path::new(source).join(OsStr::from_bytes(&it.path));
            Err(Failure::Input(anyhow!(
                "{source}: it is no dataset by the names of its files, but {} is an image-folder; name that, or \
                 give --format",
                below.display()
            )))
        }
        // Shards may lie in directories below, all in one format.
        Some(it) => Ok((it.format.to_owned(), None)),
        None => {
            if let Some(why) = recognition::unsuited(&directories) {
                return Err(Failure::Input(anyhow!("{source}: {why}; --format says what it is")));
            }
            let told = script.and_then(|script| script.key("dataset.format")?.text());
            let told = told.filter(|it| FORMATS.contains(it) && *it != "files");
            Ok(match told {
                Some(format) => (format.to_owned(), None),
                None => ("files".to_owned(), recognition::pattern(&directories)),
            })
        }
    }
}

/// Adds the keys that the format needs, from the script or the user.
fn complete(
    keys: &mut DatasetKeys,
    script: Option<&Script>,
    questions: &Questions,
) -> Result<(), Failure> {
    let here = std::path::absolute(".").map_err(Failure::input)?;
    loop {
        let Err(conflict) = keys.format(&here) else { return Ok(()) };
        let KeyError::Conflict { conflict: KeyConflict::NeededByFormat { key, what, .. }, .. } =
            conflict
        else {
            return Err(refused(conflict));
        };
        let told = script.and_then(|script| script.key(&format!("dataset.{key}"))?.number());
        let value = match told {
            Some(number) => Some(number.to_string()),
            None => questions.text(&format!("{}, {what}", option(key)))?,
        };
        match value {
            Some(value) => keys.set(key, vec![value]),
            None => return Err(refused(conflict)),
        }
    }
}

/// The dataset of the script if it is here, else one in the folder.
fn unnamed(
    folder: &Path,
    surroundings: &Surroundings,
    script: Option<&Script>,
    questions: &mut Questions,
) -> Result<Source, Failure> {
    let told = script.and_then(|script| {
        let text = script.key("dataset.source")?.text()?;
        Some((script, text))
    });
    if let Some(source) = told.and_then(|(script, text)| of_script(folder, script, text)) {
        return Ok(source);
    }
    if let (None, Some(script)) = (told, script.filter(|script| script.is_foreign)) {
        return Err(Failure::Input(anyhow!(
            "{}: its dataset is {}, whose files a job does not read; name files that hold the same with --source",
            script.place(),
            script.reads
        )));
    }
    let chosen = questions.choose("the dataset", seen(folder, surroundings))?;
    match (&chosen, told) {
        (Some(chosen), Some((script, text))) => questions.assumed.push(format!(
            "dataset: {} instead of {text} of {}, which is not here",
            chosen.text,
            script.place()
        )),
        (None, Some((script, text))) => {
            return Err(Failure::Input(anyhow!(
                "{}: its dataset {text} is not here, and {} holds none; name it with --source",
                script.place(),
                folder.display()
            )));
        }
        (Some(chosen), None) => questions.assumed.extend(script.map(|script| {
            let what = if script.reads.is_empty() { "its dataset" } else { &script.reads };
            format!(
                "dataset: {}; where {what} of {} reads is not known",
                chosen.text,
                script.place()
            )
        })),
        (None, None) => {}
    }
    chosen.ok_or_else(|| {
        let why = recognition::unsuited(&surroundings.directories);
        let why = why.map(|it| format!(" ({it})")).unwrap_or_default();
        Failure::Input(anyhow!(
            "{}: no dataset is recognized in it by the names of its files{why}; name one with --source, and its \
             --format if needed (`tierfeed index --help` has the formats)",
            folder.display()
        ))
    })
}

/// The source that a script names, if it is a bucket or here.
fn of_script(folder: &Path, script: &Script, text: &str) -> Option<Source> {
    let is_url = text.contains("://");
    let text = if is_url { text.to_owned() } else { found(folder, script, text)? };
    let format = script.key("dataset.format").and_then(Key::text);
    // A format that needs keys is asked for again.
    let is_whole = |it: &&str| DatasetKeys::new("", *it).format(Path::new("")).is_ok();
    let format = format.filter(is_whole).map(str::to_owned);
    let why = script.key("dataset.source")?.from(script);
    Some(Source { text, format, why })
}

/// The first dataset in the folder whose name says that it is held out, in the format of the chosen one.
fn held_out(folder: &Path, surroundings: &Surroundings, chosen: &DatasetKeys) -> Option<String> {
    let seen = recognition::recognize(&surroundings.directories);
    let found = seen.iter().find(|it| !is_for_training(it) && it.format == chosen.format_name())?;
    let path = joined(folder, Path::new(OsStr::from_bytes(&found.path))).display().to_string();
    (path != chosen.source()).then_some(path)
}

/// The datasets in the folder: training data before what is held out, and those with more files first.
fn seen(folder: &Path, surroundings: &Surroundings) -> Vec<Source> {
    let mut seen = recognition::recognize(&surroundings.directories);
    seen.sort_by_key(|it| !is_for_training(it));
    let source = |it: &Recognized| {
        let path = joined(folder, Path::new(OsStr::from_bytes(&it.path)));
        let is_here = path.as_os_str().is_empty();
        Source {
            text: if is_here { ".".to_owned() } else { path.display().to_string() },
            format: Some(it.format.to_owned()),
            why: format!("by the names of {} files", it.files),
        }
    };
    seen.iter().map(source).collect()
}

/// A path of the script, from the working directory or from that of the script.
fn found(folder: &Path, script: &Script, text: &str) -> Option<String> {
    let beside = script.path.parent().unwrap_or(folder).join(text);
    let places = [PathBuf::from(text), folder.join(text), beside];
    places.into_iter().find(|path| path.exists()).map(|path| path.display().to_string())
}

fn is_for_training(found: &Recognized) -> bool {
    !is_named_held_out(&String::from_utf8_lossy(&found.path))
}

fn is_named_held_out(name: &str) -> bool {
    words(name).any(|word| recognition::is_held_out(word.as_bytes()))
}

fn words(name: &str) -> impl Iterator<Item = String> {
    let words: Vec<_> = name.split(['/', '-', '_', '.']).map(str::to_lowercase).collect();
    words.into_iter()
}

fn names_below(arguments: &Init, source: &str) -> Result<Vec<Directory>, Failure> {
    let here = std::path::absolute(".").map_err(Failure::input)?;
    let keys = dataset_keys::of_options(source, &arguments.bucket, "", &arguments.keys);
    let location = keys.location(&here).map_err(refused)?;
    match &location {
        Location::Path(path) if path.is_dir() => {
            Ok(Surroundings::of(path).map_err(Failure::input)?.directories)
        }
        Location::Path(path) if path.exists() => {
            let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
            Ok(vec![Directory { path: Vec::new(), files: vec![name] }])
        }
        Location::Path(_) => {
            Err(Failure::Input(anyhow!("{source}: no such file or directory; name a dataset")))
        }
        Location::Bucket(_) => {
            let bar = output::bar();
            let listed = recognition::list(&location, &mut |objects| {
                bar.set_message(format!("listing {source}: {objects} objects"));
            });
            bar.finish_and_clear();
            listed.map_err(Failure::input)
        }
    }
}
