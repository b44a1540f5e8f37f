//! `tierfeed status`.

use std::{fmt::Write as _, fs};

use anyhow::{Context, anyhow};
use tierfeed_core::units::{Bytes, Nanoseconds};
use tierfeed_runtime::{
    client::{Address, CallError, Client},
    wire::{JobStatus, Remedy},
};

use crate::{
    arguments::{Reach, Status},
    environment,
    failure::Failure,
    output,
};

pub(crate) fn run(arguments: &Status) -> Result<(), Failure> {
    let status = super::runtime()?.block_on(async {
        let mut client = reach(&arguments.reach).await?;
        client.status().await.map_err(of_call)
    })?;
    if arguments.json { output::json(&status) } else { output::lines(&table(&status)) }
}

/// Calls the manager that the options, or else the run directory, lead to.
pub(crate) async fn reach(arguments: &Reach) -> Result<Client, Failure> {
    let run_dir = match (&arguments.manager, &arguments.run_dir) {
        (Some(_), None) => None,
        (_, given) => Some(environment::running_run_dir(given.as_deref())?),
    };
    let token = environment::token(arguments.token_file.as_deref(), run_dir.as_ref())?;
    let address = match (&arguments.manager, &run_dir) {
        (Some(address), _) => address.clone(),
        (None, Some(run_dir)) if run_dir.manager_socket().exists() => {
            Address::Unix(run_dir.manager_socket())
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

pub(crate) fn of_call(error: CallError) -> Failure {
    match error.remedy() {
        Remedy::Reconfigure => Failure::input(error),
        _ => Failure::work(error),
    }
}

fn table(status: &JobStatus) -> String {
    let mut text = format!(
        "job {}: {} of {} nodes joined{}\n",
        status.job,
        status.joined.len(),
        status.nodes,
        if status.draining { ", draining" } else { "" }
    );
    let done: u64 = status.joined.iter().map(|node| node.batches).sum();
    let mut line = |it: String| writeln!(text, "{it}").expect("writing to a string cannot fail");
    line(format!("batches {done} of {}", status.batches));
    for node in &status.joined {
        line(format!(
            "node {} (generation {}): {}, {} batches, cold {}, stall {}, {} faults, {} chunks lent",
            node.node,
            node.generation,
            node.state,
            node.batches,
            Bytes(node.cold_read_bytes),
            Nanoseconds(node.stall_ns),
            node.faults,
            node.lent_chunks,
        ));
        for tier in &node.tiers {
            let mark = if tier.emulated { " (emulated)" } else { "" };
            let (budget, read) = (Bytes(tier.budget_bytes), Bytes(tier.read_bytes));
            line(format!("  {:<14}budget {budget}, read {read}{mark}", tier.name));
        }
    }
    text
}
