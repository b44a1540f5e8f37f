//! Writes every read of a plan with peers and its source: a line for each batch, one batch in memory at a time.

use std::io::{self, Write};

use tierfeed_core::{
    fleet::peers::{Cluster, Served, SettingError},
    id::{BatchId, SampleId},
    session::Settings,
};

use super::setting;

/// Why a plan could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// The job is too large to be planned.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The output cannot be written.
    #[error("cannot write the plan")]
    Write(#[source] io::Error),
}

/// Writes `epoch step rank sample:place,…`, where the place is a tier of the node that reads, `node-`
/// and the number of another, or `cold`.
///
/// # Errors
///
/// [`DumpError`]
pub fn dump(settings: &Settings, out: &mut impl Write) -> Result<(), DumpError> {
    let mut cluster = Cluster::try_new(setting(settings))?;
    let kinds: Vec<_> = settings.tiers.iter().map(|tier| tier.kind.name()).collect();
    writeln!(out, "epoch step rank samples").map_err(DumpError::Write)?;
    let mut lines = Lines { out, kinds: &kinds, batch: None, failure: None };
    while lines.failure.is_none() {
        let planned = cluster.epoch_seen(&mut |batch, sample, served| {
            // The plan cannot stop within an epoch; after a failure the rest is computed and not written.
            if lines.failure.is_none() {
                lines.failure = lines.read(batch, sample, served).err();
            }
        });
        if planned.is_none() {
            break;
        }
    }
    match lines.failure.take() {
        Some(failure) => Err(DumpError::Write(failure)),
        None => lines.end().map_err(DumpError::Write),
    }
}

struct Lines<'a, W> {
    out: &'a mut W,
    kinds: &'a [&'static str],
    /// The batch of the line that is not ended.
    batch: Option<BatchId>,
    failure: Option<io::Error>,
}

impl<W: Write> Lines<'_, W> {
    fn read(&mut self, batch: BatchId, sample: SampleId, served: Served) -> io::Result<()> {
        if self.batch == Some(batch) {
            write!(self.out, ",")?;
        } else {
            self.end()?;
            write!(self.out, "{} {} {} ", batch.epoch.0, batch.step.0, batch.rank.0)?;
            self.batch = Some(batch);
        }
        match served {
            Served::Tier(tier) => {
                write!(self.out, "{}:{}", sample.0, self.kinds[usize::from(tier.0)])
            }
            Served::Peer(peer) => write!(self.out, "{}:node-{}", sample.0, peer.0),
            Served::Cold => write!(self.out, "{}:cold", sample.0),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        if self.batch.take().is_some() { writeln!(self.out) } else { Ok(()) }
    }
}
