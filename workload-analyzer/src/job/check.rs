//! Turns a job file as typed into a job, key by key.
//!
//! The first invalid key ends the check with an error. All defaults are in this module.

mod dataset;
mod datasets;
mod order;
mod policy;
mod tiers;
mod trainer;
mod transform;
mod value;

use std::path::Path;

use tierfeed_core::{
    order::{Shuffle, World},
    retention::policy::Kind,
    session::{LookAhead, OnError, assignment::Assignment},
};

use super::{
    Job, JobError, KeyConflict, Reason, Threads,
    file::{CHUNK_MIN, JobFile, WorldFile},
};
use crate::yaml::{self, YamlError, location};

/// The names that tools of object stores give to their secrets.
const CREDENTIALS: [&str; 18] = [
    "access_key",
    "access_key_id",
    "account_key",
    "account_name",
    "api_key",
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "client_secret",
    "credentials",
    "key",
    "password",
    "sas_token",
    "secret",
    "secret_access_key",
    "secret_key",
    "session_token",
    "token",
];

/// Checks the job in `text`. Errors name `file`; relative paths start at `directory`; the parts of its world
/// that the text leaves out are those of `world`.
pub(super) fn job(
    text: &str,
    file: &Path,
    directory: &Path,
    world: World,
) -> Result<Job, JobError> {
    // Editors of Windows put a mark of the encoding in front.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Check { text, file, directory }.job(world)
}

/// The text of the file, by which checks find the line of a key.
struct Check<'a> {
    text: &'a str,
    file: &'a Path,
    directory: &'a Path,
}

impl Check<'_> {
    fn job(&self, default: World) -> Result<Job, JobError> {
        let mut typed = self.read()?;
        let trainer = self.trainer(&mut typed)?;
        let chunk = typed.chunk.map(|it| it.0.0);
        let WorldFile { nodes, ranks_per_node } = typed.world.take().unwrap_or_default();
        let world = World {
            nodes: nodes.map_or(default.nodes, |it| it.0),
            ranks_per_node: ranks_per_node.map_or(default.ranks_per_node, |it| it.0),
        };
        let order = self.order(&typed.order, world)?;
        let tiers =
            self.tiers(&typed.tiers.take().unwrap_or_default(), chunk.unwrap_or(CHUNK_MIN))?;
        let policy = typed.policy.map_or(Kind::Gap, |it| it.0);
        if policy == Kind::Partitioned && order.shuffle == Shuffle::Published {
            return Err(self.conflict(&["policy"], KeyConflict::NothingToPartition));
        }
        let verify = typed.verify.unwrap_or_default();
        let prefetch = typed.prefetch.take().unwrap_or_default();
        let look_ahead = prefetch.look_ahead.map_or(LookAhead::Auto, |it| it.0);
        self.refuse_impossible_direct(&tiers, policy, order.shuffle, verify)?;
        let batch_size = typed.batch_size.0;
        let further = std::mem::take(&mut typed.datasets);
        if !further.is_empty() && typed.dataset.beside.described.is_some() {
            return Err(self.conflict(&["datasets"], KeyConflict::BesideDescribed));
        }
        let further = self.datasets(further, batch_size, &order)?;
        let transform = typed.transform.take();
        let transform = self.transform(transform, &typed.dataset.keys, &tiers, &further)?;
        Ok(Job {
            dataset: self.dataset(&["dataset"], &typed.dataset.keys)?,
            further,
            cold: self.cold_store(&typed.dataset.beside)?,
            index: typed.dataset.beside.index.take().map(|it| it.0.below(self.directory)),
            described: typed
                .dataset
                .beside
                .described
                .as_ref()
                .map(|it| self.described(it))
                .transpose()?,
            shuffle: order.shuffle,
            seed: order.seed,
            epochs: order.epochs,
            drop_last: order.drop_last,
            start: order.start,
            batch_size,
            world,
            step_time: typed.step_time.map(|it| it.0),
            policy,
            tuning: self.tuning(&typed, policy, look_ahead)?,
            chunk,
            prefetch_batches: prefetch.batches.map(|it| it.0),
            look_ahead,
            assignment: prefetch.assignment.map_or(Assignment::Shared, |it| it.0),
            trainer,
            transform,
            threads: typed.threads.map_or(Threads::Auto, |it| it.0),
            on_error: typed.on_error.map_or(OnError::Fail, |it| it.0),
            verify,
            network: typed.network.unwrap_or_default(),
            job_scratch: self.job_scratch(typed.job_scratch.as_ref(), &tiers)?,
            tiers,
            name: typed.name.0.0,
        })
    }

    /// A credential is reported by its key only, because its value must not get into a log.
    fn read(&self) -> Result<JobFile, JobError> {
        yaml::parse(self.text, self.file).map_err(|error| match &error {
            YamlError::Malformed { key, said, .. } if is_unknown_credential(key, said) => {
                self.conflict(&key.split('.').collect::<Vec<_>>(), KeyConflict::Credential)
            }
            _ => error.into(),
        })
    }

    fn invalid(&self, keys: &[&str], value: &str, reason: impl Into<Reason>) -> JobError {
        JobError::Invalid {
            file: self.file.to_owned(),
            line: location::line_of(self.text, keys),
            key: keys.join("."),
            value: value.to_owned(),
            reason: reason.into(),
        }
    }

    fn conflict(&self, keys: &[&str], conflict: impl Into<KeyConflict>) -> JobError {
        JobError::Conflict {
            file: self.file.to_owned(),
            line: location::line_of(self.text, keys),
            key: keys.join("."),
            conflict: conflict.into(),
        }
    }
}

fn is_unknown_credential(key: &str, said: &serde_yaml::Error) -> bool {
    let last = key.rsplit('.').next().unwrap_or(key);
    CREDENTIALS.contains(&last) && said.to_string().contains("unknown field")
}
