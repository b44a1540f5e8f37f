//! The cost of the requests of a run, by `tierfeed plan --cost`.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// The prices with which the most cells of DELI's Table II come out: the paper gives those of requests only.
///
/// `vm`: an n1-standard-2 (0.095) with a K80 (0.45). `class_b`: the list price; the text of the paper says 0.002.
/// `system_disk` is chosen to fit.
const PRICES: &str = "\
vm: 0.545 $/h
disk: 0.04 $/GB/month
store: 0.02 $/GB/month
class_a: 0.05 $/10k
class_b: 0.004 $/10k
list_page: 1000
system_disk: 16.07 GB
storage_charged: started-months
";

#[derive(Debug, Clone, Copy)]
pub(super) struct Requests {
    /// If every sample is read when it is needed.
    pub(super) direct: f64,
    /// As planned by tierfeed.
    pub(super) planned: f64,
}

#[derive(Debug, Deserialize)]
struct Bill {
    charges: Vec<Charge>,
}

#[derive(Debug, Deserialize)]
struct Charge {
    way: String,
    api_usd: f64,
}

pub(super) fn requests(tierfeed: &Path, run_dir: &Path) -> anyhow::Result<Requests> {
    let prices = run_dir.join("prices.yaml");
    fs::write(&prices, PRICES)?;
    let mut plan = Command::new(tierfeed);
    plan.arg("plan").arg(run_dir.join("job.yaml")).arg("--json").arg("--cost").arg(&prices);
    let output = plan.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`tierfeed plan --cost` failed: {said}");
    let bill: Bill = serde_json::from_slice(&output.stdout).context("the bill has another form")?;
    let of = |way: &str| {
        let charge = bill.charges.iter().find(|it| it.way == way);
        charge.map(|it| it.api_usd).with_context(|| format!("the bill has no way {way}"))
    };
    Ok(Requests { direct: of("direct")?, planned: of("planned")? })
}
