//! A trainer that computes nothing: takes every batch of its rank in order and looks at each sample.

use std::{collections::VecDeque, path::Path, time::Duration};

use anyhow::{Context as _, bail};
use tierfeed_core::{
    id::{BatchId, Epoch, Rank, Step},
    units::{Bytes, Nanoseconds},
};
use tierfeed_prefetcher::handoff::{Client, Explained, Hello, Reply, Role};

/// An agent that lives answers sooner.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads the whole job of one rank from the agent at `socket`.
///
/// # Errors
///
/// If the agent cannot be reached, dies, or refuses a batch: nothing here reads past it.
pub fn read_all(socket: &Path, rank: Rank) -> anyhow::Result<()> {
    let client = Client::connect(socket, Hello { rank, role: Role::Trainer }, PATIENCE)?;
    let (order, ahead) = (client.briefing().order, client.briefing().batches_ahead as usize);
    let mut next = Some(BatchId { epoch: Epoch(0), step: Step(0), rank });
    let mut asked = VecDeque::new();
    loop {
        while asked.len() < ahead
            && let Some(batch) = next
        {
            client.request(batch)?;
            asked.push_back(batch);
            next = order.after(batch);
        }
        let Some(expected) = asked.pop_front() else { return Ok(()) };
        let leased = match client.next(PATIENCE)? {
            Reply::Batch(leased) => leased,
            Reply::Refused { batch, refusal } => bail!("{batch:?}: {}", Explained(refusal)),
        };
        if leased.id != expected {
            bail!("{:?} came instead of {expected:?}", leased.id);
        }
        client.deliver(leased.lease, Nanoseconds(0))?;
        for row in &leased.rows {
            let len = row.len.with_context(|| format!("sample {} is missing", row.sample.0))?;
            let mut first = [0; 1];
            if len.0 > 0 {
                leased.arena.read(Bytes(leased.offset.0 + row.offset.0), &mut first)?;
            }
        }
        client.release(leased.lease)?;
    }
}
