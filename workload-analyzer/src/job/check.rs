//! Turns a job file as typed into a job, key by key.
//!
//! The first invalid key ends the check with an error. All defaults are in this module.

mod dataset;
mod datasets;
mod order;
mod policy;
mod prefetch;
mod tiers;
mod trainer;
mod transform;
mod value;

use std::path::Path;

use tierfeed_core::{
    order::{Shuffle, World},
    retention::policy::Kind,
    session::SkipShare,
    units::{Bytes, Nanoseconds},
};

use super::{Job, JobError, KeyConflict, Network, OnError, Reason, Verify, location};
use crate::job_file::{JobFile, Name, OnErrorFile, Text, Whole, WorldFile};

const CHUNK_MIN: Bytes = Bytes(64 << 10);
const CHUNK_MAX: Bytes = Bytes(1 << 40);
const CHUNK_STEP: u64 = 4 << 10;

/// The longest name of a job or dataset, which is that of a directory or file too.
const NAME_LEN_MAX: usize = 64;
const NODES_MAX: u32 = 65_536;
const RANKS_PER_NODE_MAX: u32 = 1_024;
const BATCH_SIZE_MAX: u32 = 1 << 20;
const EPOCHS_MAX: u32 = 1_000_000;

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
        let chunk = self.chunk(typed.chunk.as_ref())?;
        let world = self.world(typed.world.as_ref(), default)?;
        let order = self.order(&typed.order, world)?;
        let step_time = match &typed.step_time {
            None => None,
            Some(time) => Some(self.quantity::<Nanoseconds>(&["step_time"], time, "120 ms")?),
        };
        let tiers = self.tiers(typed.tiers.as_ref(), chunk.unwrap_or(CHUNK_MIN))?;
        let policy = self.policy(typed.policy.as_ref())?;
        if policy == Kind::Partitioned && order.shuffle == Shuffle::Published {
            return Err(self.conflict(&["policy"], KeyConflict::NothingToPartition));
        }
        let verify = self.verify(typed.verify.as_ref())?;
        let look_ahead = self.look_ahead(typed.prefetch.as_ref())?;
        self.refuse_impossible_direct(&tiers, policy, order.shuffle, verify)?;
        let batch_size = self.whole(&["batch_size"], typed.batch_size, 1..=BATCH_SIZE_MAX)?;
        let further = std::mem::take(&mut typed.datasets);
        if !further.is_empty() && typed.dataset.described.is_some() {
            return Err(self.conflict(&["datasets"], KeyConflict::BesideDescribed));
        }
        let transform = typed.transform.take();
        let further = self.datasets(further, batch_size, &order)?;
        let transform = self.transform(transform, &typed.dataset, &tiers, &further)?;
        Ok(Job {
            name: self.name(&typed.name)?,
            dataset: self.dataset(&["dataset"], &typed.dataset)?,
            further,
            cold: self.cold_store(&typed.dataset)?,
            index: self.index(&["dataset"], &typed.dataset)?,
            described: typed.dataset.described.as_ref().map(|it| self.described(it)).transpose()?,
            shuffle: order.shuffle,
            seed: order.seed,
            epochs: order.epochs,
            drop_last: order.drop_last,
            start: order.start,
            batch_size,
            world,
            step_time,
            policy,
            tuning: self.tuning(&typed, policy, look_ahead)?,
            chunk,
            prefetch_batches: self.prefetch_batches(typed.prefetch.as_ref())?,
            look_ahead,
            assignment: self.assignment(typed.prefetch.as_ref())?,
            trainer: self.trainer(&typed)?,
            transform,
            threads: self.threads(typed.threads.as_ref())?,
            on_error: self.on_error(typed.on_error.as_ref())?,
            verify,
            network: self.network(typed.network.as_ref())?,
            job_scratch: self.job_scratch(typed.job_scratch.as_ref(), &tiers)?,
            tiers,
        })
    }

    fn read(&self) -> Result<JobFile, JobError> {
        location::refuse_repeated_keys(self.text)
            .map_err(|source| self.malformed(".".to_owned(), source))?;
        let yaml = serde_yaml::Deserializer::from_str(self.text);
        serde_path_to_error::deserialize(yaml).map_err(|error| self.unread(error))
    }

    /// The error for a text that does not parse. A credential is reported by its key only, because its value
    /// must not get into a log.
    fn unread(&self, error: serde_path_to_error::Error<serde_yaml::Error>) -> JobError {
        let path = error.path().to_string();
        let keys: Vec<_> = path.split('.').collect();
        let is_unknown = error.inner().to_string().contains("unknown field");
        if is_unknown && keys.last().is_some_and(|key| CREDENTIALS.contains(key)) {
            return self.conflict(&keys, KeyConflict::Credential);
        }
        self.malformed(path, error.into_inner())
    }

    fn name(&self, name: &Name) -> Result<String, JobError> {
        if is_name(&name.0) {
            Ok(name.0.clone())
        } else {
            Err(self.invalid(&["name"], &name.0, Reason::NotAName))
        }
    }

    fn world(&self, world: Option<&WorldFile>, default: World) -> Result<World, JobError> {
        let typed = |key: fn(&WorldFile) -> Option<Whole>| world.and_then(key);
        let nodes = typed(|world| world.nodes).unwrap_or(Whole(default.nodes.into()));
        let ranks_per_node =
            typed(|world| world.ranks_per_node).unwrap_or(Whole(default.ranks_per_node.into()));
        Ok(World {
            nodes: self.whole(&["world", "nodes"], nodes, 1..=NODES_MAX)?,
            ranks_per_node: self.whole(
                &["world", "ranks_per_node"],
                ranks_per_node,
                1..=RANKS_PER_NODE_MAX,
            )?,
        })
    }

    fn on_error(&self, typed: Option<&OnErrorFile>) -> Result<OnError, JobError> {
        match typed {
            None => Ok(OnError::Fail),
            Some(OnErrorFile::Word(Text(word))) => match word.as_str() {
                "fail" => Ok(OnError::Fail),
                "skip" => Ok(OnError::Skip(SkipShare::DEFAULT)),
                _ => {
                    let reason = Reason::NotOneOf { allowed: "fail, skip" };
                    Err(self.invalid(&["on_error"], word, reason))
                }
            },
            Some(OnErrorFile::Skip(share)) => {
                let parts = parts_per_million(&share.0);
                let invalid =
                    || self.invalid(&["on_error", "skip"], &share.0, Reason::NotASkipShare);
                parts.map(|parts| OnError::Skip(SkipShare(parts))).ok_or_else(invalid)
            }
        }
    }

    fn network(&self, typed: Option<&Text>) -> Result<Network, JobError> {
        let Some(typed) = typed else { return Ok(Network::Open) };
        let known = [Network::Open, Network::Private];
        self.one_of(&["network"], typed, &known, Network::name, "open, private")
    }

    fn verify(&self, typed: Option<&Text>) -> Result<Verify, JobError> {
        let Some(typed) = typed else { return Ok(Verify::Shared) };
        let known = [Verify::Shared, Verify::Always];
        self.one_of(&["verify"], typed, &known, Verify::name, "shared, always")
    }

    fn chunk(&self, typed: Option<&Text>) -> Result<Option<Bytes>, JobError> {
        let Some(typed) = typed else { return Ok(None) };
        let chunk = self.quantity::<Bytes>(&["chunk"], typed, "512 MiB")?;
        if chunk.0.is_multiple_of(CHUNK_STEP) && (CHUNK_MIN..=CHUNK_MAX).contains(&chunk) {
            Ok(Some(chunk))
        } else {
            Err(self.invalid(&["chunk"], &typed.0, Reason::NotAChunk))
        }
    }

    fn invalid(&self, keys: &[&str], value: &str, reason: Reason) -> JobError {
        JobError::Invalid {
            file: self.file.to_owned(),
            line: location::line_of(self.text, keys),
            key: keys.join("."),
            value: value.to_owned(),
            reason,
        }
    }

    fn conflict(&self, keys: &[&str], conflict: KeyConflict) -> JobError {
        JobError::Conflict {
            file: self.file.to_owned(),
            line: location::line_of(self.text, keys),
            key: keys.join("."),
            conflict,
        }
    }

    fn malformed(&self, key: String, source: serde_yaml::Error) -> JobError {
        let line = source.location().map_or(1, |location| location.line());
        JobError::Malformed { file: self.file.to_owned(), line, key, said: source }
    }
}

/// A share such as `1 %`, `0.5 %` or `0.005`, from one part per million to all.
fn parts_per_million(typed: &str) -> Option<u32> {
    const ALL: f64 = 1e6;
    let share = match typed.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().ok()? / 100.0,
        None => typed.parse().ok()?,
    };
    let parts = (share * ALL).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is in the range"
    )]
    (1.0..=ALL).contains(&parts).then_some(parts as u32)
}

fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=NAME_LEN_MAX).contains(&text.len()) && !text.starts_with('.') && text.chars().all(allowed)
}
