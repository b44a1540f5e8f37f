//! A training whose steps take a given time and no CPU, as on an accelerator: all ranks in lock-step, in one
//! process.
//!
//! Lock-step is what data-parallel training does, and what the simulator assumes: no rank takes a batch
//! before all have taken the one before.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Args;
use tierfeed_core::{
    id::{BatchId, Epoch, Rank, Step},
    session::Wait,
    units::Nanoseconds,
};
use tierfeed_handoff::{Client, Explained, Hello, LeasedBatch, Reply, Role, monotonic_now};
use tierfeed_harness::{
    clock::{now, pause},
    environment,
    failure::Failure,
};

/// A running agent answers within this time.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// How long a step takes.
    #[arg(long, value_name = "TIME", default_value = "0 s")]
    pub(crate) step: Nanoseconds,
    /// Pauses after so many steps.
    #[arg(long, value_name = "STEPS")]
    pub(crate) pause_every: Option<u64>,
    /// How long a pause is.
    #[arg(long, value_name = "TIME", default_value = "0 s")]
    pub(crate) pause: Nanoseconds,
    /// Gets the seconds of each epoch, as a list in JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
}

impl Settings {
    /// # Errors
    ///
    /// [`Failure::Input`] outside of a run, and those of [`read_all`].
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let socket = environment::required(environment::SOCKET)?;
        let epochs = read_all(&[socket.into()], |number| self.step(number))?;
        let Some(file) = &self.record else { return Ok(()) };
        let seconds: Vec<f64> = epochs.iter().map(Duration::as_secs_f64).collect();
        let text = serde_json::to_string(&seconds).context("times are numbers")?;
        Ok(fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?)
    }

    /// The time of a step with the pause after it.
    fn step(&self, number: u64) -> Duration {
        let is_last = self.pause_every.is_some_and(|every| number.is_multiple_of(every));
        let pause_ns = if is_last { self.pause.0 } else { 0 };
        Duration::from_nanos(self.step.0 + pause_ns)
    }
}

struct RankClient {
    client: Client,
    next: Option<BatchId>,
}

/// Reads the whole job from the agents at `sockets`, one for each node, and returns the time of each epoch,
/// including the computing of its steps; `step` gives the time of a step by its number, from 1.
///
/// # Errors
///
/// If the agent cannot be reached, dies, or refuses a batch: the cold store is not read here.
pub(crate) fn read_all(
    sockets: &[PathBuf],
    step: impl Fn(u64) -> Duration,
) -> anyhow::Result<Vec<Duration>> {
    let first = sockets.first().context("there is no agent")?;
    let mut clients = vec![RankClient::take(first, Rank(0))?];
    let order = clients[0].client.briefing().order;
    for rank in 1..order.world.ranks() {
        let node = rank / order.world.ranks_per_node;
        let socket = sockets.get(node as usize).context("a node has no agent")?;
        clients.push(RankClient::take(socket, Rank(rank))?);
    }
    let first = BatchId { epoch: Epoch(0), step: Step(0), rank: Rank(0) };
    let (mut ends, mut start) = (Vec::new(), now());
    let batches = std::iter::successors(Some(first), |batch| order.after(*batch));
    for (batch, number) in batches.zip(1..) {
        let mut leased = Vec::new();
        for client in &mut clients {
            leased.push(client.batch(batch)?);
        }
        compute(step(number));
        for (client, batch) in clients.iter_mut().zip(leased) {
            client.client.release(batch.lease)?;
            client.ask()?;
        }
        if order.after(batch).is_none_or(|next| next.epoch > batch.epoch) {
            let end = now();
            ends.push(end - start);
            start = end;
        }
    }
    Ok(ends)
}

/// Waits as long as an accelerator computes; the CPU is idle meanwhile.
fn compute(step: Duration) {
    if !step.is_zero() {
        pause(step);
    }
}

impl RankClient {
    fn take(socket: &Path, rank: Rank) -> anyhow::Result<Self> {
        let client = Client::connect(socket, &Hello::of_rank(rank, Role::Trainer), PATIENCE)?;
        let next = Some(BatchId { epoch: Epoch(0), step: Step(0), rank });
        let ahead = client.briefing().batches_ahead;
        let mut client = Self { client, next };
        for _ in 0..ahead {
            client.ask()?;
        }
        Ok(client)
    }

    fn ask(&mut self) -> anyhow::Result<()> {
        if let Some(batch) = self.next {
            self.client.request(batch)?;
            self.next = self.client.briefing().order.after(batch);
        }
        Ok(())
    }

    /// Waits for the batch of this rank at the step of `batch`, and reads a byte of every sample.
    fn batch(&self, batch: BatchId) -> anyhow::Result<LeasedBatch> {
        let since = monotonic_now();
        let leased = match self.client.next(PATIENCE)? {
            Reply::Batch(leased) => leased,
            Reply::Refused { batch, refusal } => bail!("{batch:?}: {}", Explained(refusal)),
        };
        if (leased.id.epoch, leased.id.step) != (batch.epoch, batch.step) {
            bail!("{:?} came at the step of {batch:?}", leased.id);
        }
        self.client.deliver(leased.lease, Wait { since, until: monotonic_now() })?;
        for row in &leased.rows {
            let len = row.len.with_context(|| format!("sample {} is missing", row.sample.0))?;
            let mut first = [0; 1];
            if len.0 > 0 {
                leased.read(row, &mut first)?;
            }
        }
        Ok(leased)
    }
}
