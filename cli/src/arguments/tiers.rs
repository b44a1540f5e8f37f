//! Arguments of `tierfeed tiers`.

#![expect(
    clippy::doc_markdown,
    reason = "these comments are printed in terminals, without Markdown"
)]

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tierfeed_core::units::Bytes;

#[derive(Debug, Subcommand)]
pub(crate) enum Tiers {
    /// Measures, and writes the report that other commands read.
    Probe(Probe),
    /// Shows the last report.
    Show(Show),
}

#[derive(Debug, Args)]
pub(crate) struct Probe {
    /// Takes seconds instead of minutes; figures have wider margins.
    #[arg(long)]
    pub(crate) quick: bool,
    /// A job file: its directories are measured too, its NUMA nodes make the tiers that it names, and its
    /// emulated tiers are listed.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A directory on a RAM disk; may be given several times [default: the job's, else /dev/shm].
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch: Vec<PathBuf>,
    /// A directory on storage; may be given several times [default: the job's, else /var/tmp or /tmp].
    #[arg(long, value_name = "DIR")]
    pub(crate) storage: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) buckets: Buckets,
    /// Sorts the tiers without regard to the last report, which else keeps them from changing for a
    /// difference that is not clear.
    #[arg(long)]
    pub(crate) fresh: bool,
    /// The root of a tree with /proc and /sys of another machine, which is described and not measured. It needs
    /// --output, because the report is not that of this machine.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) sysroot: PathBuf,
    /// Where the report goes [default: tierfeed/tiers.json in the user's directory for state].
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Prints the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which buckets a probe measures.
#[derive(Debug, Args)]
pub(crate) struct Buckets {
    /// A bucket, as s3://BUCKET/PREFIX, gs://, az://, or the URL of an object on a web server; may be given
    /// several times. Credentials come from the variables of the provider, such as AWS_ACCESS_KEY_ID.
    #[arg(long, value_name = "URL")]
    pub(crate) object: Vec<String>,
    /// Reads buckets without credentials.
    #[arg(long, requires = "object")]
    pub(crate) anonymous: bool,
    /// How much may be written to a bucket that holds nothing to read, such as "256 MiB", and is removed
    /// again [default: nothing].
    #[arg(long, value_name = "SIZE", requires = "object")]
    pub(crate) object_writes: Option<Bytes>,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Which report [default: the last].
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Prints the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Prints the JSON schema of reports.
    #[arg(long, conflicts_with_all = ["report", "json"])]
    pub(crate) schema: bool,
}
