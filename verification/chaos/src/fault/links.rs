//! Faults between hosts: packets that are dropped, links that are slow, and connections over which nothing is
//! sent.

use super::{Fault, Injection, undone_by};
use crate::{network::Pair, silent_connections::SilentConnections, supervisor::Supervisor};

pub(super) fn open_silent<'a>(at: &mut Supervisor<'a>) -> Injection<'a> {
    let mut silent = Some(SilentConnections::open(at.testbed, at.address.as_deref()));
    Ok(Some(undone_by(move |_| {
        drop(silent.take());
        Ok(())
    })))
}

pub(super) fn part_nodes<'a>(at: &mut Supervisor<'a>, fault: Fault) -> Injection<'a> {
    let (node, nodes) = (fault.node(at.testbed.world), at.testbed.world.nodes);
    let distance = 1 + u32::try_from(fault.target / u64::from(nodes) % u64::from(nodes - 1))?;
    cut(at, &[Pair::of(node, (node + distance) % nodes)])
}

/// Drops packets between a node, or the host of the manager, and all others.
pub(super) fn cut_off_host<'a>(at: &mut Supervisor<'a>, fault: Fault) -> Injection<'a> {
    let nodes = at.testbed.world.nodes;
    let host = fault.below(nodes + 1);
    let others = (0..=nodes).filter(|it| *it != host);
    cut(at, &others.map(|it| Pair::of(host, it)).collect::<Vec<_>>())
}

fn cut<'a>(at: &mut Supervisor<'a>, pairs: &[Pair]) -> Injection<'a> {
    let Ok(network) = &at.testbed.network else { return Ok(None) };
    let cut = network.cut(pairs)?;
    Ok((!cut.is_empty()).then(|| undone_by(move |_| network.join(&cut))))
}

pub(super) fn slow_link<'a>(at: &mut Supervisor<'a>, fault: Fault) -> Injection<'a> {
    let Ok(network) = &at.testbed.network else { return Ok(None) };
    let node = fault.node(at.testbed.world);
    Ok(network.slow(node)?.then(|| undone_by(move |_| network.restore_rate(node))))
}
