//! A client, and the time of its turns.

use nix::sys::resource::UsageWho;
use tierfeed_harness::clock::now;
use tierfeed_object_stores::{Access, Address, Client as Store, Identity, Options, Patience};

use super::server::Kind;
use crate::cpu_time::cpu_time;

#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub(super) wall_s: f64,
    /// In user and kernel mode.
    pub(super) cpu_s: f64,
}

pub(super) trait Client {
    fn name(&self) -> &str;

    fn prepare(&mut self, _kind: &'static Kind) -> anyhow::Result<()> {
        Ok(())
    }

    fn read_all(&mut self, kind: &'static Kind) -> anyhow::Result<Turn>;
}

pub(super) fn address(endpoint: &str, url: &str) -> Address {
    let endpoint = Some(endpoint.to_owned());
    let access = Access { endpoint, region: None, identity: Identity::Anonymous };
    Address { url: url.to_owned(), access }
}

/// A client of the object store, with the options of its library.
pub(super) fn store(endpoint: &str, url: &str, patience: &Patience) -> anyhow::Result<Store> {
    Ok(Store::open(&address(endpoint, url), &Options::default(), patience)?)
}

/// Measures time and CPU time of this process.
pub(super) fn timed(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Turn> {
    measured(UsageWho::RUSAGE_SELF, work)
}

/// Measures time, and CPU time of the processes that `who` names, while `work` runs.
pub(super) fn measured(
    who: UsageWho,
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Turn> {
    let (began, before) = (now(), cpu_time(who)?);
    work()?;
    Ok(Turn {
        wall_s: began.elapsed().as_secs_f64(),
        cpu_s: cpu_time(who)?.saturating_sub(before).as_secs_f64(),
    })
}
