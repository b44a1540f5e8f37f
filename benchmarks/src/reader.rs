//! A training whose steps take a given time and no CPU, as on an accelerator: all ranks of a node in
//! lock-step, in one process.
//!
//! Lock-step is what data-parallel training does, and what the simulator assumes: no rank takes a batch
//! before all have taken the one before.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use tierfeed_core::{
    id::{BatchId, Epoch, Rank, Step},
    session::Wait,
};
use tierfeed_handoff::{Client, Explained, Hello, LeasedBatch, Reply, Role, monotonic_now};

/// An agent that lives answers sooner.
const PATIENCE: Duration = Duration::from_secs(60);

/// One rank with its requests.
struct Seat {
    client: Client,
    /// The batch to ask for next.
    next: Option<BatchId>,
}

/// Reads the whole job of a one-node world from the agent at `socket`, and returns how long each epoch
/// took, steps of `step` included.
///
/// # Errors
///
/// If the agent cannot be reached, dies, or refuses a batch: nothing here reads past it.
pub fn read_all(socket: &Path, step: Duration) -> anyhow::Result<Vec<Duration>> {
    let mut seats = vec![Seat::take(socket, Rank(0))?];
    let order = seats[0].client.briefing().order;
    for rank in 1..order.world.ranks() {
        seats.push(Seat::take(socket, Rank(rank))?);
    }
    let first = BatchId { epoch: Epoch(0), step: Step(0), rank: Rank(0) };
    let (mut ends, mut start) = (Vec::new(), now());
    for batch in std::iter::successors(Some(first), |batch| order.after(*batch)) {
        let mut leased = Vec::new();
        for seat in &mut seats {
            leased.push(seat.batch(batch)?);
        }
        compute(step);
        for (seat, batch) in seats.iter_mut().zip(leased) {
            seat.client.release(batch.lease)?;
            seat.ask()?;
        }
        if order.after(batch).is_none_or(|next| next.epoch > batch.epoch) {
            let end = now();
            ends.push(end - start);
            start = end;
        }
    }
    Ok(ends)
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the CPU is idle while an accelerator computes")]
fn compute(step: Duration) {
    if !step.is_zero() {
        std::thread::sleep(step);
    }
}

impl Seat {
    fn take(socket: &Path, rank: Rank) -> anyhow::Result<Self> {
        let client = Client::connect(socket, &Hello::of_rank(rank, Role::Trainer), PATIENCE)?;
        let next = Some(BatchId { epoch: Epoch(0), step: Step(0), rank });
        let ahead = client.briefing().batches_ahead;
        let mut seat = Self { client, next };
        for _ in 0..ahead {
            seat.ask()?;
        }
        Ok(seat)
    }

    fn ask(&mut self) -> anyhow::Result<()> {
        if let Some(batch) = self.next {
            self.client.request(batch)?;
            self.next = self.client.briefing().order.after(batch);
        }
        Ok(())
    }

    /// The batch of this rank at the step that `batch` is of, with a look at every sample.
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
