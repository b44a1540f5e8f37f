//! What a client does in its turn, and what the turn takes.

use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use tierfeed_object_stores::{Address, Client as Store, Identity, Options, Patience};

use super::server::Kind;

/// How long a client took for all objects of a kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub(super) wall_s: f64,
    /// Of the client, in user and kernel.
    pub(super) cpu_s: f64,
}

/// What reads objects.
pub(super) trait Client {
    fn name(&self) -> &str;

    /// Takes what it needs for a kind.
    fn prepare(&mut self, _kind: &'static Kind) -> anyhow::Result<()> {
        Ok(())
    }

    /// Reads all objects of a kind.
    fn read_all(&mut self, kind: &'static Kind) -> anyhow::Result<Turn>;
}

/// A client for the place of a kind, as libraries come.
pub(super) fn store(endpoint: &str, url: &str, patience: &Patience) -> anyhow::Result<Store> {
    let address = Address {
        url: url.to_owned(),
        endpoint: Some(endpoint.to_owned()),
        region: None,
        identity: Identity::Anonymous,
    };
    Ok(Store::open(&address, &Options::default(), patience)?)
}

/// Measures what this process does.
pub(super) fn timed(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Turn> {
    measured(UsageWho::RUSAGE_SELF, work)
}

/// Measures what processes do while `work` goes on.
#[expect(clippy::disallowed_methods, reason = "an experiment measures time")]
pub(super) fn measured(
    who: UsageWho,
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Turn> {
    let (began, before) = (Instant::now(), cpu_s(who)?);
    work()?;
    Ok(Turn { wall_s: began.elapsed().as_secs_f64(), cpu_s: cpu_s(who)? - before })
}

#[expect(clippy::cast_precision_loss, reason = "a benchmark takes less than 2^53 seconds")]
fn cpu_s(who: UsageWho) -> anyhow::Result<f64> {
    let usage = getrusage(who)?;
    let times = [usage.user_time(), usage.system_time()];
    Ok(times.iter().map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6).sum())
}
