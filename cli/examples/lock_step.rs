//! A training of all ranks of a node in one process: no rank takes a batch before all have taken the one before.
//!
//! Usage: `lock_step STEP_US [EVERY PAUSE_US]`, started by `tierfeed run --launch once`. After every EVERY
//! steps it does something else for `PAUSE_US`.

use std::{env, iter, path::PathBuf, thread, time::Duration};

use anyhow::{Context, bail};
use tierfeed_core::{
    id::{BatchId, Epoch, Rank, Step},
    session::Wait,
};
use tierfeed_handoff::{Client, Explained, Hello, LeasedBatch, Reply, Role, monotonic_now};

/// A running agent answers within this time.
const PATIENCE: Duration = Duration::from_secs(60);

struct Trainer {
    client: Client,
    next: Option<BatchId>,
}

impl Trainer {
    fn request(&mut self) -> anyhow::Result<()> {
        if let Some(batch) = self.next {
            self.client.request(batch)?;
            self.next = self.client.briefing().order.after(batch);
        }
        Ok(())
    }

    fn take(&self) -> anyhow::Result<LeasedBatch> {
        let since = monotonic_now();
        let leased = match self.client.next(PATIENCE)? {
            Reply::Batch(leased) => leased,
            Reply::Refused { batch, refusal } => bail!("{batch:?}: {}", Explained(refusal)),
        };
        self.client.deliver(leased.lease, Wait { since, until: monotonic_now() })?;
        Ok(leased)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the run names its socket in the environment; steps take time"
)]
fn main() -> anyhow::Result<()> {
    let arguments: Vec<u64> = env::args().skip(1).map(|it| it.parse()).collect::<Result<_, _>>()?;
    let step_us = *arguments.first().context("STEP_US is missing")?;
    let (every, pause_us) = match arguments[1..] {
        [every, pause_us] => (every, pause_us),
        _ => (u64::MAX, 0),
    };
    let socket = PathBuf::from(env::var("TIERFEED_SOCK").context("TIERFEED_SOCK")?);
    let first = |rank| BatchId { epoch: Epoch(0), step: Step(0), rank: Rank(rank) };
    let connect = |rank| {
        let hello = Hello::of_rank(Rank(rank), Role::Trainer);
        let client = Client::connect(&socket, &hello, PATIENCE)?;
        anyhow::Ok(Trainer { client, next: Some(first(rank)) })
    };
    let mut trainers = vec![connect(0)?];
    let order = trainers[0].client.briefing().order;
    for rank in 1..order.world.ranks() {
        trainers.push(connect(rank)?);
    }
    for trainer in &mut trainers {
        for _ in 0..trainer.client.briefing().batches_ahead {
            trainer.request()?;
        }
    }
    let steps = iter::successors(Some(first(0)), |batch| order.after(*batch)).zip(1..);
    for (_, number) in steps {
        let leased: Vec<_> = trainers.iter().map(Trainer::take).collect::<Result<_, _>>()?;
        let pause_us = if u64::is_multiple_of(number, every) { pause_us } else { 0 };
        thread::sleep(Duration::from_micros(step_us + pause_us));
        for (trainer, batch) in trainers.iter_mut().zip(leased) {
            trainer.client.release(batch.lease)?;
            trainer.request()?;
        }
    }
    Ok(())
}
