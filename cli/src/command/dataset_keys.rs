//! The keys of a dataset as options of a command, and what is wrong with them by the names of the options.

use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches};
use tierfeed_dataset::{
    Dataset,
    keys::{self, DatasetKeys, Key, KeyConflict, KeyError},
    source::{Access, Identity, Location},
};

use crate::failure::Failure;

/// How a bucket is reached.
#[derive(Debug, Args)]
pub(crate) struct BucketOptions {
    /// The server of a bucket, such as http://127.0.0.1:9000 [default: the usual one of s3://, gs:// or
    /// az://].
    #[arg(long, value_name = "URL", help_heading = "Buckets")]
    pub(crate) endpoint: Option<String>,
    /// The region of a bucket of s3:// [default: as the environment says].
    #[arg(long, value_name = "NAME", help_heading = "Buckets")]
    pub(crate) region: Option<String>,
    /// Reads the bucket without credentials.
    #[arg(long, help_heading = "Buckets")]
    pub(crate) anonymous: bool,
}

impl BucketOptions {
    pub(super) fn access(&self) -> Access {
        let identity = if self.anonymous { Identity::Anonymous } else { Identity::Configured };
        Access { endpoint: self.endpoint.clone(), region: self.region.clone(), identity }
    }
}

/// Which files are taken, and what a format needs to be told: an option for each key.
#[derive(Debug)]
pub(crate) struct FormatOptions(Vec<(&'static Key, Vec<String>)>);

impl Args for FormatOptions {
    fn augment_args(command: clap::Command) -> clap::Command {
        keys::of_contents().fold(command, |command, key| {
            let of = match key.formats().join(" and ") {
                formats if formats.is_empty() => String::new(),
                formats => format!("for {formats}: "),
            };
            let (several, action) = if key.is_list {
                ("; may be given several times [default: all]", ArgAction::Append)
            } else {
                ("", ArgAction::Set)
            };
            let help = format!("{of}{}{several}", key.help);
            let help = format!("{}{}", help[..1].to_uppercase(), &help[1..]);
            // Names of options live as long as the program.
            let name = Box::leak(option_name(key).into_boxed_str());
            let option = Arg::new(key.name).long(&*name).value_name(key.value).action(action);
            command.arg(option.help(help).help_heading("Formats"))
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for FormatOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |key: &'static Key| {
            Some((key, matches.get_many(key.name)?.cloned().collect::<Vec<String>>()))
        };
        Ok(Self(keys::of_contents().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

pub(super) fn of_options(
    source: &str,
    bucket: &BucketOptions,
    format: &str,
    options: &FormatOptions,
) -> DatasetKeys {
    let mut keys = DatasetKeys::new(source, format);
    for (key, value) in [("endpoint", &bucket.endpoint), ("region", &bucket.region)] {
        if let Some(value) = value {
            keys.set(key, vec![value.clone()]);
        }
    }
    if bucket.anonymous {
        keys.set("anonymous", vec!["true".to_owned()]);
    }
    for (key, values) in &options.0 {
        keys.set(key.name, values.clone());
    }
    keys
}

/// The dataset at `source` that `keys` describe, whose paths start at `here`. A URL is UTF-8, a path need not be.
pub(super) fn dataset(source: &Path, keys: DatasetKeys, here: &Path) -> Result<Dataset, KeyError> {
    match source.to_str() {
        Some(source) => keys.with("source", source).dataset(here),
        None => keys.dataset_at(Location::Path(here.join(source)), here),
    }
}

pub(super) fn refused(error: KeyError) -> Failure {
    Failure::Input(match error {
        KeyError::Invalid { key: "source", value, reason } => anyhow::anyhow!("{value}: {reason}"),
        KeyError::Invalid { key, value, reason } => {
            anyhow::anyhow!("{} is `{value}`; {reason}", option(key))
        }
        KeyError::Conflict {
            conflict: KeyConflict::NeededByFormat { format, key, what }, ..
        } => {
            anyhow::anyhow!("--format {format} needs {}, {what}", option(key))
        }
        KeyError::Conflict { conflict: KeyConflict::OfOtherFormat { formats }, key } => {
            anyhow::anyhow!("{} is for --format {formats} only; remove it", named(key))
        }
        KeyError::Conflict { conflict: KeyConflict::Beside { other }, key } => {
            let other = option(other);
            anyhow::anyhow!("{} stands beside {other}; keep one of them", named(key))
        }
        KeyError::Conflict { conflict, key } => anyhow::anyhow!("{} {conflict}", named(key)),
    })
}

fn named(key: Option<&str>) -> String {
    key.map_or_else(|| "the dataset".to_owned(), option)
}

pub(super) fn option(key: &str) -> String {
    format!("--{}", keys::named(key).map_or_else(|| key.to_owned(), option_name))
}

/// One of a list takes a value at a time.
fn option_name(key: &Key) -> String {
    let name = if key.is_list { key.name.trim_end_matches('s') } else { key.name };
    name.replace('_', "-")
}
