//! `tierfeed plan --dump`: every batch of the run, one a line, an epoch of the order in memory at a time.

use std::io::{self, BufWriter, Write};

use anyhow::Context;
use tierfeed_core::{
    id::{Epoch, NodeId, Step},
    order::{EpochOrder, Spec},
};

use crate::failure::Failure;

/// Prints until the run ends or the reader has seen enough.
pub(super) fn dump(order: &Spec) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = batches(order, &mut out).and_then(|()| out.flush());
    ended(written)
}

/// A reader that closes its pipe, as `head` does, wants no more: that is no failure.
fn ended(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output").map_err(Failure::Work),
    }
}

fn batches(order: &Spec, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "epoch step rank samples")?;
    for epoch in 0..order.epochs {
        // Whoever calls has refused orders that are not computed.
        let Some(batches) = order.epoch(Epoch(epoch)) else { continue };
        write_epoch(order, Epoch(epoch), &batches, out)?;
    }
    Ok(())
}

fn write_epoch(
    order: &Spec,
    epoch: Epoch,
    batches: &EpochOrder,
    out: &mut impl Write,
) -> io::Result<()> {
    for step in 0..order.steps_in(epoch) {
        for rank in (0..order.world.nodes).flat_map(|it| order.world.ranks_of(NodeId(it))) {
            write!(out, "{} {step} {}", epoch.0, rank.0)?;
            let mut separator = ' ';
            for sample in batches.batch(rank, Step(step)) {
                write!(out, "{separator}{}", sample.0)?;
                separator = ',';
            }
            writeln!(out)?;
        }
    }
    Ok(())
}
