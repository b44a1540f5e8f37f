//! `tierfeed client`: work that the Python package delegates to a process, because it links neither the parser
//! of job files nor a network client, and because tierfeed starts no threads in a trainer.
//!
//! A request is one JSON document on standard input, with paths as bytes. A failure is a sentence on standard
//! error with the exit code [`WRONG_INPUT`], or [`TURNED_AWAY`] for a process that is no rank of the job.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    os::unix::ffi::OsStringExt,
    path::{self, Path, PathBuf},
    sync::Arc,
};

use anyhow::anyhow;
use clap::Subcommand;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tierfeed_core::fleet::launch::{Identity, LaunchMismatch};
use tierfeed_dataset::{
    Catalog, Dataset, Index,
    keys::{self, DatasetKeys},
};
use tierfeed_runtime::{agent::briefing, dataset::further_index};
use tierfeed_workload_analyzer::Job;

use super::dataset_keys;
use crate::{failure::Failure, output};

/// What the Python package leaves to a process of its own.
#[derive(Debug, Subcommand)]
pub(crate) enum Client {
    /// What a trainer must know of a job to read without an agent.
    Briefing,
    /// Builds an index by the keys of a dataset.
    Index,
}

const TURNED_AWAY: u8 = 4;

/// The exit code for wrong input. Not 2, because programs end with 2 on unknown commands.
const WRONG_INPUT: u8 = 5;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Trainer {
    job: Vec<u8>,
    /// The index of the dataset, unless the job names it.
    index: Option<Vec<u8>>,
    launched: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexRequest {
    /// The bytes of a path, which need not be text, or of a URL.
    source: Vec<u8>,
    output: Vec<u8>,
    keys: BTreeMap<String, Value>,
}

pub(crate) fn run(question: &Client) -> Result<(), Failure> {
    let answered = match question {
        Client::Briefing => asked().and_then(brief),
        Client::Index => asked().and_then(index),
    };
    answered.map_err(|failure| match failure {
        Failure::Input(error) => Failure::Passed(WRONG_INPUT, Some(error)),
        other => other,
    })
}

fn asked<T: DeserializeOwned>() -> Result<T, Failure> {
    serde_json::from_reader(io::stdin().lock()).map_err(Failure::input)
}

fn brief(trainer: Trainer) -> Result<(), Failure> {
    let Trainer { job: file, index, launched } = trainer;
    let file = path_of(file);
    let turned_away = |misfit: LaunchMismatch| Failure::Passed(TURNED_AWAY, Some(misfit.into()));
    let identity = Identity::read(&|name| launched.get(name).cloned());
    let identity = identity.map_err(|error| turned_away(error.into()))?;
    let (job, text) = Job::load_with(&file, identity.launched_world()).map_err(Failure::input)?;
    let rank = identity.rank_in(&job.post(&text, &file)).map_err(turned_away)?;
    let index_path = index.map(path_of).or_else(|| job.index.clone()).ok_or_else(|| {
        Failure::Input(anyhow!(
            "{}: no index to read the dataset by; build one with `tierfeed index` and name it by \
             TIERFEED_INDEX or dataset.index",
            file.display()
        ))
    })?;
    let read = |dataset: &Dataset, path: &Path| {
        let index = Index::read(path).map_err(Failure::input)?;
        index.check(dataset).map_err(Failure::input)?;
        Ok(Arc::new(index))
    };
    let first = read(&job.dataset, &index_path)?;
    let further = job.further.iter().map(|it| {
        let path = further_index(it, &index_path);
        read(&it.dataset, &path)
    });
    let catalog = Catalog::new(first, further.collect::<Result<Vec<_>, Failure>>()?);
    let job = job.with_columns_of(&catalog).map_err(Failure::input)?;
    let order = job.order_of_all(&catalog.samples()).map_err(Failure::input)?;
    let index_path = path::absolute(&index_path).map_err(Failure::input)?;
    if index_path.to_str().is_none() {
        let path = index_path.display();
        return Err(Failure::Input(anyhow!("{path}: the path of an index must be UTF-8; move it")));
    }
    let ahead = job.staged_batches();
    let briefing = briefing::of(&job, rank, order, &catalog, index_path, ahead);
    output::lines(&serde_json::to_string(&briefing)?)
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

fn index(wish: IndexRequest) -> Result<(), Failure> {
    let here = path::absolute(".").map_err(Failure::input)?;
    let dataset = dataset_keys::dataset(&path_of(wish.source), keys(wish.keys)?, &here);
    let dataset = dataset.map_err(Failure::input)?;
    let output = path_of(wish.output);
    let previous = Index::read(&output).ok();
    let index = Index::build(&dataset, previous.as_ref(), &mut |_| ()).map_err(Failure::input)?;
    // The client tells its user.
    for warning in index.warnings() {
        output::lines(warning)?;
    }
    index.save(&output).map_err(Failure::input)
}

fn keys(given: BTreeMap<String, Value>) -> Result<DatasetKeys, Failure> {
    let text = |value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let mut keys = DatasetKeys::default();
    for (name, value) in given {
        let key = keys::named(&name);
        let key = key.ok_or_else(|| Failure::Input(anyhow!("a dataset has no key {name}")))?;
        let values = match value {
            Value::Array(values) if key.is_list => values.into_iter().map(text).collect(),
            Value::Array(_) => {
                return Err(Failure::Input(anyhow!("{name} is a list; give one value")));
            }
            value => vec![text(value)],
        };
        keys.set(key.name, values);
    }
    Ok(keys)
}
