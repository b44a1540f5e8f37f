//! `tierfeed plan --dump`: every batch of the run, one a line.
//!
//! An epoch of the order is in memory at a time, and with a policy also what lies in the tiers of one
//! node: nodes are printed one after the other then.

use std::io::{self, BufWriter, Write};

use tierfeed_core::{
    id::{BatchId, Epoch, NodeId, Rank, SampleId, Step},
    order::{EpochOrder, Spec},
    retention::replay::Replay,
    session,
};
use tierfeed_runtime::{layout::Layout, predict::Nodes};

use super::Plan;
use crate::{failure::Failure, jobs::SizedJob, output};

/// Prints the order of the whole job, or of the requested node.
pub(super) fn order(arguments: &Plan, sized: &SizedJob) -> Result<(), Failure> {
    let order = &sized.order;
    let nodes = match super::nodes(arguments, sized)? {
        Nodes::One { node } if arguments.node.is_some() => node..node + 1,
        _ => 0..order.world.nodes,
    };
    let ranks: Vec<Rank> = nodes.flat_map(|node| order.world.ranks_of(NodeId(node))).collect();
    let mut out = BufWriter::new(io::stdout().lock());
    output::written(write_order(order, &ranks, &mut out).and_then(|()| out.flush()))
}

/// Prints the reads of the requested nodes with the source of each sample.
pub(super) fn sources(arguments: &Plan, sized: &SizedJob, layout: &Layout) -> Result<(), Failure> {
    let policy = super::policy(arguments, sized)?;
    let nodes = super::nodes(arguments, sized)?;
    let settings = layout.session(sized.job(), sized.lengths(), sized.order, NodeId(0));
    let settings = session::Settings { policy, ..settings };
    let mut out = BufWriter::new(io::stdout().lock());
    let written = writeln!(out, "epoch step rank samples").and_then(|()| {
        nodes.ids().try_for_each(|node| {
            write_node(&session::Settings { node, ..settings.clone() }, &mut out)
        })
    });
    output::written(written.and_then(|()| out.flush()))
}

fn write_order(order: &Spec, ranks: &[Rank], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "epoch step rank samples")?;
    for epoch in (0..order.epochs).map(Epoch) {
        // The caller has refused orders that are not computed.
        let Some(batches) = order.epoch(epoch) else { continue };
        for step in (0..order.steps_in(epoch)).map(Step) {
            for rank in ranks {
                write_batch(&batches, BatchId { epoch, step, rank: *rank }, out)?;
            }
        }
    }
    Ok(())
}

fn write_batch(batches: &EpochOrder, batch: BatchId, out: &mut impl Write) -> io::Result<()> {
    let BatchId { epoch, step, rank } = batch;
    write!(out, "{} {} {}", epoch.0, step.0, rank.0)?;
    let mut separator = ' ';
    for sample in batches.batch(rank, step) {
        write!(out, "{separator}{}", sample.0)?;
        separator = ',';
    }
    writeln!(out)
}

fn write_node(settings: &session::Settings, out: &mut impl Write) -> io::Result<()> {
    let names: Vec<_> = settings.tiers.iter().map(|tier| tier.kind.name()).collect();
    let mut replay = Replay::new(settings.policy, &settings.policy_setting());
    loop {
        let (mut open, mut failed) = (None, None);
        let seen = replay.epoch_seen(&mut |batch, sample, tier| {
            if failed.is_none() {
                let name = tier.and_then(|tier| names.get(usize::from(tier.0)).copied());
                let place = name.unwrap_or("cold");
                failed = write_source(open.replace(batch), batch, sample, place, out).err();
            }
        });
        if seen.is_none() {
            return Ok(());
        }
        match failed {
            Some(error) => return Err(error),
            None if open.is_some() => writeln!(out)?,
            None => {}
        }
    }
}

/// Writes where a sample comes from, on the line of its batch, which begins after that of the batch `before`.
fn write_source(
    before: Option<BatchId>,
    batch: BatchId,
    sample: SampleId,
    place: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    if before == Some(batch) {
        write!(out, ",")?;
    } else {
        if before.is_some() {
            writeln!(out)?;
        }
        write!(out, "{} {} {} ", batch.epoch.0, batch.step.0, batch.rank.0)?;
    }
    write!(out, "{}:{place}", sample.0)
}
