//! `tierfeed status`.

use std::{fs, path::PathBuf};

use anyhow::{Context, anyhow};
use clap::Args;
use tierfeed_core::units::{Bytes, Nanoseconds};
use tierfeed_resource_gatherer::available::{DiskSpace, NodeFree};
use tierfeed_runtime::{
    observe::{
        observed::ObservedEntry,
        status::{AvailableStatus, JobStatus, TierStatus, peer_line},
    },
    rpc::{
        call::Remedy,
        client::{Address, CallError, Client},
    },
    run_dir::{RunDir, rendezvous::Rendezvous},
};

use crate::{environment, failure::Failure, output};

#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// Prints the status as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How to reach the manager of a job.
#[derive(Debug, Clone, Args)]
pub(crate) struct Reach {
    /// Where the manager is, as HOST:PORT or unix:PATH [default: as the run directory says].
    #[arg(long, value_name = "ADDRESS", env = "TIERFEED_MANAGER")]
    pub(crate) manager: Option<Address>,
    /// The file with the token of the job [default: $TIERFEED_TOKEN, else token in the run directory].
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The run directory [default: the newest live one below .tierfeed].
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
}

impl Reach {
    /// The run directory of the options, else the newest live one; `None` if only a manager is named.
    pub(crate) fn run_dir(&self) -> Result<Option<RunDir>, Failure> {
        match (&self.manager, &self.run_dir) {
            (Some(_), None) => Ok(None),
            (_, given) => environment::running_run_dir(given.as_deref()).map(Some),
        }
    }
}

pub(crate) fn run(arguments: &Status) -> Result<(), Failure> {
    let status = super::runtime()?.block_on(async {
        let client = reach(&arguments.reach).await?;
        client.status().await.map_err(of_call)
    })?;
    if arguments.json { output::json(&status) } else { output::lines(&table(&status)) }
}

/// Connects to the manager of the options, else to that of the run directory.
pub(crate) async fn reach(arguments: &Reach) -> Result<Client, Failure> {
    let run_dir = arguments.run_dir()?;
    let token = environment::token(arguments.token_file.as_deref(), run_dir.as_ref())?;
    let address = match (&arguments.manager, &run_dir) {
        (Some(address), _) => address.clone(),
        (None, Some(run_dir)) if run_dir.manager_socket().exists() => {
            Address::Unix(run_dir.manager_socket())
        }
        (None, Some(run_dir)) if run_dir.rendezvous().exists() => {
            let met = Rendezvous::read(&run_dir.rendezvous()).map_err(Failure::input)?;
            return reach_first(met).await;
        }
        (None, Some(run_dir)) => {
            let path = run_dir.manager_address();
            let missing = || format!("{}: no manager runs here; use --manager", path.display());
            let text = fs::read_to_string(&path).with_context(missing).map_err(Failure::Input)?;
            text.trim().parse().map_err(Failure::input)?
        }
        (None, None) => return Err(Failure::Input(anyhow!("neither --manager nor --run-dir"))),
    };
    Client::connect(&address, token.as_ref()).await.map_err(of_call)
}

/// Connects to the manager of a job whose nodes meet in a run directory.
async fn reach_first(Rendezvous { addresses, token }: Rendezvous) -> Result<Client, Failure> {
    let mut missed = Failure::Input(anyhow!("the rendezvous file names no address"));
    for address in addresses {
        match Client::connect(&Address::Tcp(address), Some(&token)).await {
            Ok(client) => return Ok(client),
            Err(error) => missed = of_call(error),
        }
    }
    Err(missed)
}

pub(crate) fn of_call(error: CallError) -> Failure {
    match error.remedy() {
        Remedy::Reconfigure => Failure::input(error),
        _ => Failure::work(error),
    }
}

fn table(status: &JobStatus) -> String {
    let mut lines = vec![format!(
        "job {}: {} of {} nodes joined{}",
        status.job,
        status.joined.len(),
        status.nodes,
        if status.draining { ", draining" } else { "" }
    )];
    let done: u64 = status.joined.iter().map(|node| node.batches).sum();
    let mut line = |it: String| lines.push(it);
    line(format!("batches {done} of {}", status.batches));
    for node in &status.joined {
        line(format!(
            "node {} (generation {}): {}, {} batches, cold {} ({} of it from the page cache), stall {}, {} faults, {} chunks lent",
            node.node,
            node.generation,
            node.state.name(),
            node.batches,
            Bytes(node.cold_read_bytes),
            Bytes(node.page_cache_read_bytes),
            Nanoseconds(node.stall_ns),
            node.faults,
            node.lent_chunks,
        ));
        for TierStatus { tier, read_bytes } in &node.tiers {
            let mark = if tier.emulated { " (emulated)" } else { "" };
            let (budget, read) = (Bytes(tier.budget_bytes), Bytes(*read_bytes));
            let name = tier.name.name();
            line(format!("  {name:<14}budget {budget}, read {read}{mark}"));
        }
        node.transforms.iter().for_each(|it| line(format!("  {}", it.line())));
        node.schedule.table().lines().for_each(|row| line(format!("  {row}")));
        node.observed
            .iter()
            .flat_map(ObservedEntry::lines)
            .for_each(|row| line(format!("  {row}")));
        node.peers.iter().for_each(|peer| line(format!("  {}", peer_line(peer))));
        if let Some(available) = &node.available {
            line(format!("  left: {}", left(available)));
            for DiskSpace { path, free, total } in &available.available.disks {
                line(format!("  {}: {free} of {total} free", path.display()));
            }
        }
    }
    lines.join("\n")
}

/// One line on free resources; states its age if it is older than a few reports.
fn left(AvailableStatus { age_ns, available }: &AvailableStatus) -> String {
    const OLD: Nanoseconds = Nanoseconds(5_000_000_000);
    let mut parts = vec![format!("host {}", available.host)];
    parts.extend(available.cgroup.map(|bytes| format!("control group {bytes}")));
    for NodeFree { numa_node, free } in &available.nodes_free {
        parts.push(format!("NUMA node {} {free}", numa_node.0));
    }
    parts.extend(
        available
            .load
            .map(|load| format!("load {:.2}, {} runnable", load.one_minute, load.runnable)),
    );
    parts.extend(available.pressure.map(|pressure| {
        let (some, full) = (pressure.some_percent, pressure.full_percent);
        format!("waiting for memory {some:.2} % some, {full:.2} % all")
    }));
    let age = Nanoseconds(*age_ns);
    parts.extend((age > OLD).then(|| format!("{age} ago")));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use tierfeed_core::id::NumaNode;
    use tierfeed_resource_gatherer::available::{Available, Load, Pressure};

    use super::*;

    fn available() -> Available {
        Available {
            host: Bytes::mib(20 << 10),
            cgroup: None,
            nodes_free: vec![NodeFree { numa_node: NumaNode(3), free: Bytes::mib(512) }],
            pressure: None,
            load: None,
            disks: Vec::new(),
        }
    }

    #[test]
    fn what_is_not_known_is_not_shown() {
        let status = AvailableStatus { age_ns: 400_000_000, available: available() };
        assert_eq!(left(&status), "host 20 GiB, NUMA node 3 512 MiB");
    }

    #[test]
    fn what_is_known_has_its_unit_and_old_news_its_age() {
        let (some, full) = (Nanoseconds(1), Nanoseconds(0));
        let pressure = Pressure { some_percent: 2.5, some, full_percent: 0.0, full };
        let all = Available {
            cgroup: Some(Bytes::mib(3 << 10)),
            pressure: Some(pressure),
            load: Some(Load { one_minute: 1.5, runnable: 3 }),
            ..available()
        };
        assert_eq!(
            left(&AvailableStatus { age_ns: 12_000_000_000, available: all }),
            "host 20 GiB, control group 3 GiB, NUMA node 3 512 MiB, load 1.50, 3 runnable, \
             waiting for memory 2.50 % some, 0.00 % all, 12 s ago"
        );
    }
}
