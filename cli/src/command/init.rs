//! `tierfeed init`: writes a job file for what lies in a folder, and says what to write in a script and what the
//! job does not carry over of it.

mod dataset;
mod figures;
mod job_text;
mod questions;
mod script;
mod surroundings;

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use clap::Args;
use serde::Serialize;
use tierfeed_core::order::World;
use tierfeed_dataset::format::FORMATS;

use self::{
    figures::{Age, ProbeTiers},
    job_text::Draft,
    questions::{Mode, Questions},
    script::{Hint, Loader, Script},
    surroundings::Surroundings,
};
use super::{
    dataset_keys::{BucketOptions, FormatOptions},
    machine::{Machine, MachineReports},
};
use crate::{
    environment,
    failure::Failure,
    jobs::{self, JobFile, SizedJob},
    output,
};

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// A folder with a training script or a dataset, a script (.py or .ipynb), or a dataset as a path or a
    /// URL.
    #[arg(default_value = ".")]
    pub(crate) place: PathBuf,
    /// The training script [default: the one in the folder].
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// The dataset, as a path or a URL [default: as the script says, else the one in the folder].
    #[arg(long, value_name = "SOURCE")]
    pub(crate) source: Option<String>,
    /// How samples lie in objects [default: by the names of the files].
    #[arg(long, value_name = "FORMAT", value_parser = FORMATS)]
    pub(crate) format: Option<String>,
    #[command(flatten)]
    pub(crate) bucket: BucketOptions,
    #[command(flatten)]
    pub(crate) keys: FormatOptions,
    /// Samples per rank and step [default: as the script says].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) batch_size: Option<u32>,
    /// Training processes on each node, mostly one for each GPU [default: as the script says, else the GPUs
    /// of this host if the script is for several processes].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) ranks: Option<u32>,
    /// Whether the tiers of this host are measured.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) probe: ProbeTiers,
    /// Where the job file goes.
    #[arg(short, long, value_name = "FILE", default_value = "job.yaml")]
    pub(crate) output: PathBuf,
    /// Replaces a job file that is there.
    #[arg(long)]
    pub(crate) force: bool,
    /// Asks nothing and takes the defaults, as without a terminal.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Prints what was found and written as JSON, and asks nothing.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The batch size where nothing says one.
const BATCH_SIZE: u32 = 32;

#[derive(Serialize)]
struct Document<'a> {
    job: &'a Path,
    yaml: &'a str,
    source: &'a str,
    format: &'a str,
    samples: u32,
    total_bytes: u64,
    script: Option<&'a Path>,
    /// The lines to write in the place of the loader.
    hint: Hint,
    /// Parts of the script that change samples, labels or order, and are not carried over.
    warnings: &'a [String],
    /// Settings that are said in another place, such as arguments of a loader.
    notes: &'a [String],
    /// The report with the figures of the tiers, and whether it was measured now.
    tiers: Option<&'a Path>,
    tiers_measured_now: bool,
    /// Answers that were assumed without a question.
    assumed: &'a [String],
    command: &'a str,
}

/// The place that the user named: a folder, a script or a dataset.
struct NamedPlace {
    folder: PathBuf,
    script: Option<PathBuf>,
    source: Option<String>,
    /// It is a dataset itself, beside which no script is looked for.
    is_dataset: bool,
}

impl NamedPlace {
    fn surroundings(&self) -> Result<Surroundings, Failure> {
        if self.is_dataset {
            return Ok(Surroundings::default());
        }
        Surroundings::of(&self.folder)
            .with_context(|| self.folder.display().to_string())
            .map_err(Failure::Input)
    }
}

pub(crate) fn run(arguments: &Init) -> Result<(), Failure> {
    refuse_overwriting(arguments)?;
    let place = named_place(arguments)?;
    let mode =
        if arguments.yes || arguments.json { Mode::TakeDefaults } else { Mode::of_terminal() };
    let mut questions = Questions::new(mode);
    let around = place.surroundings()?;
    let script = match &place.script {
        Some(path) => Some(Script::named(path)?),
        None => Script::chosen(&around.scripts, &mut questions)?,
    };
    let script = script.as_ref();
    let looked_at = (place.folder.as_path(), &around);
    let named = place.source.as_deref();
    let mut warnings = warnings_of(script, named)?;
    let mut chosen = dataset::choose(arguments, named, looked_at, script, &mut questions)?;
    let source = source_from(&arguments.output, chosen.keys.source())?;
    chosen.keys = chosen.keys.with("source", source);
    let held_out = chosen.held_out.as_deref();
    let held_out = held_out.map(|it| source_from(&arguments.output, it)).transpose()?;
    let batch_size = batch_size(arguments, script, &mut questions)?;
    let ranks = ranks(arguments, script, &mut questions)?;
    let figures = figures::of_host(arguments.probe)?;
    let mut draft = Draft {
        name: job_text::name(chosen.keys.source()),
        dataset: &chosen.keys,
        why_dataset: &chosen.why,
        held_out: held_out.as_deref(),
        script,
        warnings: &[],
        batch_size,
        ranks,
        tiers: figures::lines(figures.as_ref()),
        contents: None,
    };
    let order = job_text::order_of(script);
    questions.assumed.extend(job_text::assumed_of(&order, script));
    let sized = checked(&draft.text(&order), &arguments.output)?;
    warnings.extend(chosen.warning.clone());
    warnings.extend(few_samples(&draft, &sized));
    draft.warnings = &warnings;
    draft.contents = Some(contents(&sized));
    let text = draft.text(&order);
    write(arguments, &text)?;
    let index = sized.index();
    let document = Document {
        job: &arguments.output,
        yaml: &text,
        source: chosen.keys.source(),
        format: chosen.keys.format_name(),
        samples: index.map_or(0, tierfeed_dataset::Index::len),
        total_bytes: index.map_or(0, |index| index.total().0),
        script: script.map(|script| script.path.as_path()),
        hint: Hint::of(script, chosen.keys.format_name()),
        warnings: &warnings,
        notes: script.map_or(&[][..], |script| &script.notes),
        tiers: figures.as_ref().map(|figures| figures.file.as_path()),
        tiers_measured_now: figures.as_ref().is_some_and(|it| it.age == Age::Measured),
        assumed: &questions.assumed,
        command: &command(&arguments.output, script),
    };
    if arguments.json {
        return output::json(&document);
    }
    print(&document, &contents(&sized), script.and_then(|script| script.loader.as_ref()))
}

/// The warnings about what a job does not carry over of a script. Of a script that trains on a part, a job is
/// written only if the user names the source.
fn warnings_of(script: Option<&Script>, named: Option<&str>) -> Result<Vec<String>, Failure> {
    let Some(script) = script else { return Ok(Vec::new()) };
    match (&script.part, named) {
        (Some(part), None) => Err(Failure::Input(anyhow!(
            "{part}, held-out samples too; put those of the training into a folder or manifest of their own and \
             name it with --source, or name the whole to train on all of it"
        ))),
        (part, _) => Ok(part.iter().chain(&script.warnings).cloned().collect()),
    }
}

fn few_samples(draft: &Draft<'_>, sized: &SizedJob) -> Option<String> {
    let samples = sized.index()?.len();
    let (batch_size, _) = draft.batch_size;
    let ranks = draft.ranks.map_or(1, |(nodes, ranks)| nodes * ranks);
    tierfeed_runtime::dataset::few_samples(
        &sized.file.job.dataset.format,
        samples,
        ranks,
        batch_size,
    )
}

fn refuse_overwriting(arguments: &Init) -> Result<(), Failure> {
    if arguments.output.exists() && !arguments.force {
        return Err(Failure::Input(anyhow!(
            "{} is there already; --force replaces it, -o FILE writes another",
            arguments.output.display()
        )));
    }
    Ok(())
}

fn named_place(arguments: &Init) -> Result<NamedPlace, Failure> {
    let given = &arguments.place;
    let text = given.to_string_lossy();
    let is_script = given.extension().is_some_and(|it| it == "py" || it == "ipynb");
    let (folder, script, source) = if text.contains("://") {
        (PathBuf::from("."), None, Some(text.into_owned()))
    } else if given.is_dir() {
        (given.clone(), None, None)
    } else if !given.exists() {
        return Err(Failure::Input(anyhow!(
            "{text}: no such file or directory; name a folder, a script or a dataset"
        )));
    } else if is_script {
        let parent = given.parent().filter(|it| !it.as_os_str().is_empty());
        (parent.unwrap_or(Path::new(".")).to_owned(), Some(given.clone()), None)
    } else {
        (PathBuf::from("."), None, Some(text.into_owned()))
    };
    let is_dataset = source.is_some();
    let script = arguments.script.clone().or(script);
    let source = arguments.source.clone().or(source);
    Ok(NamedPlace { folder, script, source, is_dataset })
}

/// The source as the job file says it: a path relative to the directory of the file if it lies below.
fn source_from(output: &Path, source: &str) -> Result<String, Failure> {
    if source.contains("://") {
        return Ok(source.to_owned());
    }
    let path =
        fs::canonicalize(source).with_context(|| source.to_owned()).map_err(Failure::Input)?;
    let parent = output.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = fs::canonicalize(parent)
        .with_context(|| format!("{}: the directory of the job file", parent.display()))
        .map_err(Failure::Input)?;
    let Ok(below) = path.strip_prefix(&parent) else { return Ok(path.display().to_string()) };
    Ok(if below.as_os_str().is_empty() { ".".to_owned() } else { format!("./{}", below.display()) })
}

fn batch_size(
    arguments: &Init,
    script: Option<&Script>,
    questions: &mut Questions,
) -> Result<(u32, String), Failure> {
    if let Some(size) = arguments.batch_size {
        return Ok((size, String::new()));
    }
    let told = script.and_then(|script| {
        let key = script.key("batch_size")?;
        Some((key.number()?, key.from(script)))
    });
    if let Some(told) = told {
        return Ok(told);
    }
    let why = match script {
        Some(script) => format!("{} does not say it", script.place()),
        None => "there is no script that says it".to_owned(),
    };
    questions.number("batch_size", BATCH_SIZE, &why).map(|size| (size, String::new()))
}

/// Nodes and ranks on each, if the launcher shall not decide.
fn ranks(
    arguments: &Init,
    script: Option<&Script>,
    questions: &mut Questions,
) -> Result<Option<(u32, u32)>, Failure> {
    if let Some(ranks) = arguments.ranks {
        return Ok(Some((1, ranks)));
    }
    let Some(script) = script else { return Ok(None) };
    if let Some(world) = script.world {
        return Ok(Some((world.nodes, world.ranks_per_node)));
    }
    if !script.is_distributed {
        return Ok(None);
    }
    let gpus = environment::gpus();
    let why =
        if gpus == 0 { "this host has no GPU" } else { "a process for each GPU of this host" };
    questions.number("ranks on each node", gpus.max(1), why).map(|ranks| Some((1, ranks)))
}

/// Reads the job with its dataset, because what is written must run.
fn checked(text: &str, output: &Path) -> Result<SizedJob, Failure> {
    let world = World { nodes: 1, ranks_per_node: 1 };
    let name = format!("{} (not written)", output.display());
    let file = JobFile::of_text(text.to_owned(), &name, world)?;
    let sized = jobs::sized(file)?;
    let no_reports = MachineReports { tiers: Vec::new() };
    let machines = Machine::kinds(&sized.file, &no_reports)?;
    for machine in machines {
        machine.layout(&sized.file, &sized.demand)?;
    }
    Ok(sized)
}

fn contents(sized: &SizedJob) -> String {
    let Some(index) = sized.index() else { return String::new() };
    let classes = match index.class_names().len() {
        0 => String::new(),
        count => format!(", {count} classes"),
    };
    format!("{} samples, {}{classes}, in {} objects", index.len(), index.total(), index.objects())
}

fn write(arguments: &Init, text: &str) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    options.write(true).truncate(true);
    if arguments.force {
        options.create(true)
    } else {
        options.create_new(true)
    };
    let written =
        options.open(&arguments.output).and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| arguments.output.display().to_string()).map_err(Failure::Work)
}

fn print(document: &Document<'_>, contents: &str, loader: Option<&Loader>) -> Result<(), Failure> {
    let job = document.job.display();
    let mut lines = vec![titled("written", &format!("{job}: {contents}"))];
    lines.push(titled("tiers", &tiers(document)));
    lines.extend(document.assumed.iter().map(|it| titled("assumed", it)));
    lines.extend(document.warnings.iter().map(|it| titled("warning", it)));
    let Hint { import, line, page } = document.hint;
    let place = loader.map_or_else(|| "in your script".to_owned(), place_of);
    lines.push(titled("write", &format!("{place} ({page} has a whole script)")));
    lines.extend(import.lines().chain(line.lines()).map(|line| format!("  {line}")));
    lines.extend(document.notes.iter().map(|note| titled("note", note)));
    lines.push(titled("start", document.command));
    lines.push(titled(
        "ask first",
        &format!("tierfeed analyze {job}   (whether the tiers can feed it)"),
    ));
    output::lines(&lines.join("\n"))
}

fn tiers(document: &Document<'_>) -> String {
    let Some(file) = document.tiers else { return "not measured".to_owned() };
    let when = if document.tiers_measured_now {
        "measured now"
    } else {
        "measured before, and this host has not changed"
    };
    format!("{when}: {} (`tierfeed tiers show`)", file.display())
}

fn place_of(loader: &Loader) -> String {
    let is_notebook =
        Path::new(&loader.file).extension().is_some_and(|it| it.eq_ignore_ascii_case("ipynb"));
    let counted = if is_notebook { ", over cells with code" } else { "" };
    format!("at {}:{}{counted}, instead of {}", loader.file, loader.line, loader.what)
}

fn command(job: &Path, script: Option<&Script>) -> String {
    let job = job.display();
    let script = script.map_or(Path::new("train.py"), |script| &script.path);
    if script.extension().is_some_and(|it| it == "ipynb") {
        return format!("tierfeed run {job} -- jupyter lab {}", script.display());
    }
    format!("tierfeed run {job} -- {} {}", environment::python(), script.display())
}

fn titled(title: &str, text: &str) -> String {
    format!("{title:<12}{text}")
}
